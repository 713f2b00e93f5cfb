"""The bundles as planned and bound, run by real processes: two nodes on this machine, with one and two slots."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import dtagent.payload
import pytest

from dttui.inventory import Inventory
from dttui.inventory.models import GpuResources, Resources
from dttui.planning.models import Bindings, NodeBinding, PlannedNode
from dttui.planning.planner import bind, plan
from dttui.spec.models import DataParallel, DatasetRef, Job, Node, Run, Strategy
from tests.ports import free_port
from tests.unit.seed_cluster import environment, make_job

PAYLOAD = Path(dtagent.payload.__file__).parent
DEADLINE_S = 120

SCRIPT = """
import json, os, sys
import torch
import torch.distributed as dist

dist.init_process_group(os.environ["DTTUI_BACKEND"])
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
with open(os.environ["DTTUI_CONFIG"]) as stream:
    config = json.load(stream)
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "OMP_NUM_THREADS")
line = {
    "total": total.item(),
    "argv": sys.argv[1:],
    "batch_size": config["batch_size"],
    "dataset": config["dataset"]["path"],
    "cwd": os.getcwd(),
    **{name: os.environ[name] for name in names},
}
with open(os.environ["DTTUI_METRICS"], "a") as stream:
    stream.write(json.dumps(line) + "\\n")
dist.barrier()
sys.stdout.flush()
os._exit(0)
"""


def two_nodes() -> Inventory:
    def local(name: str, slots: int) -> object:
        return environment(
            name,
            host="localhost",
            address="127.0.0.1",
            local=True,
            agent_root=f"/{name}",
            python=sys.executable,
            resources=Resources(gpu=GpuResources(count=slots, simulated=True)),
        )

    return Inventory.model_validate({"environments": (local("one", 1), local("two", 2))})


def run_bundles(job: Job, tmp_path: Path) -> list[dict[str, object]]:
    """Write each node's bundle to a directory of its own, run all processes, and return what the ranks reported."""
    made = plan(job, two_nodes())
    assert made.errors == ()
    bindings = {
        node.name: NodeBinding(
            directory=str(tmp_path / node.name), payload=str(PAYLOAD), python=sys.executable, interface="lo"
        )
        for node in made.nodes
    }
    bound = bind(made, Bindings(job_id="test", attempt=0, master_port=free_port(), nodes=bindings)).plan
    for node in bound.nodes:
        lay_out(node, tmp_path / node.name)
    running = [
        subprocess.Popen(
            process.argv,
            cwd=process.cwd,
            env={**os.environ, **process.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node in bound.nodes
        for process in node.processes
    ]
    try:
        for process in running:
            output, _none = process.communicate(timeout=DEADLINE_S)
            logs = "\n".join(path.read_text() for path in tmp_path.glob("*/logs/*.err"))
            assert process.returncode == 0, output + logs
    finally:
        for process in running:
            process.kill()
            process.wait()
    lines = [line for path in tmp_path.glob("*/metrics.jsonl") for line in path.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda item: int(item["RANK"]))


def lay_out(node: PlannedNode, directory: Path) -> None:
    for name in ("work", "logs", "ranks", "failures"):
        (directory / name).mkdir(parents=True)
    (directory / "work" / "train.py").write_text(SCRIPT)
    for file in node.files:
        (directory / file.path).write_text(file.text)


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("framework", ["pytorch-ddp", "command"])
def test_the_ranks_of_all_nodes_meet_and_find_what_was_planned(framework: str, tmp_path: Path) -> None:
    run = {
        "pytorch-ddp": Run(script="train.py", args=("--steps", "3", "--", "-x")),
        "command": Run(command=("${PYTHON}", "train.py", "--steps", "3", "--", "-x"), workdir="."),
    }
    job = make_job(
        "one",
        Node(id="two", role="master"),
        framework=framework,
        run=run[framework],
        dataset=DatasetRef(id="d", path="relative/data"),
        strategy=Strategy(data_parallel=DataParallel(batch_size=12)),
    )
    ranks = run_bundles(job, tmp_path)
    assert [item["RANK"] for item in ranks] == ["0", "1", "2"]
    assert {item["WORLD_SIZE"] for item in ranks} == {"3"}
    assert [item["total"] for item in ranks] == [6.0, 6.0, 6.0]
    assert [item["LOCAL_RANK"] for item in ranks] == ["0", "1", "0"]
    assert [item["LOCAL_WORLD_SIZE"] for item in ranks] == ["2", "2", "1"]
    assert [item["GROUP_RANK"] for item in ranks] == ["0", "0", "1"]
    assert {item["OMP_NUM_THREADS"] for item in ranks} == {"1"}
    assert [item["argv"] for item in ranks] == [["--steps", "3", "--", "-x"]] * 3
    assert {item["batch_size"] for item in ranks} == {12}
    assert {item["dataset"] for item in ranks} == {"relative/data"}
    assert [item["cwd"] for item in ranks] == [str(tmp_path / name / "work") for name in ("two", "two", "one")]
