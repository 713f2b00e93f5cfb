"""Fewer colours for terminals that have few, no drawings for who has them read aloud; states are told all the same."""

from __future__ import annotations

import re

import pytest
from dtagent.protocol.events import JobState, NodeStanding
from rich.cells import cell_len
from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import Monochrome

from dttui import locations
from dttui.tui import symbols
from dttui.tui.settings import Colours
from dttui.tui.terminal_filters import FewerColours, Undrawn, filters_for
from tests.tui import job_files
from tests.tui.fake_fleet import job, make_app, make_inventory, set_states
from tests.tui.looking import follow, look, screen_text, settle
from tests.tui.screens import CHOSEN

BLACK = Color(0, 0, 0)
DRAWN = re.compile("[\u2500-\u259f\u2800-\u28ff]")
BAR = "│ gpt ▇▇▁ ⣿⣀ 97% ☑ ★ 启动 ━╌ └"


def colours_of(app_colours: Colours) -> set[ColorSystem]:
    style = Style(color=RichColor.from_rgb(122, 162, 247), bgcolor=RichColor.from_rgb(26, 27, 38), bold=True)
    line = [Segment("text", style), Segment("no style"), Segment("bold", Style(bold=True))]
    for item in filters_for(app_colours, plain=False):
        line = item.apply(line, BLACK)
    assert [segment.text for segment in line] == ["text", "no style", "bold"]
    assert line[0].style is not None
    assert line[0].style.bold
    return {colour.system for colour in (line[0].style.color, line[0].style.bgcolor) if colour is not None}


@pytest.mark.parametrize(
    ("wanted", "system"),
    [
        ("auto", ColorSystem.TRUECOLOR),
        ("truecolor", ColorSystem.TRUECOLOR),
        ("ansi256", ColorSystem.EIGHT_BIT),
        ("ansi16", ColorSystem.STANDARD),
    ],
)
def test_a_terminal_is_given_as_many_colours_as_it_has(wanted: Colours, system: ColorSystem) -> None:
    assert colours_of(wanted) == {system}


def test_without_colours_there_are_shades_of_grey() -> None:
    (only,) = filters_for("none", plain=False)
    assert isinstance(only, Monochrome)


def test_what_is_drawn_goes_and_words_keep_their_place() -> None:
    (line,) = Undrawn().apply([Segment(BAR)], BLACK)
    assert line.text.split() == ["gpt", "97%", "x", "*", "启动"]
    assert cell_len(line.text) == cell_len(BAR)
    assert line.text.index("97%") == BAR.index("97%")


def test_no_two_states_look_alike_without_colour() -> None:
    for states in ([*map(symbols.job_state, JobState)], [*map(symbols.node_state, NodeStanding)]):
        assert len({str(state) for state in states}) == len(states)


def test_few_colours_are_made_of_each_style_once() -> None:
    style = Style(color=RichColor.from_rgb(1, 2, 3))
    few = FewerColours(ColorSystem.STANDARD)
    one, other = few.apply([Segment("a", style), Segment("b", style)], BLACK)
    assert one.style is other.style


async def test_on_a_screen_that_is_read_aloud_nothing_is_drawn() -> None:
    locations.settings_file().parent.mkdir(parents=True, exist_ok=True)
    locations.settings_file().write_text("plain: true\n", encoding="utf-8")
    inventory = make_inventory()
    running = job_files.running(job(*CHOSEN), inventory).directory
    app = make_app(inventory, draft=job(*CHOSEN))
    async with app.run_test(size=(120, 40)) as pilot:
        set_states(app)
        await follow(app, pilot)
        shown = screen_text(app)
        assert DRAWN.search(shown) is None
        for words in ("pytorch-dev-env", "● idle", "Findings", "97%"):
            assert words in shown
        app._watch(running, just_launched=False)  # noqa: SLF001
        await settle(app, pilot)
        await look(app, pilot)
        shown = screen_text(app)
        assert DRAWN.search(shown) is None
        assert "gpt-small" in shown
        await app.preferences.change(app, ("plain",), value=False)
        await settle(app, pilot)
        assert DRAWN.search(screen_text(app)) is not None, "it is drawn again at once"
