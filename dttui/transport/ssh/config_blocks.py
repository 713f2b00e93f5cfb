"""Tells which hosts an ssh configuration treats alike, so that `ssh -G` need not be asked for each of them."""

from __future__ import annotations

import glob
import ipaddress
import os
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dttui.transport.ssh.known_hosts import matches

SYSTEM_FILE = Path("/etc/ssh/ssh_config")
MAX_INCLUDE_DEPTH = 16
Likeness = tuple[bool, ...]

_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


class _CannotTellError(Exception):
    """The configuration says something whose meaning for a host only ssh knows."""


class ConfigBlocks:
    """The conditions of a configuration, read once."""

    def __init__(self, config_file: Path | None) -> None:
        """Read `config_file`, or else the user's file and the system's. Blocking; never raises."""
        self._blocks: tuple[tuple[str, ...], ...] | None = None
        try:
            home = Path(pwd.getpwuid(os.getuid()).pw_dir, ".ssh")  # As ssh does, which does not look at $HOME.
            files = [(config_file, home)] if config_file else [(home / "config", home), (SYSTEM_FILE, Path("/etc/ssh"))]
            found = [block for path, base in files for block in _blocks(path, base, MAX_INCLUDE_DEPTH)]
            self._blocks = tuple(dict.fromkeys(found))
        except (_CannotTellError, OSError, KeyError):
            pass

    def likeness(self, host: str) -> Likeness | None:
        """Return what hosts that are treated alike have in common; `None` where only ssh can tell."""
        if self._blocks is None or not _is_plain(host):
            return None
        return tuple(
            matches(tuple(pattern.lower() for pattern in block) if lower else block, host)
            for block in self._blocks
            for lower in (False, True)
        )


def transferable(options: Mapping[str, Sequence[str]], host: str) -> bool:
    """Whether what `ssh -G` said of one host holds for those alike, but for `host` and `hostname`, their names."""
    if list(options.get("hostname", ())) != [host] or options.get("canonicalizehostname", ["no"])[0] not in _NO:
        return False
    return not any(
        host in value.lower()
        for keyword, values in options.items()
        if keyword not in {"host", "hostname", "controlpath"}
        for value in values
    )


_NO = {"no", "false", "none"}


def _is_plain(host: str) -> bool:
    """Whether it is a name or an IPv4 address that ssh takes as it stands."""
    if not _PLAIN_NAME.fullmatch(host):
        return False
    try:
        return bool(ipaddress.IPv4Address(host))
    except ValueError:
        return re.fullmatch(r"\d+|0x[0-9a-f]*", host.rpartition(".")[2]) is None


def _blocks(path: Path, base: Path, depth: int) -> Iterator[tuple[str, ...]]:
    """Yield the patterns of each Host line of a file and of what it includes, under whatever condition."""
    if depth == 0:
        raise _CannotTellError
    try:
        lines = path.read_text("utf-8", "surrogateescape").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return
    for line in lines:
        match = re.match(r"\s*([A-Za-z]+)(?:\s*=\s*|\s+)(.*)", line)
        if match is None:
            continue
        keyword, rest = match[1].lower(), match[2].strip()
        if keyword == "match" and rest.lower() != "all":
            raise _CannotTellError
        if "%C" in rest and keyword != "controlpath":
            raise _CannotTellError  # ssh puts a hash of the host's name there.
        if keyword not in {"host", "include"}:
            continue
        if set(rest) & set("\"'\\#%$"):
            raise _CannotTellError
        words = rest.split()
        if keyword == "host":
            yield tuple(words)
            continue
        for included in (path for word in words for path in _included(word, base)):
            yield from _blocks(included, base, depth - 1)


def _included(word: str, base: Path) -> list[Path]:
    """Return the files that a word behind Include stands for."""
    if word.startswith("~") and not word.startswith("~/"):
        raise _CannotTellError
    wanted = base / (str(base.parent / word[2:]) if word.startswith("~/") else word)
    return [Path(file) for file in sorted(glob.glob(str(wanted)))]
