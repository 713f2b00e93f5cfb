"""Reads from a job's directory what its GPUs did of late: the telemetry of its hosts, as it is written down there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from dtagent.protocol.telemetry import HostSample
from pydantic import TypeAdapter, ValidationError

from dttui.diagnosis.gpu_readings import GpuPlace, GpuReadings
from dttui.engine.nodes.node_run import NodeRun
from dttui.jobs import JobDirectory
from dttui.jobs.following import GrowingFile
from dttui.planning.models import BoundPlan
from dttui.timestamps import unix_time_in

READINGS = 6000
"""Of all hosts together that are looked at, about: it takes a second. Evenly from all of the time."""
LEAST_READINGS, MOST_READINGS = 6, 120
"""Of each."""
LEAST_BYTES, MOST_BYTES = 64 << 10, 1 << 20
"""At the end of a host's file, that are read."""
BYTES_A_SECOND = 8 << 10
"""A sample of eight GPUs has 2 KiB."""

ReadGpus = Callable[[Sequence[NodeRun], float], Awaitable[Sequence[GpuReadings]]]
"""Returns what the job's GPUs on some nodes did in the last seconds, so many."""
_SAMPLE = TypeAdapter(HostSample)


class GpuReader:
    """Knows which GPUs an attempt has, and which ranks drive them.

    Args:
        directory: of the job.
        bound: the attempt's plan. Simulated GPUs are none of anybody's, and a job that has no others reads nothing.
    """

    def __init__(self, directory: JobDirectory, bound: BoundPlan) -> None:
        self._directory = directory
        self._gpus = {name: binding.gpu_ids for name, binding in bound.bindings.nodes.items()}

    async def read(self, nodes: Sequence[NodeRun], seconds: float) -> tuple[GpuReadings, ...]:
        """Return what the job's GPUs did in the last `seconds`; those of hosts that tell nothing are without readings.

        Args:
            nodes: whose GPUs.
            seconds: how far back.
        """
        since = unix_time_in(-seconds)
        having = [node for node in nodes if self._gpus.get(node.name) and node.ranks]
        most = min(max(READINGS // max(1, len(having)), LEAST_READINGS), MOST_READINGS)
        asked = [(self._directory.samples(node.name), since + node.clock_offset_s, seconds, most) for node in having]
        told = await asyncio.to_thread(lambda: [_samples(*item) for item in asked])
        return tuple(item for node, samples in zip(having, told, strict=True) for item in self._of(node, samples))

    def _of(self, node: NodeRun, samples: Sequence[HostSample]) -> list[GpuReadings]:
        names, ranks, gpus = node.planned.gpu_names, node.ranks, self._gpus[node.name]
        found = []
        for local, gpu in enumerate(gpus):
            rank = ranks[min(local, len(ranks) - 1)]  # All of a node's GPUs are its only rank's.
            name = names[gpu] if gpu < len(names) else ""
            own = (item for sample in samples for item in sample.gpus if item.index == gpu)
            found.append(GpuReadings(GpuPlace(node.name, gpu), rank, name, tuple(own)))
        return found


def _samples(path: Path, since: float, seconds: float, most: int) -> list[HostSample]:
    """Return a host's samples since a Unix time of its clock, in order, of one a second about so many."""
    read_bytes = min(max(int(seconds * BYTES_A_SECOND), LEAST_BYTES), MOST_BYTES)
    stride = max(1, round(seconds / most))
    found: list[HostSample] = []
    lines: list[bytes] = []
    with contextlib.suppress(OSError):  # What cannot be read is not known.
        lines = GrowingFile(path, last_bytes=read_bytes).read()
    for line in lines[::-stride]:
        with contextlib.suppress(ValidationError):
            sample = _SAMPLE.validate_json(line)
            if sample.time < since:
                break
            found.append(sample)
    return found[::-1]
