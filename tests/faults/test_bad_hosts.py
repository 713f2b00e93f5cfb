"""Hosts that are down, show another key, cannot prepare, or on which a rank dies: named, and nothing is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dttui import jobs
from tests.faults.leftovers import assert_nothing_is_left
from tests.faults.servers import another_key
from tests.integration.headless import dttui, example_job, result_of, shell_job
from tests.lab.host import Host
from tests.lab.hosts import Lab

pytestmark = pytest.mark.lab

DEADLINE_S = 60.0
"""Of a launch that is refused or fails, on a machine under load."""
TRAINING_S = 150.0
"""Of one whose launchers and ranks import torch first, seven processes on few cores."""


@pytest.fixture
def inventory(lab3: Lab, tmp_path: Path) -> Path:
    return lab3.inventory(tmp_path / "inventory.yaml")


def test_hosts_that_are_down_are_named_within_the_deadline_and_nothing_is_started(
    deployed: Lab, breakable_lab3: Lab, inventory: Path, tmp_path: Path
) -> None:
    """One switched off and one without a cable; within 60 s, and the third host has no trace of the job."""
    breakable_lab3["gpu2"].kill()
    breakable_lab3["gpu3"].cut()
    result = refused(inventory, shell_job(tmp_path, {"gpu1": 1, "gpu2": 1, "gpu3": 2}, "true"), 4)
    assert states(result, "failed") == {"gpu2", "gpu3"}
    assert "gpu2" in result["reason"]
    for name in ("gpu1", "gpu3"):
        assert_never_there(deployed[name], result["job_id"])


def test_hosts_whose_key_changed_or_was_revoked_are_refused_by_name_and_nothing_is_started(
    deployed: Lab, inventory: Path, tmp_path: Path
) -> None:
    """Within 60 s, beside an authority that vouches for nobody here; no host has a trace of the job."""
    gpu1, gpu2, gpu3 = (deployed[name] for name in ("gpu1", "gpu2", "gpu3"))
    known_hosts = tmp_path / "known_hosts"
    authority = f"@cert-authority *.example.org {gpu1.host_key}\n@cert-authority * bad\n"
    known_hosts.write_text(f"{authority}{deployed.known_hosts.read_text()}@revoked * {gpu3.host_key}\n")
    hosts = deployed.inventory(tmp_path / "keys.yaml", known_hosts=str(known_hosts))
    job = shell_job(tmp_path, {"gpu1": 1, "gpu2": 1, "gpu3": 1}, "true")
    with another_key(gpu2) as fingerprint:
        result = refused(hosts, job, 4)
        listed = dttui("envs", "--inventory", hosts, "--output", "json", deadline_s=DEADLINE_S)
    rows = {row["name"]: row for row in json.loads(listed.stdout)}
    assert states(result, "failed") == {"gpu2", "gpu3"}
    for host in deployed.values():
        assert_never_there(host, result["job_id"])
    assert rows["gpu1"]["state"] == "idle"
    assert fingerprint in rows["gpu2"]["reason"]
    assert "changed" in rows["gpu2"]["reason"]
    assert "revoked" in rows["gpu3"]["reason"]


def test_a_failure_to_prepare_one_host_starts_nothing_on_the_others(
    deployed: Lab, inventory: Path, tmp_path: Path
) -> None:
    """Within 60 s, by the name of the host and of what it lacks; no host has run a rank or runs anything of the job."""
    deployed["gpu1"].run(["mkdir", "-p", "/srv/only-here"])
    deployed["gpu2"].run(["mkdir", "-p", "/srv/only-here"])
    job = shell_job(tmp_path, {"gpu1": 1, "gpu2": 1, "gpu3": 1}, "touch /tmp/started", workdir="/srv/only-here")
    result = refused(inventory, job, 5, "--ignore", "path-missing")
    assert "gpu3" in result["reason"]
    assert "/srv/only-here" in result["reason"]
    for host in deployed.values():
        assert host.run(["test", "-e", "/tmp/started"], check=False).returncode == 1
    assert_nothing_is_left(jobs.find(result["job_id"]), deployed)


@pytest.mark.torch
def test_a_rank_that_exits_with_3_is_named_and_leaves_no_process_on_any_host(
    deployed: Lab, inventory: Path, tmp_path: Path
) -> None:
    """In the middle of a real training over three hosts; the others are ended, and nothing is left."""
    fault = ("--fail-at-step", "3", "--fail-rank", "2", "--exit-code", "3")
    job = example_job(tmp_path, {"gpu1": 1, "gpu2": 1, "gpu3": 2}, *fault)
    result = refused(inventory, job, 100, deadline_s=TRAINING_S)
    first = result["failures"][0]
    assert (first["node"], first["rank"], first["exit_code"]) == ("gpu3", 2, 3)
    assert any("--exit-code" in line for line in first["tail"])
    assert_nothing_is_left(jobs.find(result["job_id"]), deployed)


def refused(inventory: Path, job: Path, code: int, *options: str, deadline_s: float = DEADLINE_S) -> dict[str, Any]:
    """Launch a job that ends badly within the deadline; return what is told of it."""
    done = dttui("--apply", job, "--inventory", inventory, "--output", "json", *options, deadline_s=deadline_s)
    assert done.returncode == code, done.stderr
    return result_of(done)


def states(result: dict[str, Any], state: str) -> set[str]:
    return {node["name"] for node in result["nodes"] if node["state"] == state}


def assert_never_there(host: Host, job_id: str) -> None:
    listed = host.run(["ls", "/var/tmp/dtagent-0/jobs"], check=False).stdout.decode()
    assert job_id not in listed
