"""The working directory that goes to every host: which of its files, and how much at most."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from dtagent.protocol.tree import MAX_BYTES, MAX_FILES, problem_of

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.sanitize import clean
from dttui.services.launch.gitignore import IgnoreRules, list_with_git
from dttui.spec.findings import Finding, error

SKIPPED = {".git", ".hg", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "node_modules"}
PRIVATE = (".*", "*.env", "*.pem", "id_rsa", "id_ed25519", "id_ecdsa")
"""Names of what may hold secrets, which no rank needs and every host would keep."""


@dataclass(frozen=True)
class UploadFile:
    """A file to send."""

    path: Path
    relative: str
    size: int
    executable: bool


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
    left_out: list[str] = []
    misnamed: list[str] = []
    root = directory.resolve()
    total = 0
    by_part: Counter[str] = Counter()
    for relative, is_wanted in _listed(directory, root):
        path = directory / relative
        if not is_wanted:
            left_out.append(_shown(relative))
            continue
        try:
            info = path.stat()
        except OSError:  # It is gone by now, or a link to nothing.
            continue
        if not stat.S_ISREG(info.st_mode):
            continue
        if problem_of(relative):
            misnamed.append(_shown(relative))
            continue
        total += info.st_size
        by_part[relative.partition("/")[0]] += info.st_size
        files.append(UploadFile(path, relative, info.st_size, bool(info.st_mode & 0o100)))
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
    return Upload(tuple(files), tuple(sorted(set(left_out))), tuple(misnamed))


def _listed(directory: Path, root: Path) -> Iterator[tuple[str, bool]]:
    """Yield what there is of a directory, as git has it where it is a checkout, with whether it may be sent."""
    listed = list_with_git(directory)
    if listed is None:
        yield from _walk(directory, "", root, IgnoreRules())
        return
    kept, ignored = listed
    for relative in kept:
        parts = PurePath(relative).parts
        if SKIPPED.intersection(parts):
            continue
        path = directory / relative
        if path.is_dir() and not path.is_symlink():  # Another repository inside this one.
            yield from _walk(path, relative, root, IgnoreRules())
        elif any(map(_is_private, parts)):
            first = next(index for index, part in enumerate(parts) if _is_private(part))
            yield "/".join(parts[: first + 1]), False
        else:
            yield relative, _stays_inside(path, root)
    for relative in ignored:
        if not SKIPPED.intersection(PurePath(relative).parts) and not relative.endswith((".pyc", ".pyo")):
            yield relative, False


def _walk(directory: Path, prefix: str, root: Path, rules: IgnoreRules) -> Iterator[tuple[str, bool]]:
    """Yield each file below a directory, and each directory that is left out, with whether it may be sent."""
    rules.enter(directory, prefix)
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        yield prefix, False
        return
    for entry in entries:
        relative = f"{prefix}/{entry.name}" if prefix else entry.name
        is_directory = os.path.isdir(entry.path)
        if is_directory and entry.name in SKIPPED:
            continue
        is_ignored = rules.ignores(relative, is_directory=is_directory and not entry.is_symlink())
        if _is_private(entry.name) or is_ignored:
            yield relative, False
        elif is_directory and not entry.is_symlink():
            yield from _walk(Path(entry.path), relative, root, rules)
        else:
            # A linked directory is never entered: it may lead outside, or round in a circle.
            yield relative, not is_directory and _stays_inside(Path(entry.path), root)


def _stays_inside(path: Path, root: Path) -> bool:
    """Whether a link leads to a file that would be sent under its own name too; whatever is no link does."""
    if not path.is_symlink():
        return True
    try:
        target = PurePath(os.path.realpath(path)).relative_to(root)
    except ValueError:
        return False
    return not path.is_dir() and not any(_is_private(part) for part in target.parts)


def _is_private(name: str) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in PRIVATE)


def _shown(name: str) -> str:
    return clean(os.fsencode(name).decode(errors="replace"))
