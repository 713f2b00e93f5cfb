"""Whatever a job can say that may change memory or time changes its estimate, or is named by it as not counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from dttui.cli.estimate_text import SHOWN, advice_lines, estimate_lines
from dttui.compose import DraftCost
from dttui.frameworks import frameworks
from dttui.frameworks.option_costs import COUNTED, Uncounted
from dttui.planning.advising import advise_job, edit_of, framework_of
from dttui.planning.cost.estimate import Estimate
from dttui.planning.cost.hardware import gpu_table
from dttui.planning.cost.recommend import Recommendation
from dttui.planning.costing import Costing, cost
from dttui.planning.roster import make_roster
from dttui.planning.uncounted import SECTIONS, class_of, not_counted
from dttui.spec.deepspeed_keys import OptimizerType
from dttui.spec.models import Job
from dttui.tui import estimate_sections
from dttui.tui.cost_words import cost_figures
from tests.unit.seed_cluster import SEED, make_job

NODES = [{"id": "pytorch-dev-env"}, {"id": "llm-training-env"}, {"id": "nlp-research-lab"}]
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
SAMPLES: dict[str, Any] = {
    "strategy.data_parallel_size": 14,
    "strategy.data_parallel.shares": "by_speed",
    "model.name": "gpt",
    "cluster.candidates": ["llm-training-env"],
    "cluster.topology.groups.name": {"name": "rack", "nodes": ["pytorch-dev-env"]},
    "cluster.topology.groups.nodes": {"name": "rack", "nodes": ["pytorch-dev-env"]},
    "recovery.retry_on": ["killed"],
    "recovery.no_retry_on": ["killed"],
}
"""What a key of the job's sections is given where none of the usual values will do."""
USUAL = (True, 14, "90s", "10GB", "1Gbps", "x", ["x"])
RACKS = [{"name": "rack", "nodes": ["pytorch-dev-env"]}]
PIPELINE = {"pipeline_parallel_size": 2, "data_parallel": {"batch_size": 56}}
SIZES = {"parameters": 1.3e9, "layers": 24, "hidden_size": 2048}
DECODER = {"layers": 24, "hidden_size": 2048, "heads": 16}
EXPERTS = DECODER | {"experts": 8, "expert_size": 2048}
LONG = EXPERTS | {"seq_length": 16_384}
LATENT = {"q_rank": 512, "kv_rank": 256, "head_size": 128, "rope_size": 64, "value_size": 128}
LORA = {"rank": 16}
STAGES = {"pipeline_stages": 2, "micro_batch_size": 1}
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
MOVES: dict[str, tuple[dict[str, Any], dict[str, Any], str, int]] = {
    "strategy.zero_stage": ({}, {"strategy": {"zero_stage": 3}}, "memory", -1),
    "communication.overlap": ({}, {"communication": {"overlap": True}}, "time", -1),
    "strategy.compiled": (
        {"model": {"parameters": 1.3e9, "seq_length": 8192}},
        {"model": {"parameters": 1.3e9, "seq_length": 8192}, "strategy": {"compiled": True}},
        "time",
        -1,
    ),
    "strategy.recomputation": ({}, {"strategy": {"recomputation": "full"}}, "memory", -1),
    "strategy.sequence_parallel": (
        {"strategy": {"tensor_parallel_size": 2}},
        {"strategy": {"tensor_parallel_size": 2, "sequence_parallel": True}},
        "memory",
        -1,
    ),
    "strategy.data_parallel.batch_size": ({}, {"strategy": {"data_parallel": {"batch_size": 56}}}, "time", 1),
    "strategy.tensor_parallel_size": ({}, {"strategy": {"tensor_parallel_size": 2}}, "memory", -1),
    "strategy.pipeline_parallel_size": ({}, {"strategy": {"pipeline_parallel_size": 2}}, "memory", -1),
    "strategy.model_parallel.pipeline_stages": (
        {},
        {"strategy": {"model_parallel": {"pipeline_stages": 2}}},
        "memory",
        -1,
    ),
    "strategy.pipeline_parallel.pipeline_stages": ({}, {"strategy": {"pipeline_parallel": STAGES}}, "memory", -1),
    "strategy.pipeline_parallel.micro_batch_size": (
        {"strategy": {"pipeline_parallel": STAGES, "data_parallel": {"batch_size": 56}}},
        {"strategy": {"pipeline_parallel": STAGES | {"micro_batch_size": 2}, "data_parallel": {"batch_size": 56}}},
        "memory",
        1,
    ),
    "strategy.pipeline_parallel.schedule": (
        {"strategy": PIPELINE},
        {"strategy": PIPELINE | {"pipeline_parallel": {"schedule": "GPipe"}}},
        "memory",
        1,
    ),
    "strategy.pipeline_parallel.virtual_stages": (
        {"strategy": PIPELINE | {"pipeline_parallel": {"schedule": "Interleaved", "virtual_stages": 2}}},
        {"strategy": PIPELINE | {"pipeline_parallel": {"schedule": "Interleaved", "virtual_stages": 4}}},
        "memory",
        -1,
    ),
    "model.parameters": ({}, {"model": {"parameters": 2e9}}, "memory", 1),
    "model.layers": ({"model": SIZES}, {"model": SIZES | {"layers": 48}}, "memory", 1),
    "model.hidden_size": (
        {"model": SIZES},
        {"model": SIZES | {"hidden_size": 4096}},
        "memory",
        1,
    ),
    "model.heads": ({}, {"model": {"parameters": 1.3e9, "heads": 64}}, "memory", 1),
    "model.kv_heads": ({"model": DECODER}, {"model": DECODER | {"kv_heads": 4}}, "memory", -1),
    "model.head_size": ({"model": DECODER}, {"model": DECODER | {"head_size": 256}}, "memory", 1),
    "model.ffn_size": ({"model": DECODER}, {"model": DECODER | {"ffn_size": 16384}}, "time", 1),
    "model.gated": ({"model": DECODER}, {"model": DECODER | {"gated": True}}, "time", 1),
    "model.tied": ({"model": DECODER}, {"model": DECODER | {"tied": False}}, "memory", 1),
    "model.attention": ({"model": DECODER}, {"model": DECODER | {"attention": "plain"}}, "memory", 1),
    "model.causal": (
        {"model": DECODER | {"attention": "flash"}},
        {"model": DECODER | {"attention": "flash", "causal": False}},
        "time",
        1,
    ),
    "model.dropout": ({"model": DECODER}, {"model": DECODER | {"dropout": False}}, "memory", -1),
    "model.seq_length": ({}, {"model": {"parameters": 1.3e9, "seq_length": 4096}}, "memory", 1),
    "model.vocab_size": ({"model": SIZES}, {"model": SIZES | {"vocab_size": 250_000}}, "memory", 1),
    "model.experts": ({"model": EXPERTS}, {"model": EXPERTS | {"experts": 16}}, "memory", 1),
    "model.experts_per_token": ({"model": LONG}, {"model": LONG | {"experts_per_token": 4}}, "time", 1),
    "model.expert_size": ({"model": EXPERTS}, {"model": EXPERTS | {"expert_size": 4096}}, "memory", 1),
    "model.shared_experts": ({"model": LONG}, {"model": LONG | {"shared_experts": 2}}, "time", 1),
    "model.dense_layers": ({"model": EXPERTS}, {"model": EXPERTS | {"dense_layers": 4}}, "memory", -1),
    **{
        f"model.latent.{name}": (
            {"model": DECODER | {"latent": LATENT}},
            {"model": DECODER | {"latent": LATENT | {name: 2 * size}}},
            "time",
            1,
        )
        for name, size in LATENT.items()
    },
    "model.precision": ({}, {"model": {"parameters": 1.3e9, "precision": "fp32"}}, "time", 1),
    "model.optimizer": ({}, {"model": {"parameters": 1.3e9, "optimizer": "adam-8bit"}}, "memory", -1),
    "model.weights": ({}, {"model": {"parameters": 1.3e9, "weights": "pure"}}, "memory", -1),
    "model.fused": ({}, {"model": {"parameters": 1.3e9, "fused": False}}, "memory", 1),
    "model.lora.rank": ({"model": DECODER | {"lora": LORA}}, {"model": DECODER | {"lora": {"rank": 64}}}, "memory", 1),
    "model.lora.targets": (
        {"model": DECODER | {"lora": LORA}},
        {"model": DECODER | {"lora": LORA | {"targets": "attention"}}},
        "time",
        -1,
    ),
    "model.lora.bits": (
        {"model": DECODER | {"lora": LORA}},
        {"model": DECODER | {"lora": LORA | {"bits": 4}}},
        "memory",
        -1,
    ),
    "resources.gpu.count": ({}, {"resources": {"gpu": {"count": 1}}}, "ranks", -1),
    "resources.network.bandwidth": ({}, {"resources": {"network": {"bandwidth": "1Gbps"}}}, "time", 1),
    "resources.network.latency": ({}, {"resources": {"network": {"latency": "50ms"}}}, "time", 1),
    "cluster.nodes.resources.gpu.count": (
        {},
        {"cluster": {"nodes": [*NODES[:2], NODES[2] | {"resources": {"gpu": {"count": 1}}}]}},
        "ranks",
        -1,
    ),
    **{
        f"cluster.topology.between_groups.{name}": (
            {},
            {"cluster": {"nodes": NODES, "topology": {"groups": RACKS, "between_groups": {name: value}}}},
            "time",
            1,
        )
        for name, value in (("bandwidth", "1Gbps"), ("latency", "50ms"))
    },
    "cluster.nodes.network.bandwidth": (
        {},
        {"cluster": {"nodes": [*NODES[:2], NODES[2] | {"network": {"bandwidth": "1Gbps"}}]}},
        "time",
        1,
    ),
    "cluster.nodes.network.latency": (
        {},
        {"cluster": {"nodes": [*NODES[:2], NODES[2] | {"network": {"latency": "50ms"}}]}},
        "time",
        1,
    ),
}
"""Of each key that is counted: what both jobs say, what one of them says besides, and what that moves which way."""


