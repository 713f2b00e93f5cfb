"""How long the controller of an attempt has been silent here, so that its ranks can be ended for that.

The daemon touches a file each time the controller asks after the attempt. Standard library only.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

from dtagent.locations import AttemptFiles

FIRST_WORD_S = 90.0
"""How long the controller has at least until its first word, while other hosts are still being started."""


class SelfFence:
    """Says when an attempt has gone without a word for too long; to be looked at about once a second.

    Args:
        files: of the attempt.
        limit_s: silence after which that is so; `None` for never.
        clock: seconds, from anywhere; whatever becomes of the host's own.
    """

    def __init__(self, files: AttemptFiles, limit_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = files.heard
        self._limit_s = math.inf if limit_s is None else limit_s
        self._is_on = limit_s is not None
        self._has_heard = False
        self._touched_ns: int | None = None
        self._clock = clock
        self._heard_at = clock()
        self.look()

    def look(self) -> None:
        """Take in whether there was a word since the last look; where that cannot be known, there was."""
        if not self._is_on:
            return
        try:
            touched_ns: int | None = self._path.stat().st_mtime_ns
        except FileNotFoundError:  # At the beginning; later, somebody has removed it.
            touched_ns = self._make()
        except OSError:
            touched_ns = None
        if touched_ns is None or touched_ns != self._touched_ns:
            self._has_heard = self._has_heard or self._touched_ns is not None
            self._heard_at, self._touched_ns = self._clock(), touched_ns

    def _make(self) -> int | None:
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                return os.fstat(descriptor).st_mtime_ns
            finally:
                os.close(descriptor)
        except OSError:
            return None

    @property
    def is_due(self) -> bool:
        """Whether the silence has lasted too long."""
        limit_s = self._limit_s if self._has_heard else max(self._limit_s, FIRST_WORD_S)
        return self._clock() - self._heard_at > limit_s


def note_word(files: AttemptFiles) -> None:
    """Note that the controller has asked after an attempt; nothing is noted of one that does not fence itself."""
    try:
        os.utime(files.heard, follow_symlinks=False)
    except OSError:
        return  # Where the file is gone, the supervisor makes it anew.
