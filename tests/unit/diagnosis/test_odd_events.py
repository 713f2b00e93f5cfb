"""Events whose data are of another kind than theirs: they say nothing, and end no diagnosis."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.cli import main
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from tests.unit.jobs.test_follow import plan_for

ODD: tuple[Any, ...] = (5, -1.5, "x", "²", [7], ["x"], {"a": 7}, {"x": "y"}, True, None, 10**30)
DATA: dict[str, tuple[str, ...]] = {
    "rank_failed": (
        *("time", "exit_code", "signal", "error", "traceback", "tail", "memory_limit_mib", "oom_kills"),
        *("at_memory_limit", "oom_killed_here", "process", "lost", "uncleared", "self_fenced", "survived"),
    ),
    "node_state": (
        *("state", "clock_offset_s", "gpu_ids", "checkpoints", "usage", "agent_gone", "has_checkpoints", "heard_at"),
        *("exits", "ended_at", "ranks_started"),
    ),
    "job_state": ("state", "until", "since", "first_failure", "attempt_outcome", "message_alone"),
    "ranks": ("ranks",),
    "preflight": ("cells", "versions"),
    "progress": ("missing", "absent_ranks", "waited_s", "port", "ready_nodes"),
    "finding": ("severity", "subject", "hint"),
    "outcome": ("state", "exit_code"),
}
"""What a diagnosis reads of each kind of event."""
CODES = (
    "node-out",
    "python-unknown",
    "agent-files-removed",
    "agent-disk-full",
    "unreachable",
    "loss-not-finite",
    "no-agent",
    "log-cut",
)


@pytest.fixture
def directory() -> JobDirectory:
    made = jobs.create("odd")
    made.plan.write_text(plan_for("a", "b").model_dump_json())
    log = EventLog(made.events)
    log.add(EventKind.NODE_STATE, "", attempt=0, node="a", data={"state": "failed", "exits": {"0": 1}})
    log.add(EventKind.RANK_FAILED, "rank 0 exited", attempt=0, node="a", rank=0, data={"time": 50.0, "exit_code": 1})
    log.add(EventKind.JOB_STATE, "rank 0 exited", attempt=0, data={"state": "FAILED"})
    log.add(EventKind.OUTCOME, "rank 0 exited", data={"state": "FAILED", "exit_code": 100})
    return made


def with_events(directory: JobDirectory, kind: str, data: list[dict[str, Any]]) -> str:
    """Return what the job's events are with some before the end of the job, and after it."""
    body = {"seq": 9, "time": 60.0, "message": "odd", "kind": kind, "attempt": 0, "node": "a", "rank": 0}
    odd = "".join(json.dumps({**body, "data": each}) + "\n" for each in data)
    first, second, *others = directory.events.read_text().splitlines(keepends=True)
    return "".join([first, second, odd, *others, odd])


@pytest.mark.parametrize("kind", DATA)
def test_events_whose_data_are_of_another_kind_end_no_diagnosis(
    directory: JobDirectory, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    sound: dict[str, Any] = {"state": "FAILED"} if kind.endswith("state") else {"missing": {"b": {}}}
    texts = {
        (code, name): with_events(
            directory, kind, [{**sound, **({"code": code} if code else {}), name: value} for value in ODD]
        )
        for code in (CODES if kind == "finding" else ("",))
        for name in DATA[kind]
    }
    wrong = {}
    for key, text in texts.items():
        directory.events.write_text(text)
        main(["diagnose", directory.job_id])
        said = capsys.readouterr()
        if "internal" in said.err or "rank 0 exited" not in said.out:
            wrong[key] = said.err
    assert wrong == {}
