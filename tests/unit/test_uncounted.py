"""Whatever a job can say that may change memory or time changes its estimate, or is named by it as not counted."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from dttui.cli.estimate_text import advice_lines, estimate_lines
from dttui.frameworks import frameworks
from dttui.planning.advising import advise_job
from dttui.planning.cost.estimate import Estimate
from dttui.planning.cost.hardware import gpu_table
from dttui.planning.costing import cost
from dttui.planning.roster import make_roster
from dttui.planning.uncounted import CLASSES, COUNTED, JOB_CLASSES, NEUTRAL, Uncounted, class_of
from dttui.services.compose.estimates import DraftCost
from dttui.spec.models import Job, Model
from dttui.tui import estimate_sections
from dttui.tui.cost_words import cost_figures
from tests.unit.seed_cluster import SEED, make_job

NODES = ("pytorch-dev-env", "llm-training-env", "nlp-research-lab")
FRAMEWORKS = [item.name for item in frameworks() if item.name in CLASSES]
SAMPLES: dict[str, Any] = {
    "deepspeed.gradient_accumulation_steps": 4,
    "deepspeed.gradient_clipping": 0.5,
    "deepspeed.optimizer": {"type": "Lamb"},
    "deepspeed.offload_optimizer": "cpu",
    "deepspeed.offload_param": "cpu",
    "deepspeed.overlap_comm": True,
    "deepspeed.config": {"prescale_gradients": True},
    "pytorch-fsdp.wrap": "whole",
    "pytorch-fsdp.min_parameters": 1000,
    "pytorch-fsdp.reshard_after_forward": False,
    "pytorch-fsdp.shard_group": "node",
    "pytorch-fsdp.reduce_dtype": "bf16",
    "pytorch-fsdp.cpu_offload": True,
    "megatron-lm.expert_parallel_size": 2,
    "megatron-lm.save_interval": 10,
    "megatron-lm.arguments": {"num_experts": 8},
    "horovod.fusion_threshold": 1024,
    "horovod.cycle_time_ms": 5.0,
    "horovod.autotune": True,
}
CHANGES: list[tuple[str, dict[str, Any], str, int]] = [
    ("strategy.zero_stage", {"strategy": {"zero_stage": 3}}, "memory", -1),
    ("strategy.recomputation", {"strategy": {"recomputation": "full"}}, "memory", -1),
    ("strategy.data_parallel.batch_size", {"strategy": {"data_parallel": {"batch_size": 56}}}, "time", 1),
    ("strategy.tensor_parallel_size", {"strategy": {"tensor_parallel_size": 2}}, "memory", -1),
    ("strategy.pipeline_parallel_size", {"strategy": {"pipeline_parallel_size": 2}}, "memory", -1),
    ("model.layers", {"model": {"parameters": 1.3e9, "layers": 48, "hidden_size": 2048}}, "memory", 1),
    ("model.seq_length", {"model": {"parameters": 1.3e9, "seq_length": 4096}}, "memory", 1),
    ("model.precision", {"model": {"parameters": 1.3e9, "precision": "fp32"}}, "time", 1),
    ("resources.network", {"resources": {"network": {"bandwidth": "1Gbps"}}}, "time", 1),
]


def job(**parts: Any) -> Job:
    made = make_job(*NODES)
    return Job.model_validate(
        {**made.model_dump(mode="json", exclude_unset=True), "model": {"parameters": 1.3e9}, **parts}
    )


def estimated(made: Job) -> Estimate:
    costing, findings = cost(made, make_roster(made, SEED, {}).members, gpu_table())
    assert costing is not None, findings
    return costing.estimate


def fields_of(model: type[BaseModel], path: str) -> Iterator[str]:
    """Yield the keys of a section and of the sections in it, with none that is a section itself."""
    for name, field in model.model_fields.items():
        inner = [item for item in _parts(field.annotation) if isinstance(item, type) and issubclass(item, BaseModel)]
        if inner:
            yield from (key for item in inner for key in fields_of(item, f"{path}.{name}"))
        else:
            yield f"{path}.{name}"


def _parts(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) in (Union, UnionType):
        for item in get_args(annotation):
            yield from _parts(item)
    else:
        yield annotation


@pytest.mark.parametrize("framework", frameworks(), ids=lambda item: item.name)
def test_every_option_of_a_framework_is_classed(framework: Any) -> None:
    if framework.name in CLASSES:
        assert set(CLASSES[framework.name]) == set(framework.options.model_fields)


@pytest.mark.parametrize("name", ["strategy", "model", "resources", "recovery"])
def test_every_key_of_a_job_that_may_matter_is_classed(name: str) -> None:
    section = {"model": Model}.get(name) or type(getattr(Job(name="x"), name))
    keys = list(fields_of(section, name))
    assert keys
    assert [key for key in keys if class_of(key) is None] == []


@pytest.mark.parametrize("key", [f"{name}.{option}" for name in FRAMEWORKS for option in CLASSES[name]])
def test_an_option_changes_the_estimate_or_is_named_as_not_counted(key: str) -> None:
    framework, _dot, option = key.partition(".")
    kind = CLASSES[framework][option]
    if not isinstance(kind, Uncounted):
        assert kind in (COUNTED, NEUTRAL)
        assert key not in SAMPLES
        return
    usual = estimated(job(framework=framework))
    told = job(framework=framework, framework_options={option: SAMPLES[key]})
    made = estimated(told)
    assert made.memory_per_gpu_gb == usual.memory_per_gpu_gb
    (gap,) = made.not_counted
    assert gap.startswith(f"framework_options.{option}: ")
    assert usual.not_counted == []
    assert f"not counted of the job: {gap}" in estimate_lines(made)
    assert gap in estimate_sections.memory(made).plain
    assert gap in made.model_dump_json()
    figures = {label: value.plain for label, value in cost_figures(DraftCost(made), is_fresh=True)}
    assert "1 option not counted" in figures["assumed"]
    advice, _findings = advise_job(told, make_roster(told, SEED, {}).members, gpu_table())
    assert advice is not None
    assert all(item.estimate.not_counted == [gap] for item in advice.advice.candidates)
    lines = advice_lines(advice.advice, 14, "A100", 14, batch_is_given=False)
    assert f"not counted of the job: {gap}" in lines


@pytest.mark.parametrize(("key", "parts", "what", "sign"), CHANGES, ids=[item[0] for item in CHANGES])
def test_what_is_counted_changes_the_estimate_in_the_right_direction(
    key: str, parts: dict[str, Any], what: str, sign: int
) -> None:
    assert class_of(key) == COUNTED
    usual, made = estimated(job()), estimated(job(**parts))
    pairs = {
        "memory": (usual.memory_per_gpu_gb.high, made.memory_per_gpu_gb.high),
        "time": (usual.step_time_s.value, made.step_time_s.value),
    }
    before, after = pairs[what]
    assert (after - before) * sign > 0
    assert made.not_counted == []


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("strategy.data_parallel.num_workers", {"strategy": {"data_parallel": {"num_workers": 4}}}),
        ("recovery.checkpoint", {"recovery": {"checkpoint": {"dir": "ckpt"}}}),
    ],
)
def test_what_the_job_says_elsewhere_is_named_too(key: str, parts: dict[str, Any]) -> None:
    assert isinstance(class_of(key), Uncounted)
    (gap,) = estimated(job(**parts)).not_counted
    assert gap.startswith(f"{key}: ")


def test_attention_is_said_to_keep_its_matrix_wherever_a_figure_of_it_is_shown() -> None:
    made = estimated(job())
    assert any("s²" in line for line in estimate_lines(made))
    assert "s²" in estimate_sections.memory(made).plain
    assert (
        "s²" in dict((label, value.plain) for label, value in cost_figures(DraftCost(made), is_fresh=True))["assumed"]
    )
    assert "s²" in made.model_dump_json()
    assert JOB_CLASSES
