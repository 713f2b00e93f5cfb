"""What another controller has told of an attempt before it died; nothing of a new one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dtagent.protocol.events import Event, EventKind, JobState

from dttui.engine.given_up import EndedFor
from dttui.jobs.event_log import message_of
from dttui.spec.failure_causes import KIND_OF_CAUSE


@dataclass(frozen=True)
class ToldBefore:
    """What there is no need to tell again."""

    events: Sequence[Event] = ()
    """Of the attempt, and those of none."""

    @cached_property
    def states(self) -> frozenset[str]:
        """Those of the job that were entered; any may be one of another version."""
        return frozenset(str(event.data.get("state")) for event in self.events if event.kind is EventKind.JOB_STATE)

    @cached_property
    def failures(self) -> frozenset[tuple[str | None, int | None]]:
        """Node and rank of each failure that was told."""
        return frozenset((event.node, event.rank) for event in self.events if event.kind is EventKind.RANK_FAILED)

    @cached_property
    def ended_for(self) -> EndedFor | None:
        """For what it was being ended though nothing of it had failed, whoever died before he came to say so."""
        found = None
        for event in self.events:
            is_end = event.kind is EventKind.JOB_STATE and event.data.get("state") == JobState.STOPPING.value
            if is_end and (cause := str(event.data.get("cause"))) in KIND_OF_CAUSE:
                blamed = event.data.get("blamed")
                found = EndedFor(cause, message_of(event), node=str(blamed) if blamed is not None else None)
        return found
