"""What a search says besides its rows: the usual way for a size, adapters, several types of GPUs, what would fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dttui.inventory.models import Environment, GpuResources, Inventory, Resources
from dttui.planning.advice_rows import legend, sought
from dttui.planning.advising import advise_job
from dttui.planning.cost.assumptions import HardwareClaim, ModelClaim, assume_hardware, assume_shape
from dttui.planning.cost.estimate import Estimate, estimate
from dttui.planning.cost.fitting_degrees import fitting_text
from dttui.planning.cost.hardware import gpu_table
from dttui.planning.cost.layout import Layout, faults
from dttui.planning.cost.recommend import MOST_SLOWER, Advice, recommend
from dttui.planning.cost.shape import ModelShape, usual_shape
from dttui.planning.cost_text import goal_rows, rates
from dttui.planning.roster import make_roster
from dttui.spec.lora import Lora
from dttui.spec.models import Model
from tests.unit.seed_cluster import GB, make_job


def advised(gpu: str, gpus: int, batch: int = 512, **claim: object) -> Advice:
    shape, inputs = assume_shape(ModelClaim(**claim))  # type: ignore[arg-type]  # sizes by their names
    hardware, more = assume_hardware(HardwareClaim(gpu, gpus, 8), gpu_table())
    return recommend(shape, hardware, batch, {**inputs, **more})


def estimated(layout: Layout, *, gpus: int = 64, storage: float | None = None, **claim: object) -> Estimate:
    shape, inputs = assume_shape(ModelClaim(**claim))  # type: ignore[arg-type]
    hardware, more = assume_hardware(HardwareClaim("H100", gpus, 8, storage_bandwidth=storage), gpu_table())
    return estimate(shape, layout, hardware, {**inputs, **more})


def test_a_usual_way_that_is_much_slower_than_the_fastest_comes_second() -> None:
    advice = advised("RTX-4090", 8, parameters=3e9)
    first, usual, *_rest = advice.candidates
    assert first.slower_by == 0
    assert (usual.tensor_parallel_size, usual.pipeline_parallel_size, usual.zero_stage) == (1, 1, 3)
    assert usual.slower_by > MOST_SLOWER
    assert advice.guide is not None
    assert f"shown second, as a step takes {usual.slower_by:.0%} longer so" in advice.guide


def test_adapters_split_no_layers_where_nobody_asks_for_that() -> None:
    advice = advised("H100", 8, name="llama-3-8b", lora=Lora(rank=16))
    assert {(item.tensor_parallel_size, item.pipeline_parallel_size) for item in advice.candidates} == {(1, 1)}
    assert advice.candidates[0].frameworks[0] == "deepspeed"
    assert "TP tensor" in legend(advice.candidates)


@pytest.mark.parametrize(("lora", "why"), [(Lora(rank=16), "as a measure"), (None, "Chinchilla")])
def test_no_rule_says_how_long_adapters_train(lora: Lora | None, why: str) -> None:
    made = estimated(Layout(64, global_batch=64, zero_stage=3), name="llama-3-8b", lora=lora)
    (_day, goal, _energy) = goal_rows(made)
    assert why in goal.value
    assert (goal.label == "1B tokens") == (lora is not None)


def test_what_images_are_trained_on_is_no_tokens_a_parameter() -> None:
    assert "as a measure" in goal_rows(estimated(Layout(64, global_batch=64), name="vit-b-16"))[1].value


def test_a_checkpoint_is_written_by_the_nodes_that_hold_a_part_of_it() -> None:
    whole = estimated(Layout(64, global_batch=64), name="llama-3-8b").failures
    sharded = estimated(Layout(64, global_batch=64, zero_stage=3), name="llama-3-8b").failures
    staged = estimated(Layout(16, 1, 4, global_batch=64), name="llama-3-8b").failures
    told = estimated(Layout(64, global_batch=64), storage=8e9, name="llama-3-8b")
    assert whole.checkpoint_bytes == pytest.approx(14 * 8_030_261_248)
    assert whole.checkpoint_s == pytest.approx(whole.checkpoint_bytes / 2e9)
    assert sharded.checkpoint_s == pytest.approx(whole.checkpoint_s / 8)
    assert staged.checkpoint_s == pytest.approx(whole.checkpoint_s / 4)
    assert told.failures.checkpoint_s == pytest.approx(whole.checkpoint_s / 4)
    assert told.inputs["storage_bandwidth"].source == "declared"


def test_llama_3_loses_no_more_of_its_time_than_its_makers_say() -> None:
    layout = Layout(128, 8, 16, global_batch=2048, zero_stage=1, sequence_parallel=True)
    # Above 90% of the time was trained (Dubey et al. 2024, §3.3.4), with a checkpoint of its own often.
    assert estimated(layout, gpus=16384, name="llama-3.1-405b").failures.lost_share < 0.1


def test_operations_done_again_are_told_apart_from_the_share_of_the_peak() -> None:
    again = rates(estimated(Layout(64, global_batch=64, zero_stage=3, recompute="full"), name="llama-3-8b"))
    plain = rates(estimated(Layout(64, global_batch=64, zero_stage=3), name="llama-3-8b"))
    assert "with what is computed again" in again[1].value
    assert "again" not in plain[1].value


def nodes(**gpus: tuple[int, str]) -> Inventory:
    return Inventory(
        environments=tuple(
            Environment(
                name=name,
                host=f"{name}.example.org",
                resources=Resources(gpu=GpuResources(count=count, type=kind, memory=memory * GB)),
            )
            for name, (count, kind) in gpus.items()
            for memory in ([80] if kind == "H100" else [24])
        )
    )


def test_several_types_of_gpus_are_named_with_the_one_that_all_count_as() -> None:
    inventory = nodes(a=(8, "H100"), b=(2, "RTX-4090"))
    job = make_job("a", "b", model=Model(parameters=1e9), framework="pytorch-ddp")
    found, _findings = advise_job(job, make_roster(job, inventory, {}).members, gpu_table())
    assert found is not None
    line = sought(found, {})[1]
    assert line.startswith("8 × H100-80GB + 2 × RTX-4090-24GB · each counted as RTX-4090-24GB, for which all wait · ")
    assert found.advice.candidates[0].slower_by <= MOST_SLOWER
    assert found.staying is None or "than in the first" in found.staying or "as long as in the first" in found.staying


def test_unequal_nodes_are_no_more_than_wholly_efficient() -> None:
    inventory = nodes(a=(8, "H100"), b=(4, "H100"))
    job = make_job("a", "b", model=Model(parameters=1e9), framework="pytorch-ddp")
    found, _findings = advise_job(job, make_roster(job, inventory, {}).members, gpu_table())
    assert found is not None
    rows = [row for item in found.advice.candidates for row in item.estimate.scaling]
    assert max(row.efficiency for row in rows) <= 1


H100 = assume_hardware(HardwareClaim("H100", 16, 8), gpu_table())[0]
SEVEN = usual_shape(7e9)


@pytest.mark.parametrize(
    ("layout", "shape", "told"),
    [
        (Layout(2, 3, 1, global_batch=6), SEVEN, "What fits here is tensor 1, 2, 4, 8, 16."),
        (Layout(1, 1, 32, global_batch=32), SEVEN, "What fits here is pipeline 1, 2, 4, 8, 16."),
        (Layout(16, global_batch=33), SEVEN, "What fits here is global batch 32, 48."),
        (Layout(4, 1, 4, 2, global_batch=36), SEVEN, "What fits here is global batch 32, 48."),
        (Layout(8, global_batch=8), SEVEN, "What fits here is data 16."),
        (Layout(16, global_batch=16, expert=3), replace(SEVEN, experts=8), "What fits here is expert 1, 2, 4, 8."),
        (Layout(16, global_batch=16, expert=2), SEVEN, ""),
    ],
)
def test_numbers_that_would_do_are_told_nearest_to_what_was_asked_for(
    layout: Layout, shape: ModelShape, told: str
) -> None:
    fault, *_rest = faults(layout, shape, H100.gpus, H100.gpus_per_node)
    assert fitting_text(fault, shape, layout, H100) == told


def test_adapters_with_little_to_spare_fit_barely() -> None:
    told = advised("RTX-4090", 8, name="llama-3-70b").ways_out[0]
    assert told.startswith("QLoRA fits, barely (model.lora: {rank: 16, bits: 4}): up to 25")


@pytest.mark.parametrize(("ranks", "is_told"), [(8, False), (64, True)])
def test_what_decides_most_of_experts_on_several_nodes_is_told(ranks: int, *, is_told: bool) -> None:
    layout = Layout(64, global_batch=64, expert=ranks, expert_tensor=1, zero_stage=1)
    made = estimated(layout, name="deepseek-v3")
    assert any("routing limited to a few nodes" in item for item in made.assumes) == is_told
