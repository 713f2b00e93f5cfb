"""What is recorded of a job's newest attempt: nothing of a new one, or all that an earlier controller has left."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dtagent.protocol.events import Event, EventKind, JobState, NodeStanding
from pydantic import BaseModel, ConfigDict, ValidationError

from dttui.engine.copies.metric_copy import read_metrics
from dttui.engine.nodes.node_run import NodeRun
from dttui.jobs import JobDirectory
from dttui.jobs.aftermath import OUTCOME
from dttui.jobs.outcome import AttemptOutcome
from dttui.planning.lineup import Lineup
from dttui.planning.models import BoundPlan, Plan

PROMISE = "promise"
"""In the data of a restart, and of a job whose turn has come on other hosts than it names: a `Promise`."""
_BEFORE_ANY_HOST = (JobState.PENDING, JobState.PREFLIGHT)
_BEFORE_ALL_RUN = (*_BEFORE_ANY_HOST, JobState.LAUNCHING, JobState.UNKNOWN)


class Promise(BaseModel):
    """What the event of a restart, or of a turn, keeps of the attempt that it promises."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    not_before: float = 0.0
    """Unix time."""
    delay_s: float = 0.0
    """How long that was from then."""
    awaited: tuple[str, ...] = ()
    """Nodes that it needs and that were not known to be clean."""
    lineup: Lineup = Lineup()
    """Who takes part."""
    cause: str | None = None
    """Code of why the attempt before failed."""


@dataclass(frozen=True)
class RecoveredState:
    """Where an attempt stands by the job's directory."""

    events: tuple[Event, ...]
    """Of the newest attempt, and those of none."""
    attempt: int
    plan: Plan
    bound: BoundPlan | None
    """The plan of the attempt; before it is written nothing is started."""
    seen_at: float
    """Unix time of the earlier controller's last sign of life."""
    is_new: bool = False
    """Whether the attempt is to be started: nobody has come as far as its hosts."""
    promise: Promise = field(default_factory=Promise)
    """What was promised of it, where others came before."""
    has_begun: bool = False
    """Whether anything was told of it."""
    is_of_turn: bool = False
    """Whether that promise is the newest turn's, which may have come on the hosts that the job names."""

    @classmethod
    def new(cls, plan: Plan, attempt: int = 0, promise: Promise | None = None) -> RecoveredState:
        """Return that of an attempt of which there is nothing yet."""
        return cls((), attempt, plan, None, 0.0, is_new=True, promise=promise or Promise())

    @classmethod
    def read(
        cls, directory: JobDirectory, seen_at: float, first: int = 0, *, is_queued: bool = False
    ) -> RecoveredState:
        """Read what a controller that died has left.

        Args:
            directory: of the job.
            seen_at: Unix time of the earlier controller's last sign of life.
            first: number of the job's first attempt.
            is_queued: whether the job waits for its hosts, and so goes on waiting.

        Raises:
            OSError: there is not even a plan.
            ValueError: nor one that can be read.
        """
        events = directory.read_events()
        told_of = [event.attempt for event in events if event.attempt is not None]
        folders = [int(path.name) for path in (directory.path / "attempts").glob("*") if path.name.isdigit()]
        attempt = max(told_of + folders + [first])
        ended = any(_is_restart(event) and event.attempt == attempt for event in events)
        if ended:  # Its end was told, and that another one follows.
            attempt += 1
        own = tuple(event for event in events if event.attempt in (attempt, None))
        promising = [event for event in events if _is_restart(event) or _promises(event)]
        promise = _promised(promising)
        with contextlib.suppress(FileNotFoundError):
            bound = directory.read_bound_plan(attempt)
            return cls(own, attempt, bound.plan, bound, seen_at, promise=promise, has_begun=True)
        plan = directory.read_plan()
        has_begun = any(event.attempt == attempt for event in own)
        is_of_turn = bool(promising) and not _is_restart(promising[-1])
        found = cls(own, attempt, plan, None, seen_at, promise=promise, has_begun=has_begun, is_of_turn=is_of_turn)
        # What a person launched and nobody began is theirs to launch again; a restart was promised, and so is a turn.
        is_promised = attempt > first or is_queued
        return replace(found, events=(), is_new=True) if is_promised and not found.touched_hosts else found

    @property
    def may_lack_plan(self) -> bool:
        """Whether its plan may be that of the one before: whoever promised it with others may have died before that."""
        return self.is_new and (self.is_of_turn or bool(self.promise.lineup.seats))

    @property
    def is_promised(self) -> bool:
        """Whether it is to be started as another one, and was told when."""
        return self.is_new and self.attempt > 0

    @property
    def is_held_back(self) -> bool:
        """Whether that moment is still to be waited for: nothing was told of it yet."""
        return self.is_promised and not self.has_begun

    @property
    def states(self) -> list[JobState]:
        """The states the attempt went through; one of another version may be anything but the first two."""
        return [JobState(event.data.get("state")) for event in self.events if event.kind is EventKind.JOB_STATE]

    @property
    def touched_hosts(self) -> bool:
        """Whether the controller had come as far as preparing hosts."""
        return any(state not in _BEFORE_ANY_HOST for state in self.states)

    @property
    def started_all(self) -> bool:
        """Whether every host had been started, as far as the controller knew."""
        return any(state not in _BEFORE_ALL_RUN for state in self.states)

    def resume(self, nodes: Sequence[NodeRun], directory: JobDirectory) -> None:
        """Let nodes go on where the controller left them: nothing of what it wrote is fetched or told again."""
        so_far = read_metrics(directory, self.attempt)
        offsets = {
            event.node: float(event.data["clock_offset_s"]) for event in self.events if "clock_offset_s" in event.data
        }
        for node in nodes:
            node.record.resume(so_far)
            node.clock_offset_s = offsets.get(node.name, 0.0)
            for place, metric in so_far.metrics:
                if place.node == node.name and node.shared.has_rank(metric.rank):
                    if metric.step is not None:
                        node.shared.steps.take(metric.step)
                        node.shared.alerts.see_step(metric.rank, metric.step)
                    node.shared.steps.speed.take(metric)
                    node.shared.watch.feed(metric)  # So that it knows what is usual; what it finds was told.


