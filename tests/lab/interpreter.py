"""The user's own interpreter, which every host has at one path: a virtual environment of the machine, read-only."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.lab.blueprint import Tree
from tests.lab.commands import LabError

USER_PREFIX = "/opt/train"
"""Where a host has the user's own interpreter."""

USER_PYTHON = f"{USER_PREFIX}/bin/python"
"""The interpreter itself."""

_INSTALLERS = ("pip", "uv", "virtualenv")
_TRANSIENT = ("/tmp", "/var/tmp", "/run", "/dev", "/root/.ssh")
"""Directories of which no host sees the machine's."""


def interpreter_trees(prefix: Path, *, bare: bool) -> tuple[Tree, ...]:
    """Return the trees by which a host sees the interpreter of `prefix`; on a bare one its pip is hidden."""
    python = prefix / "bin/python"
    if not os.access(python, os.X_OK):
        raise LabError(f"{prefix} has no bin/python; make a virtual environment there")
    executable = python.resolve()
    base = executable.parent.parent
    # /usr is on every host, and an interpreter inside the prefix needs no other.
    borrowed = base != Path("/usr") and base != prefix.resolve()
    trees = []
    if bare:
        if borrowed:
            trees.append(Tree(_nameable(base), str(base), hidden=_all_but(base, executable)))
        links = tuple((f"bin/{name}", str(executable)) for name in _names(prefix, r"python[\d.]*")) if borrowed else ()
        trees.append(Tree(_nameable(prefix.resolve()), USER_PREFIX, hidden=_pip(prefix), links=links))
    else:
        if borrowed and str(base).startswith(tuple(f"{directory}/" for directory in _TRANSIENT)):
            trees.append(Tree(str(base), str(base)))
        trees.append(Tree(str(prefix.resolve()), USER_PREFIX))
    return tuple(trees)


def _names(prefix: Path, pattern: str) -> list[str]:
    return sorted(entry.name for entry in (prefix / "bin").iterdir() if re.fullmatch(pattern, entry.name))


def _all_but(base: Path, executable: Path) -> tuple[str, ...]:
    """What is hidden of a base interpreter, which lends its standard library: its programs and its packages."""
    programs = [f"bin/{name}" for name in _names(base, ".*") if name != executable.name]
    packages = [
        str((library / name).relative_to(base))
        for library in (base / "lib").glob("python3*")
        for name in ("ensurepip", "site-packages", "dist-packages", "test")
    ]
    return (*programs, *packages)


def _pip(prefix: Path) -> tuple[str, ...]:
    """What is hidden of the user's environment: whatever could install packages."""
    found = [*prefix.glob("lib/python3*/ensurepip")]
    for name in _INSTALLERS:
        found += prefix.glob(f"lib/python3*/site-packages/{name}")
        found += prefix.glob(f"lib/python3*/site-packages/{name}-*.dist-info")
    programs = _names(prefix, rf"({'|'.join(_INSTALLERS)})[\d.]*")
    return (*(f"bin/{name}" for name in programs), *(str(path.relative_to(prefix)) for path in found))


def _nameable(source: Path) -> str:
    if re.search(r"[:,\\]", str(source)):
        raise LabError(f"{source}: a path with a colon, a comma or a backslash cannot be shown to a bare host")
    return str(source)
