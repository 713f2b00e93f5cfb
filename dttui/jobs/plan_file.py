"""plan.json as those read it who follow a job: what they show of it, without the models that a plan is made with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from dtagent.protocol.alike import unfold

from dttui.jobs.decoding import taken


@dataclass(frozen=True)
class SeenProcess:
    """Of a `PlannedProcess`, what is shown."""

    name: str
    argv: tuple[str, ...]
    rank: int | None = None
    starts_ranks: bool = False


@dataclass(frozen=True)
class SeenNode:
    """Of a `PlannedNode`, what is shown."""

    name: str
    node_rank: int
    python: str
    simulated: bool
    ranks: tuple[int, ...]
    prefix: tuple[str, ...] = ()
    processes: tuple[SeenProcess, ...] = ()

    @property
    def starts_own_ranks(self) -> bool:
        """Whether what runs there starts its ranks itself."""
        return any(process.starts_ranks for process in self.processes)


@dataclass(frozen=True)
class SeenEstimate:
    """Of an `Estimate`, what is shown."""

    communication_share: float


@dataclass(frozen=True)
class SeenAggregate:
    """Of an `Aggregate`, what is shown."""

    gpu_count: int = 0


@dataclass(frozen=True)
class SeenLength:
    """A `TrainingLength`."""

    steps: int | None = None
    epochs: float | None = None


@dataclass(frozen=True)
class SeenPlan:
    """Of a `Plan`, what is shown."""

    job_name: str
    framework: str
    world_size: int
    master_address: str
    nodes: tuple[SeenNode, ...]
    secrets: tuple[str, ...] = ()
    rendezvous_timeout_s: float = 300.0
    backend: str = ""
    estimate: SeenEstimate | None = None
    aggregate: SeenAggregate | None = None
    by_count: bool = False
    length: SeenLength | None = None


def read_plan_file(path: Path) -> SeenPlan:
    """Read one, of this version or another.

    Raises:
        OSError: there is none, or it cannot be read.
        ValueError: it is half written, or damaged.
    """
    try:
        plan = json.loads(path.read_bytes())
    except RecursionError as fault:
        raise ValueError(str(fault)) from fault
    if isinstance(plan, dict) and isinstance(plan.get("plan"), dict):
        plan = plan["plan"]  # Of one attempt, with what fills its holes beside it.
    if isinstance(plan, dict) and isinstance(plan.get("nodes"), dict):
        plan = {**plan, "nodes": unfold(plan["nodes"])}
    return taken(SeenPlan, plan)
