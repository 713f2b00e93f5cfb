"""The GPUs of a node, each with the rank that drives it and what was read of both last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dtagent.protocol import metric_fields

if TYPE_CHECKING:
    from dtagent.protocol.notices import Notice
    from dtagent.protocol.telemetry import HostSample


@dataclass(frozen=True)
class SlotView:
    """A GPU and the rank that drives it. Of a simulated GPU, use and memory are those of the rank's process."""

    rank: int
    simulated: bool
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """What a cell shows of it, by the field of `GpuSample` where it is declared."""
    process_figures: Mapping[str, float | None] = field(default_factory=dict)
    """What it shows of the rank's process besides, by the field of `RankSample`."""
    memory_share: float | None = None
    """Of the GPU's memory that is in use."""
    error: str | None = None
    error_notice: Notice | None = None


def slots_of(
    sample: HostSample | None, job_id: str, ranks: Sequence[int], gpu_ids: Sequence[int], *, is_simulated: bool
) -> list[SlotView]:
    """Return a node's slots with their newest readings; all GPUs of a node with one rank are that rank's.

    Args:
        sample: of the node; `None` where nothing was read yet.
        job_id: whose ranks they are.
        ranks: of the node, in order of local rank.
        gpu_ids: of its GPUs that the job has, in the same order.
        is_simulated: whether its GPUs are.
    """
    processes = {item.rank: item for item in (sample.ranks.get(job_id, []) if sample else [])}
    gpus = {gpu.index: gpu for gpu in (sample.gpus if sample else [])}
    slots = []
    drivers = tuple(ranks)
    if len(drivers) == 1:
        drivers *= max(1, len(gpu_ids))
    for local_rank, rank in enumerate(drivers):
        gpu = gpus.get(gpu_ids[local_rank]) if local_rank < len(gpu_ids) else None
        process = processes.get(rank)
        own = metric_fields.figures_of(process) if process else {}
        if gpu is not None:
            share = gpu.memory_used_mib / gpu.memory_total_mib if gpu.memory_used_mib and gpu.memory_total_mib else None
            slots.append(SlotView(rank, False, metric_fields.figures_of(gpu), own, share, gpu.error, gpu.error_notice))
        else:
            use = process.cpu_percent if process else None
            memory = process.memory_used_mib if process else None
            figures = {"utilization_percent": use, "memory_used_mib": memory}
            slots.append(SlotView(rank, is_simulated, figures, own))
    return slots
