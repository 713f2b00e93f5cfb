"""What a controller takes in of what another one told of its attempt, also one of another version."""

from __future__ import annotations

from dtagent.protocol.events import EventKind, JobState, NodeStanding

from dttui import jobs
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.recovered import RecoveredState
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.planning.models import Plan
from tests.unit.jobs.test_follow import plan_for


def resumed(directory: JobDirectory) -> AttemptLog:
    log = AttemptLog(EventLog(directory.events), 0)
    log.resume(directory.read_events())
    return log


def messages(directory: JobDirectory, kind: EventKind) -> list[str]:
    return [event.message for event in directory.read_events() if event.kind is kind]


def test_a_state_that_only_another_version_knows_is_told_once_and_hides_no_other() -> None:
    directory = jobs.create("x")
    first = AttemptLog(EventLog(directory.events), 0)
    first.note("a", NodeStanding.ENDED, "ended well")
    first.add(EventKind.NODE_STATE, "asleep", node="b", data={"state": "hibernating"})
    first.add(EventKind.NODE_STATE, "odd", node="c", data={"state": ["x"]})
    for _controller in range(2):
        log = resumed(directory)
        log.note("a", NodeStanding.ENDED, "ended well")
        told = messages(directory, EventKind.FINDING)
        assert len(told) == 2
        assert "b was said to be hibernating" in told[0]
    log.note("b", NodeStanding.RUNNING, "all ranks run")
    assert messages(directory, EventKind.NODE_STATE) == ["ended well", "asleep", "odd", "all ranks run"]


def test_a_job_in_a_state_that_only_another_version_knows_may_have_touched_its_hosts() -> None:
    directory = jobs.create("x")
    log = AttemptLog(EventLog(directory.events), 0)
    log.enter(JobState.PREFLIGHT, "")
    plan: Plan = plan_for("a")

    def remains() -> RecoveredState:
        return RecoveredState(tuple(directory.read_events()), 0, plan, None, 0.0)

    assert not remains().touched_hosts
    log.add(EventKind.JOB_STATE, "", data={"state": "HIBERNATING"})
    assert remains().touched_hosts
    assert not remains().started_all
