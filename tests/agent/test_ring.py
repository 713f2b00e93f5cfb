"""What the ring keeps of a day of samples, in how many bytes, and how rows become samples again."""

from __future__ import annotations

import json
import pickle
from dataclasses import fields
from typing import Any, get_type_hints

import pytest
from dtagent.protocol.columns import EVERYTHING, Picker, pack, unpack
from dtagent.protocol.telemetry import (
    DeviceRate,
    DiskUse,
    GpuProcess,
    GpuSample,
    HostSample,
    MigInstance,
    RankSample,
    TelemetrySelection,
)
from dtagent.telemetry.ring import Ring
from dtagent.telemetry.sampler import RING_BYTES, RING_SAMPLES, THIN_SAMPLES, THINNING
from hypothesis import given
from hypothesis import strategies as st


def numbers(ring: Ring, after: int) -> list[int]:
    found = []
    for seq, row in ring.after(after):
        assert json.loads(row)[0] == seq
        found.append(seq)
    return found


def filled(count: int, ring: Ring, first: int = 1) -> Ring:
    for seq in range(first, first + count):
        ring.append(seq, json.dumps([seq, 0.5]).encode())
    return ring


def test_a_ring_without_rows_gives_none() -> None:
    ring = Ring(10, 10, 10, 1000)
    assert ring.oldest is None
    assert numbers(ring, 0) == []


@pytest.mark.parametrize("after", [0, 1, 59, 60, 61, 119, 120, 121, 149, 150, 999])
def test_the_rows_after_a_number_are_given_across_blocks(after: int) -> None:
    ring = filled(150, Ring(1000, 100, 10, 10**6))
    assert numbers(ring, after) == list(range(after + 1, 151))


@given(first=st.integers(1, 10**9), count=st.integers(1, 700), after=st.integers(-10, 800))
def test_what_is_kept_is_in_order_whole_at_the_end_and_thinned_before(first: int, count: int, after: int) -> None:
    ring = filled(count, Ring(120, 30, 10, 10**6), first)
    found = numbers(ring, first - 1 + after)
    last = first + count - 1
    assert found == sorted(set(found))
    assert all(first + after <= seq <= last for seq in found)
    newest = range(max(first, first + after, last - 119), last + 1)
    assert set(newest) <= set(found)
    assert all(seq % 10 == 0 for seq in found if seq < last - 239)
    oldest = ring.oldest
    assert oldest is not None
    assert oldest >= first


def kept_bytes(ring: Ring) -> int:
    return len(pickle.dumps(ring))


def test_an_hour_and_a_day_thinned_are_kept_within_the_bound() -> None:
    ring = filled(24 * 3600 + 5000, Ring(RING_SAMPLES, THIN_SAMPLES, THINNING, RING_BYTES))
    last = 24 * 3600 + 5000
    found = numbers(ring, 0)
    assert found[0] <= last - 24 * 3600
    assert set(range(last - 3599, last + 1)) <= set(found)
    assert kept_bytes(ring) <= 2 * RING_BYTES


def test_rows_that_are_too_large_push_the_oldest_out() -> None:
    ring = Ring(10_000, 100, 10, 20_000)
    for seq in range(1, 2001):
        noise = "".join(chr(33 + (seq * index * 7919) % 90) for index in range(200))
        ring.append(seq, json.dumps([seq, noise]).encode())
    assert kept_bytes(ring) <= 2 * 20_000
    assert numbers(ring, 1990) == list(range(1991, 2001))
    assert numbers(ring, 0)[0] > 1


WHOLE = HostSample(
    seq=7,
    time=1.5,
    cpu_percent=3.5,
    network_receive_bytes_per_s={"eth0": 5.0},
    file_systems=[DiskUse("/", 5, 10)],
    disks=[DeviceRate("nvme0n1", 1, 2, busy_percent=5.0)],
    gpus=[
        GpuSample(0, 97, throttle_reasons=["power cap"], processes=[GpuProcess(5, "li", 10)], mig_enabled=False),
        GpuSample(1, error="GPU is lost"),
        GpuSample(2, 50, processes=[], mig_instances=[MigInstance("MIG-1", "part", 1, 2)], mig_enabled=True),
    ],
    ranks={"job-1": [RankSample(4, 99, 100.0, 512, 9, "running", 0), RankSample(5, 100)], "none": []},
)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def test_a_sample_comes_back_from_its_row_as_it_was() -> None:
    assert unpack(through_json(pack(WHOLE)), EVERYTHING) == WHOLE


def test_a_selection_brings_its_fields_and_no_others() -> None:
    select = TelemetrySelection(["cpu_percent"], ["error", "utilization_percent", "processes"], ["pid", "rank"])
    row = Picker(select)(through_json(pack(WHOLE)))
    assert row[2:4] == [[3.5], [[None, "GPU is lost", None], [97, None, 50], row[3][2]]]
    assert unpack(row, select) == HostSample(
        seq=7,
        time=1.5,
        cpu_percent=3.5,
        gpus=[
            GpuSample(0, 97, processes=[GpuProcess(5, "li", 10)]),
            GpuSample(1, error="GPU is lost"),
            GpuSample(2, 50, processes=[]),
        ],
        ranks={"job-1": [RankSample(4, 99), RankSample(5, 100)], "none": []},
    )


def test_every_field_of_a_sample_has_its_place_in_a_row() -> None:
    assert set(EVERYTHING.gpu) == set(get_type_hints(GpuSample))
    assert set(EVERYTHING.rank) == set(get_type_hints(RankSample))
    assert {"seq", "time", "gpus", "ranks", *EVERYTHING.host} == {field.name for field in fields(HostSample)}
