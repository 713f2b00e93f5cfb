"""The daemon's own log, `daemon.err`, to which its stderr leads: kept short."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path

from dtagent.names import ERROR_LOG

MOST_BYTES = 1024 * 1024
"""Of what is written to now; as much again is kept of what came before."""


def turn_over(root: Path, stderr: int = 2) -> None:
    """Begin the log anew where it has grown long, if it is where stderr leads.

    Whoever started the daemon holds the file open, so it stays the same one and is emptied.
    """
    path = root / ERROR_LOG
    with contextlib.suppress(OSError):
        info = os.fstat(stderr)
        if info.st_size <= MOST_BYTES or not os.path.samestat(info, path.lstat()):
            return
        if fcntl.fcntl(stderr, fcntl.F_GETFL) & os.O_APPEND:  # Else what follows would be written behind a hole.
            shutil.copyfile(path, path.with_name(f"{ERROR_LOG}.1"))
            os.ftruncate(stderr, 0)
