"""The seed documents' own tables of speed-up and memory: shown beside an estimate, never part of it."""

from __future__ import annotations

from bisect import bisect_left

from pydantic import BaseModel, ConfigDict

SPEED_UPS = {
    "DP": {2: 1.8, 4: 3.2, 8: 5.5, 16: 8.0},
    "DDP": {2: 1.9, 4: 3.7, 8: 7.2, 16: 13.0},
    "FSDP": {2: 1.9, 4: 3.8, 8: 7.5, 16: 14.0},
}
"""GPUs → speed-up (seed 002 §5.1)."""
NODE_SPEED_UPS = {1: 1.0, 2: 1.8, 4: 3.5, 8: 6.8}
"""Nodes of two GPUs → speed-up (seed 004, performance)."""
MEMORY_GB = {7e9: (28.0, 14.0, 7.0), 13e9: (52.0, 26.0, 13.0), 70e9: (280.0, 140.0, 70.0)}
"""Parameters → GB on one GPU, by ZeRO-2, by ZeRO-3 (seed 002 §5.2)."""


class RulesOfThumb(BaseModel):
    """What the seeds' tables say, between their rows by proportion."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    speed_up: float | None
    """Over one GPU; `None` beyond the table."""
    nodes_speed_up: float | None
    """Over one node; `None` beyond the table."""
    memory_gb: float
    """Of the model's states on one GPU."""


def rules_of_thumb(parameters: float, gpus: int, nodes: int, zero_stage: int) -> RulesOfThumb:
    """Return what the tables say of a job."""
    column = {2: 1, 3: 2}.get(zero_stage, 0)
    table = "FSDP" if zero_stage == 3 else "DDP"
    size, row = min(MEMORY_GB.items(), key=lambda item: abs(item[0] - parameters))
    return RulesOfThumb(
        speed_up=_between({1: 1.0, **SPEED_UPS[table]}, gpus),
        nodes_speed_up=_between(NODE_SPEED_UPS, nodes),
        memory_gb=row[column] * parameters / size,
    )


def _between(table: dict[int, float], count: int) -> float | None:
    counts = list(table)
    at = bisect_left(counts, count)
    if at == len(counts):
        return None
    if counts[at] == count or at == 0:
        return table[counts[at]]
    below, above = counts[at - 1], counts[at]
    share = (count - below) / (above - below)
    return table[below] + share * (table[above] - table[below])
