"""Which GPU is slower than its like: by clock, by heat, and what is no reason to name one."""

from __future__ import annotations

from typing import Any

import pytest
from dtagent.protocol.telemetry import GpuSample

from dttui.diagnosis.gpu_readings import GpuPlace, GpuReadings
from dttui.diagnosis.slow_gpus import SlowBy, SlowGpu, SlowGpuRows, hint_of, sentence, slow_gpus

FAST: dict[str, Any] = {
    "utilization_percent": 98,
    "sm_clock_mhz": 1400,
    "temperature_c": 62,
    "power_w": 380.0,
    "power_limit_w": 400.0,
    "memory_total_mib": 81920,
    "throttle_reasons": ["power cap"],
}
SLOW = {**FAST, "sm_clock_mhz": 1000, "power_w": 300.0}
HEATED = {**FAST, "sm_clock_mhz": 1300, "temperature_c": 88, "throttle_reasons": ["hardware thermal slowdown"]}
SPINNING = {**FAST, "power_w": 95.0, "sm_clock_mhz": 1410}


def gpus(*each: dict[str, Any], types: tuple[str, ...] = (), count: int = 5) -> list[GpuReadings]:
    """Return GPUs that read the same again and again."""
    return [
        GpuReadings(
            GpuPlace("gpu1", index),
            index,
            types[index] if types else "NVIDIA A100",
            tuple(GpuSample(index, **fields) for _ in range(count)),
        )
        for index, fields in enumerate(each)
    ]


def named(found: list[GpuReadings]) -> dict[int, SlowBy]:
    return {place.gpu: slow.by for place, slow in slow_gpus(found).items() if slow is not None}


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        ((FAST, FAST, FAST, SLOW), {3: SlowBy.CLOCK}),
        ((FAST, SLOW), {1: SlowBy.CLOCK}),
        ((FAST, FAST, SLOW, SLOW), {2: SlowBy.CLOCK, 3: SlowBy.CLOCK}),
        ((FAST, FAST, {**FAST, "sm_clock_mhz": 1200}), {}),
        ((FAST, FAST, {**FAST, "sm_clock_mhz": 1180}), {2: SlowBy.CLOCK}),
        ((FAST, FAST, HEATED), {2: SlowBy.TEMPERATURE}),
        ((FAST, FAST, {**HEATED, "sm_clock_mhz": 700}), {2: SlowBy.TEMPERATURE}),
        ((FAST, FAST, {**HEATED, "temperature_c": 64}), {}),
        ((FAST, FAST, {**HEATED, "sm_clock_mhz": 1390}), {}),
        ((FAST, FAST, {**HEATED, "throttle_reasons": ["power cap"]}), {}),
        ((HEATED, HEATED, HEATED), {}),
        ((FAST, FAST, {**SLOW, "throttle_reasons": ["power brake"]}), {2: SlowBy.CLOCK}),
        ((FAST, FAST, {**SLOW, "throttle_reasons": None, "power_w": None, "temperature_c": None}), {2: SlowBy.CLOCK}),
        (
            tuple({**item, "sm_clock_mhz": None} for item in (FAST, FAST, HEATED)),
            {2: SlowBy.TEMPERATURE},
        ),
    ],
)
def test_who_is_clearly_slower_under_load_is_found(
    each: tuple[dict[str, Any], ...], expected: dict[int, SlowBy]
) -> None:
    assert named(gpus(*each)) == expected


@pytest.mark.parametrize(
    "found",
    [
        gpus(SLOW),
        gpus(FAST, FAST, {**SLOW, "utilization_percent": 3}),
        gpus(FAST, {**FAST, "utilization_percent": 20}, SLOW),
        gpus(FAST, SLOW, types=("NVIDIA H100", "NVIDIA A100")),
        gpus(FAST, {**SLOW, "memory_total_mib": 40960}, types=("", "")),
        gpus(FAST, {**SLOW, "sm_clock_mhz": None}),
        gpus(FAST, {**SLOW, "utilization_percent": None}),
        gpus(FAST, {"error": "GPU is lost"}),
        gpus(FAST, {**SLOW, "mig_enabled": True}),
        gpus(FAST, SLOW, count=1),
        gpus(FAST, SLOW, count=0),
        gpus(SPINNING, SPINNING, {**FAST, "sm_clock_mhz": 1100}),
        gpus(SPINNING, {**FAST, "sm_clock_mhz": 1100}),
        [],
    ],
    ids=[
        "alone", "idle itself", "another one idle", "of another type", "of another size", "no clock", "no use", "lost",
        "cut up", "one reading", "no reading", "others wait for it", "the other waits for it", "none",
    ],
)  # fmt: skip
def test_what_is_no_reason_to_name_anybody(found: list[GpuReadings]) -> None:
    assert named(found) == {}


def test_a_dip_between_two_steps_and_a_boost_of_a_second_change_nothing() -> None:
    dip, boost = {**FAST, "utilization_percent": 4, "sm_clock_mhz": 210}, {**SLOW, "sm_clock_mhz": 1410}
    steady = GpuReadings(GpuPlace("gpu1", 0), 0, "", tuple(GpuSample(0, **each) for each in (FAST, dip, FAST, FAST)))
    slow = GpuReadings(GpuPlace("gpu1", 1), 1, "", tuple(GpuSample(1, **each) for each in (SLOW, boost, SLOW, SLOW)))
    assert named([steady, slow]) == {1: SlowBy.CLOCK}


def test_it_is_told_what_it_costs_and_why() -> None:
    slow = slow_gpus(gpus(FAST, FAST, HEATED))[GpuPlace("gpu1", 2)]
    assert slow is not None
    assert slow.share == pytest.approx(1 - 1300 / 1400)
    assert sentence(slow, 120) == (
        "for 120 s GPU 2 on gpu1 (rank 2) has run at 1300 MHz, the others at 1400 MHz, which costs up to 7% of the "
        "time: it is at 88 °C, the others at 62 °C (held back by hardware thermal slowdown)"
    )
    assert "nvidia-smi -q -i 2" in hint_of(slow.place)
    unread = slow_gpus(gpus(*({**item, "sm_clock_mhz": None} for item in (FAST, FAST, HEATED))))[GpuPlace("gpu1", 2)]
    assert unread is not None
    assert unread.share is None
    assert sentence(unread, 60).startswith("for 60 s GPU 2 on gpu1 (rank 2) has been held back: it is at 88 °C")


def test_a_gpu_is_named_after_so_many_looks_in_a_row_and_over_after_so_many() -> None:
    place = GpuPlace("gpu1", 1)
    slow = SlowGpu(place, 1, SlowBy.CLOCK, 1000, 1400, None, None, ())
    rows = SlowGpuRows(3, 2)
    seen: list[tuple[bool, bool, bool]] = []
    for at, found in enumerate((slow, slow, None, slow, slow, "nothing known", slow, None, slow, None, None)):
        rows.take(at, {} if isinstance(found, str) else {place: found})
        seen.append((bool(rows.named()), rows.is_slow(place), rows.is_over(place)))
        if rows.named():
            assert rows.named() == [(slow, 3)]
    assert [item[0] for item in seen] == [False] * 6 + [True] + [False] * 4
    assert [item[1] for item in seen] == [True, True, False, True, True, True, True, False, True, False, False]
    assert [item[2] for item in seen] == [False] * 10 + [True]
