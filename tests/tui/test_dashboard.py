"""The run screen as a dashboard: one plot alone, axes, folded panes, who broke first, a shell, and going on."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind, JobState

from dttui.app.face import App as Face
from dttui.app.face import Submitted
from dttui.jobs.event_log import EventLog
from dttui.jobs.launch_file import LaunchFile
from dttui.tui.app import DttuiApp
from dttui.tui.screens.dialogs import ChoiceDialog
from dttui.tui.screens.run import RunScreen
from dttui.tui.widgets.node_grid import NodeGrid
from tests.tui import job_files
from tests.tui.controllers import controller
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.looking import grid, look, screen_text, settle, text_of, toasts, until
from tests.tui.screens import CHOSEN

SIZE = (120, 40)


async def test_one_plot_can_be_shown_alone_and_how_the_screen_was_left_is_kept() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    app = make_app(inventory, attach=writer.directory)
    async with controller(writer), app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        await pilot.press("1", "right", "z")
        await settle(app, pilot)
        assert "tok/s by step" in screen_text(app)
        assert "loss by step" not in screen_text(app)
        assert not app.screen.query_one(NodeGrid).display, "it has all the room"
        await pilot.press("escape")
        await settle(app, pilot)
        assert isinstance(app.screen, RunScreen), "the way back from one plot leads to all"
        assert "loss by step" in screen_text(app)
        assert app.screen.query_one(NodeGrid).display
        await pilot.press("l", "f")
        await settle(app, pilot)
        assert "tok/s by step · log" in screen_text(app)
        assert not app.screen.query_one(NodeGrid).display
    again = make_app(inventory, attach=writer.directory)
    async with controller(writer), again.run_test(size=SIZE) as pilot:
        await look(again, pilot)
        assert "tok/s by step · log" in screen_text(again)
        assert not again.screen.query_one(NodeGrid).display
        await pilot.press("f")
        await settle(again, pilot)
        assert grid(again).count("ranks") == 3
        assert "loss by step" not in screen_text(again), "the nodes have all the room"
        await pilot.press("f")
        await settle(again, pilot)
        assert "loss by step" in screen_text(again)


async def test_the_run_before_is_drawn_behind_and_the_head_tells_how_far_it_is() -> None:
    inventory = make_inventory()
    before = job_files.succeeded(job(*CHOSEN), inventory)
    writer = job_files.running(job(*CHOSEN), inventory, took_s=20.0)
    app = make_app(inventory, attach=writer.directory)
    async with controller(writer), app.run_test(size=(200, 60)) as pilot:
        await look(app, pilot)
        assert f"┄ the run before: {before.job_id[:12]}" in screen_text(app)
        told = text_of(app, "#run-progress")
        for part in ("━", " 25%", "step 200 of 800", "left, until ", "best loss 2.19"):
            assert part in told, told
        assert "step 200" in text_of(app, "#title-right")


async def test_the_rank_that_others_wait_for_and_the_one_that_broke_first_are_marked() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    log = EventLog(writer.directory.events)
    log.add(EventKind.STRAGGLER, "they wait", attempt=0, node=CHOSEN[1], rank=4, data={"severity": "warning"})
    app = make_app(inventory, attach=writer.directory)
    async with controller(writer), app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        assert " 4⚠━" in grid(app)
        assert grid(app).count("⚠") == 1
        assert "▇" in grid(app), "how busy each was lately"
        data: dict[str, object] = {"exit_code": 1, "signal": None, "error": "bad", "traceback": None, "tail": []}
        log.add(EventKind.RANK_FAILED, "it broke", attempt=0, node=CHOSEN[2], rank=9, data={**data, "time": 1000.0})
        log.add(EventKind.RANK_FAILED, "so it broke", attempt=0, node=CHOSEN[1], rank=3, data={**data, "time": 1007.0})
        log.add(EventKind.NODE_STATE, "ended", attempt=0, node=CHOSEN[0], data={"state": "stopped"})
        writer.outcome(JobState.FAILED, "it broke", 100)
        await look(app, pilot)
        rows = grid(app)
        assert " 9 ⚠ failed first" in rows
        assert " 3 ⚠ failed 7s later" in rows
        assert f"followed {CHOSEN[2]} · ended" in rows


def with_launch(writer: job_files.JobWriter) -> None:
    """Keep what a submission writes besides."""
    launched = LaunchFile(inventory=make_inventory(), base=Path("/"), language="en")
    writer.directory.launch.write_text(launched.model_dump_json())


async def test_a_shell_on_the_node_under_the_cursor_is_reached_by_ssh_and_its_logs_by_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said; exit 3\n')
    ssh.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(DttuiApp, "suspend", lambda self: contextlib.nullcontext())
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    app = make_app(inventory, attach=writer.directory)
    async with controller(writer), app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        await pilot.press("o")
        await settle(app, pilot)
        assert toasts(app)[-1].startswith("the job does not tell how")
        with_launch(writer)
        app.screen.query_one(NodeGrid).focus()
        await pilot.press("down", "o")
        await settle(app, pilot)
        said = (tmp_path / "said").read_text()
        host = next(item.host for item in inventory.environments if item.name == CHOSEN[1])
        assert f" {host} " in said
        assert f"/jobs/{writer.job_id}" in said
        assert toasts(app)[-1] == f"The shell on {CHOSEN[1]} has ended with exit code 3."
        await pilot.press("enter")
        await until(pilot, lambda: "rank 3 is ready" in screen_text(app), "its logs")
        assert "rank 7 is ready" not in screen_text(app)


async def test_a_job_that_is_over_goes_on_as_another_one_after_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = make_inventory()
    writer, other = job_files.failed(job(*CHOSEN), inventory), job_files.running(job(*CHOSEN), inventory)
    with_launch(writer)
    document = "distributed_training:\n  name: gpt-small\n  cluster:\n    nodes: [{id: pytorch-dev-env}]\n"
    writer.directory.document.write_text(document + "  strategy: {type: data_parallel}\n  dataset: none\n"
                                         "  framework: pytorch-ddp\n  run: {script: /srv/train.py}\n")  # fmt: skip
    continued: list[str | None] = []

    def submit(self: Face, submission, plan, *, starts_another, spare=None):  # type: ignore[no-untyped-def]  # a stand-in
        continued.append(submission.continues)
        return Submitted(other.directory, was_running=False, earlier=None)

    monkeypatch.setattr(Face, "submit", submit)
    app = make_app(inventory, attach=writer.directory)
    async with controller(other), app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "the question")
        assert "from its newest checkpoint?" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert continued == [], "the harmless button has the focus"
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "the question")
        await settle(app, pilot)
        await pilot.click("#run")
        await until(pilot, lambda: getattr(app.screen, "directory", None) == other.directory, "the other job")
        assert continued == [writer.job_id]
        await look(app, pilot)
        await pilot.press("r")
        await settle(app, pilot)
        assert "newest checkpoint?" not in screen_text(app), "one that runs is not offered it"
