"""What a diagnosis is made from and what it is: pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from dtagent.protocol.events import JobState, Metric, NodeStanding
from dtagent.protocol.telemetry import HostSample

from dttui.services.diagnosis.readings import Before

ENDED_WITH_OTHERS = "ended-with-others"
"""Code of a rank that its launcher ended, since another rank had failed."""


class Confidence(str, Enum):
    """How well a cause is founded."""

    CERTAIN = "certain"
    """The process recorded it itself."""
    LIKELY = "likely"
    """Its last words, or what was measured, say so."""
    POSSIBLE = "possible"
    """It fits, and nothing else is known."""
    UNKNOWN = "unknown"
    """Only how it ended is known."""


class Doing(str, Enum):
    """What became of a rank that is not the first failure."""

    FAILED = "failed"
    ENDED = "ended"
    STOPPED = "stopped"
    RUNNING = "running"
    STARTING = "starting"
    LOST = "lost"
    ABSENT = "absent"


@dataclass(frozen=True)
class LogLine:
    """A line of a log in the job's directory."""

    file: str
    """Relative to the job's directory."""
    line: int | None
    """From 1; `None` where the file is too long to count."""
    text: str

    @property
    def place(self) -> str:
        """`logs/0/gpu1/3.err:118`."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Failed:
    """A rank, a launcher or a node that broke, as it was recorded."""

    node: str
    rank: int | None
    message: str
    time: float | None
    """Unix time, the login node's clock."""
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    traceback: str | None = None
    lines: tuple[LogLine, ...] = ()
    """The end of its output: stdout, then stderr."""
    is_lost: bool = False
    """A node of which nothing was heard any more."""
    is_cleared: bool = False
    """A node that was lost, and has told since that nothing of the job is left there."""
    is_aftermath: bool = False
    """Processes that could not be ended afterwards."""


@dataclass(frozen=True)
class NodeEvidence:
    """What is known of one node."""

    name: str
    ranks: tuple[int, ...]
    state: NodeStanding
    """As in `NodeView`."""
    message: str
    python: str
    gpu_ids: tuple[int, ...] = ()
    ranks_started: tuple[int, ...] | None = None
    """`None` where nobody told."""
    exits: Mapping[str, int] = field(default_factory=dict)
    """Process → exit code, or the negative number of the signal."""
    ended_at: Mapping[str, float] = field(default_factory=dict)
    """Process → Unix time by the login node's clock, where that is known."""
    readings: tuple[HostSample, ...] = ()
    """The newest, in order; times by the login node's clock."""
    launcher: tuple[LogLine, ...] = ()
    """The end of the launcher's stderr."""


@dataclass(frozen=True)
class Evidence:
    """All that the job's directory holds, as far as it matters here. Texts are clean and without secrets."""

    job_id: str
    state: JobState
    reason: str
    exit_code: int | None
    attempt: int
    is_watched: bool
    """Whether the job has a controller."""
    now: float
    """Unix time."""
    nodes: tuple[NodeEvidence, ...] = ()
    failures: tuple[Failed, ...] = ()
    findings: tuple[tuple[str, str], ...] = ()
    """Errors of the preflight: message and hint."""
    metrics: Mapping[int, Metric] = field(default_factory=dict)
    """Rank → its newest."""
    broken_metrics: tuple[str, ...] = ()
    """What was told of losses that are no numbers."""
    last_lines: Mapping[int, LogLine] = field(default_factory=dict)
    """Rank → the last line it printed."""
    running_at: float | None = None
    """Unix time at which all ranks ran."""


@dataclass(frozen=True)
class Cause:
    """Why something failed."""

    code: str
    words: str
    advice: tuple[str, ...]
    confidence: Confidence
    is_consequence: bool = False
    evidence: tuple[LogLine, ...] = ()


@dataclass(frozen=True)
class Explained:
    """A failure with its cause."""

    failure: Failed
    cause: Cause


@dataclass(frozen=True)
class Other:
    """What another rank was doing."""

    rank: int
    node: str
    doing: Doing
    note: str = ""
    step: int | None = None
    loss: float | None = None
    last_line: LogLine | None = None


@dataclass(frozen=True)
class Diagnosis:
    """What there is to say of a job."""

    evidence: Evidence
    headline: str
    first: Explained | None = None
    also: tuple[Explained, ...] = ()
    """What failed besides, in order."""
    cause: Cause | None = None
    """Of the whole: that of `first`, or why the job never came to run."""
    before: Before | None = None
    """What the rank's GPU and host did in the seconds before."""
    others: tuple[Other, ...] = ()
    advice: tuple[str, ...] = ()

    @property
    def same(self) -> int:
        """How many ranks failed for the reason that the first did."""
        if self.first is None or self.first.failure.rank is None:
            return 0
        codes = [item.cause.code for item in self.also if item.failure.rank is not None]
        return 1 + codes.count(self.first.cause.code)
