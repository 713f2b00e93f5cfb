"""The working directory that goes to every host: which of its files, and how much at most."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path
from typing import BinaryIO

from dtagent.protocol.tree import MAX_BYTES, MAX_FILES, problem_of

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.sanitize import clean
from dttui.spec.findings import Finding, error
from dttui.workdir.beneath import LinkError, Root
from dttui.workdir.gitignore import IgnoreRules, list_with_git

SKIPPED = {".git", ".hg", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "node_modules"}
PRIVATE = (
    *(".*", "*.env", "netrc", "_netrc", "credentials", "credentials.json", "credentials.csv", "*[-_]credentials.json"),
    *("kubeconfig", "kubeconfig.*", "*.kubeconfig", "*.key", "*.pem", "*.p8", "*.p12", "*.pfx", "*.jks", "*.keystore"),
    *("*.ppk", "*.kdbx", "id_dsa*", "id_ecdsa*", "id_ed25519*", "id_mldsa*", "id_rsa*", "id_xmss*", "ssh_host_*_key"),
)
"""Names of what may hold secrets, which no rank needs and every host would keep; in lower case."""
NOT_PRIVATE = ("*.pub", "*.py")
"""What goes all the same, unless it is hidden: public halves of keys, and modules."""
_PRIVATE, _NOT_PRIVATE = (re.compile("|".join(map(translate, patterns))) for patterns in (PRIVATE, NOT_PRIVATE))


@dataclass(frozen=True)
class UploadFile:
    """A file to send."""

    path: Path
    """Where it is, to be told; it is opened beneath the directory alone."""
    relative: str
    size: int
    executable: bool
    _root: Root = field(repr=False, compare=False)
    _name: str = field(repr=False, compare=False)
    """What it is beneath the root, where `relative` goes by links."""

    def open(self) -> BinaryIO:
        """Open it for reading.

        Raises:
            UsageError: it cannot be read, or is by now a link, or below one.
        """
        try:
            return self._root.open(self._name)
        except LinkError as error:
            message = _("{path} was a file of the working directory, and leads elsewhere now").format(path=self.path)
            hint = _("Launch again once nothing writes to the working directory.")
            raise UsageError(message, hint) from error
        except OSError as error:
            raise UsageError(_("cannot read {path}: {reason}").format(path=self.path, reason=error.strerror)) from error


@dataclass(frozen=True)
class Upload:
    """What a directory comes to."""

    files: tuple[UploadFile, ...]
    left_out: tuple[str, ...]
    """Fit to be shown: what may hold secrets, what git ignores, links that lead elsewhere. Caches go untold."""
    misnamed: tuple[str, ...]
    """Fit to be shown: files whose name no host would take."""


def check_script(script: str, directory: Path) -> list[Finding]:
    """Return what there is to say where a directory lacks the script that runs from it."""
    if (directory / script).is_file():
        return []
    message = _("there is no script {script} in {path}").format(script=script, path=directory)
    return [error("script-missing", "run.script", message, _("Write the path relative to workdir."))]


def survey(directory: Path) -> Upload:
    """Return the regular files to send of a directory, and what stays here.

    Raises:
        UsageError: there are too many, or they are too large together.
    """
    files: list[UploadFile] = []
    left_out: set[str] = set()
    misnamed: list[str] = []
    try:
        root = Root(directory)
    except OSError as error:
        raise UsageError(_("cannot read {path}: {reason}").format(path=directory, reason=error.strerror)) from error
    total = 0
    by_part: Counter[str] = Counter()
    for relative, name, info in _listed(directory, root):
        if name is None or info is None:
            left_out.add(relative)
            continue
        if not stat.S_ISREG(info.st_mode):
            continue
        if problem_of(relative):
            misnamed.append(_shown(relative))
            continue
        total += info.st_size
        by_part[relative.partition("/")[0]] += info.st_size
        executable = bool(info.st_mode & 0o100)
        files.append(UploadFile(directory / relative, relative, info.st_size, executable, root, name))
        if total > MAX_BYTES or len(files) > MAX_FILES:
            name, size = by_part.most_common(1)[0]
            raise UsageError(
                _(
                    "{path} is too large to send: more than {files} files or {size} MB; {name} alone has {part} MB"
                ).format(
                    path=os.path.normpath(directory),
                    files=MAX_FILES,
                    size=MAX_BYTES // 1000**2,
                    name=_shown(name),
                    part=size // 1000**2,
                ),
                _("Put the data on the hosts, name it in .gitignore, or make workdir an absolute path there."),
            )
    entered = {file.relative[:at] for file in files for at, letter in enumerate(file.relative) if letter == "/"}
    return Upload(tuple(files), tuple(sorted(map(_shown, left_out - entered))), tuple(misnamed))


_Listed = tuple[str, "str | None", "os.stat_result | None"]
"""A path, and what is sent under it: a name without links and its status. Without these it is left out."""


def _listed(directory: Path, root: Root) -> Iterator[_Listed]:
    """Yield what there is of a directory, as git has it where it is a checkout."""
    listed = list_with_git(directory)
    if listed is None:
        yield from _walk(root, "", "", IgnoreRules())
        return
    kept, ignored = listed
    left = ""
    for relative in kept:
        parts = relative.split("/")
        if SKIPPED.intersection(parts) or (left and relative.startswith(f"{left}/")):
            continue
        if any(map(_is_private, parts)):
            first = next(index for index, part in enumerate(parts) if _is_private(part))
            yield "/".join(parts[: first + 1]), None, None
            continue
        found = _resolved(root, relative, relative)
        if found is None:
            continue
        left, name, info = found if found[1] is None else ("", *found[1:])
        if name is not None and info is not None and stat.S_ISDIR(info.st_mode):  # Another repository inside this one.
            yield from _walk(root, name, relative, IgnoreRules())
        else:
            yield found
    for relative in ignored:
        if not SKIPPED.intersection(relative.split("/")) and not relative.endswith((".pyc", ".pyo")):
            yield relative, None, None


def _walk(root: Root, name: str, path: str, rules: IgnoreRules) -> Iterator[_Listed]:
    """Yield each file below a directory, and each directory that is left out."""
    rules.enter(root, name, path)
    try:
        entries = root.entries(name)
    except OSError:
        yield path, None, None
        return
    for entry, info in entries:
        below, shown = (f"{place}/{entry}" if place else entry for place in (name, path))
        is_link = stat.S_ISLNK(info.st_mode)
        is_directory = os.path.isdir(f"{root.place}/{below}") if is_link else stat.S_ISDIR(info.st_mode)
        if is_directory and entry in SKIPPED:
            continue
        if _is_private(entry) or rules.ignores(shown, is_directory=is_directory and not is_link):
            yield shown, None, None
        elif is_link:
            if (found := _resolved(root, below, shown)) is not None:
                yield found
        elif is_directory:
            yield from _walk(root, below, shown, rules)
        else:
            yield shown, below, info


def _resolved(root: Root, name: str, path: str) -> _Listed | None:
    """Return what to send for a path that may be a link or lie below one, `None` where there is nothing.

    It goes as what it leads to where that would be sent under its own name too. A linked directory is never entered: it
    may lead round in a circle.
    """
    info = None
    try:
        info = root.status(name)
    except LinkError:
        pass
    except OSError:  # It is gone, or below what this user may not enter.
        return None
    if info is not None and not stat.S_ISLNK(info.st_mode):
        return path, name, info
    own = root.own_name(name)
    if own is None or _is_private_below(own):
        return _where_it_leaves(root, name, path), None, None
    try:
        found = root.status(own)
    except OSError:
        return None
    return (path, None, None) if info is not None and stat.S_ISDIR(found.st_mode) else (path, own, found)


def _where_it_leaves(root: Root, name: str, path: str) -> str:
    """Return as much of a path as leads to what is not sent."""
    for _below in range(name.count("/")):
        above = name.rpartition("/")[0]
        own = root.own_name(above)
        if own is not None and not _is_private_below(own):
            break
        name, path = above, path.rpartition("/")[0]
    return path


def _is_private_below(path: str) -> bool:
    return any(map(_is_private, path.split("/")))


def _is_private(name: str) -> bool:
    lowered = name.lower()
    return _PRIVATE.match(lowered) is not None and (lowered.startswith(".") or not _NOT_PRIVATE.match(lowered))


def _shown(name: str) -> str:
    return clean(os.fsencode(name).decode(errors="replace"))
