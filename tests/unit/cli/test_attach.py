"""What `attach` shows of what was told before it came."""

from __future__ import annotations

import json
import os

import pytest
from dtagent.protocol.events import Event, EventKind

from dttui import jobs
from dttui.cli import main
from dttui.cli.attach import LAST_EVENTS, recent
from dttui.cli.printing import Printer
from dttui.i18n import msg


def event(seq: int, kind: EventKind, node: str = "") -> Event:
    data = {"code": "host-busy", "severity": "warning", "subject": node, "hint": "", "nodes": [node]} if node else {}
    message = msg("{host}: {reason}", host=node, reason="in use") if node else msg("so far")
    return Event(seq, 100.0, kind, message, data=data, told=message.recipe)


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


def test_what_would_be_followed_again_is_told_and_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    led, left = jobs.create("led"), jobs.create("left")
    lock = led.claim()
    assert lock is not None
    try:
        assert main(["attach", "--all", "--dry-run", "--output", "json"]) == 0
        rows = {row["job_id"]: row["would_be_brought_back"] for row in json.loads(capsys.readouterr().out)}
        assert rows == {led.job_id: False, left.job_id: True}
        assert main(["attach", "--all", "--dry-run"]) == 0
        assert f"{left.job_id}: would be followed again" in capsys.readouterr().out
        assert not left.has_controller()
        # To follow one job changes nothing that could be left out.
        assert main(["attach", left.job_id, "--dry-run"]) == 2
    finally:
        os.close(lock)
