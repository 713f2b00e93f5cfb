"""What an estimate makes of each option of each framework: it counts by a written formula, or is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest

from dttui.cli.estimate_text import SHOWN, advice_lines, estimate_lines
from dttui.compose import DraftCost
from dttui.frameworks import frameworks
from dttui.frameworks.option_costs import COUNTED, Uncounted
from dttui.planning.advising import advise_job, edit_of, framework_of
from dttui.planning.cost.hardware import gpu_table
from dttui.planning.cost.recommend import Recommendation
from dttui.planning.costing import Costing, cost
from dttui.planning.roster import make_roster
from dttui.planning.uncounted import not_counted
from dttui.spec.deepspeed_keys import OptimizerType
from dttui.spec.models import Job
from dttui.tui import estimate_sections
from dttui.tui.cost_words import cost_figures
from tests.unit.planning.counted_jobs import EXPERTS, estimated, figures, job, value_kinds
from tests.unit.seed_cluster import SEED

OPTIONS: dict[str, tuple[Any, ...]] = {
    "pytorch-ddp.elastic": ({"min_nodes": 2},),
    "pytorch-fsdp.elastic": ({"min_nodes": 2},),
    "pytorch-fsdp.layer_classes": (["LlamaDecoderLayer"],),
    "pytorch-fsdp.min_parameters": (1000,),
    "deepspeed.gradient_accumulation_steps": (1, 4),
    "deepspeed.gradient_clipping": (0, 0.5),
    "deepspeed.optimizer": ({"type": "SGD"}, {"type": "SGD", "params": {"momentum": 0.9}}, {"type": "Lion"}),
    "deepspeed.scheduler": ({"type": "WarmupLR"},),
    "deepspeed.nvme_path": ("/nvme",),
    "deepspeed.config": ({"prescale_gradients": True}, {"zero_optimization": {"stage": 2}}),
    "megatron-lm.context_parallel_size": (2,),
    "megatron-lm.expert_parallel_size": (2,),
    "megatron-lm.save_interval": (10,),
    "megatron-lm.arguments": ({"num_experts": 8},),
    "horovod.fusion_threshold": (0, 1024),
    "horovod.cycle_time_ms": (5.0,),
    "horovod.timeline": ("t.json",),
    "horovod.autotune_log": ("t.csv",),
}
"""Values of options that have not a few alone, of which all are tried."""
SMALLER = {"deepspeed.offload_optimizer", "deepspeed.offload_param"}
"""Options of which each value that is tried takes memory off the GPU."""
FURTHER = {"nvme": {"nvme_path": "/nvme"}}
"""What a value of an option wants said besides."""
Amount = Callable[[Costing, Costing], list[tuple[float, float]]]


def _kept(base: Costing, made: Costing) -> list[tuple[float, float]]:
    """Parameters are whole from forward to backward pass, or in as many parts as there are ranks."""
    times = 1 if made.layout.reshard else made.layout.shard_ranks
    return [(_held(made, "parameters"), _held(base, "parameters") * times)]


def _of_a_node(base: Costing, made: Costing) -> list[tuple[float, float]]:
    """All that is sharded is in as many parts as a node has GPUs, not as there are."""
    ratio = made.hardware.gpus / made.hardware.gpus_per_node
    return [(_held(made, name), _held(base, name) * ratio) for name in ("parameters", "gradients", "optimizer")]


def _of_a_sequence(base: Costing, made: Costing) -> list[tuple[float, float]]:
    """Each rank has half the tokens, and its replicas sum as many gradients as before."""
    return [
        (_held(made, "activations"), _held(base, "activations") / 2),
        (_held(made, "parameters"), _held(base, "parameters")),
        (made.layout.replicas, base.layout.replicas),
    ]


def _of_experts(base: Costing, made: Costing) -> list[tuple[float, float]]:
    """Half of the experts' parameters are on other ranks."""
    experts = made.shape.layers * made.shape.expert_weights
    half = base.shape.parameters - experts / 2
    traffic = made.estimate.step_time_s.parts["expert_parallel"] > base.estimate.step_time_s.parts["expert_parallel"]
    return [(_held(made, "parameters"), _held(base, "parameters") * half / base.shape.parameters), (traffic, True)]


