"""The logs of a job on its screen: of any length, searched, by levels, wrapped, from a time on, saved and copied."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Select

from dttui.tui.app import DttuiApp
from dttui.tui.screens.dialogs import PathDialog
from dttui.tui.screens.run import RunScreen
from dttui.tui.widgets.log_panel import ALL_NODES, LogPanel
from dttui.tui.widgets.log_view import LogView
from tests.tui import job_files
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.job_files import JobWriter
from tests.tui.looking import log_of, look, screen_text, settle, text_of, toasts, until
from tests.tui.screens import CHOSEN

SIZE = (120, 40)
COUNT = 1_000_000
NODE = "nlp-research-lab"


def begin(*lines: str) -> tuple[JobWriter, DttuiApp]:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    writer.logs(NODE, "13.err", *lines)
    return writer, make_app(inventory, attach=writer.directory)


async def choose(app: DttuiApp, pilot: Pilot[None], node: str, stream: str = "") -> LogView:
    await look(app, pilot)
    await pilot.press("2")
    app.screen.query_one("#log-node", Select).value = node
    await look(app, pilot)
    app.screen.query_one("#log-stream", Select).value = stream
    await look(app, pilot)
    return app.screen.query_one(LogView)


def place(app: DttuiApp) -> str:
    return text_of(app, "#log-place")


async def test_words_are_found_forth_and_back_and_marked(tmp_path: Path) -> None:
    lines = [f"step {number}" for number in range(1000)]
    for number in (100, 500, 900):
        lines[number] += " Checkpoint saved"
    writer, app = begin(*lines)
    async with app.run_test(size=SIZE) as pilot:
        view = await choose(app, pilot, NODE, "13.err")
        assert "following · line 1,000 of 1,000" in place(app)
        await pilot.press("slash", *"checkpoint", "enter")
        await settle(app, pilot)
        assert view.at == 100, "after the end it begins anew"
        assert "1/3 · " in place(app)
        assert "step 100 Checkpoint saved" in screen_text(app)
        await pilot.press("n")
        await settle(app, pilot)
        assert view.at == 500
        await pilot.press("n", "n")
        await settle(app, pilot)
        assert view.at == 100
        await pilot.press("N")
        await settle(app, pilot)
        assert view.at == 900
        assert "standing still" in place(app)
        writer.logs(NODE, "13.err", "step 1000", "CHECKPOINT again")
        await look(app, pilot)
        assert "3/4 · " in place(app), "what comes is looked through, too"
        assert view.at == 900
        await pilot.press("slash")
        assert app.screen.query_one("#log-search", Input).value == "checkpoint"
        await pilot.press("escape")
        await settle(app, pilot)
        assert isinstance(app.screen, RunScreen)
        assert view.scan is not None
        await pilot.press("escape")
        await settle(app, pilot)
        assert view.scan is None
        assert isinstance(app.screen, RunScreen)
        await pilot.press("end")
        await settle(app, pilot)
        assert "following" in place(app)
        await pilot.press("slash", *"no such thing", "enter")
        await settle(app, pilot)
        assert "0 found" in place(app)
        assert view.at is None


async def test_errors_are_gone_to_and_shown_alone() -> None:
    lines = [f"step {number}, errors=0" for number in range(400)]
    lines[50], lines[200] = "Traceback (most recent call last):", "UserWarning: slow"
    _writer, app = begin(*lines)
    async with app.run_test(size=SIZE) as pilot:
        view = await choose(app, pilot, NODE, "13.err")
        await pilot.press("e")
        await settle(app, pilot)
        assert view.at == 50
        await pilot.press("l")
        await settle(app, pilot)
        assert view.count == 2
        assert "UserWarning: slow" in screen_text(app)
        assert "step 51" not in screen_text(app)
        await pilot.press("l")
        await settle(app, pilot)
        assert view.count == 1
        assert " errors · " in place(app)
        await pilot.press("l")
        await settle(app, pilot)
        assert view.count == 400


async def test_the_last_line_is_the_error_before_the_end_and_a_level_keeps_the_place() -> None:
    lines = [f"step {number}" for number in range(400)]
    lines[300], lines[310], lines[399] = "a warning", "an error\tafter a tab", "RuntimeError: the end"
    writer, app = begin(*lines)
    async with app.run_test(size=SIZE) as pilot:
        view = await choose(app, pilot, NODE, "13.err")
        await pilot.press("E")
        await settle(app, pilot)
        assert view.at == 399
        await pilot.press("E")
        await settle(app, pilot)
        assert view.at == 310
        assert "an error        after a tab" in screen_text(app)
        top = view.top
        await pilot.press("l", "l", "l")
        await settle(app, pilot)
        assert (view.top, view.count, view.is_following) == (top, 400, False)
        path = writer.directory.logs(0, NODE) / "13.err"
        path.with_suffix(".new").write_text("another file\nand an error\n")
        path.with_suffix(".new").rename(path)
        await look(app, pilot)
        assert log_of(app) == ["another file", "and an error"]
        await settle(app, pilot)
        assert view.scan is not None
        assert view.scan.found == [1]


async def test_long_lines_are_broken_on_request_and_the_end_is_still_followed() -> None:
    lines = [f"{number} " + "长行" * 100 + f" end-{number}" for number in range(50)]
    writer, app = begin(*lines)
    async with app.run_test(size=SIZE) as pilot:
        view = await choose(app, pilot, NODE, "13.err")
        assert "end-49" not in screen_text(app)
        assert "49 长行" in screen_text(app), "the bar below hides no line"
        await pilot.press("w")
        await settle(app, pilot)
        assert "end-49" in screen_text(app).replace("\n", "")
        assert "wrapped" in place(app)
        await pilot.press("slash", *"end-49", "enter")
        await settle(app, pilot)
        marked = view.get_component_rich_style("log-view--current")
        rows = [view.render_line(row) for row in range(view.size.height)]
        assert "".join(part.text for strip in rows for part in strip if part.style == marked) == "end-49"
        await pilot.press("escape", "end")
        await settle(app, pilot)
        writer.logs(NODE, "13.err", "the last")
        await look(app, pilot)
        assert "the last" in screen_text(app)
        await pilot.press("home")
        await settle(app, pilot)
        assert view.top == 0
        assert not view.is_following
        await pilot.press("end")
        await settle(app, pilot)
        assert "the last" in screen_text(app)
        assert view.is_following


async def test_who_stands_still_stays_where_they_are_while_lines_come() -> None:
    writer, app = begin(*(f"step {number}" for number in range(200)))
    async with app.run_test(size=SIZE) as pilot:
        view = await choose(app, pilot, NODE, "13.err")
        await pilot.press("space")
        top = view.top
        writer.logs(NODE, "13.err", *(f"later {number}" for number in range(50)))
        await look(app, pilot)
        assert (view.top, view.count) == (top, 250)
        await pilot.press("space")
        await settle(app, pilot)
        assert "later 49" in screen_text(app)


async def test_of_a_million_lines_the_end_is_there_at_once_and_then_all_are() -> None:
    writer, app = begin()
    path = writer.directory.logs(0, NODE) / "13.err"
    with path.open("w", encoding="utf-8") as stream:
        stream.write(
            "".join(f"step {number} loss 2.345678 of a line that has some length\n" for number in range(COUNT))
        )
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        await pilot.press("2")
        view = await choose(app, pilot, NODE, "13.err")
        await until(pilot, lambda: view.count == COUNT, "all lines")
        await settle(app, pilot)
        assert "step 999999 " in screen_text(app)
        await pilot.press("home")
        await settle(app, pilot)
        assert "step 0 loss " in screen_text(app)
        await pilot.press("slash", *"step 777777 ", "enter")
        await until(pilot, lambda: view.at == 777_777, "the line")
        assert "step 777777 " in screen_text(app)


async def test_logs_of_all_nodes_are_merged_by_the_times_that_their_lines_carry() -> None:
    writer, app = begin()
    for node, stream, second in ((NODE, "13.err", 3), (NODE, "13.err", 5), ("pytorch-dev-env", "0.out", 4)):
        writer.logs(node, stream, f"2026-11-21 13:00:0{second} at {second}", "  and more")
    async with app.run_test(size=SIZE) as pilot:
        await choose(app, pilot, ALL_NODES)
        shown = [line.partition("│ ")[2] for line in log_of(app)]
        told = [line for line in shown if line.startswith(("2026", "  and"))]
        assert [line[-1:] for line in told] == ["3", "e", "4", "e", "5", "e"]
        assert any(line.startswith("       0 out │ ") for line in log_of(app))
        writer.logs("llm-training-env", "launcher.err", "of torchrun")
        await look(app, pilot)
        assert log_of(app)[-1].endswith("err │ llm-training-env │ of torchrun")


@pytest.mark.parametrize("kind", ["13.err", ""], ids=["one file", "all ranks"])
async def test_a_time_leads_to_the_first_line_from_then_on(kind: str) -> None:
    lines = [f"2026-11-21 13:{minute:02}:00 minute {minute}" for minute in range(60)]
    _writer, app = begin(*lines)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        view = await choose(app, pilot, NODE, kind)
        await pilot.press("t", *"2026-11-21 13:07:30", "enter")
        await settle(app, pilot)
        assert view.at is not None
        assert view.store is not None
        assert view.store.lines(view.at, 1)[0].endswith("13:08:00 minute 8")
        await pilot.press("t", *"soon", "enter")
        await settle(app, pilot)
        assert any("is no time" in toast for toast in toasts(app))


async def test_what_is_shown_is_saved_and_copied(tmp_path: Path) -> None:
    _writer, app = begin("first", "an error", "last")
    target = tmp_path / "saved.log"
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await choose(app, pilot, NODE, "13.err")
        for expected in ("first\nan error\nlast\n", "an error\n"):
            await pilot.press("s")
            await until(pilot, lambda: isinstance(app.screen, PathDialog), "the question")
            app.screen.query_one(Input).value = str(target)
            await pilot.press("enter")
            await until(pilot, target.exists, "the file")
            await settle(app, pilot)
            assert target.read_text() == expected
            target.unlink()
            await pilot.press("l", "l")
            await settle(app, pilot)
        target.write_text("mine")
        await pilot.press("l", "l", "s")
        await until(pilot, lambda: isinstance(app.screen, PathDialog), "the question")
        app.screen.query_one(Input).value = str(target)
        await pilot.press("enter")
        await until(pilot, lambda: any("is there already" in toast for toast in toasts(app)), "why not")
        assert target.read_text() == "mine"
        await pilot.press("y")
        await settle(app, pilot)
        assert app.clipboard.splitlines() == ["first", "an error", "last"]


async def test_keys_lead_from_one_log_to_the_next() -> None:
    writer, app = begin("of thirteen")
    async with app.run_test(size=SIZE) as pilot:
        await choose(app, pilot, NODE, "13.err")
        await pilot.press("[")
        await look(app, pilot)
        assert app.screen.query_one("#log-stream", Select).value == "13.out"
        await pilot.press("]")
        await look(app, pilot)
        assert log_of(app) == ["of thirteen"]
        await pilot.press("}")
        await look(app, pilot)
        assert app.screen.query_one("#log-node", Select).value == ALL_NODES
        await pilot.press("}")
        await look(app, pilot)
        assert app.screen.query_one("#log-node", Select).value == writer.plan.nodes[0].name
        assert app.screen.query_one(LogPanel).processes(None)
