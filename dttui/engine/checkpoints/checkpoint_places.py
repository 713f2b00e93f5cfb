"""Where the attempts of a job write their checkpoints, and when each could, by what the job's directory holds."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dtagent.protocol.checkpoints import FoundCheckpoint
from dtagent.protocol.events import EventKind, JobState

from dttui.jobs import JobDirectory
from dttui.planning.binding import checkpoint_directory
from dttui.planning.models import BoundPlan


@dataclass(frozen=True)
class CheckpointPlace:
    """Where an attempt writes its checkpoints on a host."""

    attempt: int
    directory: str


@dataclass
class PlacedCheckpoint:
    """A checkpoint that one node has written, wherever it lies now."""

    found: FoundCheckpoint
    """As it was where it was written."""
    is_directory_itself: bool
    """Whether it is the directory of checkpoints itself."""
    holders: dict[str, str] = field(default_factory=dict)
    """Node that has it → its path there."""


def read_plans(directory: JobDirectory, numbers: Iterable[int]) -> dict[int, BoundPlan]:
    """Return those of some attempts that came as far as their plan, in that order."""
    found: dict[int, BoundPlan] = {}
    for number in numbers:
        with contextlib.suppress(OSError, ValueError):
            found[number] = directory.read_bound_plan(number)
    return found


def places(before: Mapping[int, BoundPlan], name: str, *, shared: bool) -> list[CheckpointPlace]:
    """Return where a node may have checkpoints, the newest attempt's first; of a new node, where all see them."""
    found = []
    for number, bound in before.items():
        nodes = bound.plan.nodes
        node = next((item for item in nodes if item.name == name), nodes[0] if shared and nodes else None)
        told = checkpoint_directory(node) if node is not None else None
        if told is not None and posixpath.isabs(told):
            found.append(CheckpointPlace(number, told))
    return found


def started_at(directory: JobDirectory) -> dict[int, float]:
    """Return when the hosts were told to start each attempt, Unix time by the login node's clock."""
    found: dict[int, float] = {}
    for event in directory.read_events(EventKind.JOB_STATE):
        if event.attempt is not None and event.data.get("state") == JobState.LAUNCHING.value:
            found.setdefault(event.attempt, event.time)
    return found
