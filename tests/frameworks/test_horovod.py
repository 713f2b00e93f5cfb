"""Horovod for real: its own client at dttui's rendezvous, unequal nodes, equal losses, and who it says broke."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from dttui.jobs import find
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from tests.frameworks.launching import DEADLINE_S, apply, example, slots
from tests.integration.headless import dttui, result_of
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.unit.seed_cluster import SEED, make_job

ONE, TWO, THREE = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def seed_plan() -> Plan:
    """The nodes of the seeds, with 2, 4 and 8 GPUs."""
    made = plan(make_job(ONE, TWO, THREE, framework="horovod"), SEED)
    assert made.errors == ()
    return made


def test_the_example_trains_on_unequal_nodes_and_goes_on_from_its_checkpoint(
    tmp_path: Path, horovod_python: Path
) -> None:
    kept = tmp_path / "kept"
    losses: dict[int, float] = {}
    for name, steps in (("first", 12), ("second", 18)):
        (tmp_path / name).mkdir()
        job = example("horovod")
        job["run"]["args"] = ["--steps", str(steps), "--checkpoint-every", "12"]
        job["recovery"] = {"checkpoint": {"dir": str(kept)}}
        job["framework_options"]["timeline"] = str(tmp_path / "timeline.json")
        ended = apply(tmp_path / name, "horovod", job, horovod_python)
        assert ended.result["world_size"] == 4
        assert min(ended.losses()) == len(losses) + 1
        losses |= ended.losses()
        assert ended.log(ONE, "service-rendezvous").startswith("4 ranks can meet at 127.0.0.1, port ")
    assert list(losses) == list(range(1, 19))
    assert losses[18] < losses[1] - 2
    assert {path.parent.name for path in kept.glob("*/COMPLETE")} == {"step-00000012", "step-00000018"}
    assert "ALLREDUCE" in (tmp_path / "timeline.json").read_text()


def test_the_loss_is_that_of_ddp(tmp_path: Path, horovod_python: Path) -> None:
    told = {}
    for framework in ("horovod", "pytorch-ddp"):
        (tmp_path / framework).mkdir()
        job = example("horovod")
        job |= {"framework": framework, "framework_options": {}, "cluster": slots({ONE: 2, TWO: 1})}
        job["run"] = {"script": "horovod_or_ddp.py"}
        ended = apply(tmp_path / framework, "horovod", job, horovod_python, more=[HERE / "horovod_or_ddp.py"])
        told[framework] = json.loads(ended.log(ONE, 0).split("losses ")[1].splitlines()[0])
    assert len(told["horovod"]) == 12
    assert told["horovod"] == pytest.approx(told["pytorch-ddp"], abs=5e-5)
    assert told["horovod"][-1] < told["horovod"][0] - 1


def test_the_rank_that_raised_is_told_with_its_traceback_before_those_that_lost_it(
    tmp_path: Path, horovod_python: Path
) -> None:
    script = """
import horovod.torch as hvd, torch
hvd.init()
hvd.allreduce(torch.ones(1))
if hvd.rank() == 2:
    raise ValueError("no such label")
hvd.allreduce(torch.ones(1))
"""
    (tmp_path / "train.py").write_text(script)
    job = example("horovod") | {"cluster": slots({ONE: 2, TWO: 1}), "dataset": "none"}
    job["run"] = {"script": "train.py", "python": str(horovod_python)}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"distributed_training": job}))
    done = dttui("--demo", "--apply", path, "--output", "json", deadline_s=DEADLINE_S)
    assert done.returncode == 100, done.stdout + done.stderr
    result = result_of(done)
    assert "ValueError: no such label" in result["reason"]
    failure = result["failures"][0]
    assert (failure["node"], failure["rank"], failure["error"]) == (TWO, 2, "ValueError: no such label")
    assert 'line 6, in <module>\n    raise ValueError("no such label")' in failure["traceback"]


OVER_MPI = """
import json, os, sys
import horovod.torch as hvd, torch
hvd.init()
total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum).item()
print(hvd.mpi_enabled(), os.environ["RANK"] == str(hvd.rank()), os.environ["LOCAL_WORLD_SIZE"], total, flush=True)
with open(os.environ["DTTUI_METRICS"], "a") as stream:
    stream.write(json.dumps({"rank": hvd.rank(), "step": 1, "loss": total}) + "\\n")
hvd.allreduce(torch.ones(1))
if hvd.rank() == 1 and len(sys.argv) > 1:
    raise ValueError("no such label")
hvd.allreduce(torch.ones(1))
"""


def test_over_mpi_the_ranks_of_one_host_train_together_and_the_one_that_raises_is_told(
    tmp_path: Path, horovod_python: Path
) -> None:
    (tmp_path / "train.py").write_text(OVER_MPI)
    job = example("horovod") | {"cluster": slots({TWO: 3}), "dataset": "none", "communication": {"protocol": "MPI"}}
    results = []
    for args in ([], ["fails"]):
        job["run"] = {"script": "train.py", "python": str(horovod_python), "args": args}
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump({"distributed_training": job}))
        done = dttui("--demo", "--apply", path, "--output", "json", deadline_s=DEADLINE_S)
        assert done.returncode == (100 if args else 0), done.stdout + done.stderr
        results.append(result_of(done))
        logs = find(results[-1]["job_id"]).path / "logs" / "0" / TWO
        assert [(logs / f"{rank}.out").read_text() for rank in range(3)] == ["True True 3 6.0\n"] * 3
    assert results[0]["metric"]["loss"] == 6.0
    assert results[0]["world_size"] == 3
    failure = results[1]["failures"][0]
    assert (failure["node"], failure["rank"], failure["error"]) == (TWO, 1, "ValueError: no such label")


def test_each_rank_stands_where_horovods_own_launcher_would_put_it(seed_plan: Plan, horovod_python: Path) -> None:
    file = next(file.text for file in seed_plan.nodes[0].files if file.path == "horovod_hosts.txt")
    script = (
        "import sys, json, dataclasses\n"
        "from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts\n"
        "print(json.dumps([[slot.rank, slot.size, slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size]\n"
        "                  for slot in get_host_assignments(parse_hosts(sys.argv[1].strip()), 14)]))\n"
    )
    done = subprocess.run([horovod_python, "-c", script, file], capture_output=True, text=True, check=True, timeout=60)
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    ranks = [item for node in seed_plan.nodes for item in node.processes if not item.is_service]
    assert [[int(item.env[f"HOROVOD_{name}"]) for name in names] for item in ranks] == json.loads(done.stdout)
