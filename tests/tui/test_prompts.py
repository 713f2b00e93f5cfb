"""Questions of hosts: one at a time, masked, declined by escape, not again and again, and never in a typist's way."""

from __future__ import annotations

import asyncio

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from dttui.transport.base import Prompt, PromptKind
from dttui.tui.app import DttuiApp
from dttui.tui.prompts import DEAF_S, TYPING_PAUSE_S, ScreenPrompter
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.prompt import PromptDialog
from tests.tui.fake_fleet import make_app
from tests.tui.looking import screen_text, settle, text_of, toasts, until

SIZE = (100, 30)
KEY = Prompt(PromptKind.HOST_KEY, "gpu1", "", secret=False, fingerprint="SHA256:abcDEF")
PASSWORD = Prompt(PromptKind.PASSWORD, "gpu2", "li@gpu2's password:")
CODE = Prompt(PromptKind.ONE_TIME_CODE, "gpu3", "Code [/b]\x1b[2J:", secret=False)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def with_clock() -> tuple[DttuiApp, Clock]:
    app, clock = make_app(), Clock()
    app.questions.clock = clock
    return app, clock


async def comes_up(app: DttuiApp, pilot: Pilot[None]) -> None:
    """Wait until a question is on screen."""

    def is_asking() -> bool:
        return isinstance(app.screen, PromptDialog) and app.questions.is_shown

    await until(pilot, is_asking, "a question is on screen")
    await settle(app, pilot)


async def hears(app: DttuiApp, pilot: Pilot[None], clock: Clock) -> None:
    """Wait until a question is on screen and has been there long enough."""
    await comes_up(app, pilot)
    clock.now += DEAF_S


async def test_a_host_key_is_shown_with_its_fingerprint_and_taken_only_on_yes() -> None:
    app, clock = with_clock()
    async with app.run_test(size=SIZE) as pilot:
        for key, expected in (("enter", None), ("escape", None)):
            asked = asyncio.create_task(app.questions.ask(KEY))
            await hears(app, pilot, clock)
            assert "gpu1" in screen_text(app)
            assert "SHA256:abcDEF" in screen_text(app)
            await pilot.press(key)
            assert await asked is expected
            await settle(app, pilot)
            assert isinstance(app.screen, ComposeScreen)
        asked = asyncio.create_task(app.questions.ask(KEY))
        await comes_up(app, pilot)
        await pilot.click("#yes")
        assert await asked == "yes"


async def test_questions_come_one_after_the_other_and_secrets_are_masked() -> None:
    app, clock = with_clock()
    async with app.run_test(size=SIZE) as pilot:
        first = asyncio.create_task(app.questions.ask(PASSWORD))
        second = asyncio.create_task(app.questions.ask(CODE))
        await comes_up(app, pilot)
        await until(pilot, lambda: text_of(app, "#waiting"), "it says how many wait")
        assert "1 more question waits" in text_of(app, "#waiting")
        await hears(app, pilot, clock)
        await pilot.press(*"hunter2")
        await settle(app, pilot)
        assert "hunter2" not in screen_text(app)
        await pilot.press("enter")
        assert await first == "hunter2"
        await hears(app, pilot, clock)
        assert "Code [/b]:" in screen_text(app)
        assert not app.screen.query_one("#answer", Input).password
        await pilot.press(*"123", "enter")
        assert await second == "123"


async def test_all_questions_that_wait_can_be_skipped_together() -> None:
    app, clock = with_clock()
    async with app.run_test(size=SIZE) as pilot:
        asked = [asyncio.create_task(app.questions.ask(PASSWORD)) for _number in range(5)]
        await hears(app, pilot, clock)
        await pilot.click("#skip")
        assert await asyncio.gather(*asked) == [None] * 5
        await settle(app, pilot)
        again = asyncio.create_task(app.questions.ask(PASSWORD))
        await hears(app, pilot, clock)
        await pilot.press("escape")
        assert await again is None


async def test_a_declined_host_is_not_asked_about_again_until_a_person_retries() -> None:
    app, clock = with_clock()
    async with app.run_test(size=SIZE) as pilot:
        prompter = ScreenPrompter(app.questions, remembers_refusals=True)
        asked = asyncio.create_task(prompter.ask(KEY))
        await hears(app, pilot, clock)
        await pilot.press("escape")
        assert await asked is None
        assert await prompter.ask(KEY) is None
        prompter.forget("gpu1")
        asked = asyncio.create_task(prompter.ask(KEY))
        await comes_up(app, pilot)
        await pilot.click("#yes")
        assert await asked == "yes"


async def test_a_question_nobody_waits_for_any_more_goes_away() -> None:
    app, clock = with_clock()
    async with app.run_test(size=SIZE) as pilot:
        asked = asyncio.create_task(app.questions.ask(PASSWORD))
        await hears(app, pilot, clock)
        await pilot.press("f1")
        await settle(app, pilot)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await settle(app, pilot)
        await pilot.press("escape")
        await settle(app, pilot)
        assert isinstance(app.screen, ComposeScreen)


