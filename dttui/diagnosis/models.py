"""What a diagnosis is made from and what it is: pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from dtagent.protocol.events import JobState, Metric, NodeStanding
from dtagent.protocol.telemetry import HostSample

from dttui.diagnosis.last_readings import Before
from dttui.diagnosis.standing import RankGroup
from dttui.jobs import LAUNCHER
from dttui.jobs.outcome import FirstFailure

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
    """From 1; `None` where that was not worth counting in a long file."""
    text: str

    @property
    def place(self) -> str:
        """`logs/0/gpu1/3.err:118`."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Failed:
    """A rank, a launcher, a service or a node that broke, as it was recorded."""

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
    memory_limit_mib: int | None = None
    """What its ulimit or cgroup let it have."""
    service: str | None = None
    """Name of the process, where it is one that serves the others."""
    oom_kills: int | None = None
    """How often the kernel of its host had just killed somebody for want of memory, by a count after the end."""
    is_at_limit: bool = False
    """Whether it had done so in a cgroup of the node that had reached its limit."""
    is_spared: bool = False
    """Whether it had killed nobody of the node's own, by the counts of their cgroups."""
    is_lost: bool = False
    """A node of which nothing was heard any more."""
    is_agent_gone: bool = False
    """Of a lost node: the host itself answers."""
    is_cleared: bool = False
    """A node that was lost, and has told since that nothing of the job is left there."""
    is_self_fenced: bool = False
    """Such that has ended its ranks by itself, since it heard nothing for long."""
    is_aftermath: bool = False
    """Processes that could not be ended afterwards."""
    is_survived: bool = False
    """The job went on without the node."""

    @property
    def process(self) -> str:
        """Name of the process, as its logs have it."""
        return self.service or (LAUNCHER if self.rank is None else str(self.rank))


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
    """The end of the launcher's stderr; of an elastic job, of its last round."""
    prefix: tuple[str, ...] = ()
    """`run.prefix`, where that leads to another interpreter than the host's."""
    starts_own_ranks: bool = False
    """Whether the command that runs there starts them, or trains itself."""
    unseen: str = ""
    """Why the preflight could not look at that interpreter, where it could not."""
    is_agent_gone: bool = False
    """Of a lost node: the host itself answers."""


@dataclass(frozen=True)
class AbsentNode:
    """A node not all of whose ranks had started when the rendezvous was last looked at."""

    name: str
    has_come: bool | None
    """Whether its launcher had reached the rendezvous; `None` where that is not known."""
    said: str = ""
    """The last line of its launcher's stderr."""
    has_reached: bool = False
    """Whether the preflight had connected from there to the master's port."""


@dataclass(frozen=True)
class Rendezvous:
    """How a rendezvous stood when it was last looked at."""

    waited_s: float
    limit_s: float
    address: str
    """Of the master."""
    port: int | None
    absent: tuple[AbsentNode, ...]

    @property
    def place(self) -> str:
        """`10.0.0.1:29517`; only the address in what an older release has told."""
        return self.address if self.port is None else f"{self.address}:{self.port}"


