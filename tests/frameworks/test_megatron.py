"""Megatron for real: the example split over nodes and GPUs, and Megatron-LM's own code reading what dttui passes on."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dttui.frameworks.parts.megatron_arguments import SWITCHES, WITH_VALUE
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from dttui.spec.models import Checkpoint, DataParallel, Model, PipelineParallel, Recovery, Run, Strategy
from tests.frameworks.launching import apply, example, slots
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.unit.seed_cluster import SEED, make_job

ONE, TWO, THREE = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
HERE = Path(__file__).parent
MODEL = Model(layers=24, hidden_size=1024, heads=16, seq_length=2048, vocab_size=50304, precision="bf16")
TRAINING = {"lr": 1e-4, "train_iters": 10, "mock_data": True, "swiglu": True, "eval_interval": 100}


def planned(*keys: str, **fields: Any) -> Plan:
    run = Run(script="pretrain_gpt.py")
    options = {"arguments": TRAINING, **fields.pop("framework_options", {})}
    whole = {"framework": "megatron-lm", "run": run, "model": MODEL, "framework_options": options, **fields}
    return plan(make_job(*keys, **whole), SEED)


def command_line(made: Plan) -> dict[str, Any]:
    """Return what the script of a plan gets, with the variables that Megatron looks at."""
    assert made.errors == ()
    process = made.nodes[0].processes[0]
    words = process.argv[process.argv.index("pretrain_gpt.py") + 1 :]
    connections = process.env["CUDA_DEVICE_MAX_CONNECTIONS"]
    return {
        "argv": list(words),
        "env": {"WORLD_SIZE": str(made.world_size), "CUDA_DEVICE_MAX_CONNECTIONS": connections},
    }


def hybrid(**fields: Any) -> dict[str, Any]:
    stages = PipelineParallel(micro_batch_size=2, virtual_stages=2, schedule="Interleaved")
    given = {
        "tensor_parallel_size": 4,
        "pipeline_parallel_size": 3,
        "pipeline_parallel": stages,
        "data_parallel": DataParallel(batch_size=12),
        "sequence_parallel": True,
        "recomputation": "full",
        "zero_stage": 1,
    }
    return {"strategy": Strategy(**{**given, **fields}), "recovery": Recovery(checkpoint=Checkpoint(dir="/kept"))}


def reading(python: Path, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Have Megatron-LM read command lines."""
    training = python.parents[1] / "megatron-training"
    if not training.is_dir():
        reason = f"there is no {training.name}: make frameworks"
        pytest.fail(reason) if os.environ.get("DTTUI_REQUIRE_FRAMEWORKS") == "1" else pytest.skip(reason)
    done = subprocess.run(
        [python, HERE / "megatron_reader.py"],
        input=json.dumps(lines),
        env={**os.environ, "PYTHONPATH": str(training)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_example_trains_split_over_the_gpus_of_a_node_and_over_nodes(
    tmp_path: Path, frameworks_python: Path, demo_root: Path
) -> None:
    job = example("megatron-lm")
    job["framework_options"]["arguments"]["train_iters"] = 20
    ended = apply(tmp_path, "megatron-lm", job, frameworks_python)
    losses = ended.losses(rank=4)
    assert ended.result["world_size"] == 6
    assert list(losses) == list(range(1, 21))
    assert losses[20] < losses[1] - 1.5
    for name in (ONE, TWO, THREE):
        assert (ended.on_host(name, demo_root) / "checkpoints/step-00000020/COMPLETE").exists()
    words = (ended.on_host(THREE, demo_root) / "megatron_args.txt").read_text().splitlines()
    assert {"--tensor-model-parallel-size=2", "--pipeline-model-parallel-size=3", "--lr=0.003"} <= {*words}


def reduced(directory: Path, python: Path, precision: str, talk: dict[str, Any]) -> tuple[int, str, list[float]]:
    """Train the example as a replica on each of two nodes; return buckets of gradients, their type, and the losses."""
    directory.mkdir()
    job = example("megatron-lm")
    job["cluster"] = slots({ONE: 1, TWO: 1})
    job["strategy"] |= {"tensor_parallel_size": 1, "pipeline_parallel_size": 1}
    job["framework_options"]["arguments"]["train_iters"] = 4
    job["model"]["precision"], job["communication"] = precision, talk
    ended = apply(directory, "megatron-lm", job, python)
    ((buckets, kind),) = re.findall(r"^buckets of gradients: (\d+) of (\w+)$", ended.log(ONE, 0), re.MULTILINE)
    return int(buckets), kind, [*ended.losses().values()]


def test_the_example_reduces_gradients_as_the_job_says(tmp_path: Path, frameworks_python: Path) -> None:
    said = {"overlap": True, "allreduce": {"buffer_size": 64 << 10}}
    plain, _, losses = reduced(tmp_path / "plain", frameworks_python, "fp32", {})
    several, _, same_losses = reduced(tmp_path / "said", frameworks_python, "fp32", said)
    assert plain == 1
    assert several > 3  # Half a million bytes of gradients.
    assert same_losses == pytest.approx(losses, abs=1e-4)


def test_the_example_reduces_gradients_of_bf16_as_such_where_the_job_says_so(
    tmp_path: Path, frameworks_python: Path
) -> None:
    _, usual, losses = reduced(tmp_path / "plain", frameworks_python, "bf16", {})
    _, halves, near_losses = reduced(tmp_path / "said", frameworks_python, "bf16", {"compression": "bf16"})
    assert (usual, halves) == ("float32", "bfloat16")
    assert near_losses == pytest.approx(losses, abs=0.05)
    assert near_losses != losses


@pytest.mark.thorough
def test_a_replica_on_each_node_goes_on_from_its_checkpoint(tmp_path: Path, frameworks_python: Path) -> None:
    job = example("megatron-lm")
    job["cluster"] = slots({ONE: 1, TWO: 1})
    job["strategy"] |= {"tensor_parallel_size": 1, "pipeline_parallel_size": 1}
    job["recovery"] = {"checkpoint": {"dir": str(tmp_path / "kept")}}
    job["framework_options"]["save_interval"] = 4
    losses: dict[int, float] = {}
    for name, iterations in (("first", 8), ("second", 12)):
        job["framework_options"]["arguments"]["train_iters"] = iterations
        (tmp_path / name).mkdir()
        told = apply(tmp_path / name, "megatron-lm", job, frameworks_python).losses()
        assert not losses.keys() & told.keys()
        losses |= told
    assert list(losses) == list(range(1, 13))
    assert losses[12] < losses[1] - 1


def test_megatron_reads_what_dttui_passes_on_and_refuses_what_dttui_refuses(frameworks_python: Path) -> None:
    good = command_line(planned(TWO, THREE, **hybrid()))
    context = {"context_parallel_size": 2, "arguments": TRAINING}
    long = command_line(planned(THREE, strategy=Strategy(tensor_parallel_size=2), framework_options=context))
    fp16 = Model(**{**MODEL.model_dump(), "precision": "fp16"})
    plain = command_line(planned(THREE, model=fp16, strategy=Strategy(recomputation="selective")))
    deep = command_line(planned(THREE, strategy=Strategy(pipeline_parallel_size=2)))
    wrong = {
        "--num-attention-heads=16": "--num-attention-heads=10",
        "--global-batch-size=12": "--global-batch-size=13",
        "--tensor-model-parallel-size=4": "--tensor-model-parallel-size=5",
        "--bf16": "--bf17",
    }
    bad = [{**good, "argv": [wrong[old] if word == old else word for word in good["argv"]]} for old in wrong]
    bad.append({**long, "argv": [word.replace("--seq-length=2048", "--seq-length=2046") for word in long["argv"]]})
    bad.append({**deep, "argv": [word.replace("--num-layers=24", "--num-layers=23") for word in deep["argv"]]})
    answer = reading(frameworks_python, [good, long, plain, *bad])
    read, spread, small, *refused = answer["answers"]
    assert "refused" not in read, read
    expected = {
        "tensor_model_parallel_size": 4,
        "pipeline_model_parallel_size": 3,
        "virtual_pipeline_model_parallel_size": 2,
        "data_parallel_size": 1,
        "num_micro_batches": 6,
        "sequence_parallel": True,
        "use_distributed_optimizer": True,
        "recompute_method": "uniform",
        "params_dtype": "torch.bfloat16",
        "config": {"tensor": 4, "recompute": "full"},
        "num_layers": 24,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "max_position_embeddings": 2048,
        "vocab_size": 50304,
        "save": "/kept",
        "load": "/kept",
        "save_interval": 500,
        "distributed_backend": "nccl",
        "distributed_timeout_minutes": 10,
        "lr": 1e-4,
        "mock_data": True,
    }
    assert {key: read[key] for key in expected} == expected
    assert (spread["context_parallel_size"], spread["data_parallel_size"]) == (2, 2)
    assert (small["params_dtype"], small["recompute_granularity"]) == ("torch.float16", "selective")
    assert ["refused" in each for each in refused] == [True] * len(bad)
    known = {name.replace("_", "-"): takes for name, takes in answer["takes_value"].items()}
    ours = {**dict.fromkeys(SWITCHES, False), **dict.fromkeys(WITH_VALUE, True)}
    ours = {name.replace("_", "-"): takes for name, takes in ours.items()}
    assert {name: takes for name, takes in known.items() if ours.get(name) is not takes} == {}


@pytest.mark.parametrize(
    ("model", "batch", "message"),
    [
        ({"layers": 23}, 12, "23 layers cannot be divided by pipeline 3 × 2 chunks"),
        ({"heads": 10}, 12, "10 heads cannot be divided by tensor 4"),
        ({}, 13, "the global batch 13 cannot be divided by data 1 × micro-batch 2"),
    ],
)
def test_the_same_numbers_are_refused_before_anything_starts(model: dict[str, int], batch: int, message: str) -> None:
    sizes = Model(**{**MODEL.model_dump(), **model})
    made = planned(TWO, THREE, model=sizes, **hybrid(data_parallel=DataParallel(batch_size=batch)))
    assert [finding.message for finding in made.errors] == [message]
