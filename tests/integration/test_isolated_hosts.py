"""The main job over real SSH on isolated hosts, one of them bare: deploy, train, and take an unknown key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.headless import dttui_here, shell_job
from tests.integration.trained import Trained
from tests.lab.hosts import Lab

pytestmark = pytest.mark.lab


@pytest.mark.torch
def test_the_example_trains_across_three_hosts_with_the_chosen_master_as_rank_0(
    deployed: Lab, trained: Trained
) -> None:
    result = trained.result
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


def test_an_unknown_host_key_is_shown_and_taken_by_its_fingerprint(deployed: Lab, lab3: Lab, tmp_path: Path) -> None:
    known_hosts = tmp_path / "known_hosts"
    known_hosts.touch()
    inventory = lab3.inventory(tmp_path / "inventory.yaml", known_hosts=str(known_hosts))
    job = shell_job(tmp_path, {"gpu1": 1}, "true")
    refused = dttui_here("--apply", job, "--inventory", inventory)
    fingerprint = lab3["gpu1"].fingerprint
    assert refused.returncode == 4
    assert fingerprint in refused.stderr
    assert "envs trust" in refused.stderr + refused.stdout
    wrong = dttui_here("envs", "trust", "gpu1", "--fingerprint", lab3["gpu2"].fingerprint, "--inventory", inventory)
    assert wrong.returncode == 4
    would = dttui_here("envs", "trust", "gpu1", "--fingerprint", fingerprint, "--dry-run", "--inventory", inventory)
    assert (would.returncode, would.stdout) == (0, f"gpu1: would trust {fingerprint}\n"), would.stderr
    assert known_hosts.read_text() == ""
    taken = dttui_here("envs", "trust", "gpu1", "--fingerprint", fingerprint, "--inventory", inventory)
    assert taken.returncode == 0, taken.stderr
    assert dttui_here("--apply", job, "--inventory", inventory).returncode == 0


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
