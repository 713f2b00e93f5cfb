"""What is learned from jobs that are over: known factors are found again, odd jobs pass, and few are not believed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dttui.planning.cost.calibration import CostBasis, MeasuredRun, check, learn
from dttui.planning.cost.correction import Learned, Provenance, TimeCorrection
from dttui.planning.cost.estimate import estimate, traffic_share
from dttui.planning.cost.hardware import Hardware, default_links, gpu_table
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.memory import memory_on
from dttui.planning.cost.recommend import recommend
from dttui.planning.cost.shape import usual_shape
from dttui.planning.cost.step_time import step_time

KIND = "A100-80GB"
TABLE = gpu_table()
HOST = Provenance(("told",), 0.0, 0.0)


def on(gpus: int, kind: str = KIND, learned: Learned | None = None) -> Hardware:
    gpu = TABLE.find(kind)
    assert gpu is not None
    return Hardware(gpu, gpus, min(gpus, 8), *default_links(gpu), learned=learned)


def basis(billions: float, layout: Layout, kind: str = KIND) -> CostBasis:
    return CostBasis.of(usual_shape(billions * 1e9), layout, on(layout.ranks, kind))


LITTLE_TRAFFIC = [
    basis(billions, Layout(gpus, global_batch=16 * gpus, micro_batch=2))
    for billions, gpus in ((1, 1), (0.5, 1), (2, 2), (1, 4), (0.3, 8), (2, 8))
]
MUCH_TRAFFIC = [
    basis(billions, Layout(gpus, global_batch=gpus, overlap=False))
    for billions, gpus in ((1, 16), (0.5, 64), (2, 32), (1, 64))
]


def true_time(told: CostBasis, compute: float, traffic: float) -> float:
    learned = Learned({told.layout.precision: TimeCorrection(compute, traffic, True, 0.0, HOST)})
    hardware = told.hardware(TABLE, learned)
    assert hardware is not None
    return step_time(told.shape, told.layout, hardware).value


def run(
    told: CostBasis, number: int, step_time_s: float | None = None, memory_bytes: float | None = None
) -> MeasuredRun:
    return MeasuredRun(
        job=f"job-{number}", ended_at=1e9 + number, basis=told, step_time_s=step_time_s, memory_bytes=memory_bytes
    )


def runs_of(bases: list[CostBasis], compute: float, traffic: float, noise: float = 0.0) -> list[MeasuredRun]:
    chance = random.Random(17)
    return [
        run(told, number, true_time(told, compute, traffic) * chance.lognormvariate(0, noise))
        for number, told in enumerate(bases)
    ]


def held(told: CostBasis) -> float:
    hardware = told.hardware(TABLE)
    assert hardware is not None
    return memory_on(told.shape, told.layout, hardware).low


@pytest.mark.parametrize(("compute", "traffic"), [(1.4, 3.0), (2.0, 1.2), (0.8, 2.0), (6.0, 15.0)])
def test_two_factors_are_found_again_where_jobs_tell_them_apart(compute: float, traffic: float) -> None:
    found = learn(runs_of([*LITTLE_TRAFFIC, *MUCH_TRAFFIC], compute, traffic, 0.02), TABLE)[KIND].time["bf16"]
    assert found.are_apart
    assert found.compute == pytest.approx(compute, rel=0.06)
    assert found.traffic == pytest.approx(traffic, rel=0.12)
    assert found.source.jobs == tuple(f"job-{number}" for number in range(10))
    assert (found.source.first_at, found.source.last_at) == (1e9, 1e9 + 9)


def test_one_factor_is_fitted_where_they_cannot_be_told_apart() -> None:
    found = learn(runs_of(LITTLE_TRAFFIC, 1.5, 3.0, 0.02), TABLE)[KIND].time["bf16"]
    assert not found.are_apart
    assert found.compute == found.traffic == pytest.approx(1.5, rel=0.05)


def test_three_jobs_tell_them_apart_where_the_one_with_traffic_takes_much_longer() -> None:
    """As jobs of one rank and of two on a CPU, of which gloo takes more than anybody would guess."""
    bases = [basis(1, Layout(global_batch=16)), basis(2, Layout(global_batch=16)), MUCH_TRAFFIC[0]]
    much, little = (learn(runs_of(bases, 1.0, traffic), TABLE)[KIND].time["bf16"] for traffic in (12.0, 1.02))
    assert much.are_apart
    assert much.compute == pytest.approx(1.0, rel=0.05)
    assert 8 < much.traffic < 12
    assert little.compute == little.traffic == 1.0


def test_the_spread_is_wider_the_further_the_share_of_traffic_is_from_what_was_measured() -> None:
    found = learn(runs_of(LITTLE_TRAFFIC, 1.5, 1.5, 0.05), TABLE)[KIND].time["bf16"]
    near, far, further = (found.spread_at(share) for share in (found.centre, 0.4, 0.8))
    assert near == pytest.approx(found.spread)
    assert near < far < further <= 0.9


def test_odd_jobs_move_neither_factor_far() -> None:
    runs = runs_of([*LITTLE_TRAFFIC, *MUCH_TRAFFIC], 1.4, 3.0, 0.02)
    odd = [
        item.model_copy(update={"step_time_s": (item.step_time_s or 0) * times})
        for item, times in zip((runs[0], runs[7]), (0.1, 8), strict=True)
    ]
    kept = [item for item in runs if item.job not in {other.job for other in odd}]
    found = learn([*kept, *odd], TABLE)[KIND].time["bf16"]
    assert found.compute == pytest.approx(1.4, rel=0.15)
    assert found.traffic == pytest.approx(3.0, rel=0.3)
    assert found.spread > learn(runs, TABLE)[KIND].time["bf16"].spread


def test_of_one_job_one_factor_is_learned_and_what_may_be_chance_is_not() -> None:
    def of_one(times: float) -> TimeCorrection:
        return learn([run(told, 0, true_time(told, times, times))], TABLE)[KIND].time["bf16"]

    told = MUCH_TRAFFIC[0]
    assert of_one(1.08).compute == 1.0
    assert 1.2 < of_one(1.3).compute < 1.3
    assert of_one(10).traffic == pytest.approx(10, rel=0.02)
    assert not of_one(10).are_apart
    assert of_one(10).spread > learn(runs_of(LITTLE_TRAFFIC, 10, 10), TABLE)[KIND].time["bf16"].spread


def test_another_precision_and_another_kind_are_not_touched() -> None:
    learned = learn(runs_of(LITTLE_TRAFFIC, 2.0, 2.0), TABLE)
    assert learned.keys() == {KIND}
    shape, layout = LITTLE_TRAFFIC[0].shape, LITTLE_TRAFFIC[0].layout
    in_fp16 = replace(layout, precision="fp16")
    bare, known = on(1), on(1, learned=learned[KIND])
    assert estimate(shape, in_fp16, known, {}) == estimate(shape, in_fp16, bare, {})
    before, after = (estimate(shape, layout, item, {}).step_time_s.value for item in (bare, known))
    assert after == pytest.approx(2 * before, rel=0.02)


def test_types_that_are_no_more_in_the_table_say_nothing() -> None:
    lost = LITTLE_TRAFFIC[0].model_copy(update={"kind": "gone"})
    assert learn([run(lost, 1, 1.0)], TABLE) == {}
    assert check([run(lost, 1, 1.0)], TABLE, {}) == []


def test_memory_has_an_offset_or_a_factor_whichever_leaves_less() -> None:
    bases = [*LITTLE_TRAFFIC, *MUCH_TRAFFIC]
    more = learn([run(told, at, memory_bytes=held(told) + 2e9) for at, told in enumerate(bases)], TABLE)[KIND]
    assert more.memory is not None
    assert (more.memory.factor, more.time) == (1.0, {})
    assert more.memory.offset_bytes == pytest.approx(2e9, rel=0.05)
    times = learn([run(told, at, memory_bytes=held(told) * 1.2) for at, told in enumerate(bases)], TABLE)[KIND]
    assert times.memory is not None
    assert times.memory.offset_bytes == 0
    assert times.memory.factor == pytest.approx(1.2, rel=0.02)
    told = bases[2]
    hardware = told.hardware(TABLE, times)
    assert hardware is not None
    after = memory_on(told.shape, told.layout, hardware)
    assert after.low == pytest.approx(1.2 * held(told), rel=0.02)
    assert after.high == pytest.approx(after.low * (1 + times.memory.spread))


def test_of_one_job_what_a_context_may_take_is_an_offset_and_more_is_a_factor() -> None:
    told = LITTLE_TRAFFIC[2]
    small = learn([run(told, 1, memory_bytes=held(told) + 1.5e9)], TABLE)[KIND].memory
    large = learn([run(told, 1, memory_bytes=held(told) * 2)], TABLE)[KIND].memory
    assert small is not None
    assert large is not None
    assert small.factor == 1.0
    assert large.offset_bytes == 0


def test_an_estimate_says_which_jobs_it_was_corrected_by_and_when_they_ended() -> None:
    learned = learn(runs_of(LITTLE_TRAFFIC[:2], 2.0, 2.0), TABLE)[KIND]
    inputs = estimate(LITTLE_TRAFFIC[0].shape, LITTLE_TRAFFIC[0].layout, on(1, learned=learned), {}).inputs
    assert {item.source for item in inputs.values()} == {"measured"}
    assert {item.measured_at for item in inputs.values()} == {1e9 + 1}
    assert inputs["calibration.time_jobs"].value == "job-0, job-1"
    assert inputs["calibration.compute"].value == pytest.approx(2.0, rel=0.05)


def test_corrected_hardware_is_corrected_once_and_each_time_for_its_precision() -> None:
    learned = Learned({"bf16": TimeCorrection(2.0, 3.0, True, 0.1, HOST)})
    bare = on(8, learned=learned)
    once = bare.corrected_for("bf16")
    assert once.corrected_for("bf16") == once
    assert once.inter.bandwidth == bare.inter.bandwidth / 3
    assert once.efficiency.matmul == bare.efficiency.matmul / 2
    assert once.corrected_for("fp32") == bare
    assert CostBasis.of(MUCH_TRAFFIC[0].shape, Layout(8, global_batch=8), once).inter == bare.inter


def test_a_recommendation_counts_with_what_was_learned() -> None:
    shape = usual_shape(1e9)
    learned = Learned({"bf16": TimeCorrection(2.0, 2.0, False, 0.1, HOST)})
    plain, known = (recommend(shape, on(8, learned=item), 64, {}).candidates[0] for item in (None, learned))
    assert known.estimate.step_time_s.value == pytest.approx(2 * plain.estimate.step_time_s.value)
    assert known.estimate.inputs["calibration.compute"].value == 2.0


def test_a_job_is_checked_with_its_estimate_before_and_after() -> None:
    runs = runs_of([*LITTLE_TRAFFIC, *MUCH_TRAFFIC], 1.4, 3.0, 0.02)
    for item in check(runs, TABLE, learn(runs, TABLE)):
        measured = item.run.step_time_s or 0.0
        assert abs(item.step_time_after_s / measured - 1) < 0.1 < abs(item.step_time_before_s / measured - 1)


def test_a_bubble_is_traffic_as_far_as_its_stages_are() -> None:
    layout = Layout(1, 8, 8, global_batch=8, micro_batch=1)
    time = step_time(usual_shape(30e9), layout, on(64))
    own = sum(time.parts[name] for name in ("tensor_parallel", "pipeline_transfer", "data_parallel"))
    assert own / time.value < traffic_share(time) < (own + time.parts["pipeline_bubble"]) / time.value
