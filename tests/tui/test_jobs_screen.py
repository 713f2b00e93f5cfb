"""The list of jobs."""

from __future__ import annotations

from textual.widgets import Input

from dttui.inventory.demo import demo_inventory
from dttui.locations import demo_root, shipped
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.dialogs import ChoiceDialog
from dttui.tui.screens.jobs import JobsScreen, JobTable
from dttui.tui.screens.run import RunScreen
from tests.tui import job_files
from tests.tui.controllers import controller
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.looking import left, screen_text, settle, text_of, toasts, until
from tests.tui.screens import CHOSEN

SIZE = (120, 40)


async def test_jobs_are_listed_filtered_and_opened() -> None:
    inventory = make_inventory()
    job_files.succeeded(job(*CHOSEN), inventory)
    bad = job_files.failed(job(*CHOSEN, name="[/foo] 坏"), inventory)
    app = make_app(inventory)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("j")
        await settle(app, pilot)
        assert isinstance(app.screen, JobsScreen)
        assert app.screen.query_one(JobTable).row_count == 2
        shown = screen_text(app)
        assert "✓ succeeded" in shown
        assert "✗ failed" in shown
        assert "[/foo] 坏" in shown
        await pilot.press("slash", *"failed", "enter")
        await settle(app, pilot)
        assert app.screen.query_one(JobTable).row_count == 1
        assert bad.job_id in text_of(app, "#jobs-detail")
        await pilot.press("enter")
        await settle(app, pilot)
        assert isinstance(app.screen, RunScreen)
        assert app.screen.directory == bad.directory
        await pilot.press("escape", "escape")
        await settle(app, pilot)
        assert app.screen.query_one("#jobs-filter", Input).value == ""
        assert app.screen.query_one(JobTable).row_count == 2
        await pilot.press("escape")
        assert isinstance(app.screen, ComposeScreen)


async def test_a_job_that_is_over_is_removed_once_that_is_confirmed() -> None:
    inventory = make_inventory()
    over = job_files.succeeded(job(*CHOSEN), inventory)
    app = make_app(inventory)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("j")
        await settle(app, pilot)
        await pilot.press("x")
        await settle(app, pilot)
        assert "checkpoints too" in screen_text(app)
        await pilot.press("enter")  # The harmless button is the first.
        await settle(app, pilot)
        assert over.directory.path.exists()
        await pilot.press("x")
        await settle(app, pilot)
        await pilot.press("tab", "enter")
        await settle(app, pilot)
        assert not over.directory.path.exists()
        assert app.screen.query_one(JobTable).row_count == 0
        await pilot.press("x")
        await settle(app, pilot)
        assert isinstance(app.screen, JobsScreen)


async def test_a_job_that_runs_is_not_removed() -> None:
    inventory = make_inventory()
    running = job_files.running(job(*CHOSEN), inventory)
    app = make_app(inventory)
    async with controller(running), app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("j")
        await settle(app, pilot)
        await pilot.press("x")
        await until(
            pilot, lambda: f"dttui stop {running.job_id}" in " ".join(toasts(app)), "it is told to stop the job first"
        )
        assert isinstance(app.screen, JobsScreen)
    assert running.directory.path.exists()


async def test_jobs_on_simulated_gpus_are_marked_behind_a_name_of_any_length() -> None:
    demo = demo_inventory(demo_root(), shipped("examples"), "python3")
    job_files.succeeded(job(*CHOSEN, name="an-experiment-with-a-name-of-many-words"), demo)
    job_files.succeeded(job(*CHOSEN, name="real"), make_inventory())
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("j")
        await settle(app, pilot)
        shown = [line.strip() for line in screen_text(app).splitlines()]
        (simulated,) = [line for line in shown if "an-experiment" in line and "succeeded" in line]
        assert "… sim " in simulated
        (real,) = [line for line in shown if " real " in line]
        assert "sim" not in real
        told = {text_of(app, "#jobs-detail")}
        await pilot.press("down")
        await settle(app, pilot)
        told.add(text_of(app, "#jobs-detail"))
        assert sorted("simulated GPUs" in text for text in told) == [False, True]


async def test_no_jobs_is_said() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("j")
        await settle(app, pilot)
        assert "No job has been launched" in screen_text(app)


async def test_quitting_while_a_job_runs_says_that_it_goes_on() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    async with controller(writer):
        app = make_app(inventory)
        async with app.run_test(size=SIZE) as pilot:
            await settle(app, pilot)
            await pilot.press("ctrl+q")
            await settle(app, pilot)
            assert isinstance(app.screen, ChoiceDialog)
            assert "1 job is running and goes on" in text_of(app, ".dialog-text")
            await pilot.press("escape")
            await settle(app, pilot)
            assert isinstance(app.screen, ComposeScreen)
            await pilot.press("ctrl+q")
            await settle(app, pilot)
            await pilot.press("enter")
            await left(app)
        assert app.return_code == 0


async def test_quitting_while_nothing_runs_asks_nothing() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("ctrl+q")
        await left(app)
    assert app.return_code == 0
