"""Readings that may never come back, of a dead disk, a driver or a directory service: each costs one thread at most."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from dtagent.system.system_facts import or_none


class _Reading:
    def __init__(self) -> None:
        self.began_at = time.monotonic()
        self.is_done = threading.Event()
        self.answer: Any = None


class Readings:
    """Takes readings of many kinds, of each kind one at a time: whoever asks meanwhile gets that one's answer.

    Args:
        most: how many may be under way.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._under_way: dict[str, _Reading] = {}

    def begin(self, kind: str, read: Callable[[], Any], limit_s: float) -> Callable[[], Any] | None:
        """Begin a reading, or join the one under way; return what waits for its answer.

        That is `None` where it failed or is not there `limit_s` seconds after it began: while it hangs nobody waits.
        There is nothing to wait for where too many are under way, or this host lets no more threads start.
        """
        with self._lock:
            reading = self._under_way.get(kind)
            if reading is None:
                if len(self._under_way) >= self._most:
                    return None
                reading = _Reading()
                try:
                    threading.Thread(target=self._take, args=(kind, reading, read), name="reading", daemon=True).start()
                except RuntimeError:
                    return None
                self._under_way[kind] = reading

        def wait() -> Any:
            reading.is_done.wait(max(0.0, reading.began_at + limit_s - time.monotonic()))
            return reading.answer

        return wait

    def within(self, kind: str, read: Callable[[], Any], limit_s: float) -> Any:
        """Return the answer of a reading, as `begin` has it; `None` where there is none."""
        wait = self.begin(kind, read, limit_s)
        return wait() if wait is not None else None

    def _take(self, kind: str, reading: _Reading, read: Callable[[], Any]) -> None:
        try:
            reading.answer = or_none(read)
        finally:
            with self._lock:
                del self._under_way[kind]
            reading.is_done.set()
