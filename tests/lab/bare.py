"""Decides what of the machine's files a host does not see: on a bare one, pip and all Pythons but Debian's own."""

from __future__ import annotations

import configparser
import functools
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlparse

from tests.lab.blueprint import Masks
from tests.lab.commands import ENVIRONMENT

_CHECKOUT = Path(__file__).parents[2]
_KEPT = {"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "var"}
"""What a bare host keeps of the machine's root: the distribution."""
_EMPTIED = {"root", "home", "opt", "srv", "mnt", "media", "boot"}
_MOUNTED = {"proc", "sys", "dev", "run", "tmp"}
_PACKAGING = ("pip", "pip[0-9]*", "pip-*.dist-info", "ensurepip", "site-packages", "*.whl")
_TOOLS = ("conda", "pipx", "poetry", "pyenv", "uv", "uvx", "virtualenv")
_STARTUP_FILES = (
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".profile",
    ".zshenv",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".config/fish",
)
"""Of root's shells here. What they start may wait for a lock that was held while a host was made, and is never let go
there: pyenv does so for a minute."""
_PREFIX_VARIABLES = ("VIRTUAL_ENV", "PYENV_ROOT", "CONDA_PREFIX", "UV_CACHE_DIR")
_PIP_OPTIONS = ("find-links", "index-url", "extra-index-url", "cache-dir")


def masks(*, bare: bool) -> Masks:
    """Return what a host does not see."""
    emptied = ["/root/.ssh", "/var/tmp"]
    hidden = [str(path) for path in Path("/etc/ssh").glob("ssh_host_*")]
    hidden += [f"/root/{name}" for name in _STARTUP_FILES]
    if bare:
        names = {entry.name for entry in Path("/").iterdir()}
        emptied += [f"/{name}" for name in sorted(names & _EMPTIED)]
        emptied += ["/usr/local", "/var/cache", "/usr/lib/python3/dist-packages"]
        hidden += [f"/{name}" for name in sorted(names - _KEPT - _EMPTIED - _MOUNTED)]
        hidden += [*_packaging(), *_tools(), *_pip_configuration(), str(_CHECKOUT)]
        hidden += [sys.prefix, sys.base_prefix]
        hidden += [os.environ[name] for name in _PREFIX_VARIABLES if name in os.environ]
    resolved = {os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)) for path in hidden}
    return Masks(tuple(emptied), tuple(sorted(resolved - {*emptied, "/", "/usr"})))


@functools.cache
def _packaging() -> tuple[str, ...]:
    """Find every pip, every wheel and every virtual environment in what a bare host keeps of the machine."""
    names = [word for name in _PACKAGING for word in ("-o", "-name", name)][1:]
    search = ["-xdev", "-path", "/usr/local", "-prune", "-o", "-name", "pyvenv.cfg", "-printf", "%h\\n"]
    found = subprocess.run(
        ["find", "/usr", "/etc", "/var", *search, "-o", "(", *names, ")", "-prune", "-print"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=60,
        check=False,  # a file may vanish while find looks at it
    )
    return tuple(found.stdout.splitlines())


def _tools() -> list[str]:
    """Return the programs of the distribution that make environments, and its Pythons other than `python3`."""
    kept = {"python3", os.path.basename(os.path.realpath("/usr/bin/python3"))}
    programs = (entry.name for entry in Path("/usr/bin").iterdir())
    return [
        f"/usr/bin/{name}"
        for name in programs
        if name in _TOOLS or (re.fullmatch(r"(python|pypy)[\d.]*", name) and name not in kept)
    ]


def _pip_configuration() -> list[str]:
    """Return pip's configuration files and every local directory that they, or its variables, name."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    files = [
        Path("/etc/pip.conf"),
        Path("/etc/xdg/pip/pip.conf"),
        home / ".pip/pip.conf",
        home / ".config/pip/pip.conf",
    ]
    files += [Path(prefix) / "pip.conf" for prefix in (sys.prefix, sys.base_prefix)]
    if "PIP_CONFIG_FILE" in os.environ:
        files.append(Path(os.environ["PIP_CONFIG_FILE"]))
    places = _places({key: os.environ.get("PIP_" + key.upper().replace("-", "_"), "") for key in _PIP_OPTIONS})
    for file in files:
        parser = configparser.RawConfigParser()
        parser.read(file)
        for section in parser.sections():
            places += _places(dict(parser.items(section)))
    return [*map(str, files), *places]


def _places(options: Mapping[str, str]) -> list[str]:
    """Return the directories of this machine that pip's options name."""
    words: Iterable[str] = (word for key in _PIP_OPTIONS for word in options.get(key, "").split())
    urls = (urlparse(word) for word in words)
    return [unquote(url.path) for url in urls if url.scheme in ("", "file") and url.path.startswith("/")]
