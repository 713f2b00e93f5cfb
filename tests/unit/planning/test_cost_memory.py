"""Memory estimates against the figures of the papers they are from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dttui.planning.cost.activations import activation_bytes_per_layer
from dttui.planning.cost.hardware import GIB, gpu_table
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.memory import (
    Held,
    layers_in_flight,
    memory_per_gpu,
    model_states,
)
from dttui.planning.cost.shape import ModelShape, parameter_count
from tests.unit.planning.published_runs import ITERATIONS, Iteration, gpt

# Rajbhandari et al. 2020, Table 1: GB a GPU for 7.5 B, 128 B and 1 T parameters at stages 1, 2 and 3.
ZERO_TABLE = {
    (4, 7.5e9): (52.5, 41.3, 30.0),
    (64, 7.5e9): (31.4, 16.6, 1.88),
    (64, 128e9): (536, 284, 32.0),
    (64, 1e12): (4187, 2218, 250),
    (1024, 7.5e9): (30.1, 15.1, 0.12),
}


@pytest.mark.parametrize(("ranks", "parameters"), ZERO_TABLE)
def test_model_states_are_those_of_the_zero_paper(ranks: int, parameters: float) -> None:
    figures = ZERO_TABLE[ranks, parameters]
    for stage, expected in enumerate(figures, start=1):
        states = model_states(Held(parameters, 0), Layout(data=ranks, zero_stage=stage, precision="fp16"))
        assert sum(states) / 1e9 == pytest.approx(expected, rel=0.025 if expected == 0.12 else 0.01)


def test_without_sharding_a_parameter_takes_sixteen_bytes() -> None:
    assert sum(model_states(Held(1, 0), Layout(data=64, precision="fp16"))) == 16


@pytest.mark.parametrize("run", ITERATIONS, ids=lambda run: f"h{run.hidden}")
def test_activations_are_those_of_korthikanti_et_al(run: Iteration) -> None:
    plain = Layout(
        1, run.tensor, run.pipeline, run.chunks, run.micro_batch, run.global_batch, recompute="none", precision="fp16"
    )
    reduced = replace(plain, recompute="selective", sequence_parallel=True)
    shape = gpt(run)
    for layout, expected in ((plain, run.tensor_gib), (reduced, run.selective_gib)):
        memory = memory_per_gpu(shape, layout)
        assert memory.parts["activations"] / GIB == pytest.approx(expected, rel=0.005)


def test_the_model_of_175_billion_parameters_takes_what_megatrons_own_calculator_says() -> None:
    layout = Layout(1, 8, 8, 3, 1, 64, recompute="selective", sequence_parallel=True, precision="bf16")
    parts = memory_per_gpu(gpt(ITERATIONS[1]), layout).parts
    assert (parts["parameters"] + parts["gradients"] + parts["optimizer"]) / GIB == pytest.approx(46.88, rel=0.01)
    assert (parts["activations"] + parts["embedding"]) / GIB == pytest.approx(12.38, rel=0.01)


def test_deepspeeds_estimators_differ_by_their_assumptions_alone() -> None:
    # Stage 2: gradients in both precisions, six bytes. Stage 3: in fp32 alone, and the largest layer whole, twice.
    parameters, ranks = 7.5e9, 64
    stage2 = Layout(data=ranks, zero_stage=2, gradient_bytes=6, precision="fp16")
    assert sum(model_states(Held(parameters, 0), stage2)) / GIB == pytest.approx(15.93, rel=0.01)
    stage3 = replace(stage2, zero_stage=3, gradient_bytes=4)
    assert (sum(model_states(Held(parameters, 0), stage3)) + 4 * 131e6) / GIB == pytest.approx(2.45, rel=0.01)


def test_full_recomputation_keeps_the_input_of_each_layer_alone() -> None:
    shape = gpt(ITERATIONS[0])
    layout = Layout(1, 8, micro_batch=4, global_batch=4, recompute="full", precision="fp16")
    assert activation_bytes_per_layer(shape, layout) == 2 * 2048 * 4 * 6144


def test_a_pipeline_with_few_micro_batches_holds_no_more_of_them_than_there_are() -> None:
    shape = gpt(ITERATIONS[1])
    assert layers_in_flight(shape, Layout(1, 8, 8, global_batch=64)) == 96
    assert layers_in_flight(shape, Layout(1, 8, 8, global_batch=2)) == 24
    assert layers_in_flight(shape, Layout(1, 8, 8, global_batch=64, schedule="GPipe")) == 12 * 64


def test_offloading_moves_bytes_to_the_host_and_loses_none() -> None:
    shape = gpt(ITERATIONS[0])
    here = memory_per_gpu(shape, Layout(data=8, global_batch=8, zero_stage=2))
    away = memory_per_gpu(shape, Layout(data=8, global_batch=8, zero_stage=2, offload="all"))
    fetched = away.parts["gathered"]  # One layer is here while it is at work.
    assert here.low - away.low == pytest.approx(away.host_bytes - fetched)
    assert away.host_bytes > fetched > 0


def test_a_range_begins_at_the_sum_of_its_parts_and_ends_above_it() -> None:
    memory = memory_per_gpu(gpt(ITERATIONS[0]), Layout(1, 8, micro_batch=4, global_batch=4))
    assert memory.low == sum(memory.parts.values())
    assert memory.high > memory.low


def test_a_layer_and_the_embedding_make_up_the_whole_model() -> None:
    count = parameter_count(96, 12288, 2048, 51200)
    assert count == pytest.approx(174.6e9, rel=0.005)
    shape = ModelShape(96, 12288, 96, 2048, 51200, count)
    assert shape.layer_parameters * 96 + shape.embedding_parameters == pytest.approx(count)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("A100", "A100-80GB"),
        ("A100-80GB", "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("NVIDIA H200", "H200-141GB"),
        ("Tesla V100-SXM2-16GB", "V100-16GB"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090-24GB"),
    ],
)
def test_a_gpu_is_found_by_what_people_and_drivers_call_it(said: str, name: str) -> None:
    found = gpu_table().find(said)
    assert found is not None
    assert found.name == name


def test_a_gpu_that_nobody_knows_is_not_taken_for_another() -> None:
    assert gpu_table().find("Quadro FX 580") is None
