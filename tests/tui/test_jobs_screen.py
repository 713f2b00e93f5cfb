"""The list of jobs."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from dtagent.protocol.events import Metric
from textual.widgets import Input

from dttui import jobs
from dttui.inventory.demo import demo_inventory
from dttui.jobs import catalogue
from dttui.locations import demo_root, shipped
from dttui.planning.models import Plan
from dttui.planning.submission import Submission
from dttui.tui.screens.compare import CompareScreen
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.dialogs import ChoiceDialog
from dttui.tui.screens.jobs import JobsScreen
from dttui.tui.screens.replay import ReplayScreen
from dttui.tui.screens.run import RunScreen
from dttui.tui.widgets.job_list import JobList
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
        assert len(app.screen.query_one(JobList).shown) == 2
        shown = screen_text(app)
        assert "✓ succeeded" in shown
        assert "✗ failed" in shown
        assert "[/foo] 坏" in shown
        await pilot.press("slash", *"failed", "enter")
        await settle(app, pilot)
        assert len(app.screen.query_one(JobList).shown) == 1
        assert bad.job_id in text_of(app, "#jobs-detail")
        await pilot.press("enter")
        await settle(app, pilot)
        assert isinstance(app.screen, RunScreen)
        assert app.screen.directory == bad.directory
        await pilot.press("escape", "escape")
        await settle(app, pilot)
        assert app.screen.query_one("#jobs-filter", Input).value == ""
        assert len(app.screen.query_one(JobList).shown) == 2
        await pilot.press("escape")
        assert isinstance(app.screen, ComposeScreen)


async def test_headings_sort_checkboxes_mark_and_a_click_opens() -> None:
    inventory = make_inventory()
    writers = [job_files.succeeded(job(*CHOSEN, name=name), inventory) for name in ("y", "z", "ax")]  # What no id has.
    broken = jobs.create("broken")
    broken.events.mkdir()
    app = make_app(inventory)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("j")
        await settle(app, pilot)
        listed = app.screen.query_one(JobList)
        ids = [writer.job_id for writer in writers]
        assert list(listed.shown) == [*reversed(ids), broken.job_id]
        assert "cannot be read" in screen_text(app)
        heading = listed.render_line(0).text
        await pilot.click(JobList, offset=(heading.index("name"), 0))
        await settle(app, pilot)
        assert [app.screen.query_one(JobList).shown[0]] == [ids[2]]
        await pilot.click(JobList, offset=(heading.index("name"), 0))
        await settle(app, pilot)
        assert listed.shown[0] == ids[1]
        await pilot.click(JobList, offset=(1, 1))
        await pilot.press("slash", *"name:ax", "enter", "space")
        await settle(app, pilot)
        assert "2 marked, 1 of them not shown" in text_of(app, "#jobs-caption")
        await pilot.press("escape", "A")
        await settle(app, pilot)
        assert "4 marked" in text_of(app, "#jobs-caption")
        await pilot.press("S")
        await settle(app, pilot)
        at = next(place for place, job_id in enumerate(listed.shown) if place != listed.cursor and job_id in ids)
        meant = listed.shown[at]
        await pilot.click(JobList, offset=(30, 1 + at))
        await settle(app, pilot)
        assert listed.highlighted == meant
        await pilot.click(JobList, offset=(30, 1 + at))
        await settle(app, pilot)
        assert isinstance(app.screen, RunScreen)
        assert app.screen.directory.job_id == meant


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
        assert len(app.screen.query_one(JobList).shown) == 0
        await pilot.press("x")
        await settle(app, pilot)
        assert isinstance(app.screen, JobsScreen)


def with_reports(writer: job_files.JobWriter, loss: float) -> job_files.JobWriter:
    """A job with its file, and a curve of its own."""
    writer.directory.document.write_text(f"distributed_training:\n  name: x\n  version: '{loss}'\n")
    for step in range(1, 9):
        writer.report(Metric(0, 200 + step, loss, tokens_per_s=1000.0))
    return writer


async def test_marked_jobs_are_compared_on_one_plot_and_replayed() -> None:
    inventory = make_inventory()
    first = with_reports(job_files.succeeded(job(*CHOSEN, name="one"), inventory), 1.25)
    with_reports(job_files.failed(job(*CHOSEN[:2], name="two"), inventory), 0.75)
    app = make_app(inventory)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("j")
        await settle(app, pilot)
        await pilot.press("c")
        await until(pilot, lambda: "Mark two" in " ".join(toasts(app)), "it is told how")
        await pilot.press("A", "c")
        await settle(app, pilot)
        assert isinstance(app.screen, CompareScreen)
        differences = text_of(app, "#compare-differences")
        assert "plan.world_size" in differences
        assert "plan.framework" not in differences
        assert "1.25" in text_of(app, "#compare-jobs")
        shown = screen_text(app)
        assert "loss by step" in shown
        assert "tok/s by step" in shown
        await pilot.press("escape", "end", "p")
        await settle(app, pilot)
        assert isinstance(app.screen, ReplayScreen)
        assert app.screen.directory == first.directory
        await pilot.press("escape")
        await settle(app, pilot)
        assert isinstance(app.screen, JobsScreen)


async def test_a_job_is_run_again_and_restarted_once_that_is_confirmed() -> None:
    inventory = make_inventory()
    document = job(*CHOSEN, name="one")
    over = job_files.succeeded(document, inventory)
    launched: list[Submission] = []

    def launch(submission: Submission, _plan: Plan) -> jobs.JobDirectory:
        launched.append(submission)
        return job_files.succeeded(document, inventory).directory

    app = make_app(inventory, launch=launch)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("j")
        await settle(app, pilot)
        await pilot.press("a")
        await until(pilot, lambda: bool(toasts(app)), "its job file is missing, and that is told")
        over.submitted(document, inventory)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "it is asked first")
        await settle(app, pilot)
        assert "as another job: 14 ranks on pytorch-dev-env" in text_of(app, ".dialog-text")
        await pilot.press("enter")
        await settle(app, pilot)
        assert not launched
        for key in ("a", "r"):
            await pilot.press(key)
            await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "it is asked first")
            await pilot.press("right", "enter")
            await until(pilot, lambda: isinstance(app.screen, RunScreen), "the other job is watched")
            await pilot.press("escape", "end")
            await settle(app, pilot)
    assert [item.continues for item in launched] == [None, over.job_id]
    assert [item.job for item in launched] == [document, document]


async def test_of_marked_jobs_those_are_removed_that_are_over() -> None:
    inventory = make_inventory()
    over = [job_files.succeeded(job(*CHOSEN, name=name), inventory) for name in ("one", "two")]
    running = job_files.running(job(*CHOSEN, name="on"), inventory)
    app = make_app(inventory)
    async with controller(running), app.run_test(size=SIZE) as pilot:
        await pilot.press("j")
        await settle(app, pilot)
        await pilot.press("A", "x")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "it is asked first")
        shown = " ".join(screen_text(app).split())
        assert "Remove 2 jobs from this login node?" in shown
        assert "1 job stays" in shown
        await pilot.press("tab", "enter")
        await until(pilot, lambda: not any(item.directory.path.exists() for item in over), "both are gone")
        listed = app.screen_stack[-1].query_one(JobList)
        await until(pilot, lambda: list(listed.shown) == [running.job_id], "and no more listed")
        assert running.directory.path.exists()


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


async def test_no_jobs_is_said_and_that_they_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> list[Path]:
        raise PermissionError(errno.EACCES, "Permission denied", "/home/li/dttui/jobs")

    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("j")
        await settle(app, pilot)
        assert "No job has been launched" in screen_text(app)
        await pilot.press("escape")
        with monkeypatch.context() as patch:
            patch.setattr(catalogue, "directories", refused)
            await pilot.press("j")
            await settle(app, pilot)
            assert "/home/li/dttui/jobs cannot be read: Permission denied" in screen_text(app)


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