def _on_the_host(base: Costing, made: Costing) -> list[tuple[float, float]]:
    """What is sharded is on the host, and none of it on the GPU."""
    parts = ("parameters", "gradients", "optimizer")
    host = made.estimate.host_memory_per_gpu_gb
    return [(sum(_held(made, part) for part in parts), 0.0), (host, sum(_held(base, part) for part in parts))]


def _of_moments(base: Costing, made: Costing) -> list[tuple[float, float]]:
    """Of Adam's twelve bytes a parameter the master copy's four are left, and a moment's four."""
    left = {"sgd": 4, "momentum": 8}[made.layout.optimizer]
    return [(_held(made, "optimizer"), _held(base, "optimizer") * left / 12)]


def _held(costing: Costing, part: str) -> float:
    return costing.estimate.memory_per_gpu_gb.parts[part]


AMOUNTS: dict[str, tuple[dict[str, Any], Amount]] = {
    "pytorch-fsdp.reshard_after_forward": ({"parameters": 1.3e9}, _kept),
    "pytorch-fsdp.cpu_offload": ({"parameters": 1.3e9}, _on_the_host),
    "deepspeed.optimizer": ({"parameters": 1.3e9}, _of_moments),
    "pytorch-fsdp.shard_group": ({"parameters": 1.3e9}, _of_a_node),
    "megatron-lm.context_parallel_size": ({"parameters": 1.3e9}, _of_a_sequence),
    "megatron-lm.expert_parallel_size": (EXPERTS, _of_experts),
}
"""Options that are counted, each with a model that they matter to, and what becomes of figures, by formula."""
CHOICES = [
    (framework, option, value)
    for framework in frameworks()
    for option, field in framework.options.model_fields.items()
    for value in OPTIONS.get(f"{framework.name}.{option}")
    or [
        value
        for part in value_kinds(field.annotation)
        for value in ((True, False) if part is bool else [part])
        if value not in (field.default, type(None))
    ]
]
COUNTED_CHOICES = [
    (framework.name, option, value)
    for framework, option, value in CHOICES
    if (framework.option_costs or {})[option] == COUNTED
]
OTHERS = [choice for choice in CHOICES if (choice[0].option_costs or {})[choice[1]] != COUNTED]


def test_every_framework_has_its_options_classed() -> None:
    assert {item.name: set(item.option_costs or ()) for item in frameworks()} == {
        item.name: set(item.options.model_fields) for item in frameworks()
    }
    assert {(item.name, option) for item, option, _value in CHOICES} == {
        (item.name, option) for item in frameworks() for option in item.options.model_fields
    }


@pytest.mark.parametrize(("framework", "option", "value"), COUNTED_CHOICES, ids=str)
def test_an_option_that_is_counted_changes_the_estimate_by_its_formula(
    framework: str, option: str, value: object
) -> None:
    model, amount = AMOUNTS[f"{framework}.{option}"]
    base, made = (
        cost(told, make_roster(told, SEED, {}).members, gpu_table())[0]
        for told in (job(framework=framework, framework_options=given, model=model) for given in ({}, {option: value}))
    )
    assert base is not None
    assert made is not None
    for got, expected in amount(base, made):
        assert got == pytest.approx(expected)


