"""Commands that are started once a node and start their own ranks: seen, logged, judged and told of as dttui's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.jobs import JobDirectory
from tests.integration.headless import dttui, result_of
from tests.processes import ended_agents as ended_agents

pytestmark = pytest.mark.torch

ONE, TWO = "pytorch-dev-env", "llm-training-env"
TRAIN = """
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(5):
    total = torch.ones(1) * dist.get_rank()
    dist.all_reduce(total)
    print(f"step {step} loss {1 / (step + 1):.3f} sum {total.item():.0f} of {dist.get_world_size()}", flush=True)
if sys.argv[1:] == [str(dist.get_rank())]:
    raise ValueError("broken on purpose")
dist.destroy_process_group()
"""
RUN = f"""
echo node $NODE_RANK of $NNODES
{sys.executable} -m torch.distributed.run --nnodes=$NNODES --nproc_per_node=$NPROC_PER_NODE --node_rank=$NODE_RANK \\
    --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT train.py "$@"
"""
BY_THEIR_USUAL_NAMES = f"{sys.executable} -m torch.distributed.run train.py\n"
APART = f"""
for name in NNODES NODE_RANK MASTER_ADDR MASTER_PORT; do unset PET_$name; done
{sys.executable} -m torch.distributed.run --standalone train.py
"""


def job(folder: Path, script: str, *arguments: str) -> Path:
    (folder / "train.py").write_text(TRAIN)
    (folder / "run.sh").write_text(script)
    run: dict[str, Any] = {"command": ["bash", "run.sh", *arguments], "per": "node", "workdir": "."}
    nodes = [{"id": name, "resources": {"gpu": {"count": 2}}} for name in (ONE, TWO)]
    told = {"name": "once", "framework": "command", "dataset": "none", "run": run, "cluster": {"nodes": nodes}}
    (folder / "job.yaml").write_text(yaml.safe_dump({"distributed_training": told}))
    return folder / "job.yaml"


def said_of_groups(directory: JobDirectory) -> list[str]:
    found = directory.read_events(EventKind.FINDING)
    return [event.message for event in found if event.data["code"] == "process-group"]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(RUN, id="arguments", marks=pytest.mark.thorough),
        pytest.param(BY_THEIR_USUAL_NAMES, id="torchruns own variables"),
    ],
)
def test_ranks_train_together_and_each_has_its_log(tmp_path: Path, script: str) -> None:
    done = dttui("--demo", "--apply", job(tmp_path, script), "--output", "json")
    assert done.returncode == 0, done.stderr
    directory = jobs.find(result_of(done)["job_id"])
    for rank, name in enumerate([ONE, ONE, TWO, TWO]):
        assert "step 4 loss 0.200 sum 6 of 4" in (directory.logs(0, name) / f"{rank}.out").read_text()
    reported = [json.loads(line) for line in directory.metrics.read_text().splitlines()]
    assert {(line["step"], line["loss"]) for line in reported if "loss" in line} >= {(0, 1.0), (4, 0.2)}
    assert said_of_groups(directory) == []


def test_an_exception_in_a_rank_is_the_cause(tmp_path: Path) -> None:
    done = dttui("--demo", "--apply", job(tmp_path, RUN, "3"), "--output", "json")
    assert done.returncode == 100, done.stderr
    found = result_of(done)
    assert (found["failures"][0]["node"], found["failures"][0]["rank"]) == (TWO, 3)
    diagnosed = result_of(dttui("diagnose", found["job_id"], "--output", "json"))
    assert "ValueError" in diagnosed["cause"]["words"]


def test_launchers_that_do_not_meet_train_apart_and_that_is_told(tmp_path: Path) -> None:
    done = dttui("--demo", "--apply", job(tmp_path, APART), "--output", "json")
    assert done.returncode == 0, done.stderr
    said = said_of_groups(jobs.find(result_of(done)["job_id"]))
    assert said == ["the 4 ranks have formed 2 process groups, of 2, 2: they do not train together"]
