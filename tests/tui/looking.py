"""What a person would see: the text of widgets, toasts and of the whole screen; and waiting until they would see it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from textual.app import App
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widgets import Select, Static
from textual.worker import Worker

from dttui.tui.app import DttuiApp
from dttui.tui.environment_pane import EnvironmentPane
from dttui.tui.screens.run import RunScreen
from dttui.tui.widgets.log_view import LogView
from dttui.tui.widgets.node_grid import NodeGrid
from tests.waiting import PATIENCE_S
from tests.waiting import until as wait_for

Value = TypeVar("Value")
LOOKS = 100

BUSY_GROUPS = ("look-ahead", "estimate", "launch", "jobs", "why", "briefs", "notices", "settings")
"""Workers that end by themselves; all others do, too, or wait for a person's answer to a dialog."""
ENDLESS_GROUPS = ("listen", "benches", "check", "host-work")
"""Workers that go on for as long as a screen or a job does."""


async def until(pilot: Pilot[None], condition: Callable[[], Value], what: str, timeout_s: float = PATIENCE_S) -> Value:
    """Return what `condition` gives once that is true; `AssertionError` that names `what` after `timeout_s` seconds.

    A machine that stood still meanwhile has left the app no time: it is looked at least `LOOKS` times. Once it is so,
    a screen that came with it is mounted, and has its focus.
    """
    deadline, looks = time.monotonic() + timeout_s, 0
    while not (value := condition()):
        looks += 1
        late = looks > LOOKS and time.monotonic() > deadline
        assert not late, f"after {timeout_s:g} s still not so: {what}\n{screen_text(pilot.app)}"
        await pilot.pause(0.02)
    for _turn in range(2):
        await pilot.pause()
    return value


async def settle(app: DttuiApp, pilot: Pilot[None], timeout_s: float = PATIENCE_S) -> None:
    """Wait until the screen shows what it is going to show: no work under way but that which waits for a person."""
    deadline = time.monotonic() + timeout_s
    quiet = 0
    while quiet < 2:
        await pilot.pause()
        busy = [worker for worker in app.workers if _is_busy(app, worker)]
        while busy:
            assert time.monotonic() < deadline, f"the screen does not come to rest: {busy}"
            await asyncio.sleep(0.005)
            busy, quiet = [worker for worker in busy if _is_busy(app, worker)], -1
        quiet = quiet + 1 if app.message_queue_size + app.screen.message_queue_size == 0 else 0


async def follow(app: DttuiApp, pilot: Pilot[None]) -> None:
    """Wait until the list shows the fleet as it now is, and all that follows from it."""
    pane = app.screen.query_one(EnvironmentPane)
    await until(pilot, lambda: pane.seen == app.fleet.statuses, "the list has followed the fleet")
    await settle(app, pilot)


async def left(app: DttuiApp) -> None:
    """Wait until the app has been left: then it may have no screen any more, which a pilot would wait for."""
    await wait_for(lambda: not app.is_running or app._exit, "the app is left")  # noqa: SLF001


def text_of(app: DttuiApp, selector: str) -> str:
    """Text of one widget of the screen, before it is wrapped."""
    return str(app.screen.query_one(selector, Static).content)


def told(app: DttuiApp, selector: str) -> str:
    """Text of one widget on one line, a space between words: for what stands in columns."""
    return " ".join(text_of(app, selector).split())


def log_of(app: DttuiApp) -> list[str]:
    """All lines of the log that the run screen has."""
    store = app.screen.query_one(LogView).store
    return store.lines(store.first, store.end - store.first) if store is not None else []


def screen_text(app: App[None]) -> str:
    """All that is on the screen."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())  # noqa: SLF001


def toasts(app: DttuiApp) -> list[str]:
    """What was said in passing, the oldest first."""
    shown = app._notifications  # noqa: SLF001
    return [f"{item.title}: {item.message}" if item.title else item.message for item in shown]


def labels_of(select: Select[Any]) -> list[str]:
    """What a list offers to choose from."""
    return [str(label) for label, _value in select._options]  # noqa: SLF001


def _is_busy(app: DttuiApp, worker: Worker[object]) -> bool:
    if worker.is_finished or worker.group in ENDLESS_GROUPS:
        return False
    return worker.group in BUSY_GROUPS or not isinstance(app.screen, ModalScreen)


async def look(app: DttuiApp, pilot: Pilot[None]) -> None:
    """Let the screen read the job's files to their end, and show what they say."""
    await settle(app, pilot)
    if isinstance(app.screen, RunScreen):
        app.screen.poll()
        app.screen.poll()
    await settle(app, pilot)


def grid(app: DttuiApp) -> str:
    """Return the text of the grid of nodes of the run screen."""
    nodes = app.screen.query_one(NodeGrid)
    return "\n".join(nodes.render_line(y).text.rstrip() for y in range(nodes.virtual_size.height))
