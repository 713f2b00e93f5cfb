"""A letter leads to each place of the screen that can have the focus, and to each tab."""

from __future__ import annotations

from textual.geometry import Offset
from textual.widgets import Input, Tabs

from dttui.tui.screens.jump import JumpScreen, jump_places
from tests.tui.fake_fleet import job, make_app
from tests.tui.looking import screen_text, settle, until
from tests.tui.screens import CHOSEN


async def test_a_letter_leads_to_a_field_and_any_other_key_nowhere() -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        places = jump_places(app.screen)
        assert len({place.letter for place in places}) == len(places) > 5
        assert {place.widget.id for place in places} >= {"environments", "task-name", "framework", "launch"}
        wanted = next(place for place in places if place.widget.id == "framework")
        await pilot.press("ctrl+o")
        await until(pilot, lambda: isinstance(app.screen, JumpScreen), "letters are shown")
        await settle(app, pilot)
        line = screen_text(app).splitlines()[wanted.at.y]
        assert f" {wanted.letter} " in line
        await pilot.press(wanted.letter)
        await settle(app, pilot)
        assert app.focused is not None
        assert app.focused.id == "framework"
        for key in ("ctrl+a", "escape"):
            await pilot.press("ctrl+o", key)
            await settle(app, pilot)
            assert app.focused is not None
            assert app.focused.id == "framework"


async def test_a_letter_opens_a_tab_and_works_from_within_a_field_by_mouse_too() -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        wanted = next(place for place in jump_places(app.screen) if place.widget.id == "page-job")
        await pilot.press("ctrl+o", wanted.letter)
        await until(pilot, lambda: app.screen.query_one(Tabs).active == "page-job", "the page is open")
        await settle(app, pilot)
        app.screen.query_one("#task-name", Input).focus()
        await pilot.pause()
        button = next(place for place in jump_places(app.screen) if place.widget.id == "launch")
        await pilot.press("ctrl+o")
        await until(pilot, lambda: isinstance(app.screen, JumpScreen), "letters are shown")
        await pilot.click(offset=Offset(button.at.x + 1, button.at.y))
        await settle(app, pilot)
        assert app.focused is button.widget
