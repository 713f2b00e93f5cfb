"""Sequences, experts and shards that ranks share out, stages with a layer less, and schedules without bubbles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dttui.planning.cost.assumptions import ModelClaim, assume_shape
from dttui.planning.cost.collectives import all_gather_s, group_link
from dttui.planning.cost.hardware import Hardware, default_links, gpu_table
from dttui.planning.cost.layer_time import layer_time
from dttui.planning.cost.layout import Layout, Schedule, faults, stage_layers
from dttui.planning.cost.layout_changes import helpful_changes
from dttui.planning.cost.layout_search import Wish
from dttui.planning.cost.memory import held_parameters, memory_per_gpu
from dttui.planning.cost.recommend import recommend
from dttui.planning.cost.shape import ModelShape
from dttui.planning.cost.step_time import step_time
from dttui.planning.cost.token_exchange import EXPERT_OVERLAP
from tests.unit.planning.counted_jobs import estimated, job

EIGHT = assume_shape(ModelClaim(name="llama-3.1-8b", seq_length=32_768))[0]
MIXTRAL = assume_shape(ModelClaim(name="mixtral-8x7b", seq_length=4096))[0]
LARGE = assume_shape(ModelClaim(name="llama-3.1-405b", seq_length=8192))[0]


def on(gpu: str, gpus: int, per_node: int = 8) -> Hardware:
    found = gpu_table().find(gpu)
    assert found is not None
    return Hardware(found, gpus, min(per_node, gpus), *default_links(found))


def parts(shape: ModelShape, layout: Layout, hardware: Hardware) -> dict[str, float]:
    return step_time(shape, layout, hardware).parts


@pytest.mark.parametrize("context", [2, 4, 8])
def test_ranks_of_a_sequence_keep_and_compute_their_share_of_its_tokens(context: int) -> None:
    whole, shared = Layout(1), Layout(1, context=context)
    before, after = (memory_per_gpu(EIGHT, layout).parts for layout in (whole, shared))
    for part in ("activations", "embedding", "logits"):
        assert after[part] == pytest.approx(before[part] / context)
    assert after["parameters"] == before["parameters"]
    one, other = (layer_time(EIGHT, layout, on("H100", 8)) for layout in (whole, shared))
    starts = 20 * on("H100", 8).efficiency.kernel_s
    assert other.forward == pytest.approx(one.forward / context, abs=starts, rel=0.1)


def test_keys_and_values_on_their_way_are_waited_for_where_attention_does_not_cover_them() -> None:
    near, far = on("H100", 16), replace(on("H100", 16), gpus_per_node=1)
    assert layer_time(EIGHT, Layout(1, context=8), near).ring == 0.0
    short = replace(EIGHT, seq_length=4096)
    layer = layer_time(short, Layout(1, context=16), far)
    size = 2 * 4096 / 16 * EIGHT.kv_size * 2
    link = group_link(far, 16, 1)
    once = 15 * (link.latency_s + size / link.bandwidth)
    assert 0 < layer.ring < 3 * once
    assert layer_time(short, Layout(1, context=16), near).ring < layer.ring


def test_gradients_are_summed_over_the_ranks_of_a_sequence_as_well() -> None:
    hardware = on("H100", 16)
    alone = parts(EIGHT, Layout(16, global_batch=16, zero_stage=1), hardware)["data_parallel"]
    shared = parts(EIGHT, Layout(4, global_batch=4, zero_stage=1, context=4), hardware)["data_parallel"]
    assert shared == pytest.approx(alone, rel=0.3)
    assert memory_per_gpu(EIGHT, Layout(4, zero_stage=1, context=4)).parts["optimizer"] == pytest.approx(
        memory_per_gpu(EIGHT, Layout(16, zero_stage=1)).parts["optimizer"]
    )


@pytest.mark.parametrize("expert", [2, 4, 8])
def test_experts_are_shared_out_and_what_they_are_sent_takes_its_time(expert: int) -> None:
    hardware = on("H100", 8)
    alone, shared = Layout(8, global_batch=8), Layout(8, global_batch=8, expert=expert, expert_tensor=1)
    held = memory_per_gpu(MIXTRAL, shared).parts["parameters"] / 2
    experts = MIXTRAL.layers * MIXTRAL.expert_weights
    assert held == pytest.approx(MIXTRAL.parameters - experts + experts / expert)
    tokens, layers = 4096 * MIXTRAL.hidden_size * 2, MIXTRAL.layers
    reached = expert * (1 - (1 - 1 / expert) ** 2)
    link = hardware.intra.bandwidth * hardware.efficiency.intra_node
    once = 2e-6 * (expert - 1) + tokens * reached * (expert - 1) / expert / link
    exposed = 4 * layers * once * (1 - EXPERT_OVERLAP)
    assert parts(MIXTRAL, shared, hardware)["expert_parallel"] == pytest.approx(exposed)
    assert parts(MIXTRAL, alone, hardware)["expert_parallel"] == 0
    # Fewer rows for more experts: the products are of as many operations.
    assert parts(MIXTRAL, shared, hardware)["compute"] <= parts(MIXTRAL, alone, hardware)["compute"]


def test_experts_across_nodes_go_over_the_network_once_a_node() -> None:
    inside, across = (
        parts(MIXTRAL, Layout(16, global_batch=16, expert=8, expert_tensor=1), hardware)["expert_parallel"]
        for hardware in (on("H100", 16), on("H100", 16, per_node=2))
    )
    assert across > 3 * inside


def test_a_node_that_shards_alone_keeps_more_and_talks_over_its_own_link() -> None:
    hardware, layout = on("H100", 64), Layout(64, global_batch=64, zero_stage=3, overlap=False)
    hybrid = replace(layout, shard=8)
    for part in ("parameters", "gradients", "optimizer"):
        assert memory_per_gpu(EIGHT, hybrid).parts[part] == pytest.approx(8 * memory_per_gpu(EIGHT, layout).parts[part])
    assert parts(EIGHT, hybrid, hardware)["data_parallel"] < parts(EIGHT, layout, hardware)["data_parallel"]


def test_parameters_that_are_kept_are_gathered_once_less_and_whole() -> None:
    hardware, layout = on("H100", 64), Layout(64, global_batch=64, zero_stage=3, overlap=False)
    kept = replace(layout, reshard=False)
    assert memory_per_gpu(EIGHT, kept).parts["parameters"] == pytest.approx(2 * EIGHT.parameters)
    ratio = parts(EIGHT, kept, hardware)["data_parallel"] / parts(EIGHT, layout, hardware)["data_parallel"]
    assert ratio == pytest.approx(2 / 3)


def test_126_layers_on_16_stages_are_seven_on_the_first_and_the_last() -> None:
    layout = Layout(1, 8, 16, global_batch=64, sequence_parallel=True)
    assert stage_layers(126, layout) == (7, 8, 7)
    assert list(faults(layout, LARGE, 128, 8)) == []
    assert stage_layers(127, layout) == (8, 8, 7)
    assert [fault.field for fault in faults(layout, replace(LARGE, layers=125), 128, 8)] == ["layers"]
    # Eight chunks of a layer: the first one and the last one have none, as Llama 3's have.
    assert list(faults(replace(layout, virtual_stages=8), LARGE, 128, 8)) == []
    (fault,) = faults(replace(layout, pipeline=128, tensor=1, sequence_parallel=False), LARGE, 128, 8)
    assert fault.field == "pipeline"
    # The stages between have most layers, and fewer micro-batches than the first.
    even = memory_per_gpu(replace(LARGE, layers=128), layout)
    assert memory_per_gpu(LARGE, layout).low < even.low


@pytest.mark.parametrize(("schedule", "times"), [("ZB-H1", 2), ("ZB-H2", 3), ("ZB-V", 3)])
def test_gradients_of_weights_fill_the_bubble(schedule: Schedule, times: int) -> None:
    shape, hardware = replace(EIGHT, seq_length=4096), on("A100-80GB", 8)
    plain = Layout(1, 1, 8, global_batch=64)
    filled = replace(plain, schedule=schedule)
    before, after = (parts(shape, layout, hardware)["pipeline_bubble"] for layout in (plain, filled))
    weights = shape.layers / 8 * layer_time(shape, plain, hardware).weights
    assert after == pytest.approx(max(before - 7 * times * weights, 0.0))
    in_flight = {layout.schedule: memory_per_gpu(shape, layout).parts["activations"] for layout in (plain, filled)}
    assert in_flight[schedule] == pytest.approx(in_flight["1F1B"] * (15 / 8 if schedule == "ZB-H2" else 1))


@pytest.mark.parametrize(
    ("layout", "field"),
    [
        (Layout(1, context=8), "context"),
        (Layout(8, expert=3), "expert"),
        (Layout(2, expert=4, expert_tensor=1), "expert"),
    ],
)
def test_what_cannot_be_shared_out_so_is_named(layout: Layout, field: str) -> None:
    odd = replace(MIXTRAL, seq_length=4100)
    assert field in {fault.field for fault in faults(layout, odd, layout.ranks, 8)}


def test_405b_on_1024_gpus_is_advised_to_share_sequences_and_to_interleave() -> None:
    best = recommend(LARGE, on("H100", 1024), 1024, {}, Wish()).candidates[0]
    assert best.context_parallel_size > 1
    assert best.virtual_stages > 1
    assert best.frameworks == ["megatron-lm"]


def test_eight_times_seven_billion_are_advised_to_keep_experts_inside_a_node() -> None:
    best = recommend(MIXTRAL, on("H100", 16), 128, {}, Wish()).candidates[0]
    assert best.expert_parallel_size == 8
    assert any("inside a node" in reason for reason in best.reasons)


def test_what_would_shrink_a_part_is_something_that_a_framework_trains_in() -> None:
    layout = Layout(16, global_batch=64, zero_stage=1, expert=8, expert_tensor=1)
    found = helpful_changes(replace(MIXTRAL, seq_length=8192), layout, on("H100", 16))
    assert found
    assert all(change.frameworks for change in found)


def test_zero_plus_plus_sends_less_and_keeps_a_second_copy() -> None:
    """Of 3·M bytes 8 bits leave half of the first, a copy a node nothing of the second, 4 bits a quarter of the third.

    Wang et al. 2023, table 1.
    """
    hardware, layout = on("H100", 64), Layout(64, global_batch=64, zero_stage=3, overlap=False, gradient_bytes=2)
    whole = parts(EIGHT, layout, hardware)["data_parallel"]
    wide, near = (
        EIGHT.layers * all_gather_s(held_bytes(EIGHT) / EIGHT.layers, ranks, group_link(hardware, ranks, 1))
        for ranks in (64, 8)
    )
    assert whole == pytest.approx(3 * wide)
    latency = EIGHT.layers * all_gather_s(0.0, 64, group_link(hardware, 64, 1))
    for changed, saved in (
        ({"quantized_weights": True}, (wide - latency) / 2),
        ({"secondary_shard": 8}, wide - near),
        ({"quantized_gradients": True}, (wide - latency) * 3 / 4),
    ):
        made = replace(layout, **changed)
        assert parts(EIGHT, made, hardware)["data_parallel"] == pytest.approx(whole - saved, rel=1e-3)
    kept = memory_per_gpu(EIGHT, layout).parts["parameters"]
    copied = memory_per_gpu(EIGHT, replace(layout, secondary_shard=8)).parts["parameters"]
    assert copied == pytest.approx(kept + kept * 64 / 8)


def held_bytes(shape: ModelShape) -> float:
    """Of all parameters of a rank whose model is not split."""
    return 2 * held_parameters(shape, Layout(), shape.layers, is_first=True, is_last=True).total


def test_what_deepspeeds_own_keys_say_of_zero_plus_plus_is_counted() -> None:
    keys = {"zero_hpz_partition_size": 2, "zero_quantized_weights": True, "zero_quantized_gradients": True}
    told = {"framework": "deepspeed", "strategy": {"zero_stage": 3}}
    usual = estimated(job(**told))
    made = estimated(job(**told, framework_options={"config": {"zero_optimization": keys}}))
    assert made.step_time_s.parts["data_parallel"] < usual.step_time_s.parts["data_parallel"]
    assert made.memory_per_gpu_gb.parts["parameters"] > usual.memory_per_gpu_gb.parts["parameters"]
    assert made.inputs["layout.secondary_shard"].value == 2
