"""What looks as if it could be clicked can be, and what a click opens has the keys."""

from __future__ import annotations

from textual.widgets import Input

from dttui.tui.screens.section import SectionDialog
from dttui.tui.widgets.field_label import FieldLabel
from dttui.tui.widgets.log_view import LogView
from tests.tui.composing import SIZE
from tests.tui.fake_fleet import job, make_app, make_inventory, set_states
from tests.tui.job_files import JobWriter
from tests.tui.looking import look, settle, text_of, until


async def test_captions_names_of_fields_and_what_a_launch_waits_for_lead_somewhere() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await pilot.press("space")
        await settle(app, pilot)
        assert "Enter a task name" in text_of(app, "#readiness")
        await pilot.click("#readiness", offset=(4, 0))
        await settle(app, pilot)
        assert app.focused is app.screen.query_one("#task-name")
        caption = text_of(app, "#list-caption")
        assert await pilot.click("#list-caption", offset=(caption.index("sorted") + 1, 0))
        await settle(app, pilot)
        assert text_of(app, "#list-caption") != caption
        words = app.screen.query_one("#filter", Input)
        words.value = "zone:nowhere"
        await settle(app, pilot)
        caption = text_of(app, "#list-caption")
        await pilot.click("#list-caption", offset=(caption.index("esc shows") + 1, 0))
        await settle(app, pilot)
        assert words.value == ""
        label = next(item for item in app.screen.query(FieldLabel) if str(item.content) == "Parallelism")
        label.scroll_visible(animate=False)
        await settle(app, pilot)
        assert await pilot.click(label)
        await until(pilot, lambda: isinstance(app.screen, SectionDialog), "its form is open")


async def test_a_click_on_a_tab_gives_what_it_shows_the_keys() -> None:
    inventory = make_inventory()
    writer = JobWriter(job("pytorch-dev-env"), inventory)
    writer.nodes("running")
    writer.logs("pytorch-dev-env", "0.out", "a line")
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        await pilot.click("#--content-tab-logs")
        await until(pilot, lambda: isinstance(app.focused, LogView), "its keys are those of the log")
