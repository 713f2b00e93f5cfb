"""The search against brute force, published layouts against what it finds, and estimates as they are printed."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from dttui.planning.cost.assumptions import (
    HardwareClaim,
    ModelClaim,
    UnknownAssumptionError,
    assume_hardware,
    assume_shape,
    layout_inputs,
)
from dttui.planning.cost.estimate import amdahl, estimate
from dttui.planning.cost.failure_cost import checkpoint_interval_s, failure_cost
from dttui.planning.cost.hardware import gpu_table
from dttui.planning.cost.layout import Layout, faults
from dttui.planning.cost.layout_search import MAX_MICRO_BATCH, Wish, search
from dttui.planning.cost.memory import memory_per_gpu
from dttui.planning.cost.recommend import framework_for, frameworks_of, recommend
from dttui.planning.cost.shape import ModelShape, usual_shape
from dttui.planning.cost.step_time import step_time
from tests.unit.planning.published_runs import ITERATIONS, THROUGHPUTS, Throughput, gpt, selene

SMALL = ModelShape(12, 1024, 16, 1024, 32000, 2e8)


def brute_force(shape: ModelShape, gpus: int, batch: int) -> float:
    """The fastest of all layouts with any degrees at all, by the same cost."""
    hardware = selene(gpus)
    best = float("inf")
    numbers = range(1, gpus + 1)
    for data, tensor, pipeline, chunks in product(numbers, range(1, 9), numbers, range(1, shape.layers + 1)):
        if data * tensor * pipeline != gpus:
            continue
        micro_batches = range(1, min(batch, MAX_MICRO_BATCH) + 1)
        for micro, zero, recompute in product(micro_batches, range(4), ("none", "selective", "full")):
            if batch % (data * micro):
                continue
            layout = Layout(
                data,
                tensor,
                pipeline,
                chunks,
                micro,
                batch,
                zero,
                recompute,  # type: ignore[arg-type]  # the three words above
                tensor > 1,
                "bf16",
            )
            if (zero and data == 1) or next(faults(layout, shape, gpus, 8), None) is not None:
                continue
            if memory_per_gpu(shape, layout).high <= hardware.gpu.memory_bytes:
                best = min(best, step_time(shape, layout, hardware).value)
    return best


@pytest.mark.parametrize("gpus", [1, 4, 16])
@pytest.mark.parametrize("batch", [16, 48])
def test_brute_force_finds_nothing_faster(gpus: int, batch: int) -> None:
    found = search(SMALL, selene(gpus), batch)
    assert found.candidates[0].time.value == pytest.approx(brute_force(SMALL, gpus, batch))


@pytest.mark.parametrize("run", THROUGHPUTS, ids=lambda run: f"h{run.hidden}")
def test_published_degrees_cost_little_more_than_the_best_by_the_means_of_their_time(run: Throughput) -> None:
    # In 2021 all was computed again, nothing was sharded, and the micro-batch is the paper's.
    wish = Wish(
        recompute="full",
        sequence_parallel=False,
        virtual_stages=1,
        zero_stage=0,
        micro_batch=run.micro_batch,
        precision="fp16",
    )
    found = search(gpt(run), selene(run.gpus), run.global_batch, wish)
    pairs = {(item.layout.tensor, item.layout.pipeline): item.time.value for item in found.candidates}
    assert pairs[run.tensor, run.pipeline] <= 1.05 * found.candidates[0].time.value


def test_candidates_come_fastest_first_fit_and_use_every_gpu() -> None:
    found = search(gpt(ITERATIONS[1]), selene(64), 64)
    times = [item.time.value for item in found.candidates]
    assert times == sorted(times)
    for item in found.candidates:
        assert item.layout.ranks == 64
        assert item.memory.high <= selene(64).gpu.memory_bytes
        assert not list(faults(item.layout, gpt(ITERATIONS[1]), 64, 8))


def test_what_is_fixed_beforehand_stays_so() -> None:
    wish = Wish(tensor=4, recompute="full", micro_batch=2, zero_stage=1, sequence_parallel=False)
    for item in search(SMALL, selene(16), 64, wish).candidates:
        layout = item.layout
        assert (layout.tensor, layout.recompute, layout.micro_batch) == (4, "full", 2)
        assert (layout.zero_stage, layout.sequence_parallel) == (1, False)


def test_a_batch_of_any_size_is_searched_for_by_the_micro_batches_that_there_are() -> None:
    found = search(SMALL, selene(8), 10**18)
    assert {item.layout.micro_batch for item in found.candidates} <= set(range(1, MAX_MICRO_BATCH + 1))


def test_a_model_that_fits_nowhere_is_told_with_what_it_needs() -> None:
    advice = recommend(gpt(ITERATIONS[1]), selene(8), 8, {})
    assert advice.candidates == []
    assert advice.problem is not None
    assert "85.9 GB" in advice.problem


def test_a_batch_that_nothing_divides_is_told() -> None:
    advice = recommend(SMALL, replace(selene(11), gpus_per_node=11), 3, {})
    assert advice.problem is not None
    assert "multiple of 11" in advice.problem


@pytest.mark.parametrize(
    ("degrees", "first"),
    [
        ({"data": 8, "tensor": 1, "pipeline": 1, "zero_stage": 0}, "pytorch-ddp"),
        ({"data": 8, "tensor": 1, "pipeline": 1, "zero_stage": 3}, "pytorch-fsdp"),
        ({"data": 8, "tensor": 1, "pipeline": 1, "zero_stage": 1}, "deepspeed"),
        ({"data": 4, "tensor": 2, "pipeline": 1, "zero_stage": 1}, "megatron-lm"),
        ({"data": 4, "tensor": 1, "pipeline": 2, "zero_stage": 0}, "megatron-lm"),
    ],
)
def test_a_layout_names_the_frameworks_that_can_train_in_it(degrees: dict[str, int], first: str) -> None:
    layout = Layout(**degrees, micro_batch=1, global_batch=8)  # type: ignore[arg-type]  # a table of numbers

    assert frameworks_of(layout)[0] == first


@pytest.mark.parametrize(("parameters", "stage"), [(5e8, 0), (7e9, 3)])
def test_where_only_the_size_is_given_the_guides_degrees_come_first(parameters: float, stage: int) -> None:
    shape, inputs = assume_shape(ModelClaim(parameters=parameters))
    hardware, more = assume_hardware(HardwareClaim("A100-80GB", 16, 8), gpu_table())

    advice = recommend(shape, hardware, 512, {**inputs, **more})

    first = advice.candidates[0]
    assert (first.tensor_parallel_size, first.pipeline_parallel_size, first.zero_stage) == (1, 1, stage)
    rest = [item.slower_by for item in advice.candidates[1:]]
    assert rest == sorted(rest)
    assert (advice.guide is not None) == (first.slower_by > 0)


def test_reasons_name_the_part_that_makes_a_layout_slower() -> None:
    advice = recommend(gpt(ITERATIONS[1]), selene(1024), 1024, {})
    first, *others = advice.candidates
    assert first.slower_by == 0
    assert all(item.slower_by > 0 for item in others)
    assert all("slower than the fastest" in item.reasons[-1] for item in others)


@pytest.mark.parametrize(
    ("parameters", "framework"),
    [(5e8, "pytorch-ddp"), (7e9, "pytorch-fsdp"), (70e9, "deepspeed"), (175e9, "megatron-lm")],
)
def test_the_framework_follows_seed_004(parameters: float, framework: str) -> None:
    assert framework_for(parameters)[0] == framework


def test_a_number_of_parameters_alone_gives_the_nearest_published_shape() -> None:
    shape = usual_shape(175e9)
    assert (shape.layers, shape.hidden_size, shape.heads) == (96, 12288, 96)
    assert shape.parameters == 175e9


LLAMA_2_7B = ModelClaim(layers=32, hidden_size=4096, heads=32, vocab_size=32000, ffn_size=11008, gated=True, tied=False)
LLAMA_3_8B = ModelClaim(
    layers=32, hidden_size=4096, heads=32, vocab_size=128256, kv_heads=8, ffn_size=14336, gated=True, tied=False
)
QWEN_25_05B = ModelClaim(
    layers=24, hidden_size=896, heads=14, vocab_size=151936, kv_heads=2, ffn_size=4864, gated=True, tied=True
)


@pytest.mark.parametrize(
    ("claim", "parameters"), [(LLAMA_2_7B, 6738415616), (LLAMA_3_8B, 8030261248), (QWEN_25_05B, 494032768)]
)
def test_a_model_of_which_all_is_said_has_the_parameters_that_its_makers_count(
    claim: ModelClaim, parameters: int
) -> None:
    """By the config.json and the weights of each; biases of Qwen's queries, keys and values are not counted."""
    shape, inputs = assume_shape(claim)
    assert shape.parameters == pytest.approx(parameters, rel=1e-4)
    assert inputs["model.parameters"].source == "default"
    width = claim.ffn_size
    back, _inputs = assume_shape(replace(claim, parameters=float(parameters), ffn_size=None))
    assert back.feed_forward_size == pytest.approx(width, rel=1e-3)


