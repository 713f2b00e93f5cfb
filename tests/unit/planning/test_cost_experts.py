"""Experts in counts, operations, memory and time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dttui.planning.cost.activations import activation_bytes_per_layer
from dttui.planning.cost.assumptions import ModelClaim, assume_shape
from dttui.planning.cost.hardware import Hardware, default_links, gpu_table
from dttui.planning.cost.layer_time import layer_time
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.memory import memory_per_gpu
from dttui.planning.cost.shape import ModelShape, exact_count

DENSE = ModelShape(32, 4096, 32, 4096, 32000, 1.0, kv_heads=8, ffn_size=14336, gated=True, tied=False)
MIXTRAL = replace(DENSE, experts=8, experts_per_token=2, expert_size=14336)
DEEPSEEK, _INPUTS = assume_shape(ModelClaim(name="deepseek-v3"))


def hundred() -> Hardware:
    gpu = gpu_table().find("H100")
    assert gpu is not None
    return Hardware(gpu, 8, 8, *default_links(gpu))


def test_experts_have_weights_of_their_own_and_a_router_before_them() -> None:
    more = exact_count(MIXTRAL) - exact_count(DENSE)
    assert more == pytest.approx(32 * (7 * 3 * 4096 * 14336 + 4096 * 8))


def test_a_token_takes_the_operations_of_the_experts_that_it_goes_through() -> None:
    # Of Mixtral 8x7B 12.9 of 46.7 B parameters work on a token.
    shape = replace(MIXTRAL, parameters=exact_count(MIXTRAL))
    assert shape.used_parameters == pytest.approx(12.88e9, rel=0.01)
    scores = 12 * 4096 * 4096 * 0.5 * 32
    embedding = 4096 * 32000
    assert shape.flops(1) / 4096 == pytest.approx(6 * (shape.used_parameters - embedding) + scores, rel=0.01)


def test_one_expert_for_all_is_a_dense_model_but_for_its_router() -> None:
    alone = replace(DENSE, experts=1, experts_per_token=1, expert_size=14336)
    assert alone.used_layer_weights == pytest.approx(DENSE.used_layer_weights, rel=1e-4)
    times = [layer_time(shape, Layout(micro_batch=4), hundred()) for shape in (alone, DENSE)]
    assert times[0].forward == pytest.approx(times[1].forward, rel=0.1)


def test_layers_before_the_experts_have_a_feed_forward_part_for_all() -> None:
    assert DEEPSEEK.expert_share == pytest.approx(58 / 61)
    assert exact_count(DEEPSEEK) == pytest.approx(671.03e9, rel=1e-4)
    assert DEEPSEEK.used_parameters == pytest.approx(37.55e9, rel=1e-3)


def test_activations_grow_by_what_is_sent_to_experts_and_not_by_how_many_there_are() -> None:
    layout = Layout()
    two, four = (activation_bytes_per_layer(replace(MIXTRAL, experts_per_token=count), layout) for count in (2, 4))
    tokens = 4096
    assert four - two == pytest.approx(2 * tokens * (2 * 4096 + 2 * 3 * 14336))
    assert activation_bytes_per_layer(replace(MIXTRAL, experts=64), layout) == pytest.approx(two)


def test_all_experts_are_kept_and_only_some_compute() -> None:
    few, many = (replace(MIXTRAL, experts=count) for count in (8, 16))
    few, many = (replace(shape, parameters=exact_count(shape)) for shape in (few, many))
    layout = Layout(8, global_batch=8, zero_stage=3)
    assert memory_per_gpu(many, layout).low > 1.3 * memory_per_gpu(few, layout).low
    assert many.flops(1) == pytest.approx(few.flops(1), rel=0.001)


def test_latent_attention_has_the_weights_of_its_compressions() -> None:
    # DeepSeek-V3: 187.1 M a layer, by the sizes of its config.json.
    assert DEEPSEEK.attention_weights == pytest.approx(187.1e6, rel=1e-3)
    assert DEEPSEEK.query_size == 128 * (192 + 128) / 2