@pytest.mark.parametrize(("framework", "option", "value"), OTHERS, ids=lambda item: str(getattr(item, "name", item)))
def test_an_option_that_is_not_counted_moves_nothing_and_is_named(framework: Any, option: str, value: Any) -> None:
    options = {option: value, **(FURTHER.get(value, {}) if isinstance(value, str) else {})}
    framework.options.model_validate(options)
    kind = framework.option_costs[option]
    rest = {name: given for name, given in options.items() if name != option}
    usual = estimated(job(framework=framework.name, framework_options=rest))
    always = [gap for gap in usual.not_counted if not gap.startswith(f"framework_options.{option}: ")]
    told = job(framework=framework.name, framework_options=options)
    members = make_roster(told, SEED, {}).members
    made = estimated(told)
    if f"{framework.name}.{option}" in SMALLER:
        assert made.memory_per_gpu_gb.high < usual.memory_per_gpu_gb.high
    else:
        assert figures(made) == figures(usual)
    named = [gap for gap in made.not_counted if gap.startswith(f"framework_options.{option}: ")]
    assert [gap for gap in made.not_counted if gap not in named] == always
    if isinstance(kind, Uncounted) and kind.is_usual(value):
        assert named == []
        return
    (gap,) = named
    assert f"not counted of the job: {gap}" in estimate_lines(made, 0.0)
    assert gap in estimate_sections.memory(made).plain
    assert gap in made.model_dump_json()
    shown = {label: value.plain for label, value in cost_figures(DraftCost(made), is_fresh=True)}
    count = len(made.not_counted)
    assert f"{count} option{'s' if count > 1 else ''} not counted" in shown["assumed"]
    advice, _findings = advise_job(told, members, gpu_table())
    assert advice is not None
    candidates = advice.advice.candidates
    for item in candidates:
        assert item.estimate.not_counted == not_counted(Job.model_validate(taken(told, item)))
    lines = [line.strip() for line in advice_lines(advice)]
    kept = [item for item in candidates[:SHOWN] if framework_of(framework.name, item.frameworks) == framework.name]
    assert (f"not counted of the job: {gap}" in lines) is bool(kept)


def taken(told: Job, chosen: Recommendation) -> dict[str, Any]:
    """Return a job that has taken the framework of a recommendation; its degrees say nothing of what is not counted."""
    edit = {name: value for name, value in edit_of(told, chosen).items() if name != "strategy"}
    return {**told.model_dump(mode="json", exclude_unset=True), **edit}


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_row_that_takes_another_framework_names_what_that_does_uncounted(precision: str) -> None:
    told = job(
        framework="horovod",
        framework_options={"fusion_threshold": 0},
        model={"parameters": 1.3e9, "precision": precision},
    )
    advice, _findings = advise_job(told, make_roster(told, SEED, {}).members, gpu_table())
    assert advice is not None
    by_framework = {
        framework_of("horovod", item.frameworks): item.estimate.not_counted for item in advice.advice.candidates
    }
    fsdp = by_framework["pytorch-fsdp"]
    assert any(gap.startswith("framework_options.reduce_dtype: ") for gap in fsdp) is (precision == "bf16")
    assert not any("fusion_threshold" in gap for gap in fsdp)
    lines = advice_lines(advice)
    shown = {framework_of("horovod", item.frameworks) for item in advice.advice.candidates[:SHOWN]}
    is_told = any("framework_options.reduce_dtype: " in line for line in lines)
    assert is_told is ("pytorch-fsdp" in shown and precision == "bf16")


@pytest.mark.parametrize("options", [{}, {"reduce_dtype": "fp32"}], ids=["by default", "as said"])
@pytest.mark.parametrize("precision", [None, "bf16", "fp16", "fp8", "fp32", "tf32"])
def test_fsdp_that_sends_half_precision_gradients_in_fp32_is_named(
    precision: str | None, options: dict[str, str]
) -> None:
    model = {"parameters": 1.3e9} | ({"precision": precision} if precision else {})
    made = estimated(job(framework="pytorch-fsdp", framework_options=options, model=model))
    is_named = any(gap.startswith("framework_options.reduce_dtype: ") for gap in made.not_counted)
    assert is_named is (precision not in ("fp32", "tf32"))


def test_the_optimizer_that_is_counted_is_not_named() -> None:
    for name in (name for name in get_args(OptimizerType) if "Adam" in name):
        assert not_counted(job(framework="deepspeed", framework_options={"optimizer": {"type": name}})) == []
