"""Jobs for which several hosts do, and that wait for room on enough of them: in the order of asking, by real agents."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from dtagent.protocol.events import EventKind, JobState

from dttui import jobs
from dttui.jobs import JobDirectory
from tests.faults.test_login_node import kill_controller
from tests.integration.headless import dttui, shell_job, wait_for_state
from tests.processes import ended_agents as ended_agents
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

ONE, TWO, THREE = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
ALL = {ONE: 2, TWO: 4, THREE: 8}
DEADLINE_S = 90.0


def launch(
    directory: Path, name: str, nodes: dict[str, int], candidates: Any = (), recovery: dict[str, Any] | None = None
) -> JobDirectory:
    """Start a job that goes on until it is let go."""
    folder = directory / name
    folder.mkdir()
    file = shell_job(folder, nodes, f"until [ -e {shlex.quote(str(folder / 'go'))} ]; do sleep 1; done")
    document = yaml.safe_load(file.read_text().replace("test job", name))
    document["distributed_training"]["cluster"]["candidates"] = candidates
    if recovery is not None:
        document["distributed_training"]["recovery"] = recovery
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    done = dttui("--demo", "--apply", file, "--detach", "--queue")
    assert done.returncode == 0, done.stderr
    return jobs.find(done.stdout.strip())


def let_go(directory: Path, job: JobDirectory) -> None:
    (directory / jobs.summarize(job).name / "go").touch()
    wait_for_state(job.job_id, "SUCCEEDED")


def line() -> list[dict[str, Any]]:
    done = dttui("queue", "--demo", "--output", "json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def wait_for_reason(job: JobDirectory, part: str) -> None:
    wait_until(lambda: part in jobs.summarize(job).reason, f"{part!r} to be told", DEADLINE_S)


def nodes_of(job: JobDirectory) -> dict[str, int]:
    return {node.name: node.slots for node in job.read_bound_plan(0).plan.nodes}


def test_a_job_begins_on_whichever_of_its_hosts_have_room_first(ended_agents: Path, tmp_path: Path) -> None:
    """Within 90 s of the end of one on any of three hosts; who asked later waits for what it wants, and for no more."""
    first, second, third = (launch(tmp_path, f"on-{name}", {name: count}) for name, count in ALL.items())
    for running in (first, second, third):
        wait_for_state(running.job_id, "RUNNING")
    wide = launch(tmp_path, "wide", {ONE: 2, TWO: 2}, [THREE])
    wait_for_reason(wide, "; 0 of 2 hosts have room; ")
    narrow = launch(tmp_path, "narrow", {ONE: 1}, "any")
    wait_for_reason(narrow, "queued: 1 job before it; 0 of 1 host has room")
    # A host has whoever waits in its line once it has been asked, one after another.
    there = [(wide.job_id, {ONE: 2, TWO: 2, THREE: 2}), (narrow.job_id, {ONE: 1, TWO: 1, THREE: 1})]
    wait_until(lambda: [(row["job"], row["gpus"]) for row in line()] == there, "both to stand in all lines", DEADLINE_S)
    # One host would do for the narrow job, which asked later; the wide one, which wants two, keeps its place there.
    let_go(tmp_path, first)
    wait_for_reason(wide, "; 1 of 2 hosts have room; ")
    assert jobs.summarize(narrow).state is JobState.PENDING
    let_go(tmp_path, third)
    wait_for_state(wide.job_id, "RUNNING")
    assert nodes_of(wide) == {ONE: 2, THREE: 2}
    told = [event.message for event in wide.read_events(EventKind.JOB_STATE) if "its turn" in event.message]
    assert told == [f"its turn has come: {THREE} for {TWO}"]
    # It has left what it did not need: of the eight GPUs there six are left.
    wait_for_state(narrow.job_id, "RUNNING")
    assert nodes_of(narrow) == {THREE: 1}
    # Whoever leads it from now on knows who takes part.
    kill_controller(narrow)
    assert dttui("attach", "--all").returncode == 0
    for job in (narrow, wide, second):
        let_go(tmp_path, job)
    assert [node.name for node in narrow.read_plan().nodes] == [THREE]
    # Places were given up, not forgotten after 15 s; samples tell of it within seconds.
    wait_until(lambda: line() == [], "nobody to wait any more", 5.0)


def test_what_no_host_of_its_kind_could_be_is_passed_over(ended_agents: Path, tmp_path: Path) -> None:
    """A candidate with too few GPUs is no reason to wait, nor to fail; one that has enough begins within 90 s."""
    holder = launch(tmp_path, "holder", {TWO: 4})
    wait_for_state(holder.job_id, "RUNNING")
    job = launch(tmp_path, "four", {TWO: 4}, [ONE, THREE])
    wait_for_state(job.job_id, "RUNNING")
    assert nodes_of(job) == {THREE: 4}
    for item in (job, holder):
        let_go(tmp_path, item)


def test_spares_of_a_job_that_began_elsewhere_are_checked_before_they_are_needed(
    ended_agents: Path, tmp_path: Path
) -> None:
    """Within 90 s of its beginning on a host that does as well, a spare whose GPUs are taken is told."""
    holders = [launch(tmp_path, f"on-{name}", {name: ALL[name]}) for name in (ONE, THREE)]
    for holder in holders:
        wait_for_state(holder.job_id, "RUNNING")
    checkpoint = {"dir": str(tmp_path / "kept"), "shared": True}
    recovery = {"on_node_failure": "replace", "max_restarts": 1, "spares": [THREE], "checkpoint": checkpoint}
    job = launch(tmp_path, "two", {ONE: 2}, [TWO], recovery)
    wait_for_state(job.job_id, "RUNNING")
    assert nodes_of(job) == {TWO: 2}

    def told() -> list[tuple[str, str]]:
        found = [event for event in job.read_events(EventKind.FINDING) if event.message.startswith("the spare ")]
        return [(event.data["subject"], event.data["code"]) for event in found]

    wait_until(lambda: told() == [(THREE, "gpus-taken")], "the spare to be told", DEADLINE_S)
    for item in (job, *holders):
        let_go(tmp_path, item)
