"""Nodes of an allocation of a real Slurm as hosts, reached by `srun --overlap`: deploy, launch, logs, stop."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.headless import dttui, shell_job, wait_for_state
from tests.slurm.conftest import Slurm
from tests.waiting import wait_until

NAMES = ("n1", "n2")
DEADLINE_S = 60.0


@pytest.fixture
def allocation(slurm: Slurm) -> Iterator[str]:
    """Both nodes, for as long as the test takes."""
    argv = ["salloc", "--no-shell", "-N2", "--time=10"]
    given = subprocess.run(argv, env=slurm.environment, capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r"Granted job allocation (\d+)", given.stderr)
    assert found is not None, given.stderr
    yield found[1]
    subprocess.run(["scancel", found[1]], env=slurm.environment, check=True, timeout=60)


def test_a_job_is_deployed_launched_followed_and_stopped_by_srun_alone(
    slurm: Slurm, allocation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Slurm tracks processes by their parents, what leaves its session outlives the step that started it."""
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    environments = [
        {
            "name": name,
            "exec": ["srun", f"--jobid={allocation}", "--overlap", "-N1", "-n1", "-w", name, "--unbuffered"],
            "address": "127.0.0.1",
            "agent_root": str(tmp_path / name),
            "python": sys.executable,
            "resources": {"gpu": {"count": 1, "simulated": True}},
        }
        for name in NAMES
    ]
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(yaml.safe_dump({"environments": environments}))
    deployed = dttui("agents", "deploy", "--inventory", inventory, "--output", "jsonl")
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    job = shell_job(tmp_path, dict.fromkeys(NAMES, 1), 'echo "rank $RANK by $SLURM_JOB_ID"; exec sleep 4713')
    try:
        started = dttui("--apply", job, "--inventory", inventory, "--detach")
        assert started.returncode == 0, started.stderr
        running = started.stdout.strip()
        wait_for_state(running, "RUNNING")
        wait_until(lambda: dttui("logs", running).stdout.count("rank ") == 2, "what both ranks print", DEADLINE_S)
        assert dttui("logs", running, "--rank", "1").stdout == f"rank 1 by {allocation}\n"
        stopped = dttui("stop", running)
        assert stopped.returncode == 0, stopped.stderr
        wait_for_state(running, "CANCELLED")
    finally:
        removed = dttui("agents", "remove", "--yes", "--force", "--inventory", inventory, "--output", "json")
        print(removed.stdout, removed.stderr)
    assert not [path for path in (tmp_path / name / "current" for name in NAMES) if path.exists()]
