"""Rows of the list of environments, at every width."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from dttui.fleet.states import EnvironmentState
from dttui.i18n import set_language
from dttui.inventory.models import Environment
from dttui.tui.rows import environment_detail, environment_row
from dttui.tui.widgets.environment_row import Columns, lines_of
from tests.tui.catalogue import compile_catalogues
from tests.tui.fake_fleet import environment, status

LONG = "team-vision-a100-training-node-07"


def test_the_way_to_a_host_is_shown_and_found_whichever_it_is() -> None:
    command = ["kubectl", "exec", "-i", "-n", "machine-learning", "train-0", "-c", "main-container", "--"]
    ways: dict[str, dict[str, object]] = {
        "gpu1:2222": {"host": "gpu1", "port": 2222},
        "this machine": {"host": "localhost", "local": True},
        "docker exec -i 'train 1'": {"exec": ["docker", "exec", "-i", "train 1"]},
        "kubectl exec -i -n machine-learning train-0 -c main-contain…": {"exec": command},
    }
    for shown, fields in ways.items():
        made = status(Environment.model_validate({"name": "a", **fields}), EnvironmentState.IDLE)
        assert environment_detail(made)[0][0].split(" · ")[0] == shown
        assert shown.split("…")[0] in environment_row(made).search


def test_the_tag_of_an_environment_is_in_the_readers_language_and_found_in_both() -> None:
    compile_catalogues()
    set_language("zh")
    rows = {
        kind: environment_row(status(environment("a", 1, "z", kind=kind), EnvironmentState.IDLE))
        for kind in ("custom", "jupyter")
    }
    assert {kind: row.kind for kind, row in rows.items()} == {"custom": "自定义", "jupyter": "jupyter"}
    assert "custom" in rows["custom"].search
    assert "自定义" in rows["custom"].search


@pytest.mark.parametrize("width", range(40, 220, 3))
@pytest.mark.parametrize("two", [True, False])
@pytest.mark.parametrize("state", [EnvironmentState.IDLE, EnvironmentState.UNREACHABLE, EnvironmentState.BUSY])
def test_no_line_is_wider_than_the_list(width: int, two: bool, state: EnvironmentState) -> None:
    rows = [
        environment_row(status(environment(name, 8, zone), state, 50, reason="li, wang and others"))
        for name, zone in ((LONG, "北京可用区A"), ("x", "z"))
    ]
    columns = Columns.for_rows(rows)
    if not two and width < columns.one_line_width:
        return
    for row in rows:
        for pieces in lines_of(row, columns, width, True, True, two=two):
            assert sum(cell_len(text) for text, _part in pieces) <= max(width, 66)


@pytest.mark.parametrize("width", [*range(60, 140, 7), 200])
@pytest.mark.parametrize("two", [True, False])
def test_the_word_of_a_state_is_whole_and_what_follows_gets_the_room_there_is(width: int, two: bool) -> None:
    busy = environment_row(
        status(environment("gpu1", 8, "zone-a"), EnvironmentState.BUSY, 5, reason="longer-run-20261121-070102")
    )
    away = environment_row(status(environment("gpu2", 8, "zone-a"), EnvironmentState.UNREACHABLE))
    columns = Columns.for_rows([busy, away])
    shown = [
        "".join(text for text, _part in lines_of(row, columns, width, True, True, two=two)[0]) for row in (busy, away)
    ]
    assert "◐ busy (longer" in shown[0]
    assert "…)" in shown[0] or "070102)" in shown[0]
    assert "○ unreachable 3m" in shown[1]
    assert shown[0].index("zone-a") == shown[1].index("zone-a")


@pytest.mark.parametrize("width", range(67, 140))
def test_a_name_is_never_cut_where_a_tag_could_give_way(width: int) -> None:
    row = environment_row(status(environment(LONG, 8, "zone-a"), EnvironmentState.IDLE, 5))
    columns = Columns.for_rows([row])
    assert LONG in "".join(text for text, _part in lines_of(row, columns, width, True, False, two=True)[0])
