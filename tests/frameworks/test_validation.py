"""What frameworks say of a job's settings before it starts: their own code, in their own interpreters, by the agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dtagent.checks.validation import judge
from dtagent.protocol.probes import FrameworkAnswer, ValidationRequest

from dttui.planning.planner import plan
from dttui.preflight.framework_answers import request_for
from dttui.spec.models import DataParallel, Model, Run, Strategy
from tests.unit.seed_cluster import SEED, make_job

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
SIZES = Model(layers=24, hidden_size=1024, heads=16, seq_length=2048, vocab_size=50304, precision="bf16")
FINE = FrameworkAnswer()


def asked(python: Path, framework: str, *keys: str, node: int = 0, **fields: Any) -> ValidationRequest:
    """Return what the preflight asks of a node; the interpreter may take its time here."""
    made = plan(make_job(*keys, framework=framework, **fields), SEED)
    assert made.errors == ()
    request = request_for(made, made.nodes[node], thorough=True)
    assert request is not None
    return replace(request, python=str(python), seconds=60.0)


def changed(request: ValidationRequest, name: str, change: Callable[[str], str]) -> ValidationRequest:
    return replace(request, files={**request.files, name: change(request.files[name])})


def told(request: ValidationRequest, root: Path, check: str) -> FrameworkAnswer:
    reply = judge(replace(request, checks=[check]), root)
    assert reply.unseen is None
    assert list(root.iterdir()) == []
    return reply.verdicts[check]


def test_deepspeed_takes_what_dttui_writes_at_the_jobs_world_size(tmp_path: Path, frameworks_python: Path) -> None:
    strategy = Strategy(data_parallel=DataParallel(batch_size=14), tensor_parallel_size=2)
    request = asked(frameworks_python, "deepspeed", A, B, C, strategy=strategy, model=SIZES, node=2)
    assert request.world_size == 14
    assert told(request, tmp_path, "deepspeed") == FINE


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ('"train_batch_size": 28', '"train_batch_size": 29', "train_batch_size is not equal to micro_batch_per_gpu"),
        ('"stage": 2', '"stage": 7', "Input should be 0, 1, 2, 3"),
    ],
)
def test_deepspeed_refuses_a_broken_file_in_its_own_words(
    tmp_path: Path, frameworks_python: Path, right: str, wrong: str, words: str
) -> None:
    strategy = Strategy(data_parallel=DataParallel(batch_size=28), zero_stage=2)
    request = asked(frameworks_python, "deepspeed", A, B, C, strategy=strategy)
    broken = changed(request, "ds_config.json", lambda text: text.replace(right, wrong))
    assert words in (told(broken, tmp_path, "deepspeed").refusal or "")


def test_accelerate_reads_its_file_and_refuses_a_key_that_it_does_not_know(
    tmp_path: Path, frameworks_python: Path
) -> None:
    options = {"launcher": "accelerate", "wrap": "size"}
    request = asked(frameworks_python, "pytorch-fsdp", A, framework_options=options)
    assert told(request, tmp_path, "accelerate") == FINE
    wrong = changed(request, "accelerate_config.yaml", lambda text: text + "num_machine: 2\n")
    assert "num_machine" in (told(wrong, tmp_path, "accelerate").refusal or "")


def test_megatron_core_refuses_heads_that_tensor_parallelism_does_not_divide(
    tmp_path: Path, frameworks_python: Path
) -> None:
    strategy = Strategy(tensor_parallel_size=4, data_parallel=DataParallel(batch_size=8))
    request = asked(frameworks_python, "megatron-lm", C, strategy=strategy, model=SIZES)
    assert told(request, tmp_path, "megatron") == FINE
    heads = [word.replace("--num-attention-heads=16", "--num-attention-heads=10") for word in request.argv]
    assert "multiple of tensor_model_parallel_size" in (
        told(replace(request, argv=heads), tmp_path, "megatron").refusal or ""
    )


def test_megatrons_own_parser_is_asked_where_it_can_be_imported(tmp_path: Path, frameworks_python: Path) -> None:
    training = frameworks_python.parents[1] / "megatron-training"
    if not training.is_dir():
        pytest.skip(f"there is no {training.name}: make frameworks")
    strategy = Strategy(tensor_parallel_size=4, data_parallel=DataParallel(batch_size=8))
    arguments = {"arguments": {"lr": 1e-4, "train_iters": 10, "mock_data": True}}
    run = Run(script="pretrain_gpt.py", env={"PYTHONPATH": str(training)})
    request = asked(
        frameworks_python, "megatron-lm", C, strategy=strategy, model=SIZES, run=run, framework_options=arguments
    )
    assert told(request, tmp_path, "megatron") == FINE
    wrong = [word.replace("--global-batch-size=8", "--global-batch-size=9") for word in request.argv]
    assert "global batch size" in (told(replace(request, argv=wrong), tmp_path, "megatron").refusal or "")


def test_horovod_has_gloo_and_is_refused_where_the_job_needs_nccl_that_it_was_built_without(
    tmp_path: Path, horovod_python: Path
) -> None:
    request = asked(horovod_python, "horovod", A)
    assert "without NCCL" in (told(request, tmp_path, "horovod").refusal or "")
    gloo = changed(request, "dttui_config.json", lambda text: text.replace('"backend": "nccl"', '"backend": "gloo"'))
    assert told(gloo, tmp_path, "horovod") == FINE


def test_tensorflow_finds_its_place_and_refuses_a_task_that_is_not_there(
    tmp_path: Path, tensorflow_python: Path
) -> None:
    strategy = Strategy(data_parallel=DataParallel(batch_size=8))
    request = asked(tensorflow_python, "tensorflow", A, strategy=strategy)
    assert told(request, tmp_path, "tensorflow") == FINE
    wrong = request.env["TF_CONFIG"].replace('"index": 0', '"index": 4')
    refused = told(replace(request, env={**request.env, "TF_CONFIG": wrong}), tmp_path, "tensorflow")
    assert "4" in (refused.refusal or "")
