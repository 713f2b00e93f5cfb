"""What a plan says of the degrees by which a model is split."""

from __future__ import annotations

import pytest

from dttui.planning.models import Severity
from dttui.planning.planner import plan
from dttui.spec.models import (
    ModelParallel,
    PipelineParallel,
    Strategy,
)
from tests.unit.planning.test_findings import A, B, C, findings, only
from tests.unit.seed_cluster import SEED, make_job


@pytest.mark.parametrize(
    ("strategy", "numbers"),
    [
        (Strategy(data_parallel_size=2, tensor_parallel_size=8, pipeline_parallel_size=4), ("64", "14")),
        (Strategy(data_parallel_size=2), ("2", "14")),
        (Strategy(tensor_parallel_size=4), ("4", "14")),
        (Strategy(model_parallel=ModelParallel(pipeline_stages=4)), ("4", "14")),
    ],
)
def test_degrees_that_do_not_make_the_world_size_are_an_error_with_both_numbers(
    strategy: Strategy, numbers: tuple[str, str]
) -> None:
    finding = findings(make_job(A, B, C, strategy=strategy))["degrees"]
    assert finding.severity is Severity.ERROR
    assert all(f" {number} " in f"{finding.message} " for number in numbers)


@pytest.mark.parametrize(
    "strategy",
    [
        Strategy(data_parallel_size=14),
        Strategy(data_parallel_size=7, tensor_parallel_size=2),
        Strategy(tensor_parallel_size=2),
        Strategy(pipeline_parallel_size=7, pipeline_parallel=PipelineParallel(pipeline_stages=7)),
    ],
)
def test_degrees_that_make_the_world_size_are_fine(strategy: Strategy) -> None:
    assert plan(make_job(A, B, C, strategy=strategy), SEED).errors == ()


def test_two_spellings_of_one_degree_must_agree() -> None:
    strategy = Strategy(pipeline_parallel_size=2, model_parallel=ModelParallel(pipeline_stages=7))
    finding = findings(make_job(A, B, C, strategy=strategy))["degrees-disagree"]
    assert finding.severity is Severity.ERROR
    assert "pipeline_parallel_size: 2" in finding.message
    assert "model_parallel.pipeline_stages: 7" in finding.message


def test_splitting_is_said_to_be_left_to_the_script() -> None:
    strategy = Strategy(type="model_parallel")
    only("split-by-script", findings(make_job(A, strategy=strategy)), Severity.INFO)


@pytest.mark.parametrize("framework", ["pytorch-ddp", "horovod", "tensorflow"])
def test_degrees_under_a_framework_that_keeps_whole_models_are_warned_of(framework: str) -> None:
    strategy = Strategy(pipeline_parallel_size=2)
    found = findings(make_job(A, framework=framework, strategy=strategy))
    assert found["split-by-script"].severity is Severity.WARNING
    assert "keeps the whole model" in found["split-by-script"].message


def test_degrees_that_the_mesh_of_fsdp_does_not_have_are_warned_of() -> None:
    found = findings(make_job(A, framework="pytorch-fsdp", strategy=Strategy(tensor_parallel_size=2)))
    assert found["split-by-script"].severity is Severity.WARNING
    assert "shards among all ranks" in found["split-by-script"].message
    sharded = make_job(A, framework="pytorch-fsdp", strategy=Strategy(tensor_parallel_size=1, zero_stage=3))
    assert "split-by-script" not in findings(sharded)