def test_heads_of_keys_and_values_divide_those_of_queries() -> None:
    with pytest.raises(UnknownAssumptionError, match="32 attention heads cannot share 5 of keys and values"):
        assume_shape(replace(LLAMA_3_8B, kv_heads=5))


def test_every_input_says_where_it_is_from() -> None:
    shape, of_model = assume_shape(ModelClaim(parameters=7e9))
    hardware, of_hardware = assume_hardware(HardwareClaim("H100", 16, inter_bandwidth=5e9), gpu_table())
    layout = Layout(16, global_batch=16, zero_stage=3)
    inputs = {**of_model, **of_hardware, **layout_inputs(layout, {"zero_stage"}, hardware)}
    result = estimate(shape, layout, hardware, inputs)
    assert result.inputs["model.parameters"].source == "declared"
    assert result.inputs["model.layers"].source == "default"
    assert result.inputs["inter_bandwidth"].source == "declared"
    assert result.inputs["inter_latency_s"].source == "default"
    assert result.inputs["layout.zero_stage"].source == "declared"
    assert result.memory_per_gpu_gb.excludes


def test_a_slower_network_makes_a_step_longer() -> None:
    shape, of_model = assume_shape(ModelClaim(parameters=7e9))
    layout = Layout(16, global_batch=64, zero_stage=3)
    seconds = []
    for bandwidth in (25e9, 1.25e9):
        hardware, _ = assume_hardware(HardwareClaim("A100-80GB", 16, inter_bandwidth=bandwidth), gpu_table())
        seconds.append(estimate(shape, layout, hardware, of_model).step_time_s.value)
    assert seconds[1] > 2 * seconds[0]


