"""Rows of a fleet are right after each kind of change, and made only where somebody looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from dtagent.protocol.telemetry import GpuHold, HostSample

from dttui.fleet.live import EnvironmentStatus
from dttui.fleet.states import EnvironmentState
from dttui.rpc.sample_rows import WholeSample
from dttui.tui import fleet_rows
from dttui.tui.fleet_rows import FleetRows
from dttui.tui.rows import ALL_GPUS, GpusAsked, environment_row, stranger_row
from dttui.tui.widgets.environment_row import EnvironmentRow
from tests.tui.fake_fleet import environment, facts, sample, status

ONE = status(environment("one", 8), EnvironmentState.IDLE, 3)
HOLD = GpuHold("li", "bert", [0, 1])


class Packed(WholeSample):
    """One that nobody is to look into."""

    @property
    def sample(self) -> HostSample:
        pytest.fail("the sample was looked at")


def read(before: EnvironmentStatus, load: int) -> EnvironmentStatus:
    """The same host after its next reading, as the fleet has it."""
    return replace(before, reading=Packed(sample(before.environment, load, seq=2)))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which rows were made from scratch."""
    found: list[str] = []

    def noted(seen: EnvironmentStatus, asked: GpusAsked = ALL_GPUS) -> EnvironmentRow:
        found.append(seen.environment.name)
        return environment_row(seen, asked)

    monkeypatch.setattr(fleet_rows, "environment_row", noted)
    return found


def rows_of(statuses: Mapping[str, EnvironmentStatus]) -> FleetRows:
    rows = FleetRows()
    rows.see(statuses)
    return rows


def test_a_row_is_made_once_and_only_where_it_is_looked_at(made: list[str]) -> None:
    many = {f"n{number}": status(environment(f"n{number}", 8), EnvironmentState.IDLE) for number in range(50)}
    rows = rows_of(many)
    assert len(rows) == 50
    assert list(rows) == list(many)
    assert "n7" in rows
    assert made == []
    assert rows["n7"] is rows["n7"]
    assert made == ["n7"]


def test_another_reading_changes_the_load_and_neither_makes_the_row_anew_nor_unpacks_the_sample(
    made: list[str],
) -> None:
    rows = rows_of({"one": ONE})
    before = rows["one"]
    assert list(rows.see({"one": read(ONE, 42)})) == ["one"]
    assert rows["one"] == replace(before, load=0.42)
    assert made == ["one"]


@pytest.mark.parametrize(
    "after",
    [
        replace(ONE, state=EnvironmentState.UNREACHABLE, reason="gone", reading=None),
        replace(ONE, facts=replace(facts(ONE.environment, 5.0, 1.0), gpus=[])),
        replace(ONE, reason="another"),
        replace(ONE, environment=environment("one", 4, "elsewhere")),
        replace(ONE, reading=None),
        status(ONE.environment, EnvironmentState.BUSY, 97, holds=[HOLD]),
    ],
    ids=["state", "facts", "reason", "environment", "no reading", "occupants"],
)
def test_a_row_is_that_of_the_environment_as_it_is_after_each_change(after: EnvironmentStatus) -> None:
    rows = rows_of({"one": ONE})
    assert rows["one"] == environment_row(ONE)
    assert list(rows.see({"one": after})) == ["one"]
    assert rows["one"] == rows.all()["one"] == environment_row(after)


def test_how_many_gpus_a_job_asks_is_in_the_row_and_goes_with_the_tick() -> None:
    rows = rows_of({"one": ONE})
    assert rows["one"] == environment_row(ONE)
    assert rows.ask({"one": GpusAsked(2)}) == ["one"]
    assert rows["one"] == environment_row(ONE, GpusAsked(2)) != environment_row(ONE)
    assert rows.ask({"one": GpusAsked(2)}) == []
    assert rows.ask({}) == ["one"]
    assert rows["one"] == environment_row(ONE)


def test_what_the_inventory_lacks_comes_first_and_goes_again() -> None:
    rows = rows_of({"one": ONE})
    assert rows.list_strangers(("stranger",))
    assert not rows.list_strangers(("stranger",))
    assert list(rows) == ["stranger", "one"]
    assert rows["stranger"] == stranger_row("stranger")
    assert list(rows.all()) == ["stranger", "one"]
    assert rows.list_strangers(())
    assert list(rows.all()) == ["one"]
    assert "stranger" not in rows
    with pytest.raises(KeyError):
        rows["stranger"]


def test_what_is_looked_at_later_is_that_of_the_last_of_several_changes(made: list[str]) -> None:
    rows = rows_of({"one": ONE})
    first = rows["one"]
    busy = status(ONE.environment, EnvironmentState.BUSY, 97, holds=[HOLD])
    for load in (97, 5, 6):
        after = replace(busy, reading=WholeSample(sample(busy.environment, load, holds=[HOLD])))
        rows.see({"one": after})
    assert rows.all() == {"one": replace(environment_row(busy), load=0.06)} != {"one": first}
    assert rows.see({"one": after}) == {}
    assert len(made) == 2
