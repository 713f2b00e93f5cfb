"""Waiting for what happens elsewhere: on a condition and with a deadline, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 10.0) -> None:
    """Return once `condition` is true; `AssertionError` that names `what` after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"after {timeout_s:g} s still not so: {what}"
        time.sleep(0.02)
