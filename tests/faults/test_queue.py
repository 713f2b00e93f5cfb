"""Jobs that wait for isolated hosts by their own controllers: in the order of asking, whatever becomes of who waits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from dtagent.protocol.events import EventKind, JobState

from dttui import jobs
from dttui.jobs import JobDirectory
from tests.faults.test_login_node import kill_controller
from tests.integration.headless import dttui, shell_job, wait_for_state
from tests.lab.hosts import Lab
from tests.waiting import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

DEADLINE_S = 90.0
GONE_S = 30.0
"""By when a killed waiter is out of the line."""


@pytest.fixture
def inventory(deployed: Lab, tmp_path: Path) -> Path:
    for name in ("gpu1", "gpu2"):
        deployed[name].run(["sh", "-c", "rm -f /tmp/go-*"])
    return deployed.inventory(tmp_path / "inventory.yaml")


Launch = Callable[..., JobDirectory]


@pytest.fixture
def launch(tmp_path: Path, inventory: Path) -> Launch:
    """What starts a job of ranks that go on until they are let go."""

    def start(name: str, *hosts: str, queue: bool = True) -> JobDirectory:
        folder = tmp_path / name
        folder.mkdir()
        job = shell_job(folder, dict.fromkeys(hosts, 1), f"until [ -e /tmp/go-{name} ]; do sleep 0.1; done")
        job.write_text(job.read_text().replace("test job", name))
        done = dttui("--apply", job, "--inventory", inventory, "--detach", *["--queue"] * queue)
        assert done.returncode == 0, done.stderr
        return jobs.find(done.stdout.strip())

    return start


def line(inventory: Path) -> list[dict[str, Any]]:
    done = dttui("queue", "--inventory", inventory, "--output", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert isinstance(rows, list)
    return rows


def wait_for_line(inventory: Path, *expected: JobDirectory, within_s: float = DEADLINE_S) -> None:
    names = [directory.job_id for directory in expected]
    wait_until(lambda: [row["job"] for row in line(inventory)] == names, f"{names} to wait", within_s)


def wait_for_reason(directory: JobDirectory, part: str) -> None:
    wait_until(lambda: part in jobs.summarize(directory).reason, f"{part!r} to be told", DEADLINE_S)


def state(directory: JobDirectory) -> JobState:
    return jobs.summarize(directory).state


def let_go(lab: Lab, directory: JobDirectory, name: str, *hosts: str) -> None:
    for host in hosts:
        lab[host].run(["touch", f"/tmp/go-{name}"])
    wait_for_state(directory.job_id, "SUCCEEDED")


def states(directory: JobDirectory) -> list[str]:
    return [event.data["state"] for event in directory.read_events(EventKind.JOB_STATE)]


def test_a_wide_job_gets_its_turn_though_narrow_ones_keep_asking(
    deployed: Lab, inventory: Path, launch: Launch
) -> None:
    """Within 90 s of the end of what it waits for it runs, though one of its hosts was free all the time."""
    running = launch("running", "gpu1")
    wait_for_state(running.job_id, "RUNNING")  # It was free: nothing was waited for.
    wide = launch("wide", "gpu1", "gpu2")
    narrow = launch("narrow", "gpu2")
    wait_for_line(inventory, wide, narrow)
    (first, second) = line(inventory)
    assert (first["position"], first["gpus"]) == (1, {"gpu1": 1, "gpu2": 1})
    assert (second["position"], second["gpus"]) == (2, {"gpu2": 1})
    wait_for_reason(wide, f"gpu1: job {running.job_id} of root since ")
    wait_for_reason(narrow, "queued: 1 job before it")
    folder = inventory.parent / "hasty"
    folder.mkdir()
    hasty = dttui("--apply", shell_job(folder, {"gpu2": 1}, "true"), "--inventory", inventory)
    assert hasty.returncode == 5, hasty.stderr
    assert f"job {wide.job_id} of root has waited for 1 since " in hasty.stderr
    let_go(deployed, running, "running", "gpu1")
    wait_for_state(wide.job_id, "RUNNING")
    assert state(narrow) is JobState.PENDING
    let_go(deployed, wide, "wide", "gpu1", "gpu2")
    wait_for_state(narrow.job_id, "RUNNING")
    let_go(deployed, narrow, "narrow", "gpu2")
    wait_for_line(inventory)


def test_a_waiter_that_is_killed_leaves_the_line_and_has_its_place_again_when_it_is_brought_back(
    deployed: Lab, inventory: Path, launch: Launch
) -> None:
    """Out of the line within 30 s without a word; in its place again with `attach --all`; a stop ends the waiting."""
    running = launch("running", "gpu1", queue=False)
    first, second = launch("first", "gpu1"), launch("second", "gpu1")
    wait_for_line(inventory, first, second)
    kill_controller(first)
    wait_for_line(inventory, second, within_s=GONE_S)
    wait_until(lambda: jobs.summarize(second).reason.startswith("queued: 0 jobs before it; "), "the turn", GONE_S)
    done = dttui("attach", "--all")
    assert done.returncode == 0, done.stderr
    wait_for_line(inventory, first, second)
    wait_until(lambda: jobs.summarize(second).reason.startswith("queued: 1 job before it"), "its place again", GONE_S)
    third = launch("third", "gpu1")
    stopped = dttui("stop", second.job_id)
    assert stopped.returncode == 0, stopped.stderr
    wait_for_state(second.job_id, "CANCELLED")
    assert jobs.summarize(second).reason == "stopped on request while it waited for its hosts; nothing was started"
    assert dttui("status", second.job_id).returncode == 103
    assert set(states(second)) <= {"PENDING", "STOPPING", "CANCELLED"}
    wait_for_line(inventory, first, third)
    let_go(deployed, running, "running", "gpu1")
    wait_for_state(first.job_id, "RUNNING")
    assert state(third) is JobState.PENDING
    let_go(deployed, first, "first", "gpu1")
    wait_for_state(third.job_id, "RUNNING")
    let_go(deployed, third, "third", "gpu1")


def test_a_job_that_waits_for_a_host_out_of_reach_lets_others_by_and_begins_once_it_is_back(
    deployed: Lab, inventory: Path, launch: Launch
) -> None:
    """Within 90 s who asked later has a host that the other cannot use yet."""
    deployed["gpu2"].cut()
    try:
        wide, narrow = launch("wide", "gpu1", "gpu2"), launch("narrow", "gpu1")
        wait_for_state(narrow.job_id, "RUNNING")
        assert state(wide) is JobState.PENDING
        wait_for_reason(wide, "gpu2")
        let_go(deployed, narrow, "narrow", "gpu1")
    finally:
        deployed["gpu2"].heal()
    wait_for_state(wide.job_id, "RUNNING")
    let_go(deployed, wide, "wide", "gpu1", "gpu2")


def test_a_host_that_cannot_take_part_is_passed_over_and_one_out_of_reach_holds_up_nobody(
    deployed: Lab, inventory: Path, launch: Launch
) -> None:
    """Of three hosts one has too few GPUs and one is cut off: the third is taken within 90 s of its being free."""
    document = yaml.safe_load(inventory.read_text())
    wanted = {"gpu1": 2, "gpu2": 1, "gpu3": 2}
    for item in document["environments"]:
        item["resources"]["gpu"]["count"] = wanted[item["name"]]
    inventory.write_text(yaml.safe_dump(document))
    folder = inventory.parent / "two"
    folder.mkdir()
    job = shell_job(folder, {"gpu1": 2}, "true")
    two = yaml.safe_load(job.read_text())
    two["distributed_training"]["cluster"]["candidates"] = ["gpu2", "gpu3"]
    job.write_text(yaml.safe_dump(two))
    deployed["gpu1"].cut()
    try:
        done = dttui("--apply", job, "--inventory", inventory, "--queue", "--output", "json")
    finally:
        deployed["gpu1"].heal()
    assert done.returncode == 0, done.stderr
    assert [node.name for node in jobs.find("last").read_bound_plan(0).plan.nodes] == ["gpu3"]
