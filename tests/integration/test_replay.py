"""A job that has run, told again: the states, readings, reports and first failure that a live watcher saw."""

from __future__ import annotations

import json
import math
from pathlib import Path

from dtagent.protocol.events import Event, EventKind
from dtagent.protocol.rpc import to_wire

from dttui import jobs, locations
from dttui.jobs import JobView, PastFollower, read_events
from dttui.jobs.following import JobFollower
from tests.integration.headless import DEADLINE_S, dttui_here, shell_job, start_dttui
from tests.processes import ended_agents as ended_agents
from tests.tui.fake_fleet import make_app
from tests.tui.looking import grid, look, text_of
from tests.waiting import wait_until

NODES = {"pytorch-dev-env": 1, "llm-training-env": 1}
BREAKS = (
    'for i in 1 2 3 4 5 6; do echo "{\\"step\\": $i, \\"loss\\": 2.$i}" >> $DTTUI_METRICS; echo line $i; '
    "sleep 0.3; done; touch %(here)s/said-$RANK;"
    " test $RANK = 1 && { %(wait)s; echo no data >&2; exit 3; }; sleep 60"
)
WAIT = "for n in $(seq 300); do [ -e {here}/said-0 ] && grep -qs seq {readings} && break; sleep 0.2; done"
"""Until the other rank has printed all, and a reading of a host has come."""


def shown(view: JobView) -> dict[str, object]:
    """Return what a screen shows of a job but for its curves."""
    return {
        "state": (
            view.state,
            view.reason,
            view.attempt,
            view.exit_code,
            view.started_at,
            view.running_at,
            view.ended_at,
        ),
        "nodes": {name: (node.state, node.message, node.ranks, node.gpu_ids) for name, node in view.nodes.items()},
        "failures": view.failures,
        "findings": [event.message for event in view.findings],
        "metrics": view.metrics,
        "checks": view.checks,
        "versions": view.versions,
    }


def unreported(events: list[Event]) -> list[Event]:
    """Return all events but reports, as a replay tells them: the same in whatever pieces they were read."""
    return [event for event in events if event.kind is not EventKind.METRIC]


async def test_a_replay_shows_the_states_readings_reports_and_first_failure_of_the_live_run(tmp_path: Path) -> None:
    wait = WAIT.format(here=tmp_path, readings=locations.jobs_directory() / "*/telemetry/*-env.jsonl")
    job = shell_job(tmp_path, NODES, BREAKS % {"here": tmp_path, "wait": wait})
    running = start_dttui("--demo", "--apply", job)
    try:
        wait_until(lambda: jobs.list_jobs(), "a job to be there", DEADLINE_S)
        directory = jobs.find("last")
        live, seen, readings = JobFollower(directory), list[Event](), set[tuple[str, int]]()

        def is_over() -> bool:
            seen.extend(live.poll())
            readings.update(
                (name, node.sample.seq) for name, node in live.view.nodes.items() if node.sample is not None
            )
            return live.is_over

        wait_until(is_over, "the job to be over", DEADLINE_S)
    finally:
        running.communicate(timeout=DEADLINE_S)
    seen += live.catch_up(with_reports=True)
    assert live.view.failures
    assert readings

    past = PastFollower(directory)
    again = past.catch_up(with_reports=True)
    assert past.has_told_all
    assert unreported(again) == unreported(seen)
    assert [event.data for event in again if event not in unreported(again)] == [
        event.data for event in seen if event not in unreported(seen)
    ]
    assert shown(past.view) == shown(live.view)
    assert past.view.failures[0] == live.view.failures[0]

    rows = [
        json.loads(line) for line in dttui_here("replay", "--speed", "max", "--output", "jsonl").stdout.splitlines()
    ]
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    told = {(row["node"], row["sample"]["seq"]) for row in rows if row["kind"] == "sample"}
    assert readings <= told
    ours = ("sample", "metric", "log")
    assert [row for row in rows if row["kind"] not in ours] == [
        to_wire(event) for event in read_events(directory.events)
    ]
    assert [row["data"]["step"] for row in rows if row["kind"] == "metric" and row["rank"] == 1] == [1, 2, 3, 4, 5, 6]
    assert [row["line"] for row in rows if row["kind"] == "log"] == [f"line {number}" for number in range(1, 7)]
    assert rows[-1]["kind"] == "outcome"

    text = dttui_here("replay", "--speed", "max", "--output", "human", "--logs", "1").stdout
    assert "[1] no data" in text
    assert live.view.failures[0].message in text
    assert text.splitlines()[-1].endswith(f"FAILED  {live.view.reason}")

    screens = []
    for speed in (None, math.inf):
        app = make_app(attach=directory, replay_speed=speed)
        async with app.run_test(size=(120, 40)) as pilot:
            await look(app, pilot)
            await look(app, pilot)
            screens.append([text_of(app, name) for name in ("#title-left", "#run-why", "#run-events", "#run-places")])
            screens[-1] += [grid(app), text_of(app, "#run-status").rpartition("✗")[2]]
    assert screens[0] == screens[1]