def job(**parts: Any) -> Job:
    made = make_job().model_dump(mode="json", exclude_unset=True)
    usual = {"model": {"parameters": 1.3e9}, "cluster": {"nodes": NODES}, "framework": "megatron-lm"}
    return Job.model_validate({**made, **usual, **parts})


def estimated(made: Job) -> Estimate:
    costing, findings = cost(made, make_roster(made, SEED, {}).members, gpu_table())
    assert costing is not None, findings
    return costing.estimate


def figures(made: Estimate) -> dict[str, Any]:
    """Return all that is estimated, without what it was made of."""
    return made.model_dump(exclude={"inputs", "assumes", "not_counted"})


def fields_of(model: type[BaseModel], path: str) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a section and of the sections in it, lists of them too, with what each may hold."""
    for name, field in model.model_fields.items():
        parts = [*_parts(field.annotation)]
        inner = [item for item in parts if isinstance(item, type) and issubclass(item, BaseModel)]
        if inner:
            yield from (found for item in inner for found in fields_of(item, f"{path}.{name}"))
        else:
            yield f"{path}.{name}", parts


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield what a value may be: types, and each of the values where there are a few alone."""
    if get_origin(annotation) in (Union, UnionType, tuple, Literal):
        for item in get_args(annotation):
            yield from [item] if get_origin(annotation) is Literal else _parts(item)
    else:
        yield annotation


