"""What `attach` shows of what was told before it came."""

from __future__ import annotations

import pytest
from dtagent.protocol.events import Event, EventKind

from dttui.cli.attach import LAST_EVENTS, recent
from dttui.cli.printing import Printer


def event(seq: int, kind: EventKind, node: str = "") -> Event:
    data = {"code": "host-busy", "severity": "warning", "subject": node, "hint": "", "nodes": [node]} if node else {}
    return Event(seq, 100.0, kind, f"{node}: in use" if node else "so far", data=data)


@pytest.mark.parametrize("later", [LAST_EVENTS - 1, LAST_EVENTS - 2])
def test_a_finding_on_three_nodes_is_not_told_as_one_of_the_last_node_alone(
    capsys: pytest.CaptureFixture[str], later: int
) -> None:
    first = event(0, EventKind.PROGRESS)
    findings = [event(seq, EventKind.FINDING, f"gpu{seq}") for seq in (1, 2, 3)]
    after = [event(4 + seq, EventKind.PROGRESS) for seq in range(later)]
    shown = recent([first, *findings, *after])
    assert shown == [*findings, *after]
    Printer("human").events(shown)
    assert "on 3 nodes (gpu1, gpu2, gpu3)" in capsys.readouterr().err


@pytest.mark.parametrize("count", [0, 1, LAST_EVENTS, LAST_EVENTS + 1, 100])
def test_of_other_events_the_newest_are_shown(count: int) -> None:
    events = [event(seq, EventKind.PROGRESS) for seq in range(count)]
    assert recent(events) == events[-LAST_EVENTS:]
