"""Launchers in commands that a job starts once a GPU: found in what a shell would run, and in nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dttui.frameworks.bundle import Hole
from dttui.inventory.models import Inventory
from dttui.launch.own_launchers import check_launchers, launcher_in
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from dttui.spec import parse_job
from dttui.spec.models import Run
from tests.unit.seed_cluster import environment


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        ("torchrun --nproc-per-node 2 train.py", "torchrun"),
        ("/opt/venv/bin/torchrun train.py", "torchrun"),
        ("python -m torch.distributed.run train.py", "python -m torch.distributed.run"),
        ("python3 -u -m torch.distributed.launch train.py", "python3 -u -m torch.distributed.launch"),
        ("A=1 B='c d' torchrun train.py", "torchrun"),
        ("cd work && exec torchrun train.py", "torchrun"),
        ("numactl --localalloc torchrun train.py", "torchrun"),
        ("uv run --with torch accelerate launch train.py", "accelerate launch"),
        ("if true; then\n  accelerate   launch \\\n  train.py\nfi", "accelerate launch"),
        ("deepspeed --hostfile hosts train.py", "deepspeed"),
        ("llamafactory-cli train job.yaml", "llamafactory-cli train"),
        ("axolotl train job.yaml", "axolotl train"),
        ("${PYTHON} -m torch.distributed.run train.py", "${PYTHON} -m torch.distributed.run"),
        ('"$PY" -m torch.distributed.run train.py', '"$PY" -m torch.distributed.run'),
        ("swift sft --model x", "swift sft"),
        ("timeout 60 torchrun train.py", "torchrun"),
        ("sudo -E torchrun train.py", "torchrun"),
        ("numactl --cpunodebind 0 torchrun train.py", "torchrun"),
        ("conda run -n train torchrun train.py", "torchrun"),
        ("if [ -z $RANK ]; then torchrun train.py; fi", "torchrun"),
        ("swift build", None),
        ("llamafactory-cli version", None),
        ("# torchrun train.py\npython train.py", None),
        ("echo torchrun", None),
        ("pip install deepspeed", None),
        ("python train.py --launcher torchrun", None),
        ("./torchrun.sh", None),
    ],
)
def test_a_launcher_is_found_where_a_shell_would_run_it(text: str, launcher: str | None) -> None:
    assert launcher_in(text) == launcher


def planned(*gpus: int, **run: Any) -> tuple[Run, Plan]:
    """Return what a job runs, and its plan on hosts with so many GPUs."""
    names = [f"gpu{number}" for number in range(len(gpus))]
    nodes = [{"id": name, "resources": {"gpu": {"count": count}}} for name, count in zip(names, gpus, strict=True)]
    told = {"name": "x", "framework": "command", "dataset": "none", "run": run, "cluster": {"nodes": nodes}}
    job = parse_job(yaml.safe_dump({"distributed_training": told}), "job.yaml")
    assert job.run is not None
    inventory = Inventory(environments=tuple(environment(name, count) for name, count in zip(names, gpus, strict=True)))
    return job.run, plan(job, inventory)


def test_a_launcher_as_the_command_is_refused_and_in_a_script_a_warning(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("[ -z $RANK ] || exec python train.py\ntorchrun train.py\n")
    told = {
        words: [
            (item.code, item.severity.value)
            for item in check_launchers(*planned(2, 1, command=words.split()), tmp_path)
        ]
        for words in ("torchrun train.py", "bash run.sh", "bash absent.sh", "python train.py")
    }
    assert told == {
        "torchrun train.py": [("launcher-inside", "error")],
        "bash run.sh": [("launcher-inside", "warning")],
        "bash absent.sh": [],
        "python train.py": [],
    }
    (found,) = check_launchers(*planned(2, command=["bash", "-lc", "cd x && torchrun train.py"]), None)
    assert found.message.startswith("bash -c runs torchrun, which starts ranks of its own")
    assert not [*check_launchers(*planned(2, command=["torchrun", "x"], per="node"), None)]
    assert not [*check_launchers(*planned(1, 1, command=["torchrun", "x"]), None)]


def test_a_command_once_a_node_is_told_its_place_which_the_job_may_not() -> None:
    _run, made = planned(2, 1, command=["bash", "run.sh"], per="node")
    assert made.errors == ()
    (first,), (second,) = (node.processes for node in made.nodes)
    assert (first.name, first.rank, first.starts_ranks) == ("launcher", None, True)
    wanted = {"NNODES": "2", "NODE_RANK": "1", "NPROC_PER_NODE": "1", "PET_NODE_RANK": "1", "DTTUI_OWN_RANKS": "2:1"}
    assert {name: second.env[name] for name in wanted} == wanted
    env = {"NODE_RANK": "0", "PET_NNODES": "1", "OTHER": "1"}
    told = [error.subject for error in planned(2, command=["x"], per="node", env=env)[1].errors]
    assert told == ["run.env.NODE_RANK", "run.env.PET_NNODES"]
    assert planned(2, command=["x"], env=env)[1].errors == ()


def test_in_a_container_the_ranks_are_seen_as_well() -> None:
    container = {"engine": "docker", "image": "train:1"}
    _run, made = planned(2, command=["bash", "run.sh"], per="node", container=container, env={"PYTHONPATH": "/lib"})
    process = made.nodes[0].processes[0]
    assert (process.env["PYTHONPATH"], process.python_path) == (f"/lib:{Hole.PAYLOAD}/modules", "")
    assert "--env=PYTHONPATH" in process.argv


def test_other_frameworks_start_the_ranks_themselves() -> None:
    told = {"name": "x", "framework": "pytorch-ddp", "dataset": "none", "run": {"script": "x.py", "per": "node"}}
    made = plan(parse_job(yaml.safe_dump({"distributed_training": told}), "job.yaml"), Inventory())
    assert "run.per" in [error.subject for error in made.errors]
