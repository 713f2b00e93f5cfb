"""Job states and events: what the controller writes, and every client shows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from dtagent.protocol.metric_fields import (
    LOSS,
    PERCENT,
    PLAIN,
    SAMPLES_PER_S,
    SPEED,
    STEPS_PER_S,
    TOKENS_PER_S,
    called,
    metric,
    metrics_of,
)


class JobState(str, Enum):
    """What has become of a job.

        PENDING → PREFLIGHT → LAUNCHING → RENDEZVOUS → RUNNING → SUCCEEDED | FAILED
                      │           │            └───────────┴─► STOPPING → CANCELLED | FAILED
                      └───────────┴─► FAILED | CANCELLED

    Where FAILED would be, RESTARTING may be: a new attempt follows, from PREFLIGHT on, or CANCELLED while it is waited
    for. UNKNOWN means no agent and no controller can say; and any other word than these.
    """

    PENDING = "PENDING"
    PREFLIGHT = "PREFLIGHT"
    LAUNCHING = "LAUNCHING"
    RENDEZVOUS = "RENDEZVOUS"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    STOPPING = "STOPPING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"

    @classmethod
    def _missing_(cls, value: object) -> JobState:
        return cls.UNKNOWN

    @property
    def is_final(self) -> bool:
        """Whether the job is over."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class NodeStanding(str, Enum):
    """Where a node of a job stands, as the login node tells it.

        WAITING → CONNECTED → PREPARED → RUNNING → STOPPING → STOPPED | ENDED | FAILED | UNKILLABLE
                                 └─► DISCARDED

    UNKNOWN is a host that has fallen silent, and AGENT_GONE one that answers where no agent does, until it is back or
    given up as LOST. UNKNOWN is any other word than these, too.
    """

    WAITING = "waiting"
    CONNECTED = "connected"
    PREPARED = "prepared"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    ENDED = "ended"
    FAILED = "failed"
    DISCARDED = "discarded"
    UNKILLABLE = "unkillable"
    LOST = "lost"
    AGENT_GONE = "agent_gone"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> NodeStanding:
        return cls.UNKNOWN

    @property
    def is_over(self) -> bool:
        """Whether nothing of the job runs there any more, as far as is known."""
        return self in _OVER

    @property
    def is_bad(self) -> bool:
        """Whether it is over, and not as anybody wished."""
        return self in (NodeStanding.FAILED, NodeStanding.UNKILLABLE, NodeStanding.LOST)


_OVER = (
    NodeStanding.STOPPED,
    NodeStanding.ENDED,
    NodeStanding.FAILED,
    NodeStanding.DISCARDED,
    NodeStanding.UNKILLABLE,
    NodeStanding.LOST,
)


class EventKind(str, Enum):
    """What an event tells; `data` of each is described beside it."""

    JOB_STATE = "job_state"
    """data: state; of a job that failed first_failure, the node, rank, cause and time of what broke first, and whether
    all hosts failed for that, is_shared."""
    NODE_STATE = "node_state"
    """data: state, a `NodeStanding`; of one that is over end_reason, an `EndReason` where one fits, exits, ended_at and
    usage. `node` names the environment."""
    PREFLIGHT = "preflight"
    """data: cells: name of a check → verdict, seconds, text. `node` names the environment that was checked."""
    FINDING = "finding"
    """data: code, severity, hint."""
    PROGRESS = "progress"
    """What is being done now, for a person to read."""
    RANKS = "ranks"
    """How torchrun has numbered a node's ranks by itself; data: as of a `Numbering`."""
    METRIC = "metric"
    """data: step, loss and what else the script reported. Only in a follower's stream, kept apart on disk."""
    METRIC_ALERT = "metric_alert"
    """data: code, severity, metric, value (absent where it is no number), usual, step. `rank` reported it."""
    ALERT = "alert"
    """One of the job's own `monitoring.alerts`; data: alert (its name), severity, and what it matched."""
    RANK_FAILED = "rank_failed"
    """data: exit_code, signal, error, traceback, tail (last lines of its stderr)."""
    HANG = "hang"
    """No step and no line of any rank for long. data: severity (info: it goes on, and no more), silent_s, step
    (the last), groups (where ranks stand, each with its ranks and their nodes), said (that in words), file (all stacks,
    below the job's directory), hint, and restarts, whether it ends the attempt."""
    HEALTH = "health"
    """The job's own command has it that a host is unhealthy, or healthy again (severity info). `node` names it; data:
    severity, since (Unix time), seconds (so far), what (in words), exit_code, signal, timed_out, error (why it could
    not be started), line (the last that it printed), hint, and restarts, whether it ends the attempt."""
    STRAGGLER = "straggler"
    """Other ranks wait for one, or no more (severity info). `node` and `rank` name it; data: severity, since (Unix
    time), share (of the time, that the others wait for it), late_s (by how much it comes later, the median), hint."""
    RESTARTED = "restarted"
    """A new attempt has come to its first step, or where none reports any, all its ranks run; data: cause, why the one
    before failed; lost_steps, how many are made again, and seconds, from the failure to now, where they are known."""
    SAVED = "saved"
    """What an attempt has written on `node`, once it has ended there; data: places, each with path, kind (checkpoints,
    output, work), count, size_bytes, newest, is_whole, goes_at (absent where it stays); is_kept."""
    OUTCOME = "outcome"
    """The last event: data: state, exit_code."""


