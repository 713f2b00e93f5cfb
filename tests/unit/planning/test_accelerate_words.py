"""A job that tells accelerate one thing by variables and the plan another."""

from __future__ import annotations

from typing import Any

from dttui.planning.accelerate_words import check_accelerate
from dttui.spec.importing import merge
from dttui.spec.models import Job
from tests.unit.spec.imported import file

CONFIGURATION = """\
distributed_type: FSDP
mixed_precision: bf16
fsdp_config:
  fsdp_version: 2
  fsdp_offload_params: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: A,B
"""


def imported(**variables: str) -> Job:
    job = merge([file(CONFIGURATION)], "x").job
    assert job.run is not None
    run = job.run.model_copy(update={"env": {**job.run.env, **variables}})
    return job.model_copy(update={"run": run})


def warned(job: Job, **fields: Any) -> dict[str, str]:
    changed = Job.model_validate({**job.model_dump(exclude_unset=True), **fields})
    return {finding.subject: finding.message for finding in check_accelerate(changed)}


def test_what_was_imported_says_the_same_in_both() -> None:
    assert warned(imported()) == {}
    deepspeed = "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3, gradient_clipping: 0.5}\n"
    assert warned(merge([file(deepspeed)], "x").job) == {}


def test_another_word_in_a_variable_is_a_warning() -> None:
    found = warned(imported(FSDP_OFFLOAD_PARAMS="true", FSDP_TRANSFORMER_CLS_TO_WRAP="A"))
    told = "the ranks go by this, {}; the plan goes by framework_options.{}"
    assert found == {
        "run.env.FSDP_OFFLOAD_PARAMS": told.format('"true"', "cpu_offload, false"),
        "run.env.FSDP_TRANSFORMER_CLS_TO_WRAP": told.format('"A"', "layer_classes, a list"),
    }


def test_another_word_in_the_job_is_one_too() -> None:
    found = warned(imported(), model={"precision": "fp16"}, framework="pytorch-ddp", framework_options={})
    assert set(found) == {"run.env.ACCELERATE_MIXED_PRECISION", "run.env.ACCELERATE_USE_FSDP"}


def test_what_the_job_leaves_open_is_no_contradiction() -> None:
    job = Job.model_validate(
        {
            "name": "x",
            "framework": "deepspeed",
            "run": {"script": "a.py", "env": {"ACCELERATE_MIXED_PRECISION": "bf16"}},
        }
    )
    assert warned(job) == {}
    assert warned(Job(name="x")) == {}
