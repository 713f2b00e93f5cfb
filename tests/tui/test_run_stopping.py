"""Stopping a job from the run screen: the question, what the controller hears, and a job without one."""

from __future__ import annotations

import os
from functools import partial

import pytest
from dtagent.protocol.events import JobState
from textual.widgets import Button

from dttui.launch import stop_request
from dttui.tui.app import DttuiApp
from dttui.tui.screens import dialogs
from dttui.tui.screens.dialogs import ChoiceDialog, Question
from dttui.tui.screens.run import RunScreen
from tests.tui import job_files
from tests.tui.controllers import controller
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.looking import look, settle, text_of, toasts, until
from tests.tui.screens import CHOSEN

SIZE = (120, 40)


async def test_stopping_asks_first_and_then_tells_the_controller() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    async with controller(writer) as said:
        app = make_app(inventory, attach=writer.directory)
        async with app.run_test(size=SIZE, notifications=True) as pilot:
            await look(app, pilot)
            await pilot.press("x")
            await settle(app, pilot)
            assert app.focused is not None
            assert app.focused.id == "cancel", "the harmless button has the focus"
            labels = [str(button.label) for button in app.screen.query(Button)]
            assert labels == ["Keep running", "Stop the job", "Stop at once"]
            await pilot.press("enter")
            await settle(app, pilot)
            assert not any(message["method"] == "stop" for message in said)
            await pilot.press("x")
            await settle(app, pilot)
            await pilot.click("#graceful")
            await until(pilot, lambda: {"method": "stop", "force": False} in said, "it is asked to stop")
            await look(app, pilot)
            await pilot.press("x")
            await settle(app, pilot)
            app.screen.query_one("#force", Button).press()
            await until(pilot, lambda: {"method": "stop", "force": True} in said, "it is asked to stop at once")
            await until(pilot, lambda: {"method": "attach", "prompts": True} in said, "it is listened to")
            await look(app, pilot)
            assert toasts(app)[-1] == "Asked to stop at once."


async def test_a_job_that_is_stopping_already_can_only_be_waited_for_or_killed() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    writer.state(JobState.STOPPING, "stopping on request")
    async with controller(writer) as said:
        app = make_app(inventory, attach=writer.directory)
        async with app.run_test(size=SIZE) as pilot:
            await look(app, pilot)
            await pilot.press("x")
            await settle(app, pilot)
            assert [str(button.label) for button in app.screen.query(Button)] == ["Keep waiting", "Stop at once"]
            await pilot.press("right", "enter")
            await until(pilot, lambda: {"method": "stop", "force": True} in said, "it is asked to stop at once")
            assert {"method": "stop", "force": False} not in said


async def test_stopping_a_job_that_nobody_watches_says_so() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await look(app, pilot)
        told = "⚠ no controller watches this job"
        await until(pilot, lambda: text_of(app, "#run-status") == told, "it is told that nobody watches")
        await pilot.press("x")
        await settle(app, pilot)
        await pilot.click("#graceful")
        await look(app, pilot)
        assert "no controller watches job" in toasts(app)[-1]


async def test_a_controller_that_does_not_answer_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_request, "REPLY_DEADLINE_S", 0.1)
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    async with controller(writer, answers=False):
        app = make_app(inventory, attach=writer.directory)
        async with app.run_test(size=SIZE, notifications=True) as pilot:
            await look(app, pilot)
            await pilot.press("x")
            await settle(app, pilot)
            await pilot.click("#graceful")
            await until(pilot, lambda: bool(toasts(app)), "something to be told")
            vain = stop_request.unanswered(writer.directory, os.getpid())
            assert toasts(app)[-1] == f"{vain.message}. {vain.hint}"


async def test_a_controller_that_falls_silent_after_it_was_asked_is_named_with_what_to_do() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    async with controller(writer) as said:
        app = make_app(inventory, attach=writer.directory)
        async with app.run_test(size=SIZE, notifications=True) as pilot:
            await look(app, pilot)
            await pilot.press("x")
            await settle(app, pilot)
            await pilot.click("#graceful")
            await until(pilot, lambda: {"method": "stop", "force": False} in said, "it is asked to stop")
            os.utime(writer.directory.lock, (0, 0))
            vain = stop_request.unanswered(writer.directory, os.getpid())
            told = f"{vain.message}. {vain.hint}"
            await until(pilot, lambda: toasts(app)[-1:] == [told], "it is told")


async def test_the_question_follows_a_job_that_somebody_else_stops() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    async with controller(writer) as said:
        app = make_app(inventory, attach=writer.directory)
        async with app.run_test(size=SIZE, notifications=True) as pilot:
            await look(app, pilot)
            await pilot.press("x")
            await settle(app, pilot)
            await pilot.press("right")
            writer.state(JobState.STOPPING, "stopping on request")
            await until(pilot, lambda: len(app.screen.query(Button)) == 2, "the question has followed the job")
            assert [str(button.label) for button in app.screen.query(Button)] == ["Keep waiting", "Stop at once"]
            await until(pilot, lambda: app.focused is not None, "a button has the focus again")
            assert app.focused is app.screen.query_one("#cancel"), "it is the harmless one"
            writer.nodes("stopped")
            writer.outcome(JobState.CANCELLED, "stopped on request", 103)
            await until(pilot, lambda: isinstance(app.screen, RunScreen), "the question is gone")
            await until(pilot, lambda: toasts(app)[-1:] == ["The job is over already."], "it is said")
        assert not any(message["method"] == "stop" for message in said)


async def test_a_question_below_another_one_says_once_that_the_job_is_over_and_only_when_it_is_on_top_again() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await look(app, pilot)
        run = app.screen
        assert isinstance(run, RunScreen)
        await pilot.press("x")
        await settle(app, pilot)
        asked = app.screen
        assert isinstance(asked, ChoiceDialog)
        app.push_screen(ChoiceDialog("Another", "question", [("ok", "OK", "default")]))
        await settle(app, pilot)
        writer.outcome(JobState.CANCELLED, "stopped on request", 103)
        await until(pilot, lambda: run.follower.is_over, "the job is over")
        for _turn in range(2):
            asked.ask_anew()
            await settle(app, pilot)
        assert "The job is over already." not in toasts(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is run, "the question is gone")
        assert toasts(app).count("The job is over already.") == 1


async def test_a_question_that_is_looked_at_again_while_it_changes_keeps_its_buttons_and_the_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dialogs, "FOLLOW_S", 0.001)
    asked = [Question("first", [("a", "A", "default"), ("b", "B", "default")])]
    app = make_app(make_inventory())

    async def follow() -> Question:
        return asked[-1]

    async with app.run_test(size=SIZE) as pilot:
        first = asked[0]
        app.push_screen(ChoiceDialog("Which", first.text, first.choices, follow=follow))
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "it is asked")
        for name in ("c", "d", "e", "f", "g"):
            asked.append(Question(name, [(name, name.upper(), "default"), ("z", "Z", "default")]))
            await until(pilot, partial(app.screen.query, f"#{name}"), "the buttons are others")
            await until(pilot, partial(has_focus, app, name), "the first has the cursor")


def has_focus(app: DttuiApp, name: str) -> bool:
    return app.focused is app.screen.query_one(f"#{name}")
