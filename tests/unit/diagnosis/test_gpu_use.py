"""What GPUs did while nothing was heard of a job, in words and as data."""

from __future__ import annotations

from typing import Any

import pytest
from dtagent.protocol.telemetry import GpuSample

from dttui.diagnosis.gpu_readings import GpuPlace, GpuReadings
from dttui.diagnosis.gpu_use import GpuUse, all_compute, sentence, to_data, uses_of

IDLE: dict[str, Any] = {"utilization_percent": 0, "power_w": 70.0, "power_limit_w": 700.0}
SPINS = {**IDLE, "utilization_percent": 100, "power_w": 126.0, "memory_utilization_percent": 1}
COMPUTES = {**IDLE, "utilization_percent": 99, "power_w": 600.0, "memory_utilization_percent": 30}
UNREAD: dict[str, Any] = {}


def gpus(*each: dict[str, Any]) -> list[GpuReadings]:
    return [
        GpuReadings(GpuPlace("gpu1", index), index, "", (GpuSample(index, **fields),) * 3)
        for index, fields in enumerate(each)
    ]


@pytest.mark.parametrize(
    ("fields", "use"),
    [
        (IDLE, GpuUse.IDLES),
        (SPINS, GpuUse.SPINS),
        (COMPUTES, GpuUse.COMPUTES),
        ({**SPINS, "memory_utilization_percent": 45}, GpuUse.COMPUTES),
        ({**COMPUTES, "memory_utilization_percent": None}, GpuUse.COMPUTES),
        ({**SPINS, "memory_utilization_percent": None}, GpuUse.SPINS),
        ({**SPINS, "power_w": None}, GpuUse.BUSY),
        ({"utilization_percent": 100}, GpuUse.BUSY),
        ({**COMPUTES, "utilization_percent": 40}, GpuUse.AT_TIMES),
        ({**COMPUTES, "mig_enabled": True}, GpuUse.UNKNOWN),
        (UNREAD, GpuUse.UNKNOWN),
    ],
)
def test_what_a_gpu_does_follows_from_use_power_and_memory(fields: dict[str, Any], use: GpuUse) -> None:
    assert [item.use for item in uses_of(gpus(fields))] == [use]


@pytest.mark.parametrize(
    ("each", "words"),
    [
        ((IDLE,) * 8, "all 8 GPUs idle"),
        ((COMPUTES,), "the GPU computes"),
        (
            (*(SPINS,) * 7, IDLE),
            "7 of 8 GPUs spin (100 % busy with 18% of their power), GPU 7 on gpu1 idles",
        ),
        (
            (*(SPINS,) * 4, IDLE, COMPUTES, COMPUTES, UNREAD),
            "4 of 8 GPUs spin (100 % busy with 18% of their power), GPU 5 on gpu1, GPU 6 on gpu1 compute, "
            "GPU 4 on gpu1 idles, nothing is known of GPU 7 on gpu1",
        ),
        (({**COMPUTES, "utilization_percent": 40},) * 2, "all 2 GPUs are 40 % busy"),
        ((UNREAD, UNREAD), ""),
        ((), ""),
    ],
)
def test_it_is_told_of_those_that_do_the_same_together(each: tuple[dict[str, Any], ...], words: str) -> None:
    assert sentence(uses_of(gpus(*each))) == words


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        ((COMPUTES, COMPUTES), True),
        ((COMPUTES, SPINS), False),
        ((COMPUTES, UNREAD), False),
        (({**COMPUTES, "power_w": None, "memory_utilization_percent": None},), False),
        ((), False),
    ],
)
def test_all_compute_where_that_is_plain_of_each(each: tuple[dict[str, Any], ...], expected: bool) -> None:
    assert all_compute(uses_of(gpus(*each))) is expected


def test_data_count_all_and_name_the_first() -> None:
    told = to_data(uses_of(gpus(*(SPINS,) * 70, IDLE)))
    assert told["counts"] == {"idles": 1, "spins": 70}
    assert len(told["gpus"]) == 64
