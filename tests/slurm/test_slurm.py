"""What `dttui render --target slurm` writes, real Slurm runs to its end on nodes of its own choice."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.headless import dttui, example_job, shell_job
from tests.slurm.conftest import Slurm


def rendered(job: Path, **gpus: dict[str, Any]) -> Path:
    """Render a job for environments, name → GPUs, and return where it is."""
    environments = [
        {"name": name, "host": f"{name}.invalid", "python": sys.executable, "resources": {"gpu": gpu}}
        for name, gpu in gpus.items()
    ]
    inventory, out = job.parent / "inventory.yaml", job.parent / "out"
    inventory.write_text(yaml.safe_dump({"environments": environments}))
    done = dttui("render", job, "-o", out, "--target", "slurm", "--inventory", inventory)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.torch
def test_the_example_trains_on_two_nodes(slurm: Slurm, tmp_path: Path) -> None:
    job = example_job(tmp_path, {"a": 1, "b": 1}, "--steps", "30", "--log-every", "5")
    out = rendered(job, a={"count": 1, "simulated": True}, b={"count": 1, "simulated": True})
    state, said = slurm.submit(out)
    assert state == "COMPLETED", said
    assert "world size 2" in said
    losses = [float(loss) for loss in re.findall(r"^step \d+/30  loss ([\d.]+)", said, re.MULTILINE)]
    assert losses[-1] < losses[0] - 1
    steps = [json.loads(line)["step"] for line in (out / "node1" / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1] == 30
    assert (out / "node0" / "checkpoints" / "step-00000030" / "COMPLETE").exists()


def test_unequal_nodes_are_one_heterogeneous_job_whose_ranks_see_their_own_gpus(slurm: Slurm, tmp_path: Path) -> None:
    where = "node $DTTUI_NODE_RANK on $SLURMD_NODENAME, GPUs $CUDA_VISIBLE_DEVICES, $MASTER_ADDR"
    tell = f'echo "rank $RANK of $WORLD_SIZE: {where}"'
    out = rendered(shell_job(tmp_path, {"a": 1, "b": 2}, tell), a={"count": 1}, b={"count": 2})
    state, said = slurm.submit(out)
    assert state == "COMPLETED", said
    assert sorted(line for line in said.splitlines() if line.startswith("rank")) == [
        "rank 0 of 3: node 0 on n1, GPUs 0, n1",
        "rank 1 of 3: node 1 on n2, GPUs 0,1, n1",
        "rank 2 of 3: node 1 on n2, GPUs 0,1, n1",
    ]


def test_a_node_that_fails_ends_the_others(slurm: Slurm, tmp_path: Path) -> None:
    out = rendered(
        shell_job(tmp_path, {"a": 1, "b": 1}, '[ "$RANK" = 1 ] && exit 3; sleep 100'), a={"count": 1}, b={"count": 1}
    )
    state, said = slurm.submit(out, deadline_s=60)
    assert state == "FAILED"
    assert "task 1: Exited with exit code 3" in said
