"""The list of environments: filter, sort, thousands of rows, and names from anywhere."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from dttui.fleet.states import EnvironmentState
from dttui.inventory.models import Inventory
from dttui.rpc.sample_rows import WholeSample
from dttui.tui.app import DttuiApp
from dttui.tui.environment_pane import REFRESH_S, EnvironmentPane
from dttui.tui.resting import every
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.jobs import JobsScreen
from dttui.tui.widgets import environment_list, environment_row
from dttui.tui.widgets.cells import Piece
from dttui.tui.widgets.environment_list import EnvironmentList
from dttui.tui.widgets.environment_row import EnvironmentRow
from dttui.tui.widgets.summary import Summary
from tests.tui.composing import SIZE, lines_of, screen_of, tick
from tests.tui.fake_fleet import environment, job, make_app, make_inventory, sample, set_states, status
from tests.tui.looking import follow, screen_text, settle, text_of, told, until

HOSTILE = "[/foo] [bold]x\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202e"


async def test_filter_and_sort_change_what_is_shown_and_not_what_is_ticked() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await tick(pilot, 0)
        await pilot.press("slash", *"a100 shenzhen", "enter")
        await settle(app, pilot)
        listed = app.screen.query_one(EnvironmentList)
        assert list(listed.shown) == ["llm-training-env", "a100-17", "a100-18"]
        assert app.focused is listed
        assert screen_of(app).state.selected == ("pytorch-dev-env",)
        assert "3 of 8 shown  esc shows all" in text_of(app, "#list-caption")
        await pilot.press("escape")
        await settle(app, pilot)
        assert len(listed.shown) == 8
        assert "esc" not in text_of(app, "#list-caption")
        await pilot.press("slash", *"zzz", "escape")
        await settle(app, pilot)
        assert len(listed.shown) == 8
        assert app.focused is listed
        await pilot.press("s", "s")
        await settle(app, pilot)
        assert "most GPUs first" in text_of(app, "#list-caption")
        assert list(listed.shown)[:3] == ["nlp-research-lab", "a100-17", "a100-18"]
        await pilot.press("s")
        assert listed.shown[0] == "a100-17"


async def test_a_click_ticks_the_row_that_was_clicked() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.click(EnvironmentList, offset=(20, 5))
        await settle(app, pilot)
        assert screen_of(app).state.selected == ("nlp-research-lab",)
        await pilot.click(EnvironmentList, offset=(20, 4))
        await settle(app, pilot)
        assert screen_of(app).state.selected == ()


async def test_thousands_of_environments_scroll_and_follow_the_fleet() -> None:
    many = Inventory(environments=tuple(environment(f"node-{number:04d}", 8) for number in range(3000)))
    app = make_app(many)
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("end", "space")
        await settle(app, pilot)
        assert "node-2999" in lines_of(app)
        assert screen_of(app).state.selected == ("node-2999",)
        last = app.fleet.statuses["node-2999"].environment
        app.fleet.statuses["node-2999"] = status(last, EnvironmentState.BUSY, 97, reason="li")
        await follow(app, pilot)
        assert "busy (li)" in lines_of(app)


async def test_of_readings_only_the_lines_that_can_be_seen_and_changed_are_painted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = [environment(f"node-{number:03d}", 8) for number in range(300)]
    app = make_app(Inventory(environments=tuple(many)))
    for item in many:
        app.fleet.statuses[item.name] = status(item, EnvironmentState.IDLE, 3)
    async with app.run_test(size=SIZE) as pilot:
        await follow(app, pilot)
        painted: list[str] = []

        def noted(row: EnvironmentRow, *how: Any, **more: Any) -> list[list[Piece]]:
            painted.append(row.name)
            return environment_row.lines_of(row, *how, **more)

        monkeypatch.setattr(environment_list, "lines_of", noted)
        for item in (many[1], many[250]):
            before = app.fleet.statuses[item.name]
            app.fleet.statuses[item.name] = replace(before, reading=WholeSample(sample(item, 42)))
        await follow(app, pilot)
        assert 1 <= len(painted) <= 2
        assert set(painted) == {"node-001"}
        assert "42%" in lines_of(app)
        assert lines_of(app) == await drawn_anew(app, pilot)
        await pilot.press("end")
        await pilot.press(*["up"] * 49)
        await settle(app, pilot)
        assert "42%" in lines_of(app)


async def drawn_anew(app: DttuiApp, pilot: Pilot[None]) -> str:
    """The text of the list, of which nothing is kept."""
    app.screen.query_one(EnvironmentList).repaint()
    await pilot.pause()
    return lines_of(app)


async def test_a_list_that_another_screen_covers_rests_and_then_catches_up() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        pane = app.screen.query_one(EnvironmentPane)
        await pilot.press("j")
        await until(pilot, lambda: isinstance(app.screen, JobsScreen), "the jobs are on screen")
        seen = pane.seen
        set_states(app)
        looked: list[bool] = []
        every(app.screen, REFRESH_S, lambda: looked.append(True))
        await until(pilot, lambda: len(looked) > 2, "the screen above has looked several times")
        assert pane.seen is seen
        await pilot.press("escape")
        await follow(app, pilot)
        assert "97%" in lines_of(app)


async def test_a_slash_can_be_typed_into_a_field() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        app.screen.query_one("#program", Input).focus()
        await pilot.press("slash", "s", "r", "v", "question_mark")
        assert app.screen.query_one("#program", Input).value == "/srv?"
        assert isinstance(app.screen, ComposeScreen)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_hostile_names_and_reasons_neither_break_the_screen_nor_reach_the_terminal(size: tuple[int, int]) -> None:
    named = environment("evil", 2).model_copy(
        update={"name": "[/foo] [bold]", "zone": "[/z]", "kind": "[k", "image": "]"}
    )
    inventory = Inventory(environments=(named, environment("good", 2, "[/y]")))
    app = make_app(inventory, draft=job("[/foo] [bold]", "good"))
    async with app.run_test(size=size, notifications=True) as pilot:
        known = app.fleet.statuses["[/foo] [bold]"].environment
        app.fleet.statuses["[/foo] [bold]"] = status(
            known, EnvironmentState.UNREACHABLE, reason=f"said {HOSTILE}", hint=HOSTILE
        )
        await follow(app, pilot)
        assert "[/foo] [bold]" in lines_of(app)
        await pilot.press("p")
        await settle(app, pilot)
        assert not set(screen_text(app)) & {"\x1b", "\x07", "\u202e"}


async def test_chinese_names_keep_the_columns_aligned() -> None:
    inventory = make_inventory(chinese=True)
    app = make_app(inventory, draft=job("pytorch-dev-env", "视觉实验室"))
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await follow(app, pilot)
        listed = app.screen.query_one(EnvironmentList)
        strips = [listed.render_line(y) for y in range(0, 16, 2)]
        assert {strip.cell_length for strip in strips} == {listed.size.width}
        starts = set()
        for strip in strips:
            before = strip.text.partition("可用区")[0]
            starts.add(sum(2 if ord(character) > 0x2E80 else 1 for character in before))
        assert len(starts) == 1
        assert "视觉实验室" in told(app, "#summary")


async def test_summary_and_list_say_that_gpus_are_simulated() -> None:
    app = make_app(draft=job("vision-lab"))
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await follow(app, pilot)
        assert "4×A100-80GB sim" in lines_of(app)
        assert "simulated" in str(app.screen.query_one(Summary).content)


async def test_a_node_that_the_inventory_lacks_is_listed_until_it_is_unticked() -> None:
    app = make_app(draft=job("gone-env", "pytorch-dev-env"))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        assert "gone-env" in lines_of(app)
        assert "not in the inventory" in lines_of(app)
        assert 'the inventory has no environment "gone-env"' in text_of(app, "#findings-text")
        await pilot.press("home", "space")
        await settle(app, pilot)
        assert "gone-env" not in lines_of(app)
        assert screen_of(app).state.selected == ("pytorch-dev-env",)
        assert screen_of(app).state.master == "pytorch-dev-env"


async def test_an_environment_that_the_inventory_lacks_counts_as_one_of_the_jobs_nodes() -> None:
    app = make_app(draft=job("pytorch-dev-env", "elsewhere"))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        summary = told(app, "#summary")
        assert "Distributed training" in summary
        assert "nodes 2" in summary
        assert re.search(r"elsewhere +not in the inventory", summary)
        assert text_of(app, "#title-right").startswith("2 of 9 ticked · 2 GPUs")
        assert app.screen.query_one("#master-field").display
        await tick(pilot, 1)
        await settle(app, pilot)
        assert screen_of(app).state.selected == ("elsewhere",)
        assert "Single-machine training" in told(app, "#summary")
        assert not app.screen.query_one("#master-field").display
        await pilot.press("home", "space")
        await settle(app, pilot)
        assert text_of(app, "#title-right").startswith("0 of 8 ticked")
