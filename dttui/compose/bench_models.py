"""What a bench has found, as values: rows in the terms of nccl-tests, what links are, and who is slow."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from dttui.planning.cost.link_fit import Regime as Regime  # A row tells its own: who reads rows has it from here.


class BenchRow(BaseModel):
    """One size of one operation, in the terms of nccl-tests."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    where: tuple[str, ...]
    """Nothing for all ranks together, a host for its inside, two hosts for what is between them."""
    op: str
    algorithm: str
    """`native` is torch's own, `ring`, `tree` and so on dttui's operators'; `ping-pong` half of there and back."""
    size_bytes: int
    count: int
    """Elements."""
    type: Literal["float32"] = "float32"
    seconds: float
    """The median; of several ranks, of the one that took longest."""
    algorithm_bandwidth: float
    """Bytes a second."""
    bus_bandwidth: float
    """Bytes a second on the busiest link, whatever the number of ranks (nccl-tests, PERFORMANCE.md)."""
    wrong: int
    """Elements that were not what they have to be, of all ranks."""
    regime: Regime


class BenchLink(BaseModel):
    """What is between two hosts, as the α–β model has it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    between: tuple[str, str]
    latency_s: float
    """One way, of a message by torch."""
    tcp_latency_s: float | None
    """One way, over a plain TCP connection; `None` where there was none."""
    bandwidth: float | None
    """Bytes a second, one way; `None` where no message was near what the link can do."""


class BenchInside(BaseModel):
    """What all-reduces inside a host come to, as the α–β model of a ring has it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    ranks: int
    latency_s: float
    """Of a hop."""
    bandwidth: float | None
    """Bytes a second of a rank; `None` where no message was near what there is."""


class LackingMemory(BaseModel):
    """A host that had no memory for messages of a size."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    size_bytes: int


class SlowPlace(BaseModel):
    """A host or a link that is slower than the others' median."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: Literal["bandwidth", "latency", "inside"]
    """Of which: of links, or of all-reduces inside hosts of as many ranks."""
    names: tuple[str, ...]
    """A host, or the two of a link."""
    times: float
    """How many times slower."""


class BenchReport(BaseModel):
    """What a bench has found."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    backend: str | None = None
    """`nccl` or `gloo`; `None` before it has begun."""
    interfaces: dict[str, str] = {}
    """By host; empty where it is not known."""
    rows: tuple[BenchRow, ...] = ()
    links: tuple[BenchLink, ...] = ()
    """Between hosts where everything came as it was sent."""
    insides: tuple[BenchInside, ...] = ()
    """Of hosts of several ranks, where everything came right."""
    slow: tuple[SlowPlace, ...] = ()
    lacking: tuple[LackingMemory, ...] = ()
    """Each host once, with the least size."""
    total: int = 0
    """Rows that were to come."""
    left_out: int = 0
    """Of these, known not to come."""
    is_whole: bool = False
    """Whether every size was measured: else time or memory was short, or the job has ended before."""

    @property
    def newest(self) -> BenchRow | None:
        """The row that came last."""
        return self.rows[-1] if self.rows else None

    @property
    def share(self) -> float:
        """How much of it is done, 0 to 1."""
        return min((len(self.rows) + self.left_out) / self.total, 1.0) if self.total else 0.0


class KeptBench(BaseModel):
    """The newest bench of some hosts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    measured_at: float
    """Seconds since the epoch."""
    job_id: str
    """Of the job that has measured."""
    addresses: dict[str, str]
    """By which others reach each host, by its name."""
    report: BenchReport
    """All of it."""
