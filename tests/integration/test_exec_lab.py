"""Isolated hosts reached by `nsenter` and not by SSH: deploy, launch, logs, stop; and what breaks on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gloo import LEAVES
from tests.integration.headless import dttui_here, result_of, shell_job, wait_for_running, wait_for_state, write_job
from tests.lab.hosts import Lab
from tests.waiting import wait_until

pytestmark = pytest.mark.lab

DEADLINE_S = 60.0
NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")
MEETS = (
    """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(met := torch.ones(1))
print("world size", int(met))
"""
    + LEAVES
)
OF_SSH = ("host", "user", "port", "identity_file", "known_hosts")


def entering(lab: Lab, name: str) -> list[str]:
    """The plain command, which knows a host by its process of now."""
    return ["nsenter", "--target", str(lab[name].pid), *NAMESPACES, "--"]


@pytest.fixture
def inventory(lab3: Lab, tmp_path: Path) -> Path:
    """All hosts by `nsenter`, with SSH cut off: its port drops what is sent to it."""
    none = dict.fromkeys(OF_SSH)
    hosts = {name: {"exec": entering(lab3, name), "address": lab3[name].address, **none} for name in lab3}
    return lab3.inventory(tmp_path / "inventory.yaml", **hosts)


@pytest.fixture(autouse=True)
def without_ssh(breakable_lab3: Lab) -> None:
    for host in breakable_lab3.values():
        host.drop_port(host.ssh_port)


@pytest.mark.torch
def test_a_job_is_deployed_launched_followed_and_stopped_by_nsenter_alone(
    lab3: Lab, inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "s3cret")
    dttui_here("agents", "remove", "gpu1", "--inventory", inventory, "--yes")  # Another test may have left one.
    deployed = dttui_here("agents", "deploy", "--inventory", inventory, "--output", "jsonl")
    assert deployed.returncode == 0, deployed.stderr
    rows = [json.loads(line) for line in deployed.stdout.splitlines()]
    assert rows[0]["changed"], rows
    listed = dttui_here("envs", "--inventory", inventory, "--output", "jsonl")
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [(row["name"], row["state"], row["reach"]) for row in rows] == [
        (name, "idle", "exec") for name in ("gpu1", "gpu2", "gpu3")
    ]
    (tmp_path / "work").mkdir()
    (tmp_path / "work/train.py").write_text(MEETS)
    run = {"script": "train.py", "workdir": "work"}
    job = write_job(tmp_path, {"gpu2": 1, "gpu1": 1, "gpu3": 2}, framework="pytorch-ddp", run=run)
    done = dttui_here("--apply", job, "--inventory", inventory, "--output", "json")
    assert done.returncode == 0, done.stderr
    result = result_of(done)
    plan = json.loads((Path(result["directory"]) / "attempts/0/plan.json").read_text())
    assert plan["plan"]["master_address"] == lab3["gpu2"].address
    logged = dttui_here("logs", result["job_id"], "--rank", "0")
    assert "world size 4" in logged.stdout

    job = shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, "echo here ${API_TOKEN:-without}; exec sleep 600")
    assert dttui_here("--apply", job, "--inventory", inventory, "--detach").returncode == 0
    running = wait_for_running()
    wait_until(lambda: dttui_here("logs", running).stdout.count("here without") == 2, "what both print", DEADLINE_S)
    assert dttui_here("stop", running).returncode == 0
    wait_for_state(running, "CANCELLED")
    for host in lab3.values():
        assert "sleep 600" not in host.run(["ps", "-eo", "args"]).stdout.decode()