async def test_keys_that_were_meant_for_something_else_do_not_answer() -> None:
    app, clock = with_clock()
    async with app.run_test(size=SIZE) as pilot:
        asked = asyncio.create_task(app.questions.ask(KEY))
        await comes_up(app, pilot)
        for _key in range(5):
            clock.now += DEAF_S * 0.8
            await pilot.press("enter", "escape")
        await settle(app, pilot)
        assert isinstance(app.screen, PromptDialog), "who types on is not heard, however long it takes"
        assert not asked.done()
        await hears(app, pilot, clock)
        await pilot.press("enter")
        assert await asked is None


async def test_a_question_waits_while_a_person_types_and_says_so() -> None:
    app, clock = with_clock()
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(app, pilot)
        field = next(field for field in app.screen.query(Input) if field.display)
        field.focus()
        await pilot.press("a")
        asked = asyncio.create_task(app.questions.ask(PASSWORD))
        await settle(app, pilot)
        await pilot.press("b", "c")
        await until(pilot, lambda: toasts(app), "it is said that a question waits")
        assert isinstance(app.screen, ComposeScreen)
        assert field.value.endswith("abc")
        assert toasts(app) == ["gpu2 asks something; the question comes up when you pause typing."]
        clock.now += TYPING_PAUSE_S
        await hears(app, pilot, clock)
        await pilot.press(*"secret", "enter")
        assert await asked == "secret"
        assert field.value.endswith("abc")


async def test_a_question_comes_up_at_once_when_the_person_leaves_the_field() -> None:
    app, clock = with_clock()
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        field = next(field for field in app.screen.query(Input) if field.display)
        field.focus()
        await pilot.press("a")
        asked = asyncio.create_task(app.questions.ask(KEY))
        await settle(app, pilot)
        assert isinstance(app.screen, ComposeScreen)
        app.screen.set_focus(None)
        await hears(app, pilot, clock)
        await pilot.press("escape")
        assert await asked is None


async def test_arrows_and_letters_go_from_button_to_button_and_round() -> None:
    app, clock = with_clock()
    async with app.run_test(size=SIZE) as pilot:
        asked = asyncio.create_task(app.questions.ask(KEY))
        await hears(app, pilot, clock)
        seen = [app.focused.id if app.focused else None]
        for key in ("left", "left", "right", "h", "l", "tab"):
            await pilot.press(key)
            seen.append(app.focused.id if app.focused else None)
        assert seen == ["no", "yes", "no", "yes", "no", "yes", "no"]
        await pilot.press("left", "enter")
        assert await asked == "yes"


async def test_a_servers_words_are_behind_a_bar_and_the_dialog_says_whom_it_is_about() -> None:
    fake = "li@gpu3\nPassphrase of the key /home/li/.ssh/id_ed25519, for use on this machine\n" * 40
    asking = Prompt(PromptKind.PASSWORD, "gpu3", "answer for the server", user="li", said=fake)
    for size in ((80, 24), (40, 24), (200, 60)):
        app, clock = with_clock()
        async with app.run_test(size=size) as pilot:
            asked = asyncio.create_task(app.questions.ask(asking))
            await hears(app, pilot, clock)
            rows = screen_text(app).split("\n")
            assert any("The server asks" in row for row in rows)
            theirs = [row for row in rows if any(word in row for word in ("Passphrase", "key /home", "for use"))]
            assert theirs
            assert all("▌" in row for row in theirs), rows
            ours = [row for row in rows if "li@gpu3" in row and "▌" not in row]
            assert len(ours) == 2
            assert app.screen.query_one("#answer").region.bottom < size[1]
            assert app.focused is app.screen.query_one("#answer")
            await pilot.press(*"123", "enter")
            assert await asked == "123"


async def test_however_much_a_server_says_the_question_and_its_field_stay_on_a_small_screen() -> None:
    said = "\n".join(f"line {number} of a banner that is long" for number in range(60))
    for kind in (PromptKind.ONE_TIME_CODE, PromptKind.PASSWORD):
        asking = Prompt(kind, "gpu3.example.org" * 8, "answer for the server", user="li", said=said)
        app, clock = with_clock()
        async with app.run_test(size=(80, 24)) as pilot:
            asked = asyncio.create_task(app.questions.ask(asking))
            await hears(app, pilot, clock)
            for wanted in ("#answer", "#send", "#no"):
                region = app.screen.query_one(wanted).region
                widget, _region = app.screen.get_widget_at(region.x, region.y)
                assert region.height == 1
                assert widget is app.screen.query_one(wanted)
            assert "answer for the server" in screen_text(app)
            await pilot.press(*"123", "enter")
            assert await asked == "123"
