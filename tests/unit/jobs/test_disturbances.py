"""What `ps` says of a job that runs: the same as `status`, though it reads no plan."""

from __future__ import annotations

import random

import pytest
from dtagent.protocol.events import Event, EventKind, JobState, NodeStanding

from dttui import jobs
from dttui.cli import main
from dttui.jobs.disturbances import APART, KINDS, trouble_of
from dttui.jobs.event_log import NO_ROOM, EventLog
from tests.unit.jobs.test_view import NODES, make_view

NOW = 300.0
STATES = [*NodeStanding, NodeStanding.UNKNOWN, NodeStanding.AGENT_GONE]


def listed(capsys: pytest.CaptureFixture[str], *happenings: tuple[str, dict[str, object]]) -> str:
    """What `dttui ps` says of a job whose four ranks run, after its nodes have come to that."""
    directory = jobs.create("job")
    log = EventLog(directory.events)
    log.add(EventKind.JOB_STATE, "all 4 ranks run", data={"state": JobState.RUNNING.value})
    for node, data in happenings:
        log.add(EventKind.NODE_STATE, "", node=node, data=data)
    assert directory.claim() is not None
    assert main(["ps"]) == 0
    return capsys.readouterr().out.rstrip("\n").split("\t")[-1]


def test_a_list_of_jobs_names_the_host_that_has_fallen_silent(capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys, ("b", {"state": "unknown"})).startswith("no word from b for ")


def test_a_list_of_jobs_names_the_host_whose_agent_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys, ("b", {"state": "agent_gone"})).startswith("the agent of b is gone")


def test_a_host_that_is_back_is_told_of_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    happenings: list[tuple[str, dict[str, object]]] = [
        ("b", {"state": state}) for state in ("unknown", "agent_gone", "running")
    ]
    assert listed(capsys, *happenings) == "all 4 ranks run"


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happened_it_is_what_status_says(seed: int) -> None:
    draw = random.Random(seed)
    view = make_view()
    state = draw.choice([JobState.LAUNCHING, JobState.RENDEZVOUS, JobState.RUNNING, JobState.STOPPING])
    events = [Event(0, 100.0, EventKind.JOB_STATE, "so it is", data={"state": state.value})]
    for seq in range(1, draw.randint(2, 12)):
        at = 200.0 + seq
        if draw.random() < 0.8:
            data = {"state": draw.choice(STATES).value, "heard_at": draw.uniform(150.0, at)}
            events.append(Event(seq, at, EventKind.NODE_STATE, "", node=draw.choice(NODES), data=data))
        else:
            code, severity = draw.choice([APART, NO_ROOM]), draw.choice(["info", "warning"])
            data = {"code": code, "severity": severity, "subject": "job", "hint": ""}
            events.append(Event(seq, at, EventKind.FINDING, f"told of {code}", data=data))
    for event in events:
        view.apply(event)
    told = trouble_of(state, [event for event in events if event.kind in KINDS], NOW)
    assert (told or "so it is") == view.headline(NOW)
