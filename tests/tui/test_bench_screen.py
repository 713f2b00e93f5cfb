"""Measuring links from the preflight's board: it is asked first, goes on beside the screen, and ends in rows."""

from __future__ import annotations

import threading

import pytest
from dtagent.protocol.events import JobState
from rich.cells import cell_len
from textual.pilot import Pilot
from textual.widgets import Button, OptionList, Static

from dttui.app import BenchReport
from dttui.compose import bench_report
from dttui.compose.bench_report import read_report
from dttui.compose.kept_benches import newest_bench
from dttui.fleet.known_hardware import links_of
from dttui.i18n import set_language
from dttui.jobs import JobDirectory
from dttui.planning.models import Plan
from dttui.planning.submission import Submission
from dttui.tui.app import DttuiApp
from dttui.tui.screens.bench import BenchScreen
from dttui.tui.screens.checks import ChecksScreen
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.dialogs import ChoiceDialog
from dttui.tui.widgets.curve_plot import CurvePlot
from tests.tui.bench_files import bench_lines, bench_under_way, kept_bench
from tests.tui.controllers import controller
from tests.tui.fake_checks import trouble
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.job_files import JobWriter
from tests.tui.looking import settle, text_of, until

NODES = ("pytorch-dev-env", "llm-training-env", "nlp-research-lab")
PATIENCE_S = 30.0


async def ask(app: DttuiApp, pilot: Pilot[None]) -> None:
    """Press the button of the board."""
    await settle(app, pilot)
    await pilot.press("c")
    await until(pilot, lambda: isinstance(app.screen, ChecksScreen), "the board is on screen")
    await until(pilot, lambda: bool(app.screen.query("#bench")), "its button is there")
    app.screen.query_one("#bench", Button).press()
    await until(pilot, lambda: isinstance(app.screen, (ChoiceDialog, BenchScreen)), "the links are on screen")


def shown(app: DttuiApp) -> BenchScreen:
    assert isinstance(app.screen, BenchScreen)
    return app.screen


def has_rows(app: DttuiApp) -> bool:
    """Whether the list has its rows; it is not there at once."""
    return any(options.option_count for options in shown(app).query(OptionList))


def columns(app: DttuiApp) -> list[str]:
    """Return the table's header, as far as there is a table."""
    lines = text_of(app, "#bench-table").splitlines()
    return lines[0].split() if lines else []


def measuring(writer: JobWriter, started: list[Submission]) -> DttuiApp:
    def launch(submission: Submission, plan: Plan) -> JobDirectory:
        started.append(submission)
        return writer.directory

    return make_app(draft=job(*NODES), check=trouble, launch=launch)


async def begin(app: DttuiApp, pilot: Pilot[None]) -> BenchScreen:
    """Agree to measure, and wait until rows are there."""
    await ask(app, pilot)
    await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "it is asked first")
    await pilot.press("right", "enter")
    await until(pilot, lambda: isinstance(app.screen, BenchScreen), "the links are on screen")
    await until(pilot, lambda: has_rows(app), "rows are there", PATIENCE_S)
    return shown(app)


async def test_nothing_is_measured_before_a_person_has_agreed() -> None:
    started: list[Submission] = []
    inventory = make_inventory()
    app = measuring(bench_under_way(job(*NODES), inventory), started)
    async with app.run_test(size=(80, 24)) as pilot:
        await ask(app, pilot)
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "it is asked first")
        await until(pilot, lambda: bool(app.screen.query(".dialog-text")), "the question is drawn")
        assert "their links are loaded for some minutes, by messages of up to 64MiB" in text_of(app, ".dialog-text")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, BenchScreen), "the question is gone")
        assert started == []
        assert "Nothing was measured" in shown(app).status().plain
        assert shown(app).check_action("measure", ())
        assert not shown(app).check_action("stop", ())


async def test_rows_come_while_it_goes_and_it_is_kept_although_the_screen_was_left() -> None:
    started: list[Submission] = []
    inventory = make_inventory()
    writer = bench_under_way(job(*NODES), inventory)
    app = measuring(writer, started)
    async with controller(writer), app.run_test(size=(120, 40)) as pilot:
        screen = await begin(app, pilot)
        assert started[0].job.run is not None
        assert started[0].job.run.module == "dttui_collectives.measuring"
        assert [node.id for node in started[0].job.cluster.nodes] == list(NODES)
        status = screen.status().plain
        assert "running" in status
        assert "━" in status
        assert "49% · 70 of 143 rows" in status
        assert cell_len(status) <= 118
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "the job is back")
        before = len(bench_lines(3, is_over=False))
        writer.logs(NODES[0], "0.out", *bench_lines(3)[before:])
        writer.outcome(JobState.SUCCEEDED, "finished", 0)
        environments = [item for name in NODES if (item := inventory.find(name)) is not None]
        kept = await until(pilot, lambda: newest_bench(environments), "it is kept", PATIENCE_S)
        assert kept is not None
        assert len(kept.report.rows) == 143
        assert links_of(environments)["hosts", frozenset(NODES[1:])].bandwidth is not None
        await ask(app, pilot)
        await until(pilot, lambda: "measured 20" in shown(app).status().plain, "it is shown as over", PATIENCE_S)


