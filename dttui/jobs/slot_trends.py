"""How busy each slot of a job's nodes was lately, packed: a job may have thousands. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtagent.protocol.telemetry import HostSample

KEPT = 60
"""Readings of each slot."""
_UNKNOWN, _MOST = 255, 100


class SlotTrends:
    """Keeps the newest readings of each node's slots, in their order."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[int, float]] = {}
        """Number and time of the newest reading of each node."""
        self._loads: dict[str, list[bytearray]] = {}

    def take(self, node: str, sample: HostSample, gpu_ids: Collection[int], job_id: str) -> None:
        """Take the newest reading of a node: of the GPUs of the job there, or, if it has none, of its ranks."""
        taken = sample.seq, sample.time
        if self._newest.get(node) == taken:
            return
        self._newest[node] = taken
        loads: list[float | None]
        if gpu_ids:
            read = {gpu.index: gpu.utilization_percent for gpu in sample.gpus}
            loads = [read.get(index) for index in gpu_ids]
        else:
            loads = [rank.cpu_percent for rank in sample.ranks.get(job_id, ())]
        kept = self._loads.get(node)
        if kept is None or len(kept) != len(loads):
            kept = self._loads[node] = [bytearray() for _load in loads]
        for slot, load in zip(kept, loads, strict=True):
            slot.append(_UNKNOWN if load is None else min(_MOST, max(0, int(load))))
            if len(slot) > 2 * KEPT:
                del slot[:-KEPT]

    def of(self, node: str, slot: int) -> tuple[int | None, ...]:
        """Return in percent how busy a slot was, the newest last."""
        kept = self._loads.get(node, [])
        if slot >= len(kept):
            return ()
        return tuple(None if load == _UNKNOWN else load for load in kept[slot][-KEPT:])
