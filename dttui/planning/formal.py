"""The formal description of a job by seed 001: S = (N, M, C, D), P and C. Pure data."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class System(_Value):
    """S = (N, M, C, D)."""

    nodes: tuple[str, ...]
    """N, in order of rank."""
    models: tuple[str, ...]
    """M."""
    communications: tuple[str, ...]
    """C: the collectives of one step."""
    datasets: tuple[str, ...]
    """D."""


class Parallelism(_Value):
    """P = (type, strategy, topology)."""

    type: str
    """As the job's strategy has it."""
    strategy: dict[str, int]
    """Degrees."""
    topology: str
    """Of the all-reduce: ring, tree or butterfly."""


class CommunicationTerms(_Value):
    """C = (pattern, protocol, bandwidth)."""

    pattern: str
    """The collective that gradients are synchronised by."""
    protocol: str
    """The backend."""
    bandwidth: float | None
    """Bytes a second a GPU on the slowest link; `None` where it is not known."""


class Formal(_Value):
    """A job in the terms of seed 001."""

    system: System
    """S."""
    parallelism: Parallelism
    """P."""
    communication: CommunicationTerms
    """C."""