async def test_it_is_stopped_after_a_question() -> None:
    writer = bench_under_way(job(*NODES), make_inventory())
    app = measuring(writer, [])
    async with controller(writer) as said, app.run_test(size=(120, 40)) as pilot:
        await begin(app, pilot)
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "it is asked first")
        assert not any(message["method"] == "stop" for message in said)
        await pilot.press("right", "enter")
        await until(pilot, lambda: {"method": "stop", "force": False} in said, "its controller is asked", PATIENCE_S)


async def test_what_was_kept_is_shown_with_the_slow_link_its_curve_and_its_rows() -> None:
    inventory = make_inventory()
    kept_bench(inventory, NODES)
    app = make_app(draft=job(*NODES), check=trouble)
    async with app.run_test(size=(120, 40)) as pilot:
        await ask(app, pilot)
        await until(pilot, lambda: has_rows(app), "rows are there", PATIENCE_S)
        wide = ["size", "op", "algorithm", "time", "busbw", "regime"]
        await until(pilot, lambda: columns(app) == wide, "the table has its room")
        screen = shown(app)
        assert "nccl · over eth0" in screen.status().plain
        found = text_of(app, "#findings-text")
        assert "llm-training-env (eth0) ↔ nlp-research-lab (eth0): 1.92 Gbit/s, 13.3 × slower than the median" in found
        table = str(screen.query_one("#bench-table", Static).content)
        assert [regime in table for regime in ("latency-bound", "rising", "near the link")] == [True] * 3
        assert "near the link" in str(screen.query_one(CurvePlot).border_title)
        plot = str(screen.query_one(CurvePlot).render())
        assert "200 MB/s┤" in plot
        assert "512KiB" in plot
        assert "1.92 Gbit/s (plain TCP: 21 µs)" in text_of(app, "#bench-fit")
        await until(pilot, lambda: isinstance(app.focused, OptionList), "the list has the focus")
        await pilot.press("end")
        await until(pilot, lambda: "broadcast" in text_of(app, "#bench-table"), "another series is chosen")


async def test_a_narrow_screen_in_chinese_keeps_each_row_on_its_line() -> None:
    set_language("zh")
    inventory = make_inventory(chinese=True)
    kept_bench(inventory, NODES)
    app = make_app(inventory, draft=job(*NODES), check=trouble)
    async with app.run_test(size=(80, 24)) as pilot:
        await ask(app, pilot)
        await until(pilot, lambda: has_rows(app), "rows are there", PATIENCE_S)
        await until(pilot, lambda: columns(app) == ["size", "time", "busbw", "regime"], "the table has its room")
        table = text_of(app, "#bench-table")
        assert shown(app).query_one("#bench-table").size.height == len(table.splitlines())
        assert text_of(app, "#title-right") == "pytorch-dev-env、llm-training-env、nlp-research-lab"
        await pilot.resize_terminal(60, 24)
        await until(
            pilot, lambda: "台主机" in text_of(app, "#title-right"), "hosts are counted where names have no room"
        )


async def test_a_job_that_can_no_longer_be_read_ends_its_bench_and_not_the_app() -> None:
    writer = bench_under_way(job(*NODES), make_inventory())
    app = measuring(writer, [])
    async with controller(writer), app.run_test(size=(120, 40)) as pilot:
        screen = await begin(app, pilot)
        writer.directory.plan.write_text("{")
        await until(pilot, lambda: not screen.is_measuring, "it is over", PATIENCE_S)
        await until(pilot, lambda: "cannot be read" in screen.status().plain, "it is told", PATIENCE_S)
        assert app.is_running


async def test_a_look_that_finds_nothing_new_leaves_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[JobDirectory] = []

    def look(directory: JobDirectory) -> BenchReport:
        looks.append(directory)
        return read_report(directory)

    monkeypatch.setattr(bench_report, "read_report", look)
    writer = bench_under_way(job(*NODES), make_inventory())
    app = measuring(writer, [])
    async with controller(writer), app.run_test(size=(120, 40)) as pilot:
        await begin(app, pilot)
        watch = app.benches.of_hosts(NODES)
        assert watch is not None
        before, seen = watch.report, len(looks)
        await until(pilot, lambda: len(looks) > seen + 2, "it is looked at again", PATIENCE_S)
        assert watch.report is before


async def test_a_bench_that_starts_while_its_screen_is_left_is_followed() -> None:
    may_start = threading.Event()
    writer = bench_under_way(job(*NODES), make_inventory())

    def launch(submission: Submission, plan: Plan) -> JobDirectory:
        may_start.wait(PATIENCE_S)
        return writer.directory

    app = make_app(draft=job(*NODES), check=trouble, launch=launch)
    async with controller(writer), app.run_test(size=(120, 40)) as pilot:
        await ask(app, pilot)
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "it is asked first")
        await pilot.press("right", "enter")
        await until(pilot, lambda: isinstance(app.screen, BenchScreen), "the links are on screen")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ChecksScreen), "the board is back")
        assert app.benches.of_hosts(NODES) is None
        may_start.set()
        watch = await until(pilot, lambda: app.benches.of_hosts(NODES), "it is followed", PATIENCE_S)
        assert watch is not None
        assert watch.directory == writer.directory
