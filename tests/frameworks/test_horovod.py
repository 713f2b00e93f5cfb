"""Horovod for real: its own client at dttui's rendezvous, unequal nodes, equal losses, and who it says broke."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

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


LARGE = 20_000
"""Elements, which four tensors of the example have: each more than 64 KiB as float32."""


@dataclass
class Traced:
    """What a training told, and what Horovod's timeline tells of the four large gradients."""

    losses: list[float]
    types: set[str]
    """As which they were averaged."""
    fused: set[str]
    """Those that were copied to one place with others, to be averaged together."""
    together: list[int]
    """How many of them each cycle had that had any."""
    gaps: list[int]
    """Microseconds from one cycle to the next."""


def traced(directory: Path, python: Path, **fields: Any) -> Traced:
    """Train the example by two ranks on two nodes, with what a job says of how they talk."""
    directory.mkdir()
    job = example("horovod") | {"cluster": slots({ONE: 1, TWO: 1}), "communication": {}} | fields
    job["run"]["args"] = ["--steps", "12", "--checkpoint-every", "12"]
    job["framework_options"] = {"timeline": str(directory / "timeline.json"), "timeline_mark_cycles": True}
    ended = apply(directory, "horovod", job, python)
    events: list[dict[str, Any]] = json.loads((directory / "timeline.json").read_text())
    return read(events, [*ended.losses().values()])


def read(events: list[dict[str, Any]], losses: list[float]) -> Traced:
    """Return what events tell, in their order: of a tensor, which is a process there, the last one has its type."""
    names = {event["pid"]: event["args"].get("name", "") for event in events if event.get("name") == "process_name"}
    copied, types, fused, cycles = set(), set(), set(), [0]
    for event in events:
        name = names.get(event.get("pid"), "")
        if event.get("name") == "CYCLE_START":
            cycles.append(0)
        elif event.get("name") == "MEMCPY_IN_FUSION_BUFFER":
            copied.add(name)
        elif "shape" in event.get("args", {}) and "allreduce." in name:
            if prod(json.loads(event["args"]["shape"])) > LARGE:
                types.add(event["args"]["dtype"])
                fused |= {name} & copied
                cycles[-1] += 1
            copied.discard(name)
    starts = [event["ts"] for event in events if event.get("name") == "CYCLE_START"]
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    return Traced(losses, types, fused, [count for count in cycles if count], gaps)


def test_gradients_are_averaged_when_and_as_the_job_says(tmp_path: Path, horovod_python: Path) -> None:
    groups = [{"name": name, "nodes": [name]} for name in (ONE, TWO)]
    far = {"groups": groups, "between_groups": {"bandwidth": "1Gbps", "latency": "25ms"}}
    said: dict[str, dict[str, Any]] = {
        "bare": {},
        "small and far": {
            "communication": {"allreduce": {"buffer_size": 64 << 10}},
            "cluster": slots({ONE: 1, TWO: 1}) | {"topology": far},
        },
        "fp16 at the end": {"communication": {"compression": "fp16", "overlap": False}},
    }
    bare, small, at_the_end = (traced(tmp_path / name, horovod_python, **more) for name, more in said.items())
    # Without a word of the job they go as they come, in cycles of a millisecond.
    assert bare.types == {"float32"}
    assert min(bare.together) < 4
    assert median(bare.gaps) < 25_000
    # One way and back by 25 ms is 50, in which all ranks agree what is ready.
    assert median(small.gaps) >= 49_000
    # A cycle may begin amid a step's gradients, so a step may have them in two, 1 and 3 as well as 4;
    # those that are in one together stay apart, for each is larger than what is sent at once.
    assert max(small.together) > 1
    assert small.fused == set()
    assert small.losses == bare.losses
    # All of them wait for the last one, and then have room in 128 MiB.
    assert set(at_the_end.together) == {4}
    assert len(at_the_end.fused) == 4
    assert at_the_end.types == {"float16"}
    assert at_the_end.losses == pytest.approx(bare.losses, abs=0.02)
    assert at_the_end.losses != bare.losses


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
import json, os, sys, time
import horovod.torch as hvd, torch
hvd.init()
total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum).item()
print(hvd.mpi_enabled(), os.environ["RANK"] == str(hvd.rank()), os.environ["LOCAL_WORLD_SIZE"], total, flush=True)
with open(os.environ["DTTUI_METRICS"], "a") as stream:
    stream.write(json.dumps({"rank": hvd.rank(), "step": 1, "loss": total}) + "\\n")
hvd.allreduce(torch.ones(1))
if hvd.rank() == 1 and "fails" in sys.argv:
    raise ValueError("no such label")
if hvd.rank() == 1 and "stays" in sys.argv:
    time.sleep(600)
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


def test_over_mpi_a_rank_that_comes_to_no_collective_ends_the_job_and_is_named(
    tmp_path: Path, horovod_python: Path
) -> None:
    (tmp_path / "train.py").write_text(OVER_MPI)
    job = example("horovod") | {"cluster": slots({TWO: 2}), "dataset": "none"}
    job |= {"communication": {"protocol": "MPI", "collective_timeout": "5s"}}
    job["run"] = {"script": "train.py", "python": str(horovod_python), "args": ["stays"]}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"distributed_training": job}))
    done = dttui("--demo", "--apply", path, "--output", "json", deadline_s=DEADLINE_S)
    assert done.returncode == 100, done.stdout + done.stderr
    diagnosed = result_of(dttui("diagnose", result_of(done)["job_id"], "--output", "json"))
    assert (diagnosed["cause"]["code"], diagnosed["first_failure"]["rank"]) == ("collective-timeout", 0)
    assert "for rank 1, which did not come to it in time." in diagnosed["cause"]["words"]


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
