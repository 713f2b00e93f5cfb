"""What works for a screen stands still while that is composed anew."""

from __future__ import annotations

import asyncio

from textual.app import App, ComposeResult
from textual.widgets import Static

from dttui.tui.in_step import in_step
from dttui.tui.retelling import tell_anew
from dttui.tui.screens.page import Page
from tests.waiting import until


async def test_a_worker_finds_its_widgets_whenever_the_language_is_switched() -> None:
    class Told(Page[None]):
        looks = 0

        def compose(self) -> ComposeResult:
            yield Static(id="told")

        async def look(self, turns: int) -> None:
            for _turn in range(turns):
                await asyncio.sleep(0)
                self.query_one("#told", Static).update("told")
                self.looks += 1

    app: App[None] = App()
    async with app.run_test() as pilot:
        screen = Told()
        await app.push_screen(screen)
        worker = screen.run_worker(screen.look(100_000))
        await pilot.pause()
        for _switch in range(3):
            before, shown = screen.looks, screen.query_one("#told")
            await tell_anew(app)
            assert screen.query_one("#told") is not shown
            assert not worker.is_finished, "it has not failed"
            await until(lambda: screen.looks > before + 1, "the worker goes on")  # noqa: B023  # It is awaited here.
        worker.cancel()
        await screen.run_worker(screen.recompose()).wait()  # It does not wait for itself.


async def test_work_that_stands_still_goes_on_with_what_it_waited_for_and_can_be_cancelled() -> None:
    over, fault = asyncio.Event(), asyncio.get_running_loop().create_future()
    held: list[asyncio.Event] = [over]
    told: list[str] = []

    def holds() -> asyncio.Event | None:
        return held[0] if held else None

    async def work() -> str:
        try:
            await fault
        except OSError as error:
            told.append(str(error))
        await asyncio.sleep(0)
        return "done"

    standing = asyncio.ensure_future(_await(in_step(work(), holds)))
    await asyncio.sleep(0)
    fault.set_exception(OSError("gone"))
    for _turn in range(5):
        await asyncio.sleep(0)
    assert told == []
    held.clear()
    over.set()
    assert await standing == "done"
    assert told == ["gone"]
    held.append(asyncio.Event())
    standing = asyncio.ensure_future(_await(in_step(asyncio.sleep(0), holds)))
    for _turn in range(5):
        await asyncio.sleep(0)
    standing.cancel()
    await asyncio.wait([standing])
    assert standing.cancelled()


async def _await(work: object) -> object:
    return await work  # type: ignore[misc]  # What a generator makes can be awaited.
