"""Work that goes on only while it may: it stands still between two of its steps, wherever it waits for something."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

Result = TypeVar("Result")


@types.coroutine
def in_step(work: Awaitable[Result], holds: Callable[[], asyncio.Event | None]) -> Generator[Any, None, Result]:
    """Await `work`; what holds it is waited for before it begins and after each of its waits. It can be cancelled."""
    steps = work.__await__()
    fault: BaseException | None = None
    while True:
        while (fault is None or isinstance(fault, Exception)) and (held := holds()) is not None:
            try:
                yield from held.wait().__await__()
            except BaseException as raised:  # noqa: BLE001  # As below: it was cancelled.
                fault = raised
        try:
            awaited = next(steps) if fault is None else steps.throw(fault)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # of that awaitable
        fault = None
        try:
            yield awaited
        except BaseException as raised:  # noqa: BLE001  # It is the work's, which is told of it.
            fault = raised
