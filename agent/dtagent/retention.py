"""What old attempts leave on this host, and when it goes: logs, uploads and journals go, checkpoints stay."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from dtagent.locations import AttemptFiles

KEEP_S = 7 * 24 * 3600.0
"""How long everything of an attempt is kept after the last word on it."""
KEEP_NEWEST = 20
"""Attempts that are kept however old they are."""


def expired(attempts: Iterable[AttemptFiles], now: float) -> list[AttemptFiles]:
    """Return the attempts that are neither young nor among the newest; `now` is Unix time."""
    newest_first = sorted(attempts, key=_written_at, reverse=True)
    return [files for files in newest_first[KEEP_NEWEST:] if is_old(files, now)]


def is_old(files: AttemptFiles, now: float) -> bool:
    """Whether nothing was written about the attempt for so long that it may go."""
    return now - _written_at(files) > KEEP_S


def clear(files: AttemptFiles) -> list[Path]:
    """Remove an attempt that is over; return the directories that stay because there is a checkpoint in them.

    Raises:
        OSError, ValueError, KeyError, TypeError, AttributeError: what was started cannot be read, so neither can where
            its checkpoints are; nothing was removed.
    """
    kept = [directory for directory in _checkpoint_directories(files) if _has_file(directory)]
    # Without it nothing can be started here any more, and no GPU is held, should the rest fail.
    files.prepared.unlink(missing_ok=True)
    _remove_but(files.directory, [*kept, files.start])
    # Last, since it names the checkpoints: whoever goes on after an interruption must know them too.
    files.start.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # There may be checkpoints, or other attempts of the job.
        files.directory.rmdir()
        files.directory.parent.rmdir()
    return kept


def _written_at(files: AttemptFiles) -> float:
    times = [0.0]
    for path in (files.directory, files.prepared, files.start, files.stop, files.discarded, files.journal):
        with contextlib.suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times)


def _checkpoint_directories(files: AttemptFiles) -> set[Path]:
    """Return the usual one, and those inside the attempt's directory that the job named."""
    found = {files.checkpoints}
    if files.start.exists():
        for process in json.loads(files.start.read_text())["processes"]:
            named = process.get("env", {}).get("DTTUI_CHECKPOINT_DIR")
            if named:
                found.add(Path(os.path.normpath(Path(process["cwd"], named))))
    return {path for path in found if files.directory in path.parents}


def _has_file(directory: Path) -> bool:
    return any(names for _, _, names in os.walk(directory))


def _remove_but(directory: Path, kept: list[Path]) -> None:
    for path in list(directory.iterdir()):
        if path in kept:
            continue
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        elif any(path in keep.parents for keep in kept):
            _remove_but(path, kept)
        else:
            shutil.rmtree(path, ignore_errors=True)
