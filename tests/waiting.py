"""Waiting for what happens elsewhere: on a condition and with a deadline, never for a fixed time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
PATIENCE_S = 60.0
"""For what takes a moment: whatever is waited for may stand still for seconds, with other tests on few cores."""


def wait_until(condition: Callable[[], Value], what: str, timeout_s: float = PATIENCE_S) -> Value:
    """Return what `condition` gives once that is true; `AssertionError` that names `what` after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"after {timeout_s:g} s still not so: {what}"
        time.sleep(0.02)
    return value


async def until(condition: Callable[[], Value], what: str, timeout_s: float = PATIENCE_S) -> Value:
    """Do as `wait_until` while the loop goes on."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"after {timeout_s:g} s still not so: {what}"
        await asyncio.sleep(0.01)
    return value