KEYS = {
    key: parts
    for name in SECTIONS
    for section in _parts(Job.model_fields[name].annotation)
    if issubclass(section, BaseModel)
    for key, parts in fields_of(section, name)
}
CHOICES = [
    (framework, option, value)
    for framework in frameworks()
    for option, field in framework.options.model_fields.items()
    for value in OPTIONS.get(f"{framework.name}.{option}")
    or [
        value
        for part in _parts(field.annotation)
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


def said(key: str, value: Any) -> dict[str, Any]:
    """Return the part of a job that gives a key a value, in the first of the nodes where it is of them."""
    section, *names, last = key.split(".")
    inner: Any = value if isinstance(value, dict) else {last: value}
    for name in reversed(names):
        inner = {name: [inner] if name == "groups" else inner}
    if names[:1] == ["nodes"]:
        return {"cluster": {"nodes": [NODES[0] | inner["nodes"], *NODES[1:]]}}
    usual: dict[str, dict[str, Any]] = {"cluster": {"nodes": NODES}, "model": {"parameters": 1.3e9}}
    if key.startswith("recovery.checkpoint.") and last != "dir":
        inner["checkpoint"] |= {"dir": "ckpt"}
    return {section: usual.get(section, {}) | inner}


def test_every_framework_has_its_options_classed() -> None:
    assert {item.name: set(item.option_costs or ()) for item in frameworks()} == {
        item.name: set(item.options.model_fields) for item in frameworks()
    }
    assert {(item.name, option) for item, option, _value in CHOICES} == {
        (item.name, option) for item in frameworks() for option in item.options.model_fields
    }


def test_every_key_of_a_job_that_may_matter_is_classed_and_moves_a_figure_where_it_is_counted() -> None:
    assert [key for key in KEYS if class_of(key) is None] == []
    assert {key for key in KEYS if class_of(key) == COUNTED} == set(MOVES)


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


def _figure(made: Estimate, what: str) -> float:
    if what == "ranks":
        return float(made.inputs["gpus"].value)
    return made.memory_per_gpu_gb.high if what == "memory" else made.step_time_s.value


@pytest.mark.parametrize("key", MOVES)
def test_what_is_counted_moves_the_estimate_in_the_right_direction(key: str) -> None:
    base, more, what, sign = MOVES[key]
    usual, made = estimated(job(**base)), estimated(job(**more))
    before, after = (_figure(item, what) for item in (usual, made))
    assert (after - before) * sign > 0
    assert figures(made) != figures(usual)
    assert made.not_counted == []


@pytest.mark.parametrize("key", [key for key in KEYS if key not in (*MOVES, "cluster.nodes.id")])
def test_what_is_not_counted_of_the_jobs_sections_moves_nothing_and_is_named(key: str) -> None:
    kind, few = class_of(key), [part for part in KEYS[key] if isinstance(part, str)]
    usual, tried = estimated(job()), 0
    for value in few or ([SAMPLES[key]] if key in SAMPLES else USUAL):
        try:
            told = job(**said(key, value))
        except ValidationError:
            assert value not in few
            continue
        tried += 1
        made = estimated(told)
        assert figures(made) == figures(usual), value
        gaps = [gap for gap in made.not_counted if key.startswith(gap.partition(":")[0])]
        if isinstance(kind, Uncounted) and not kind.is_usual(value):
            assert len(gaps) == 1, value
        else:
            assert gaps == [], value
        assert not set(made.not_counted) - set(gaps) or "checkpoint" in key
        if not few:
            break
    assert tried


def test_the_optimizer_that_is_counted_is_not_named() -> None:
    for name in (name for name in get_args(OptimizerType) if "Adam" in name):
        assert not_counted(job(framework="deepspeed", framework_options={"optimizer": {"type": name}})) == []


def test_attention_is_said_to_keep_its_matrix_wherever_a_figure_of_it_is_shown() -> None:
    made = estimated(job(model={"parameters": 1.3e9, "attention": "plain"}))
    assert any("s²" in line for line in estimate_lines(made, 0.0))
    assert "s²" in estimate_sections.memory(made).plain
    assert (
        "s²" in dict((label, value.plain) for label, value in cost_figures(DraftCost(made), is_fresh=True))["assumed"]
    )
    assert "s²" in made.model_dump_json()


def test_what_is_not_counted_is_told_in_the_order_of_the_keys_in_the_reference() -> None:
    names = ("allreduce", "broadcast", "gather", "allgather", "reduce_scatter")
    job = make_job(communication={"collective_ops": {name: {"algorithm": "tree"} for name in names}})
    told = [item.partition(":")[0].split(".")[2] for item in not_counted(job)]
    assert told == list(names)
