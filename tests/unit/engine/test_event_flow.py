"""Events that a node may make at any rate: so many at once and a minute, the newest of each, and the rest counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.events import EventKind, JobState, NodeStanding

from dttui.engine import event_flow
from dttui.engine.attempt_log import AttemptLog
from dttui.jobs import event_log
from dttui.jobs.event_log import EventLog, read_events
from dttui.rpc.token_bucket import TokenBucket


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still until a test moves it."""
    now = [0.0]
    monkeypatch.setattr(event_flow, "TokenBucket", lambda per_s, burst: TokenBucket(per_s, burst, lambda: now[0]))
    return now


def told_of(path: Path) -> list[tuple[str | None, Any]]:
    return [(event.node, event.data.get("left_out", event.message)) for event in read_events(path)]


def test_a_state_that_flaps_is_told_so_often_and_its_last_one_at_the_end(tmp_path: Path, clock: list[float]) -> None:
    log = AttemptLog(EventLog(tmp_path / "events.jsonl"), 0)
    for number in range(1000):
        log.note("a", (NodeStanding.RUNNING, NodeStanding.STOPPING)[number % 2], f"flap {number}")
    log.note("b", NodeStanding.RUNNING, "sound")
    told = told_of(tmp_path / "events.jsonl")
    assert told == [*(("a", f"flap {number}") for number in range(60)), ("b", "sound")]
    log.flush()
    assert told_of(tmp_path / "events.jsonl")[61:] == [(None, 939), ("a", "flap 999")]


def test_a_minute_brings_twenty_more_with_the_count_of_the_others(tmp_path: Path, clock: list[float]) -> None:
    log = AttemptLog(EventLog(tmp_path / "events.jsonl"), 0)
    for number in range(60 + 6000):
        clock[0] = max(0, number - 60) / 100
        log.note("a", NodeStanding.RUNNING, f"reason {number}")
    log.flush()
    told = told_of(tmp_path / "events.jsonl")
    counted = [item for node, item in told if node is None]
    assert 60 + 20 <= len(told) <= 60 + 26
    assert sum(counted) + sum(1 for node, _ in told if node == "a") == 6060
    assert told[-1] == ("a", "reason 6059")


def test_a_text_of_an_event_is_cut_and_the_log_of_a_job_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "MOST_BYTES", 100_000)
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    for number in range(200):
        log.add(EventKind.PROGRESS, f"{number} " + "word " * 100_000, data={"list": ["x" * 10_000]})
    log.add(EventKind.JOB_STATE, "", data={"state": JobState.FAILED.value})
    again = EventLog(path)
    again.add(EventKind.PROGRESS, "more")
    again.add(EventKind.OUTCOME, "the end", data={"exit_code": 0})
    events = list(read_events(path))
    assert path.stat().st_size < 110_000
    assert max(len(event.message.encode()) for event in events) <= 2048
    assert max(len(event.data["list"][0]) for event in events if "list" in event.data) <= 2048
    assert [event.seq for event in events] == list(range(len(events)))
    assert [event.data.get("code") or event.kind.value for event in events][-3:] == [
        "events-full",
        "job_state",
        "outcome",
    ]
