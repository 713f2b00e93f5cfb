"""Puts rendered files into a directory: nothing there is replaced without consent, and nothing is ever deleted."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from dttui.errors import UsageError
from dttui.export.rendered import Rendered
from dttui.i18n import _

MOST_LISTED = 10_000
"""Files that are looked at for what is not ours."""


def is_taken(directory: Path) -> bool:
    """Whether something is in a directory already.

    Raises:
        UsageError: it is no directory, or cannot be read.
    """
    try:
        return any(directory.iterdir())
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UsageError(
            _("cannot write to {path}: {reason}").format(path=directory, reason=error.strerror),
            _("Give another name to -o."),
        ) from error


def replaced_files(directory: Path, files: Sequence[Rendered]) -> list[str]:
    """Return which of the files are in a directory already."""
    return [file.path for file in files if os.path.lexists(directory / file.path)]


def foreign_files(directory: Path, files: Sequence[Rendered]) -> list[str]:
    """Return what lies in a directory and is none of the files, where it might be taken for a part of them."""
    own = {file.path for file in files}
    found = []
    for folder, folders, names in os.walk(directory):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in sorted([*names, *links]):
            relative = os.path.relpath(os.path.join(folder, name), directory)
            if relative not in own:
                found.append(relative)
        if len(found) >= MOST_LISTED:
            break
    return found


def write(directory: Path, files: Sequence[Rendered]) -> None:
    """Write files, each whole or not at all; one that is there is replaced, also where it is a link.

    Raises:
        UsageError: one cannot be written.
    """
    for file in files:
        path = directory / file.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _check_inside(path.parent, directory)
            _write(path, file)
        except OSError as error:
            raise UsageError(
                _("cannot write {file}: {reason}").format(file=path, reason=error.strerror),
                _("Give another name to -o, or take away what is in the way."),
            ) from error


def _check_inside(folder: Path, directory: Path) -> None:
    """Refuse what a link that was there would lead elsewhere."""
    if not folder.resolve().is_relative_to(directory.resolve()):
        message = _("{path} is a link that leads elsewhere").format(path=folder)
        raise UsageError(message, _("Give another name to -o, or take away what is in the way."))


def _write(path: Path, file: Rendered) -> None:
    temporary = path.parent / f".{secrets.token_hex(6)}.tmp"
    try:
        _maker(file)(temporary)
        if file.executable:  # By whoever may read it.
            mode = temporary.stat().st_mode
            temporary.chmod(mode | (mode & 0o444) >> 2)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _maker(file: Rendered) -> Callable[[Path], object]:
    if file.link is not None:
        link = file.link
        return lambda path: path.symlink_to(link)
    if file.opened is not None:
        return partial(_copy, file.opened)
    if file.source is not None:
        source = file.source
        return lambda path: shutil.copyfile(source, path)
    return lambda path: path.write_text(file.text, encoding="utf-8", newline="")


def _copy(opened: Callable[[], BinaryIO], path: Path) -> None:
    with opened() as content, path.open("xb") as copy:
        shutil.copyfileobj(content, copy)
