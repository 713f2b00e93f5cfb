"""The line under the title: what runs and how far it is, what has failed, on each screen, until somebody has looked."""

from __future__ import annotations

from textual.widgets import Static

from dttui.tui.app import DttuiApp
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.run import RunScreen
from dttui.tui.widgets.job_bar import JobBar
from tests.tui import job_files
from tests.tui.controllers import controller
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.looking import screen_text, settle, until
from tests.tui.screens import CHOSEN

SIZE = (120, 40)


def bar(app: DttuiApp) -> str:
    """Return what it tells; empty where it takes no room."""
    found = app.screen.query_one(JobBar)
    return str(found.render()) if found.display else ""


async def test_a_key_leads_from_any_screen_to_the_job_that_runs() -> None:
    inventory = make_inventory()
    running = job_files.running(job(*CHOSEN), inventory, took_s=20.0)
    app = make_app(inventory)
    async with controller(running), app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: bar(app), "what runs")
        told = bar(app)
        for part in ("● gpt-small running", "25%", "left", "loss 2.", "tok/s 8"):
            assert part in told, told
        await pilot.press("j")
        await settle(app, pilot)
        assert "● gpt-small running" in bar(app)
        await pilot.press("g")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the job")
        await settle(app, pilot)
        assert isinstance(app.screen, RunScreen)
        assert app.screen.directory == running.directory
        assert bar(app) == "", "its own screen tells of it"
        assert " 25%  step 200 of 800" in str(app.screen.query_one("#run-progress", Static).render())


async def test_of_two_jobs_each_leads_to_the_other() -> None:
    inventory = make_inventory()
    first = job_files.running(job(*CHOSEN, name="first"), inventory, 20.0)
    second = job_files.running(job(*CHOSEN, name="second"), inventory, 20.0)
    app = make_app(inventory)
    async with controller(first), controller(second), app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "and 1 more" in bar(app), "both")
        shown = []
        for _each in range(3):
            await pilot.press("g")
            await until(pilot, lambda: isinstance(app.screen, RunScreen) and bar(app), "a job, and the other")
            assert isinstance(app.screen, RunScreen)
            shown.append(app.screen.directory.job_id)
            assert ("first" in bar(app)) is (app.screen.directory == second.directory)
        assert shown == [second.job_id, first.job_id, second.job_id]
        await pilot.press("escape")
        await settle(app, pilot)
        assert isinstance(app.screen, ComposeScreen), "one screen of a job takes the place of another"


async def test_what_has_failed_is_told_until_somebody_has_looked() -> None:
    inventory = make_inventory()
    job_files.failed(job(*CHOSEN, name="[/foo] 坏"), inventory)
    app = make_app(inventory)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "✗ [/foo] 坏 failed" in bar(app), "what has failed")
        assert "keys" in screen_text(app)
    app = make_app(inventory)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "✗ [/foo] 坏 failed" in bar(app), "what has failed, after a restart too")
        await pilot.click(JobBar)
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the job")
        await settle(app, pilot)
        await pilot.press("escape")
        await until(pilot, lambda: not bar(app), "nothing more of what was seen")
        await pilot.press("g")
        await settle(app, pilot)
        assert isinstance(app.screen, ComposeScreen)
