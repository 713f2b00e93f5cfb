"""A job's past on the run screen: its keys, and that it does nothing to the job."""

from __future__ import annotations

from typing import cast

import pytest
from dtagent.protocol.events import JobState
from textual.widgets import TabbedContent

from dttui.tui.app import DttuiApp
from dttui.tui.screens.help import HelpScreen
from dttui.tui.screens.replay import ReplayScreen
from tests.tui import job_files
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.job_files import JobWriter
from tests.tui.looking import grid, log_of, look, screen_text, text_of, until
from tests.tui.screens import CHOSEN

SIZE = (120, 40)


def replayed(writer: JobWriter, speed: float) -> DttuiApp:
    return make_app(make_inventory(), attach=writer.directory, replay_speed=speed)


def screen_of(app: DttuiApp) -> ReplayScreen:
    assert isinstance(app.screen, ReplayScreen)
    return app.screen


async def test_a_replay_is_paused_and_goes_on_faster_slower_ahead_and_back() -> None:
    writer = job_files.failed(job(*CHOSEN), make_inventory())
    app = replayed(writer, 1e-6)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        clock = screen_of(app).follower.clock  # type: ignore[attr-defined]  # a PastFollower
        assert "▶ replay 1e-06×" in text_of(app, "#run-status")
        assert "FAILED" not in text_of(app, "#title-left")
        await pilot.press("plus")
        assert clock.speed == 2e-6
        await pilot.press("minus", "p", *["b"] * 21)
        await look(app, pilot)
        assert "⏸ replay 0.125×" in text_of(app, "#run-status")
        begun = text_of(app, "#run-events")
        await pilot.press(*["f"] * 21)
        await look(app, pilot)
        assert "■ replay" in text_of(app, "#run-status")
        assert "✗ FAILED" in text_of(app, "#title-left")
        assert "rank 13" in text_of(app, "#run-why")
        assert len(text_of(app, "#run-events")) > len(begun)
        await pilot.press(*["b"] * 21)
        await look(app, pilot)
        assert "⏸ replay" in text_of(app, "#run-status")
        assert "FAILED" not in text_of(app, "#title-left")
        assert text_of(app, "#run-events") == begun
        assert app.screen.query_one(TabbedContent).active == "loss"
        assert "The script has reported no metrics yet." in screen_text(app)
        assert "loss by step" not in screen_text(app)
        assert text_of(app, "#run-why") == text_of(app, "#run-places") == ""


async def test_what_was_told_at_once_can_be_told_again_from_an_earlier_moment() -> None:
    writer = job_files.failed(job(*CHOSEN), make_inventory())
    app = replayed(writer, float("inf"))
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        assert "■ replay at once" in text_of(app, "#run-status")
        await pilot.press("p", *["b"] * 21)
        await look(app, pilot)
        assert "⏸ replay 10×" in text_of(app, "#run-status")
        assert "FAILED" not in text_of(app, "#title-left")
        await pilot.press("p")
        await until(pilot, lambda: "FAILED" in text_of(app, "#title-left"), "the job to have failed again")


async def test_a_replay_stops_nothing_brings_up_no_controller_and_is_left_by_escape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = JobWriter(job(*CHOSEN), make_inventory())
    writer.nodes("running")
    writer.state(JobState.RUNNING, "all ranks run")
    writer.logs(CHOSEN[0], "0.out", "hello")
    app = replayed(writer, float("inf"))

    async def refuse(*_arguments: object, **_named: object) -> None:
        raise AssertionError("a controller was asked")

    monkeypatch.setattr(app.attachments, "attach", refuse)
    monkeypatch.setattr(app.attachments, "stop", refuse)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        assert "● RUNNING" in text_of(app, "#title-left")
        assert "no controller" not in screen_text(app)
        assert "● running" in grid(app)
        assert "p pause" in screen_text(app)
        assert "stop" not in screen_text(app).splitlines()[-1]
        await pilot.press("x", "2")
        await look(app, pilot)
        assert "hello" in "\n".join(log_of(app))
        assert isinstance(app.screen, ReplayScreen)
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen), "its keys are listed")
        listed = {command.name: command.key for command in cast(HelpScreen, app.screen).commands}
        assert {"pause", "faster", "leave", "logs"} <= {*listed}
        assert not {"stop", "restart", "stacks", "shell", "back"} & {*listed}, "only what it offers"
        await pilot.press("escape", "escape")
        await pilot.pause()
    assert not writer.directory.has_controller()


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_keys_of_a_replay_are_at_the_bottom(size: tuple[int, int]) -> None:
    app = replayed(job_files.failed(job(*CHOSEN), make_inventory()), float("inf"))
    async with app.run_test(size=size) as pilot:
        await look(app, pilot)
        keys = screen_text(app).splitlines()[-1]
        assert all(word in keys for word in ("p pause", "+ faster", "- slower", "? keys"))
