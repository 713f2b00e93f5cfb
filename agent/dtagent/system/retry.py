"""Waiting out a moment in which this host is short of file handles. Standard library only."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

PAUSE_S = 0.05
Value = TypeVar("Value")


def retry_when_short(act: Callable[[], Value], limit_s: float) -> Value:
    """Return what `act` returns, which is tried again while it lacks a file handle.

    Raises:
        OSError: it lacked one for longer than the limit, or something else is amiss.
    """
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return act()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_S)
