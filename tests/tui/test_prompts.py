"""Questions of hosts: one at a time, masked, declined by escape, and not asked again and again."""

from __future__ import annotations

import asyncio

import pytest
from textual.widgets import Input

from dttui.transport.base import Prompt, PromptKind
from dttui.tui.prompts import ScreenPrompter
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.prompt import PromptDialog
from tests.tui.fake_fleet import make_app
from tests.tui.looking import screen_text, text_of
from tests.tui.screens import settle

SIZE = (100, 30)
KEY = Prompt(PromptKind.HOST_KEY, "gpu1", "", secret=False, fingerprint="SHA256:abcDEF")
PASSWORD = Prompt(PromptKind.PASSWORD, "gpu2", "li@gpu2's password:")
CODE = Prompt(PromptKind.ONE_TIME_CODE, "gpu3", "Code [/b]\x1b[2J:", secret=False)


async def test_a_host_key_is_shown_with_its_fingerprint_and_taken_only_on_yes() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        for key, expected in (("enter", None), ("escape", None)):
            asked = asyncio.create_task(app.questions.ask(KEY))
            await settle(app, pilot)
            assert "gpu1" in screen_text(app)
            assert "SHA256:abcDEF" in screen_text(app)
            await pilot.press(key)
            assert await asked is expected
            await settle(app, pilot)
            assert isinstance(app.screen, ComposeScreen)
        asked = asyncio.create_task(app.questions.ask(KEY))
        await settle(app, pilot)
        await pilot.click("#yes")
        assert await asked == "yes"


async def test_questions_come_one_after_the_other_and_secrets_are_masked() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        first = asyncio.create_task(app.questions.ask(PASSWORD))
        second = asyncio.create_task(app.questions.ask(CODE))
        await pilot.pause(0.6)
        assert "1 more question waits" in text_of(app, "#waiting")
        await pilot.press(*"hunter2")
        await settle(app, pilot)
        assert "hunter2" not in screen_text(app)
        await pilot.press("enter")
        assert await first == "hunter2"
        await settle(app, pilot)
        assert "Code [/b]:" in screen_text(app)
        assert not app.screen.query_one("#answer", Input).password
        await pilot.press(*"123", "enter")
        assert await second == "123"


async def test_all_questions_that_wait_can_be_skipped_together() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        asked = [asyncio.create_task(app.questions.ask(PASSWORD)) for _number in range(5)]
        await pilot.pause(0.6)
        await pilot.click("#skip")
        assert await asyncio.gather(*asked) == [None] * 5
        await settle(app, pilot)
        again = asyncio.create_task(app.questions.ask(PASSWORD))
        await settle(app, pilot)
        assert isinstance(app.screen, PromptDialog)
        await pilot.press("escape")
        assert await again is None


async def test_a_declined_host_is_not_asked_about_again_until_a_person_retries() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        prompter = ScreenPrompter(app.questions, remembers_refusals=True)
        asked = asyncio.create_task(prompter.ask(KEY))
        await settle(app, pilot)
        await pilot.press("escape")
        assert await asked is None
        assert await prompter.ask(KEY) is None
        prompter.forget("gpu1")
        asked = asyncio.create_task(prompter.ask(KEY))
        await settle(app, pilot)
        await pilot.click("#yes")
        assert await asked == "yes"


async def test_a_question_nobody_waits_for_any_more_goes_away() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        asked = asyncio.create_task(app.questions.ask(PASSWORD))
        await settle(app, pilot)
        await pilot.press("f1")
        await settle(app, pilot)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await settle(app, pilot)
        await pilot.press("escape")
        await settle(app, pilot)
        assert isinstance(app.screen, ComposeScreen)
