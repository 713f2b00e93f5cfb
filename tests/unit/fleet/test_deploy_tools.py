"""The tools that may be brought beside the agent: their pins, and what bringing one comes to."""

from __future__ import annotations

import pytest

from dttui.errors import UsageError
from dttui.fleet.deployment.outcomes import Outcome, ToolSeen
from dttui.fleet.deployment.tools import named, planned
from dttui.fleet.deployment.wheel_source import ARCHITECTURES

(PY_SPY,) = named(["py-spy"])
OURS, OTHER = min(PY_SPY.hashes), "0" * 64


def test_a_tool_is_pinned_for_both_architectures_and_brought_once_however_often_it_is_named() -> None:
    assert str(PY_SPY) == "py-spy==0.4.3"
    assert len(PY_SPY.hashes) == len(ARCHITECTURES)
    assert all(len(sha256) == 64 for sha256 in PY_SPY.hashes)
    assert named(["py-spy", "py-spy"]) == (PY_SPY,)
    assert named([]) == ()


def test_a_tool_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match='there is no tool "gdb"') as caught:
        named(["py-spy", "gdb"])
    assert caught.value.hint.endswith(": py-spy")


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        ([], Outcome.INSTALLED),
        ([ToolSeen(name="gdb", version="1", wheel=OURS, is_whole=True)], Outcome.INSTALLED),
        ([ToolSeen(name="py-spy", version="0.4.3", wheel=OURS, is_whole=True)], Outcome.UP_TO_DATE),
        ([ToolSeen(name="py-spy", version="0.4.3", wheel=OURS, is_whole=False)], Outcome.REPAIRED),
        ([ToolSeen(name="py-spy", version="", wheel="", is_whole=False)], Outcome.REPAIRED),
        ([ToolSeen(name="py-spy", version="0.4.1", wheel=OTHER, is_whole=True)], Outcome.UPGRADED),
        ([ToolSeen(name="py-spy", version="0.5", wheel=OTHER, is_whole=True)], Outcome.DOWNGRADED),
    ],
)
def test_what_bringing_a_tool_comes_to_is_told_by_what_is_there(seen: list[ToolSeen], outcome: Outcome) -> None:
    assert planned(PY_SPY, seen).outcome is outcome
