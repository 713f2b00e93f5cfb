"""Text in cells, small bars, and how states, times and sizes are said."""

from __future__ import annotations

import pytest
from dtagent.protocol.events import JobState, NodeStanding
from dtagent.protocol.metric_fields import scaled
from rich.cells import cell_len

from dttui.fleet.states import EnvironmentState
from dttui.planning.models import Severity
from dttui.tui import symbols
from dttui.tui.rows import environment_state
from dttui.tui.theme import Variables
from dttui.tui.widgets.cells import bar, fit
from dttui.words import gigabytes


@pytest.mark.parametrize("text", ["", "gpu1", "北京可用区A", "a\nb\tc", "e\u0301\u0301", "🚀🚀🚀", "x" * 300])
@pytest.mark.parametrize("width", [0, 1, 2, 3, 7, 40])
def test_text_takes_exactly_the_cells_it_is_given(text: str, width: int) -> None:
    for right in (False, True):
        line = fit(text, width, right=right)
        assert cell_len(line) == width
        assert "\n" not in line
        assert "\t" not in line


def test_what_is_cut_ends_with_an_ellipsis() -> None:
    assert fit("pytorch-dev-env", 8) == "pytorch…"
    assert fit("北京可用区", 6) == "北京… "


@pytest.mark.parametrize("fraction", [-1.0, 0.0, 0.01, 0.5, 0.99, 1.0, 7.0, float("nan")])
def test_a_bar_has_its_width_whatever_the_fraction(fraction: float) -> None:
    filled, empty = bar(fraction, 5)
    assert cell_len(filled + empty) == 5


def test_bars_tell_full_from_empty_by_shape() -> None:
    assert bar(0.0, 4) == ("", "────")
    assert bar(1.0, 4) == ("━━━━", "")
    assert bar(0.375, 4) == ("━╸", "──")


def test_every_state_has_a_symbol_a_word_and_a_colour_of_the_theme() -> None:
    known = set(Variables.model_fields)
    shown = [symbols.job_state(state) for state in JobState]
    shown += [environment_state(state) for state in EnvironmentState]
    shown += [symbols.severity(severity) for severity in Severity]
    shown += [symbols.node_state(state) for state in (*NodeStanding, NodeStanding("no such state"))]
    for word in shown:
        assert cell_len(word.symbol) == 1
        assert word.word
        assert word.colour.replace("-", "_") in known


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.9, "59s"), (61, "1m 1s"), (43_260, "12h 1m"), (442_800, "5d 3h"), (-5, "0s")]
)
def test_spans_are_said_in_two_units(seconds: float, text: str) -> None:
    assert symbols.duration(seconds) == text


def test_sizes_and_rates_are_short() -> None:
    assert gigabytes(80 * 10**9) == "80 GB"
    assert gigabytes(81_920 * 2**20) == "86 GB"
    assert gigabytes(1_500_000_000) == "1.5 GB"
    assert symbols.mebibytes(812) == "851M"
    assert symbols.mebibytes(5_000) == "5.2G"
    assert symbols.mebibytes(71_000) == "74G"
    assert scaled(81_234) == "81.2k"
    assert scaled(812.4) == "812"
    assert scaled(3.14159) == "3.14"
    assert symbols.number(2.11349) == "2.113"
    assert symbols.number(float("nan")) == "nan"
    assert symbols.clock(761) == "00:12:41"