def read_history(directory: JobDirectory) -> list[AttemptOutcome]:
    """Return how the attempts ended that others have followed, the first one first."""
    found = []
    for event in directory.read_events(EventKind.JOB_STATE):
        if _is_restart(event):
            with contextlib.suppress(ValidationError):
                found.append(AttemptOutcome.model_validate(event.data.get(OUTCOME)))
    return found


def read_unfenced(directory: JobDirectory, history: Sequence[AttemptOutcome]) -> list[tuple[int, str]]:
    """Return the nodes on which something of an attempt that is over may still run, each with the attempt."""
    cleared: dict[tuple[int | None, str | None], bool] = {}
    for event in directory.read_events(EventKind.NODE_STATE):
        standing = NodeStanding(event.data.get("state"))
        is_dirty = standing in (NodeStanding.LOST, NodeStanding.UNKILLABLE)
        cleared[event.attempt, event.node] = standing.is_over and not is_dirty
    return [
        (outcome.attempt, name)
        for outcome in history
        for name in outcome.left_behind
        if not cleared.get((outcome.attempt, name))
    ]


def _promised(told: Sequence[Event]) -> Promise:
    """Return what the newest of them promises; nothing of an earlier version's."""
    with contextlib.suppress(ValidationError, IndexError):
        return Promise.model_validate(told[-1].data.get(PROMISE))
    return Promise()


def _is_restart(event: Event) -> bool:
    return event.kind is EventKind.JOB_STATE and event.data.get("state") == JobState.RESTARTING.value


def _promises(event: Event) -> bool:
    """Whether it says who is to take part in an attempt: a restart, or that the turn of a job that waited has come."""
    return event.kind is EventKind.JOB_STATE and PROMISE in event.data
