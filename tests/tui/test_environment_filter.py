"""Terms of a filter: each means what it says, an unfinished one hides nothing, and the last word is completed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.widgets import Input

from dttui.tui.environment_filter import completions, parse_filter
from dttui.tui.environment_pane import EnvironmentPane
from dttui.tui.rows import SORTS, arranged
from dttui.tui.symbols import StateWord
from dttui.tui.widgets.environment_list import EnvironmentList
from dttui.tui.widgets.environment_row import EnvironmentRow
from tests.tui.composing import SIZE, screen_of
from tests.tui.fake_fleet import make_app, set_states
from tests.tui.looking import follow, settle, told

PLAIN = EnvironmentRow(
    key="a", name="a", kind="Jupyter", zone="beijing-a", image="pytorch", state=StateWord("●", "空闲", "x"), note="",
    since=0.0, gpus="8×A100-80GB", gpu_count=8, simulated=False, load_label="GPU", load=0.03, booted_at=5.0, problem="",
    shows_age=False, search="a jupyter beijing-a pytorch 8×a100-80gb idle", states=("idle", "空闲"),
    kinds=("jupyter", "Jupyter"), free_gpus=6, cpus=64, memory_gb=512.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        ("", True),
        ("a100 beijing", True),
        ("a100 shanghai", False),
        ("gpu:A100", True),
        ("gpu:v100", False),
        ("zone:beijing free>=4 util<5 state:idle kind:jupyter", True),
        ("zone:beijing free>=7", False),
        ("!zone:beijing", False),
        ("!free>6", True),
        ("state:空闲", True),
        ("state:busy", False),
        ("gpus=8 cpus>32 memory>=512", True),
        ("memory>=512GB util<=3%", True),
        ("gpus:8", True),
        ("free>", True),
        ("free>=", True),
        ("gpu:", True),
    ],
)
def test_a_row_is_taken_where_all_terms_hold(text: str, takes: bool) -> None:
    assert parse_filter(text).takes(PLAIN) is takes


def test_what_is_not_known_is_neither_more_nor_less() -> None:
    row = replace(PLAIN, load=None, free_gpus=None)
    assert not any(parse_filter(text).takes(row) for text in ("util<5", "util>=5", "free=0", "free>0"))
    assert parse_filter("!util>50").takes(row)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("fre>=4", 'did you mean "free"?'),
        ("gpu>=4", 'did you mean "gpus"?'),
        ("zone>=4", "nothing to compare; write zone:…"),
        ("free>=many", "is compared with a number"),
        ("colour:red", "no such term"),
    ],
)
def test_a_term_that_says_nothing_is_told_and_hides_nothing(text: str, problem: str) -> None:
    found = parse_filter(f"{text} a100")
    assert problem in found.problem
    assert found.takes(PLAIN)


def test_the_last_word_is_completed_by_terms_and_what_rows_have() -> None:
    rows = [PLAIN, replace(PLAIN, key="b", zone="shanghai-a", image="two words")]
    assert completions("ki", rows) == ["kind:"]
    assert completions("a100 fr", rows) == ["a100 free>="]
    assert completions("zone:", rows) == ["zone:beijing-a", "zone:shanghai-a"]
    assert completions("x zone:S", rows) == ["x zone:shanghai-a"]
    assert completions("image:", rows) == ["image:pytorch"]
    assert completions("", rows) == []


@pytest.mark.parametrize("name", [name for name, *_ in SORTS])
def test_either_way_what_is_not_known_comes_last(name: str) -> None:
    busy, gone = StateWord("◐", "busy", "x"), StateWord("○", "gone", "x")
    other = replace(PLAIN, key="b", name="b", zone="z", kind="z", image="z", state=busy, booted_at=9.0)
    other = replace(other, gpu_count=1, free_gpus=1, load=0.9)
    unknown = replace(PLAIN, key="c", name="c", zone="", kind="", image="", state=gone, booted_at=None)
    unknown = replace(unknown, gpu_count=0, free_gpus=None, load=None)
    rows = {row.key: row for row in (PLAIN, other, unknown)}
    orders = [arranged(rows, parse_filter(""), name, is_reversed=way) for way in (False, True)]
    assert orders[0][:2] == orders[1][:2][::-1] or name in ("inventory", "state", "gpus", "name")
    if name in ("inventory", "state", "gpus", "name"):
        assert orders[0] == orders[1][::-1]
    else:
        assert orders[0][-1] == orders[1][-1] == "c"


async def test_on_the_screen_terms_filter_complete_and_all_that_is_shown_is_ticked() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await follow(app, pilot)
        await pilot.press("slash", *"gpu:a100 free>=4 state:id", "right", "enter")
        await settle(app, pilot)
        assert app.screen.query_one("#filter", Input).value == "gpu:a100 free>=4 state:idle"
        shown = app.screen.query_one(EnvironmentList).shown
        assert set(shown) == {"llm-training-env", "nlp-research-lab", "vision-lab"}
        await pilot.press("A")
        await settle(app, pilot)
        assert set(screen_of(app).state.selected) == set(shown)
        await pilot.press("A")
        await settle(app, pilot)
        assert not screen_of(app).state.selected
        await pilot.press("escape")
        await settle(app, pilot)
        before = list(app.screen.query_one(EnvironmentList).shown)
        await pilot.press("S")
        await settle(app, pilot)
        assert list(app.screen.query_one(EnvironmentList).shown) == before[::-1]
        await pilot.press("slash", *"fre>2")
        await settle(app, pilot)
        assert 'did you mean "free"?' in told(app, "#list-caption")
        assert app.screen.query_one(EnvironmentPane).name_of("a100-17") == "a100-17"
