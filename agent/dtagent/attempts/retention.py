"""What old attempts leave on this host, and when it goes: logs, uploads and journals go, checkpoints stay.

What goes is first moved aside, which takes a moment and is done where others wait, and removed afterwards.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from dacite import DaciteError

from dtagent.attempts import adoption
from dtagent.attempts.census import Census
from dtagent.attempts.preparation import key_of
from dtagent.errors import RpcError
from dtagent.locations import AttemptFiles, make_private, removed_path
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import NodeState, NodeStatus
from dtagent.system import untrusted_files

LOG = logging.getLogger("dtagent")
KEEP_S = 7 * 24 * 3600.0
"""How long everything of an attempt is kept after the last word on it."""
KEEP_NEWEST = 20
"""Attempts that are kept however old they are."""

_NUMBERS = itertools.count()


class Retention:
    """Removes the old attempts under one root.

    Args:
        root: state directory.
        census: which attempts there are.
        status: tells where an attempt stands, and ends what a supervisor that vanished left running.
    """

    def __init__(self, root: Path, census: Census, status: Callable[[AttemptKey], NodeStatus]) -> None:
        self._root = root
        self._census = census
        self._status = status
        self._moving = threading.Lock()

    def old(self) -> list[AttemptKey]:
        """Return the attempts that are over and may go."""
        known = (files for files in self._census.known() if not files.keep.exists())
        over = [files for files in known if not adoption.is_locked(files.lock)]
        return [key_of(files) for files in expired(over, time.time())]

    def clear(self, key: AttemptKey) -> None:
        """Take away all but the checkpoints of an attempt that was `old`, unless it was started since or may run."""
        files = AttemptFiles.of(self._root, key.job_id, key.attempt)
        try:
            # Before its age is judged: where a supervisor vanished, that is found out and written only now.
            state = self._status(key).state
            is_being_cleared = not files.prepared.exists()
            may_run = state in (NodeState.RUNNING, NodeState.STOPPING, NodeState.UNKILLABLE)
            if may_run or files.keep.exists() or not (is_being_cleared or is_old(files, time.time())):
                return
            with self._moving:
                kept = clear(files, removed_path(self._root))
        except (RpcError, DaciteError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            LOG.warning("cannot remove %s: %s", files.directory, error)
        else:
            LOG.info("removed %s%s", files.directory, f" but {', '.join(map(str, kept))}" if kept else "")

    def put_aside(self, directory: Path) -> None:
        """Take a directory away, where there is one."""
        with self._moving:
            _put_aside(directory, removed_path(self._root))

    def remove(self) -> None:
        """Remove what was taken away, which may take long; nobody needs to wait for it."""
        with self._moving:
            directory = removed_path(self._root)
            found = list(directory.iterdir()) if directory.exists() else []
        for path in found:
            _remove(path)


def expired(attempts: Iterable[AttemptFiles], now: float) -> list[AttemptFiles]:
    """Return the attempts that are neither young nor among the newest; `now` is Unix time."""
    newest_first = sorted(attempts, key=_written_at, reverse=True)
    return [files for files in newest_first[KEEP_NEWEST:] if is_old(files, now)]


def is_old(files: AttemptFiles, now: float) -> bool:
    """Whether nothing was written about the attempt for so long that it may go."""
    return now - _written_at(files) > KEEP_S


def goes_at(files: AttemptFiles, path: str) -> float | None:
    """Return from which Unix time on an attempt's directory, or a path in it, may go, if enough newer attempts come.

    `None` where it never does, whether the attempt is kept or not: it is elsewhere, or in a directory of checkpoints.
    """
    own = os.path.realpath(files.directory)
    if path != own and not path.startswith(own + "/"):
        return None
    checkpoints = {os.path.realpath(directory) for directory in _checkpoint_directories(files)}
    if any(path == directory or path.startswith(directory + "/") for directory in checkpoints):
        return None
    return _written_at(files) + KEEP_S


def clear(files: AttemptFiles, aside: Path) -> list[Path]:
    """Move an attempt that is over aside; return the directories that stay because there is a checkpoint in them.

    Args:
        files: of the attempt.
        aside: a directory on the same file system, made where it is missing.

    Raises:
        OSError, ValueError, KeyError, TypeError, AttributeError: what was started cannot be read, so neither can where
            its checkpoints are; nothing was moved.
    """
    kept = [directory for directory in _checkpoint_directories(files) if _has_file(directory)]
    # Without it nothing can be started here any more, and no GPU is held, should the rest fail.
    files.prepared.unlink(missing_ok=True)
    _put_aside_but(files.directory, [*kept, files.start], aside)
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
        for process in untrusted_files.read_object(files.start, untrusted_files.RECORD_BYTES)["processes"]:
            named = process.get("env", {}).get("DTTUI_CHECKPOINT_DIR")
            if named:
                found.add(Path(os.path.normpath(Path(process["cwd"], named))))
    return {path for path in found if files.directory in path.parents}


def _has_file(directory: Path) -> bool:
    return any(names for _, _, names in os.walk(directory))


def _put_aside_but(directory: Path, kept: list[Path], aside: Path) -> None:
    for path in list(directory.iterdir()):
        if path in kept:
            continue
        if any(path in keep.parents for keep in kept):
            _put_aside_but(path, kept, aside)
        else:
            _put_aside(path, aside)


def _put_aside(path: Path, aside: Path) -> None:
    try:
        make_private(aside)
        path.rename(aside / f"{os.getpid()}-{time.time_ns()}-{next(_NUMBERS)}")
    except OSError:  # As on a disk without room for one directory more.
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)