def test_speed_up_is_below_the_number_of_nodes_and_grows() -> None:
    shape, inputs = assume_shape(ModelClaim(parameters=1.3e9))
    hardware, _ = assume_hardware(HardwareClaim("A100-80GB", 64), gpu_table())
    rows = estimate(shape, Layout(64, global_batch=512), hardware, inputs).scaling
    assert [row.nodes for row in rows] == [1, 2, 4, 8]
    assert rows[0].speed_up == 1
    assert [row.speed_up for row in rows] == sorted(row.speed_up for row in rows)
    assert all(row.efficiency <= 1 for row in rows)


def test_an_unknown_gpu_is_told_with_those_that_are_known() -> None:
    with pytest.raises(UnknownAssumptionError, match="A100"):
        assume_hardware(HardwareClaim("Voodoo 2", 8), gpu_table())


def test_a_model_of_which_nothing_is_said_cannot_be_assumed() -> None:
    with pytest.raises(UnknownAssumptionError, match="parameters"):
        assume_shape(ModelClaim(heads=8))


def test_amdahls_law_is_that_of_the_seed() -> None:
    assert amdahl(0.95, 8) == pytest.approx(1 / (0.05 + 0.95 / 8))
    assert amdahl(1.0, 8) == 8


def test_the_checkpoint_interval_is_dalys_and_near_youngs_where_failures_are_rare() -> None:
    delta, between = 60.0, 24 * 3600.0
    young = (2 * delta * between) ** 0.5
    assert checkpoint_interval_s(delta, between) == pytest.approx(young, rel=0.03)
    assert checkpoint_interval_s(100.0, 40.0) == 40.0


def test_failures_come_as_often_as_llama_3_saw_them() -> None:
    # 16,384 GPUs: 419 interruptions in 54 days, one in 3.1 hours.
    assert failure_cost(405e9, 16384).hours_between_failures == pytest.approx(54 * 24 / 419, rel=0.01)
