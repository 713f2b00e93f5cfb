"""Step times against published runs, and collectives and pipelines against their own arithmetic."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from dttui.planning.cost.collectives import (
    all_reduce_s,
    broadcast_s,
    bus_bandwidth_factor,
    choose_all_reduce,
    choose_broadcast,
    crossing_bytes,
    hierarchical_all_reduce_s,
    rule_text,
    timed_text,
)
from dttui.planning.cost.hardware import Interconnect
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.step_time import bubble_ratio, step_time
from tests.unit.planning.pipeline_simulation import BACKWARD, FORWARD, gpipe, interleaved, makespan
from tests.unit.planning.published_runs import ITERATIONS, THROUGHPUTS, gpt, selene

LINK = Interconnect(bandwidth=25e9, latency_s=5e-6)


def test_throughput_misses_the_ten_runs_of_narayanan_et_al_by_five_per_cent_at_most_on_average() -> None:
    misses = []
    for run in THROUGHPUTS:
        estimate = step_time(gpt(run), run.layout, selene(run.gpus))
        misses.append(abs(estimate.tflops_per_gpu / run.tflops_per_gpu - 1))
    assert mean(misses) <= 0.05
    assert max(misses) <= 0.10


def test_iteration_times_miss_the_eight_of_korthikanti_et_al_by_seven_per_cent_at_most_on_average() -> None:
    misses = []
    for run in ITERATIONS:
        for recompute, sequence, measured in (("full", False, run.full_s), ("selective", True, run.selective_s)):
            layout = Layout(
                1,
                run.tensor,
                run.pipeline,
                run.chunks,
                run.micro_batch,
                run.global_batch,
                recompute=recompute,  # type: ignore[arg-type]  # the two words above
                sequence_parallel=sequence,
                precision="fp16",
                overlap=False,
            )
            estimate = step_time(gpt(run), layout, selene(run.tensor * run.pipeline))
            misses.append(abs(estimate.value / measured - 1))
    assert mean(misses) <= 0.07
    assert max(misses) <= 0.12


def test_ring_and_tree_take_what_their_formulas_say() -> None:
    assert all_reduce_s(1e6, 14, LINK, "ring") == pytest.approx(204.3e-6, rel=1e-3)
    assert all_reduce_s(1e6, 14, LINK, "tree") == pytest.approx(120.0e-6, rel=1e-3)
    assert crossing_bytes(14, LINK) == pytest.approx(15.75e6)
    crossing = crossing_bytes(14, LINK)
    assert all_reduce_s(crossing, 14, LINK, "ring") == pytest.approx(all_reduce_s(crossing, 14, LINK, "tree"))


def test_one_rank_alone_has_nothing_to_reduce() -> None:
    assert all_reduce_s(1e9, 1, LINK) == 0


def test_bus_bandwidth_is_counted_as_nccl_tests_does() -> None:
    assert bus_bandwidth_factor("all_reduce", 8) == 1.75
    assert bus_bandwidth_factor("reduce_scatter", 8) == 0.875
    assert bus_bandwidth_factor("gather", 8) == bus_bandwidth_factor("scatter", 8) == 0.875
    assert bus_bandwidth_factor("broadcast", 8) == bus_bandwidth_factor("sendrecv", 2) == 1


def test_the_seeds_rule_by_number_of_nodes_is_refined_by_latency_and_bandwidth() -> None:
    small = choose_all_reduce(nodes=4, ranks=14, size=1e6, link=LINK)
    assert (small.rule, small.algorithm, small.buffer_bytes) == ("ring", "tree", 2 << 20)
    large = choose_all_reduce(nodes=16, ranks=128, size=10e9, link=LINK)
    assert (large.rule, large.algorithm, large.buffer_bytes) == ("tree", "ring", 1 << 20)


def test_the_least_of_the_seconds_that_a_library_can_reach_is_advised() -> None:
    ring = choose_all_reduce(nodes=16, ranks=128, size=10e9, link=LINK)
    steps = choose_all_reduce(16, 128, 10e9, LINK, ring.seconds["ring"] / 2)
    assert (steps.algorithm, steps.rule) == ("hierarchical", "tree")
    assert choose_all_reduce(16, 128, 10e9, LINK, ring.seconds["ring"] * 2).algorithm == "ring"
    told = timed_text(ring, lambda value: f"{value:.2f} s")
    assert told.startswith("butterfly (NCCL and gloo have none) 0.79 s, ring 0.80 s, tree")
    assert "would take tree on 16" in (rule_text(steps, 16) or "")


def test_a_butterfly_moves_what_a_ring_moves_in_the_rounds_of_a_tree() -> None:
    assert all_reduce_s(1e6, 16, LINK, "butterfly") == pytest.approx(8 * 5e-6 + 2 * 15 / 16 * 1e6 / 25e9)
    choice = choose_all_reduce(nodes=4, ranks=16, size=1e6, link=LINK)
    assert choice.seconds["butterfly"] < min(choice.seconds["ring"], choice.seconds["tree"])
    assert choice.bus_bandwidth == pytest.approx(1e6 / choice.seconds["tree"] * bus_bandwidth_factor("all_reduce", 16))


def test_a_butterfly_of_no_power_of_two_moves_all_twice_more() -> None:
    assert all_reduce_s(1e6, 14, LINK, "butterfly") == pytest.approx(8 * 5e-6 + (2 * 7 / 8 + 2) * 1e6 / 25e9)


def test_a_broadcast_goes_by_a_tree_where_that_takes_fewer_rounds() -> None:
    assert broadcast_s(1e6, 14, LINK) == pytest.approx(4 * (5e-6 + 1e6 / 25e9))
    assert broadcast_s(1e6, 14, LINK, "linear") == pytest.approx(13 * (5e-6 + 1e6 / 25e9))
    assert choose_broadcast(14, 1e6, LINK).algorithm == "tree"
    assert choose_broadcast(2, 1e6, LINK).algorithm == "linear"


def test_a_buffer_grows_until_a_message_takes_longer_than_its_latency() -> None:
    far = Interconnect(bandwidth=1.25e9, latency_s=8e-3)  # 10 MB are on the way at once.
    choice = choose_all_reduce(nodes=4, ranks=4, size=1e9, link=far)
    assert (choice.algorithm, choice.buffer_bytes) == ("ring", 16 << 20)


def test_reducing_inside_the_nodes_first_sends_less_between_them() -> None:
    # 16 ranks on two nodes: 8 shares of a gigabyte each, over a card each.
    hardware = selene(16)
    seconds = hierarchical_all_reduce_s(1e9, 16, 1, hardware)
    inside, between = 300e9 * 0.80, 25e9 * 0.75
    expected = 2 * (7 / 8 * 1e9 / inside + 7 * 2e-6) + 1e9 / 8 / between + 2 * 15e-6
    assert seconds == pytest.approx(expected)
    assert hierarchical_all_reduce_s(1e9, 8, 1, hardware) is None
    assert hierarchical_all_reduce_s(1e9, 2, 8, hardware) is None


def test_gradients_travel_in_fp32_where_bf16_sums_them_so_and_in_fp16_as_they_are() -> None:
    # Megatron-LM, docs of its distributed optimizer: "fp16 param, fp16 grads" and "bf16 param, fp32 grads".
    run = THROUGHPUTS[4]
    half, wide, told = (
        step_time(gpt(run), replace(run.layout, **change), selene(run.gpus)).parts["data_parallel"]
        for change in ({"precision": "fp16"}, {"precision": "bf16"}, {"precision": "bf16", "gradient_bytes": 2})
    )
    assert wide == pytest.approx(2 * half, rel=0.05)
    assert told == half


def test_a_tensor_parallel_group_that_leaves_its_node_is_slower() -> None:
    run = THROUGHPUTS[6]
    inside = step_time(gpt(run), Layout(8, 8, 8, global_batch=512, recompute="full"), selene(512))
    across = step_time(gpt(run), Layout(8, 16, 4, global_batch=512, recompute="full"), selene(512))
    assert across.parts["tensor_parallel"] > 1.2 * inside.parts["tensor_parallel"]


@pytest.mark.parametrize("schedule", ["GPipe", "1F1B", "interleaved"])
@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_the_bubble_is_what_a_simulation_of_the_schedule_finds(schedule: str, stages: int, rounds: int) -> None:
    chunks = 3 if schedule == "interleaved" else 1
    count = stages * rounds
    orders = [
        gpipe(count) if schedule == "GPipe" else interleaved(stages, rank, chunks, count) for rank in range(stages)
    ]
    idle = makespan(orders, stages, chunks) / (count * chunks * (FORWARD + BACKWARD)) - 1
    assert idle == pytest.approx(bubble_ratio(stages, chunks, count))


def test_the_estimate_has_the_bubble_beside_what_each_stage_works() -> None:
    run = ITERATIONS[1]
    layout = Layout(1, 8, 8, 3, 1, 64, recompute="full", precision="fp16")
    shape = replace(gpt(run), vocab_size=1)  # so that the last stage works as long as the others
    parts = step_time(shape, layout, selene(64)).parts
    work = sum(parts[name] for name in ("compute", "recompute", "tensor_parallel", "pipeline_transfer"))
    assert parts["pipeline_bubble"] == pytest.approx(bubble_ratio(8, 3, 64) * work, rel=0.01)
