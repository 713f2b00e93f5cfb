"""Which readings of a job's GPUs are read back from its directory, and whose they are."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any, cast

from dtagent.protocol.rpc import to_wire
from dtagent.protocol.telemetry import GpuSample, HostSample

from dttui import jobs
from dttui.engine.gpu_reader import MOST_READINGS, GpuReader
from dttui.jobs import JobDirectory
from dttui.planning.models import BoundPlan


def reader(directory: JobDirectory, **gpus: tuple[int, ...]) -> GpuReader:
    bindings = SimpleNamespace(nodes={name: SimpleNamespace(gpu_ids=ids) for name, ids in gpus.items()})
    return GpuReader(directory, cast("BoundPlan", SimpleNamespace(bindings=bindings)))


def node(name: str, *ranks: int, offset_s: float = 0.0) -> Any:
    planned = SimpleNamespace(gpu_names=("A100", "A100", "H100"))
    return SimpleNamespace(name=name, ranks=ranks, clock_offset_s=offset_s, planned=planned)


def write(directory: JobDirectory, name: str, ages_s: range, ahead_s: float = 0.0) -> None:
    """Write a reading of three GPUs for each age; what is read as use is the age."""
    directory.samples(name).parent.mkdir(exist_ok=True)
    now = time.time() + ahead_s
    with directory.samples(name).open("a") as stream:
        for age in ages_s:
            gpus = [GpuSample(gpu, utilization_percent=age) for gpu in range(3)]
            stream.write(json.dumps(to_wire(HostSample(1, now - age, gpus=gpus))) + "\n")


async def test_the_gpus_of_the_job_alone_are_read_with_rank_type_and_the_seconds_that_were_asked_for() -> None:
    directory = jobs.create("x")
    write(directory, "gpu1", range(60, 0, -1), ahead_s=3600)
    with directory.samples("gpu1").open("a") as stream:
        stream.write("torn\n")
    found = await reader(directory, gpu1=(0, 2)).read([node("gpu1", 4, 5, offset_s=3600)], 10.5)
    assert [(item.place.gpu, item.rank, item.type_name) for item in found] == [(0, 4, "A100"), (2, 5, "H100")]
    assert [item.utilization_percent for item in found[1].readings] == list(range(10, 0, -1))


async def test_all_gpus_of_a_node_with_one_rank_are_that_rank_s() -> None:
    found = await reader(jobs.create("x"), gpu1=(0, 1, 3)).read([node("gpu1", 7)], 10)
    assert [(item.rank, item.type_name, item.readings) for item in found] == [
        (7, "A100", ()), (7, "A100", ()), (7, "", ()),
    ]  # fmt: skip


async def test_hosts_without_gpus_and_nodes_without_ranks_are_left_out() -> None:
    directory = jobs.create("x")
    write(directory, "sim", range(5, 0, -1))
    assert await reader(directory, sim=(), store=(0,)).read([node("sim", 0), node("store"), node("other", 1)], 10) == ()


async def test_of_a_long_time_readings_are_taken_evenly_from_all_of_it() -> None:
    directory = jobs.create("x")
    write(directory, "gpu1", range(1000, 0, -1))
    (found,) = await reader(directory, gpu1=(0,)).read([node("gpu1", 0)], 900.5)
    ages = [item.utilization_percent or 0 for item in found.readings]
    assert MOST_READINGS / 2 < len(ages) <= MOST_READINGS
    assert (ages[0] > 880, ages[-1]) == (True, 1)
