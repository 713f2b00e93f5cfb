"""The job as text on the screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Button, Input, OptionList, TextArea

from dttui.compose.draft_answers import ReadText
from dttui.spec import Problem, dump_job
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.job_text import JobTextScreen, text_notes
from dttui.tui.screens.preview import PreviewScreen
from dttui.tui.widgets.yaml_area import harmless, indent_after, marked_span
from tests.tui.composing import SIZE, screen_of
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.looking import screen_text, settle, text_of, until
from tests.tui.screens import CHOSEN


@pytest.mark.parametrize(
    ("line", "indent"), [("a: 1", ""), ("  run:", "    "), ("    - id: x", "    "), ("", ""), ("  a:  ", "    ")]
)
def test_a_new_line_is_indented_as_the_one_before_and_further_below_a_key(line: str, indent: str) -> None:
    assert indent_after(line) == indent


@pytest.mark.parametrize(
    ("line", "column", "word"),
    [("  nme: a", 2, "nme"), ("  nme: abc", 7, "abc"), ("  nme:", 40, ":"), ("x: [1, 2]", 3, "["), ("", 0, "")],
)
def test_the_word_at_a_mistake_is_marked(line: str, column: int, word: str) -> None:
    start, end = marked_span(line, column)
    assert line[start:end] == word


def test_what_was_pasted_drives_no_terminal_and_keeps_its_columns() -> None:
    assert harmless("a:\t\x1b[31mred\u202e") == "a:\t�[31mred�"


def test_notes_have_place_key_and_remedy() -> None:
    problem = Problem("job.yaml", "unknown key", "did you mean?", ("distributed_training", "run", "srcipt"), 4, 5)
    (note,) = text_notes(ReadText(None, (problem,)))
    assert note[1:] == (4, 5, "run.srcipt", "unknown key", "did you mean?")


async def test_the_form_follows_the_text_and_its_comments_are_saved(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    before = f"# mine\n{dump_job(job(*CHOSEN))}"
    path.write_text(before)
    app = make_app(make_inventory(), draft=job(*CHOSEN), base=tmp_path, file=path)
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        compose = screen_of(app)
        await pilot.press("y")
        await settle(app, pilot)
        area = app.screen.query_one(TextArea)
        assert area.text == before
        assert not compose.has_edits
        at = before.splitlines().index("  name: gpt-small")
        area.move_cursor((at, len("  name: gpt-small")))
        await pilot.press(*"-2", *"  # why", "enter", *"version: '7'")
        await until(pilot, lambda: compose.state.task_name == "gpt-small-2", "the form follows")
        assert "a valid job" in text_of(app, "#text-state")
        await pilot.press("ctrl+s")
        await settle(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: not compose.has_edits, "it is saved")
        await settle(app, pilot)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "nothing is asked")
        assert app.screen.query_one("#task-name", Input).value == "gpt-small-2"
    assert path.read_text() == before.replace("gpt-small\n", "gpt-small-2  # why\n  version: '7'\n")


async def test_mistakes_are_told_at_their_place_and_text_that_is_no_job_is_kept_for_later() -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("p")
        await settle(app, pilot)
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, JobTextScreen), "the preview leads to the text")
        await settle(app, pilot)
        area = app.screen.query_one(TextArea)
        area.text = wrong = area.text.replace("framework:", "framwork:")
        listed = app.screen.query_one(OptionList)
        await until(pilot, lambda: listed.option_count == 1, "it is told")
        await settle(app, pilot)
        assert "3:3 framwork: unknown key" in screen_text(app)
        assert 'did you mean "framework"?' in screen_text(app)
        await pilot.press("f8")
        assert area.cursor_location == (2, 2)
        assert any(span.style.underline for span in area.get_line(2).spans if not isinstance(span.style, str))
        await pilot.press("escape")
        await until(pilot, lambda: bool(app.screen.query("#keep")), "it is asked")
        app.screen.query_one("#keep", Button).press()
        await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "it is left")
        assert screen_of(app).has_edits
        assert screen_of(app).state.framework == "pytorch-ddp"
        await pilot.press("p", "y")
        await until(pilot, lambda: isinstance(app.screen, JobTextScreen), "it is there again")
        await settle(app, pilot)
        area = app.screen.query_one(TextArea)
        assert area.text == wrong
        area.text = wrong.replace("framwork:", "framework:")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, PreviewScreen), "with a job it goes back to the preview")