@dataclass(frozen=True)
class Evidence:
    """All that the job's directory holds, as far as it matters here. Texts are clean and without secrets."""

    job_id: str
    state: JobState
    reason: str
    exit_code: int | None
    """What the job has exited with; nothing is concluded from it."""
    attempt: int
    is_watched: bool
    """Whether the job has a controller."""
    now: float
    """Unix time."""
    nodes: tuple[NodeEvidence, ...] = ()
    failures: tuple[Failed, ...] = ()
    outcome_cause: str | None = None
    """Code of why it has failed, as its outcome has it where nothing of a single rank or node is to be said."""
    findings: tuple[tuple[str, str], ...] = ()
    """Errors of the preflight: message and hint."""
    agentless: tuple[str, ...] = ()
    """Hosts that were reached, and that have no agent, or none that starts; none was out of reach."""
    refused: tuple[str, ...] = ()
    """Hosts that were reached, and whose key or to whom our credentials were not acceptable; none was out of reach."""
    nodes_out: Mapping[str, str] = field(default_factory=dict)
    """Node without which an elastic job went on → what was told of it."""
    metrics: Mapping[int, Metric] = field(default_factory=dict)
    """Rank → its newest."""
    broken_metrics: tuple[str, ...] = ()
    """What was told of losses that are no numbers."""
    last_lines: Mapping[int, LogLine] = field(default_factory=dict)
    """Rank → the last line it printed."""
    running_at: float | None = None
    """Unix time at which all ranks ran."""
    rendezvous: Rendezvous | None = None
    """`None` where nobody had to wait long."""
    absent_ranks: Mapping[int, str] = field(default_factory=dict)
    """Rank → node, of those that others waited for in init_process_group when that was last told."""
    framework: str = ""
    """As the job file names it."""
    apart: tuple[str, str] | None = None
    """That the ranks do not train together, and what may be why; `None` where nothing speaks for it."""
    alert: str | None = None
    """What the alert said that ended the attempt to have it started again."""
    hang: tuple[str, str, bool] | None = None
    """That it hangs, what to do about it, and whether that ended it; `None` where it does not, or goes on."""
    straggler: tuple[str, str, bool] | None = None
    """The same of a rank for which the others wait."""
    unhealthy: tuple[str, str, bool] | None = None
    """That a host is unhealthy by the job's own command, what to do, and whether that ended it."""
    cleared: tuple[str, ...] = ()
    """Hosts that were lost when the job was over, and that a later look has found clean."""
    removed_on: frozenset[str] = frozenset()
    """Hosts where somebody removed the agent's files of this job while it ran."""
    full_on: Mapping[str, float] = field(default_factory=dict)
    """Hosts where the disk with the job's logs was full while it ran, and when that was last told, Unix time."""
    added_arguments: tuple[str, ...] = ()
    """What the framework puts after `run.args`, where a process may have refused it."""
    earlier: tuple[tuple[int, str], ...] = ()
    """Attempts before this one, each with why it ended."""


@dataclass(frozen=True)
class Cause:
    """Why something failed."""

    code: str
    words: str
    advice: tuple[str, ...]
    confidence: Confidence
    is_consequence: bool = False
    evidence: tuple[LogLine, ...] = ()
    asked_bytes: int | None = None
    """Of memory that it was refused, where it said how much."""


@dataclass(frozen=True)
class Explained:
    """A failure with its cause."""

    failure: Failed
    cause: Cause
    is_shared: bool = False
    """Whether all hosts failed for it: this one is no more to blame than the others."""

    @property
    def as_outcome(self) -> FirstFailure:
        """What the outcome of an attempt keeps of it."""
        failure = self.failure
        return FirstFailure(
            node=failure.node,
            rank=failure.rank,
            time=failure.time,
            cause=self.cause.code,
            is_shared=self.is_shared,
        )


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
    places: tuple[RankGroup, ...] = ()
    """Where ranks stood when they failed; nothing where that was at one place, or is not known."""

    @property
    def log(self) -> tuple[str, str | None] | None:
        """Where to read of the first failure: node and stream, `3.err`, or all streams; `None` without a failure."""
        rendezvous = self.evidence.rendezvous
        if self.first is None and rendezvous is not None and self.cause is not None:
            absent = [item for item in rendezvous.absent if item.has_come is False]
            return (absent[0].name, f"{LAUNCHER}.err" if absent[0].said else None) if absent else None
        if self.first is None:
            return None
        failure = self.first.failure
        name = failure.process
        printed = {line.file.rpartition("/")[2] for line in failure.lines}
        return failure.node, next((item for item in (f"{name}.err", f"{name}.out") if item in printed), None)

    @property
    def lost_before(self) -> tuple[Explained, ...]:
        """What an elastic job had lost and gone on without, before the first failure."""
        end = self.first.failure.time if self.first is not None else None
        times = ((item, item.failure.time) for item in self.also if item.failure.is_survived)
        return tuple(item for item, time in times if time is None or end is None or time <= end)

    @property
    def failed_after(self) -> tuple[Explained, ...]:
        """What failed besides, but for what was lost before."""
        before = self.lost_before
        return tuple(item for item in self.also if item not in before)

    @property
    def same(self) -> int:
        """How many ranks failed for the reason that the first did."""
        if self.first is None or self.first.failure.rank is None:
            return 0
        codes = [item.cause.code for item in self.failed_after if item.failure.rank is not None]
        return 1 + codes.count(self.first.cause.code)
