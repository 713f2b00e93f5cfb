"""How an attempt ended, as values: what can be decided about, and what the events of a job keep of it. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from dtagent.protocol.events import JobState
from pydantic import BaseModel, ConfigDict, Field

from dttui.errors import DttuiError, HostError, LaunchError, PreflightError, UsageError
from dttui.i18n import msg
from dttui.jobs.figures import Figure
from dttui.spec.failure_causes import HOST_UNREACHABLE, INTERNAL, INVALID, LAUNCH, PREFLIGHT, UNREADABLE
from dttui.spec.findings import Text

UNREACHABLE, UNFIT, TAKEN = "unreachable", "unfit", "taken"
"""Why nothing was started on a node: out of reach, it did not pass a check, or only its GPUs are in use."""
REFUSALS = (UNREACHABLE, UNFIT, TAKEN)


class Stage(str, Enum):
    """How far an attempt came."""

    PREFLIGHT = "preflight"
    LAUNCH = "launch"
    RUN = "run"


class NodeEnd(str, Enum):
    """How a node stands once its attempt is over, as far as is known."""

    UNTOUCHED = "untouched"
    """Nothing was started there."""
    CLEAN = "clean"
    """Nothing of the attempt is left there."""
    UNCLEAN = "unclean"
    """It answers, and something of the attempt may still run there."""
    LOST = "lost"
    """It does not answer; what runs there is unknown."""
    AGENT_GONE = "agent-gone"
    """The host answers, and its agent is not there any more; what runs there is unknown."""


class _Value(BaseModel):
    # What a later version adds is read past.
    model_config = ConfigDict(frozen=True, extra="ignore")


class RankOutcome(_Value):
    """How one rank ended."""

    exit_code: int | None = None
    signal: int | None = None
    """By which it was ended; `None` where it exited."""
    ended_at: float | None = None
    """Unix time, the login node's clock."""


class NodeOutcome(_Value):
    """How one node stands."""

    end: NodeEnd
    why: str = ""
    """Code: of what its agent says of the end, or `unreachable`, `not-followed`, `not-ended`, `agent-gone`."""
    reason: Text = ""
    """The same in words, where there are any besides."""
    ranks: Mapping[int, RankOutcome] = Field(default_factory=dict)
    """Rank → how it ended, of those that have."""
    keeps_logs: bool = False
    """Whether the rest of its logs is still on the host."""
    checkpoint_bytes: int | None = None
    """What its newest complete checkpoint took; `None` where none was seen."""
    heard_at: float | None = None
    """Unix time, the login node's clock: the last word of a node of which nobody knows what runs there."""

    @property
    def is_silent(self) -> bool:
        """Whether its host has heard nothing since, as far as is known."""
        return self.end in (NodeEnd.LOST, NodeEnd.AGENT_GONE)

    @property
    def is_refused(self) -> bool:
        """Whether nothing was started there since it was out of reach, or did not pass a check."""
        return self.end is NodeEnd.UNTOUCHED and self.why in REFUSALS

    @property
    def is_known_clean(self) -> bool:
        """Whether nothing of the attempt runs there."""
        return self.end in (NodeEnd.UNTOUCHED, NodeEnd.CLEAN)


class FirstFailure(_Value):
    """What failed first."""

    node: str
    rank: int | None = None
    """`None` where it was a launcher or a service."""
    time: float | None = None
    """Unix time, the login node's clock; `None` where nobody knows when."""
    cause: str | None = None
    """Code of its cause in the table of diagnosis."""
    is_shared: bool = False
    """Whether all hosts failed for it: this one is no more to blame than the others."""


class AttemptOutcome(_Value):
    """How one attempt ended."""

    attempt: int = 0
    state: JobState
    """SUCCEEDED, FAILED or CANCELLED."""
    stage: Stage = Stage.RUN
    message: Text = ""
    """Why, in words; empty where there is nothing to say."""
    hint: Text = ""
    nodes: Mapping[str, NodeOutcome] = Field(default_factory=dict)
    """Environment → how it stands, in order of node rank."""
    first_failure: FirstFailure | None = None
    cause: str | None = None
    """Code of why it failed, where nothing of a single rank or node is to be said."""
    blamed: tuple[str, ...] = ()
    """Nodes that it was ended for, where nothing had failed there."""
    failed_at: float | None = None
    """Unix time of the failure, the login node's clock; of the end where nobody knows it better."""
    first_step: int | None = None
    """The first step that a rank has reported; `None` where none has."""
    last_step: int | None = None
    """The furthest."""
    resumed_from: str | None = None
    """Checkpoint from which it went on; `None` where it began anew."""
    figures: Mapping[str, Figure] = Field(default_factory=dict)
    """What the plan has estimated, beside what was measured of it; of an attempt that has run."""

    @property
    def why(self) -> str | None:
        """Code of the cause; `None` of an attempt that did not fail, or of which no cause is told."""
        first = self.first_failure.cause if self.first_failure is not None else None
        return first or self.cause

    @property
    def could_not_resume(self) -> bool:
        """Whether the checkpoint from which it was to go on could not be read."""
        return self.resumed_from is not None and self.first_step is None and self.why in UNREADABLE

    @property
    def exit_statuses(self) -> frozenset[int]:
        """What the process that failed first exited with; nothing where a signal ended it, or nobody knows."""
        first = self.first_failure
        node = self.nodes.get(first.node) if first is not None else None
        rank = node.ranks.get(first.rank) if node is not None and first is not None and first.rank is not None else None
        return frozenset({rank.exit_code} if rank is not None and rank.exit_code else ())

    @property
    def gone(self) -> tuple[str, ...]:
        """Nodes that are not to be had as they are: lost, not to be cleared, or out of reach before the start."""
        return tuple(name for name, node in self.nodes.items() if not node.is_known_clean or node.is_refused)

    @property
    def succeeded(self) -> bool:
        """Whether every rank that was needed ended well."""
        return self.state is JobState.SUCCEEDED

    @property
    def left_behind(self) -> tuple[str, ...]:
        """Nodes on which something of the attempt may still run."""
        return tuple(name for name, node in self.nodes.items() if not node.is_known_clean)

    @property
    def headline(self) -> str:
        """The message with what to do about it."""
        return msg("{message}. {hint}", message=self.message, hint=self.hint) if self.hint else self.message


def failed(message: str, hint: str = "", cause: str | None = None) -> AttemptOutcome:
    """Return the outcome of an attempt that failed, of whose nodes nothing is said."""
    return AttemptOutcome(state=JobState.FAILED, message=message, hint=hint, cause=cause)


_CAUSES: tuple[tuple[type[DttuiError], str], ...] = (
    (HostError, HOST_UNREACHABLE),
    (PreflightError, PREFLIGHT),
    (LaunchError, LAUNCH),
    (UsageError, INVALID),
)


def cause_of(error: DttuiError) -> str:
    """Return the code of the cause of an attempt that ended with an error before it ran on all its nodes."""
    return next((cause for kind, cause in _CAUSES if isinstance(error, kind)), INTERNAL)
