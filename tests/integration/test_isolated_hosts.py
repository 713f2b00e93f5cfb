"""The main job over real SSH on isolated hosts, one of them bare: deploy, train, fail, and hosts that do not answer."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from dttui.services import jobs
from tests.integration.headless import dttui, example_job, result_of, shell_job, wait_for_state
from tests.lab.hosts import Lab
from tests.waiting import wait_until

pytestmark = pytest.mark.lab

UNREACHABLE_DEADLINE_S = 60.0
SILENCE_DEADLINE_S = 30.0


@pytest.fixture
def inventory(lab3: Lab, tmp_path: Path) -> Path:
    return lab3.inventory(tmp_path / "inventory.yaml")


@pytest.mark.torch
def test_the_example_trains_across_three_hosts_with_the_chosen_master_as_rank_0(
    deployed: Lab, inventory: Path, tmp_path: Path
) -> None:
    job = example_job(tmp_path, {"gpu2": 1, "gpu1": 1, "gpu3": 2}, "--steps", "30", "--log-every", "5")
    done = dttui("--apply", job, "--inventory", inventory, "--output", "json")
    assert done.returncode == 0, done.stderr
    result = result_of(done)
    assert [(node["name"], node["ranks"]) for node in result["nodes"]] == [
        ("gpu2", [0]),
        ("gpu1", [1]),
        ("gpu3", [2, 3]),
    ]
    directory = Path(result["directory"])
    metrics = [json.loads(line) for line in (directory / "telemetry/metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in metrics if line["rank"] == 0]
    assert losses[-1] < losses[0] - 1
    for node, rank in (("gpu2", 0), ("gpu1", 1), ("gpu3", 2), ("gpu3", 3)):
        assert (directory / f"logs/0/{node}/{rank}.out").exists()
        assert (directory / f"telemetry/{node}.jsonl").stat().st_size > 0
    assert "world size 4" in (directory / "logs/0/gpu2/0.out").read_text()
    plan = json.loads((directory / "attempts/0/plan.json").read_text())
    assert plan["plan"]["master_address"] == deployed["gpu2"].address
    assert _job_processes(deployed, result["job_id"]) == {}


@pytest.mark.torch
def test_a_rank_that_exits_with_3_is_named_and_leaves_no_process_on_any_host(
    deployed: Lab, inventory: Path, tmp_path: Path
) -> None:
    fault = ("--fail-at-step", "3", "--fail-rank", "2", "--exit-code", "3")
    done = dttui(
        "--apply", example_job(tmp_path, {"gpu1": 1, "gpu2": 1, "gpu3": 2}, *fault), "--inventory", inventory,
        "--output", "json",
    )  # fmt: skip
    assert done.returncode == 100, done.stderr
    first = result_of(done)["failures"][0]
    assert (first["node"], first["rank"], first["exit_code"]) == ("gpu3", 2, 3)
    assert any("--exit-code" in line for line in first["tail"])
    assert _job_processes(deployed, result_of(done)["job_id"]) == {}


def test_hosts_that_are_down_are_named_within_the_deadline_and_nothing_is_started(
    deployed: Lab, breakable_lab3: Lab, inventory: Path, tmp_path: Path
) -> None:
    breakable_lab3["gpu2"].kill()
    breakable_lab3["gpu3"].cut()
    began = time.monotonic()
    job = shell_job(tmp_path, {"gpu1": 1, "gpu2": 1, "gpu3": 2}, "true")
    done = dttui("--apply", job, "--inventory", inventory, "--output", "json")
    assert time.monotonic() - began < UNREACHABLE_DEADLINE_S
    assert done.returncode == 4, done.stderr
    result = result_of(done)
    assert {node["name"] for node in result["nodes"] if node["state"] == "failed"} == {"gpu2", "gpu3"}
    assert "gpu2" in result["reason"]
    for name in ("gpu1", "gpu3"):
        listed = deployed[name].run(["ls", "/var/tmp/dtagent-0/jobs"], check=False).stdout.decode()
        assert result["job_id"] not in listed


def test_a_failure_to_prepare_one_host_starts_nothing_on_the_others(
    deployed: Lab, inventory: Path, tmp_path: Path
) -> None:
    deployed["gpu1"].run(["mkdir", "-p", "/srv/only-here"])
    deployed["gpu2"].run(["mkdir", "-p", "/srv/only-here"])
    job = shell_job(tmp_path, {"gpu1": 1, "gpu2": 1, "gpu3": 1}, "touch /tmp/started", workdir="/srv/only-here")
    done = dttui("--apply", job, "--inventory", inventory, "--output", "json", "--ignore", "path-missing")
    assert done.returncode == 5, done.stderr
    assert "gpu3" in result_of(done)["reason"]
    assert "/srv/only-here" in result_of(done)["reason"]
    for host in deployed.values():
        assert host.run(["test", "-e", "/tmp/started"], check=False).returncode == 1


def test_an_unknown_host_key_is_shown_and_taken_by_its_fingerprint(deployed: Lab, lab3: Lab, tmp_path: Path) -> None:
    known_hosts = tmp_path / "known_hosts"
    known_hosts.touch()
    inventory = lab3.inventory(tmp_path / "inventory.yaml", known_hosts=str(known_hosts))
    job = shell_job(tmp_path, {"gpu1": 1}, "true")
    refused = dttui("--apply", job, "--inventory", inventory)
    fingerprint = lab3["gpu1"].fingerprint
    assert refused.returncode == 4
    assert fingerprint in refused.stderr
    assert "envs trust" in refused.stderr + refused.stdout
    wrong = dttui("envs", "trust", "gpu1", "--fingerprint", lab3["gpu2"].fingerprint, "--inventory", inventory)
    assert wrong.returncode == 4
    assert known_hosts.read_text() == ""
    taken = dttui("envs", "trust", "gpu1", "--fingerprint", fingerprint, "--inventory", inventory)
    assert taken.returncode == 0, taken.stderr
    assert dttui("--apply", job, "--inventory", inventory).returncode == 0


def test_a_job_goes_on_through_a_link_that_was_cut_for_a_while(
    deployed: Lab, breakable_lab3: Lab, inventory: Path, tmp_path: Path
) -> None:
    job = shell_job(tmp_path, {"gpu1": 1}, "for i in $(seq 60); do echo line $i; sleep 0.5; done")
    started = dttui("--apply", job, "--inventory", inventory, "--detach")
    job_id = started.stdout.strip()
    wait_for_state(job_id, "RUNNING")
    cut_at = time.time()
    breakable_lab3["gpu1"].cut()
    _wait_until_unknown(job_id)
    told = next(event for event in jobs.find(job_id).read_events() if event.data.get("state") == "unknown")
    assert told.time - cut_at < SILENCE_DEADLINE_S
    breakable_lab3["gpu1"].heal()
    wait_for_state(job_id, "SUCCEEDED")
    lines = dttui("logs", job_id, "--rank", "0").stdout.splitlines()
    assert lines == [f"line {number}" for number in range(1, 61)]


def _wait_until_unknown(job_id: str) -> None:
    def unknown() -> bool:
        document = result_of(dttui("status", job_id, "--output", "json"))
        return bool(document["nodes"][0]["state"] == "unknown")

    wait_until(unknown, "the node to be unknown", 60)


def _job_processes(lab: Lab, job_id: str) -> dict[str, list[str]]:
    """Return host → command lines of processes that carry the job's mark."""
    script = f"grep -lsa DTTUI_JOB_ID={job_id} /proc/[0-9]*/environ || true"
    found = {}
    for name, host in lab.items():
        listed = host.run(["sh", "-c", script]).stdout.decode().split()
        mine = [path for path in listed if "/self/" not in path]
        if mine:
            found[name] = mine
    return found