@dataclass(frozen=True)
class Event:
    """One thing that happened."""

    seq: int
    """Position in the job's events.jsonl, from 0."""
    time: float
    """Unix time, the login node's clock."""
    kind: EventKind
    message: str
    attempt: int | None = None
    node: str | None = None
    rank: int | None = None
    data: dict[str, Any] = field(default_factory=dict)
    told: dict[str, Any] | None = None
    """What `message` was made of, so that it can be told in another language: `id`, `plural`, `values`; and in `data`
    the same of messages in the event's data, each after the keys that lead there."""


PER_GPU = "tokens_per_s_per_gpu"
"""What some trainers tell in place of `tokens_per_s`, which follows by the number of ranks."""


@dataclass(frozen=True)
class Metric:
    """What a rank reports: a line a script wrote to `DTTUI_METRICS`, or its trainer printed.

    Unknown numbers of it are in `extra`.
    """

    rank: int
    step: int | None = None
    loss: float | None = metric(PLAIN, "What the training makes less.", label="loss", plot=LOSS, spike=0.2)
    learning_rate: float | None = metric(
        PLAIN, "Learning rate.", label="learning rate", names=("lr",), plot="learning-rate"
    )
    tokens_per_s: float | None = metric(
        TOKENS_PER_S,
        "Tokens that the job goes through.",
        label="tok/s",
        plot=SPEED,
        printed=("tokens_per_second", "tokens_per_sec", "tokens/s", "tokens/sec", "tok/s", "tok/sec", "tps"),
    )
    samples_per_s: float | None = metric(
        SAMPLES_PER_S,
        "Samples that the job goes through.",
        label="samples/s",
        plot=SPEED,
        printed=("currsamplespersec", "samples_per_second", "samples/s", "samples/sec"),
    )
    steps_per_s: float | None = metric(STEPS_PER_S, "Steps, as progress bars count them.", label="steps/s", plot=SPEED)
    gradient_norm: float | None = metric(
        PLAIN,
        "Norm of all gradients.",
        label="gradient norm",
        plot="gradient-norm",
        names=("grad_norm",),
        printed=("gnorm",),
        spike=5.0,
    )
    epoch: float | None = metric(PLAIN, "Times that the samples were gone through.", label="epoch")
    total_steps: float | None = metric(
        PLAIN, "Steps of the whole training.", label="steps in all", names=("max_steps",)
    )
    epoch_steps: float | None = metric(PLAIN, "Steps of one epoch.", label="steps an epoch")
    communication_percent: float | None = metric(
        PERCENT,
        "Share of the time in which a collective of the rank was under way.",
        label="communication (%)",
        plot="communication",
    )
    """Measured by the payload where the job asks for it."""
    time: float | None = None
    """Unix time at which the line was received where the script gave none."""
    extra: dict[str, float] = field(default_factory=dict)
    not_finite: list[str] | None = None
    """Known numbers, and losses of other names, that were reported, but as NaN or infinite."""

    @property
    def is_of_payload(self) -> bool:
        """Whether it tells only what is measured beside the script: of no step, and from whichever ranks there are."""
        told = [name for name in metrics_of(Metric) if getattr(self, name) is not None]
        return told == ["communication_percent"] and self.step is None and not self.extra and not self.not_finite

    @property
    def loss_as_told(self) -> float | None:
        """The loss, NaN where it was reported as no number."""
        return math.nan if self.loss is None and "loss" in (self.not_finite or ()) else self.loss

    def value(self, name: str) -> float | None:
        """Return a metric by its field; a version that did not know it has kept it among the unknown."""
        known: float | None = getattr(self, name)
        return self.extra.get(name) if known is None else known


REPORTED = called(Metric)
"""What a line of `DTTUI_METRICS` may call a number → the field that it becomes; others are kept in `extra`."""
PRINTED = called(Metric, printed=True)
"""What trainers may call it besides."""
