"""Ways out: the key in the line of keys, what ctrl+c says, and the question before edits are lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from dtagent.protocol.events import JobState
from textual.widgets import Input, Select

from dttui.spec.models import Run
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.dialogs import ChoiceDialog
from dttui.tui.widgets.environment_list import EnvironmentList
from tests.tui import job_files
from tests.tui.composing import SIZE, FakeLauncher, screen_of
from tests.tui.controllers import controller
from tests.tui.fake_fleet import job, make_app, make_inventory, set_states
from tests.tui.looking import left, screen_text, settle, text_of, toasts, until
from tests.tui.screens import CHOSEN


@pytest.mark.parametrize("key", ["q", "ctrl+q"])
async def test_an_untouched_job_is_left_at_once(key: str) -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press(key)
        await left(app)
    assert app.return_code == 0


async def test_edits_that_are_not_saved_are_asked_about() -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("space", "q")
        await settle(app, pilot)
        assert "Leave without saving?" in screen_text(app)
        await pilot.press("escape")
        await settle(app, pilot)
        assert isinstance(app.screen, ComposeScreen)
        await pilot.press("ctrl+q")
        await settle(app, pilot)
        await pilot.press("ctrl+q")
        await settle(app, pilot)
        assert sum(isinstance(screen, ChoiceDialog) for screen in app.screen_stack) == 1
        await pilot.press("enter")
        await settle(app, pilot)
        assert isinstance(app.screen, ComposeScreen), "the button under the cursor stays"
        await pilot.press("ctrl+q", "ctrl+q")
        await settle(app, pilot)
        await pilot.press("right", "enter")
        await left(app)
    assert app.return_code == 0


async def test_a_job_that_came_with_another_framework_is_as_it_came() -> None:
    draft = job("pytorch-dev-env", "llm-training-env", framework="command", run=Run(command=("python", "a b")))
    app = make_app(draft=draft)
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        assert screen_of(app).state.framework == "command"
        assert screen_of(app).state.to_job().run == draft.run
        assert not screen_of(app).has_edits


async def test_what_was_undone_or_saved_is_not_asked_about(tmp_path: Path) -> None:
    app = make_app(draft=job("pytorch-dev-env", "llm-training-env"), base=tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("down", "space", "up", "space")
        assert not screen_of(app).has_edits
        await pilot.press("up", "minus")
        assert screen_of(app).has_edits
        await pilot.press("ctrl+s")
        await settle(app, pilot)
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        await settle(app, pilot)
        assert not screen_of(app).has_edits
        assert (tmp_path / "job.yaml").exists()


async def test_the_question_says_that_running_jobs_go_on() -> None:
    inventory = make_inventory()
    async with controller(job_files.running(job(*CHOSEN), inventory)):
        app = make_app(inventory)
        async with app.run_test(size=SIZE) as pilot:
            await settle(app, pilot)
            await pilot.press("space", "ctrl+q")
            await settle(app, pilot)
            asked = text_of(app, ".dialog-text")
            assert "changes that are not saved" in asked
            assert "1 job is running and goes on" in asked


async def test_a_q_is_text_in_a_field_and_in_an_open_list() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        app.screen.query_one("#program", Input).focus()
        await pilot.press("q")
        assert app.screen.query_one("#program", Input).value == "q"
        app.screen.query_one("#dataset", Select).focus()
        await pilot.press("enter", "q")
        await settle(app, pilot)
        assert isinstance(app.screen, ComposeScreen)
        assert app.is_running


async def test_ctrl_c_says_how_to_quit() -> None:
    app = make_app()
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        for selector in ("#environments", "#task-name"):
            app.screen.query_one(selector).focus()
            await pilot.press("ctrl+c")
            await settle(app, pilot)
            assert toasts(app)[-1] == "ctrl+q quits; jobs go on running."
            app.clear_notifications()


@pytest.mark.parametrize("width", [100, 115, 116, 120, 160])
async def test_wide_screens_show_how_to_open_and_how_to_quit(width: int) -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=(width, 40)) as pilot:
        await settle(app, pilot)
        keys = screen_text(app).splitlines()[-1]
        for words in ("+/- use GPUs", "o open", "^q quit", "? keys"):
            assert words in keys


@pytest.mark.parametrize("width", [80, 120])
async def test_after_a_launch_the_list_has_the_focus_again(width: int) -> None:
    inventory = make_inventory()
    app = make_app(inventory, draft=job(*CHOSEN), launch=FakeLauncher(inventory))
    async with app.run_test(size=(width, 40)) as pilot:
        set_states(app)
        await settle(app, pilot)
        if width < 100:
            await pilot.press("v")
        app.screen.query_one("#task-name").focus()
        await pilot.press("ctrl+l")
        await settle(app, pilot)
        assert not isinstance(app.screen, ComposeScreen)
        await pilot.press("escape")
        await settle(app, pilot)
        assert isinstance(app.focused, EnvironmentList)
        await pilot.press("s")
        assert screen_of(app).state.task_name == "gpt-small"


async def test_a_long_question_leaves_its_buttons_on_a_small_screen() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        app.push_screen(
            ChoiceDialog("Save", "word " * 350, (("no", "Keep it", "default"), ("yes", "Replace", "error")))
        )
        await settle(app, pilot)
        assert "Replace" in screen_text(app)


async def test_the_question_before_leaving_follows_the_jobs() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    writer.watch()
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("ctrl+q")
        await until(pilot, lambda: "1 job is running and goes on" in screen_text(app), "the job is told of")
        writer.outcome(JobState.CANCELLED, "stopped on request", 103)
        await until(pilot, lambda: "No job is running any more." in screen_text(app), "it is told that it has ended")
        await pilot.press("enter")
        await left(app)
