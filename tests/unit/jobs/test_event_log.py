"""The log of events: what is asked of its end is found from its end, however long it is."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind, JobState

from dttui import jobs
from dttui.jobs import event_log
from dttui.jobs.event_log import EventLog, newest_event, read_events

LINE = '{{"seq": {}, "time": {}, "kind": "{}", "message": "{}", "data": {{"state": "{}"}}}}\n'


def write(path: Path, *kinds: str, state: str = "RUNNING", message: str = "") -> None:
    with path.open("a") as stream:
        stream.writelines(LINE.format(seq, 100 + seq, kind, message, state) for seq, kind in enumerate(kinds))


@pytest.mark.parametrize("block_bytes", [1, 7, 100, 1 << 16])
def test_the_newest_event_of_a_kind_is_found_wherever_blocks_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(event_log, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "events.jsonl"
    assert newest_event(path) is None
    write(path, "job_state", "progress", "job_state", "progress", "finding", message="二 x" * 50)
    found = {kind: newest_event(path, kind) for kind in EventKind}
    told = {kind: event.seq for kind, event in found.items() if event is not None}
    assert told == {EventKind.JOB_STATE: 2, EventKind.PROGRESS: 3, EventKind.FINDING: 4}
    newest = newest_event(path)
    assert newest is not None
    assert newest.seq == 4


def test_what_only_looks_like_an_event_is_none(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, "outcome")
    with path.open("a") as stream:
        stream.write('{"seq": 1, "time": 1, "kind": "progress", "message": "", "data": {"kind": "outcome"}}\n')
        stream.write('{"seq": 2, "time": 1, "kind": "progress", "message": "\\"kind\\": \\"outcome\\""}\n')
        stream.write('{"seq": 3, "time": 1, "kind": "outcome", "mess')
    found = newest_event(path, EventKind.OUTCOME)
    assert found is not None
    assert found.seq == 0


def test_a_log_goes_on_behind_a_torn_line_and_knows_when_it_began(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, "job_state", "progress")
    with path.open("a") as stream:
        stream.write('{"seq": 2, "ti')
    log = EventLog(path)
    assert log.began_at == 100
    assert log.add(EventKind.PROGRESS, "more").seq == 2


def test_half_a_character_keeps_no_event_from_the_disk(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.add(EventKind.PROGRESS, "x\ud800", data={"error": "\udfff"})
    log.add(EventKind.OUTCOME, "done")
    assert [event.message for event in read_events(tmp_path / "events.jsonl")] == ["x?", "done"]


def test_the_state_of_a_job_with_very_many_events_is_told_at_once() -> None:
    directory = jobs.create("long")
    write(directory.events, "job_state", *["progress"] * 100_000, message="x" * 50)
    began = time.process_time()
    assert not directory.is_over()
    assert jobs.summarize(directory).started_at == 100
    searched_s = time.process_time() - began
    write(directory.events, "job_state", "outcome", "progress", state=JobState.SUCCEEDED.value)
    began = time.process_time()
    assert directory.is_over()
    assert jobs.summarize(directory).state is JobState.SUCCEEDED
    assert time.process_time() - began < 0.4
    assert searched_s < 0.8  # To read them all takes more than that.


def test_events_in_any_script_are_bounded_by_bytes_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "MOST_BYTES", 20_000)
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    for _each in range(200):
        log.add(EventKind.PROGRESS, "节点" * 100)
    assert 15_000 < path.stat().st_size < 21_000
