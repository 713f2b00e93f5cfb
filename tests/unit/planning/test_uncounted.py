"""Whatever a job can say that may change memory or time changes its estimate, or is named by it as not counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from dttui.cli.estimate_text import estimate_lines
from dttui.compose import DraftCost
from dttui.frameworks.option_costs import COUNTED, Uncounted
from dttui.planning.cost.estimate import Estimate
from dttui.planning.uncounted import SECTIONS, class_of, not_counted
from dttui.spec.models import Job
from dttui.tui import estimate_sections
from dttui.tui.cost_words import cost_figures
from tests.unit.planning.counted_jobs import DECODER, EXPERTS, NODES, estimated, figures, job, value_kinds
from tests.unit.seed_cluster import make_job

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
LONG = EXPERTS | {"seq_length": 16_384}
LATENT = {"q_rank": 512, "kv_rank": 256, "head_size": 128, "rope_size": 64, "value_size": 128}
LORA = {"rank": 16}
A100S = {"gpu": {"type": "A100", "memory": "80GB"}}
STAGES = {"pipeline_stages": 2, "micro_batch_size": 1}
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
    "recovery.checkpoint.write_bandwidth": (
        {"recovery": {"checkpoint": {"dir": "ckpt"}}},
        {"recovery": {"checkpoint": {"dir": "ckpt", "write_bandwidth": "1Gbps"}}},
        "interval",
        1,
    ),
    "resources.gpu.count": ({}, {"resources": {"gpu": {"count": 1}}}, "ranks", -1),
    "resources.gpu.ids": ({}, {"resources": {"gpu": {"ids": [1]}}}, "ranks", -1),
    "resources.network.bandwidth": ({}, {"resources": {"network": {"bandwidth": "1Gbps"}}}, "time", 1),
    "resources.network.latency": ({}, {"resources": {"network": {"latency": "50ms"}}}, "time", 1),
    "cluster.count": (
        {"cluster": {"count": 2, "gpus_per_node": 8}, "resources": A100S},
        {"cluster": {"count": 1000, "gpus_per_node": 8}, "resources": A100S},
        "ranks",
        1,
    ),
    "cluster.gpus_per_node": (
        {"cluster": {"count": 2, "gpus_per_node": 4}, "resources": A100S},
        {"cluster": {"count": 2, "gpus_per_node": 8}, "resources": A100S},
        "ranks",
        1,
    ),
    "cluster.nodes.resources.gpu.count": (
        {},
        {"cluster": {"nodes": [*NODES[:2], NODES[2] | {"resources": {"gpu": {"count": 1}}}]}},
        "ranks",
        -1,
    ),
    "cluster.nodes.resources.gpu.ids": (
        {},
        {"cluster": {"nodes": [*NODES[:2], NODES[2] | {"resources": {"gpu": {"ids": [5]}}}]}},
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


def fields_of(model: type[BaseModel], path: str) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a section and of the sections in it, lists of them too, with what each may hold."""
    for name, field in model.model_fields.items():
        parts = [*value_kinds(field.annotation)]
        inner = [item for item in parts if isinstance(item, type) and issubclass(item, BaseModel)]
        if inner:
            yield from (found for item in inner for found in fields_of(item, f"{path}.{name}"))
        else:
            yield f"{path}.{name}", parts


KEYS = {
    key: parts
    for name in SECTIONS
    for section in value_kinds(Job.model_fields[name].annotation)
    if issubclass(section, BaseModel)
    for key, parts in fields_of(section, name)
}


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
    if key.startswith("resources.storage.") and last == "size":
        inner["storage"] = {name: {**place, "path": "/data"} for name, place in inner["storage"].items()}
    return {section: usual.get(section, {}) | inner}


def test_every_key_of_a_job_that_may_matter_is_classed_and_moves_a_figure_where_it_is_counted() -> None:
    assert [key for key in KEYS if class_of(key) is None] == []
    assert {key for key in KEYS if class_of(key) == COUNTED} == set(MOVES)


def _figure(made: Estimate, what: str) -> float:
    if what == "ranks":
        return float(made.inputs["gpus"].value)
    if what == "interval":
        return made.failures.checkpoint_interval_s
    return made.memory_per_gpu_gb.high if what == "memory" else made.step_time_s.value


@pytest.mark.parametrize("key", MOVES)
def test_what_is_counted_moves_the_estimate_in_the_right_direction(key: str) -> None:
    base, more, what, sign = MOVES[key]
    usual, made = estimated(job(**base)), estimated(job(**more))
    before, after = (_figure(item, what) for item in (usual, made))
    assert (after - before) * sign > 0
    assert figures(made) != figures(usual)
    assert made.not_counted == usual.not_counted
    assert made.not_counted == [] or what == "interval"


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
