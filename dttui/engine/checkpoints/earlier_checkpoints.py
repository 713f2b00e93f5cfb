"""Removes the checkpoints of earlier attempts once the running one has enough of its own; in doubt all stay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from dtagent.protocol.checkpoints import (
    MAX_DIRECTORIES,
    CheckpointsReply,
    CheckpointsRequest,
    DropReply,
    DropRequest,
    FoundCheckpoint,
    WrittenIn,
)

from dttui.agent_words import agent_text
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.checkpoints.checkpoint_calls import ask
from dttui.engine.checkpoints.checkpoint_places import CheckpointPlace, places, read_plans, started_at
from dttui.engine.checkpoints.resume_choice import choose
from dttui.engine.nodes.node_run import NodeRun
from dttui.i18n import msg, nmsg
from dttui.jobs import JobDirectory
from dttui.planning.binding import checkpoint_directory
from dttui.planning.models import BoundPlan
from dttui.spec.findings import warning
from dttui.words import size_text

Complete = Mapping[str, Sequence[FoundCheckpoint]]
"""Node → what it has, the newest first."""


class EarlierCheckpoints:
    """Of the attempts of one job before the running one.

    Args:
        directory: of the job.
        log: of the running attempt.
        nodes: in order of rank.
        bound: what runs.
        unfenced: returns the hosts on which something of an earlier attempt may still run.
        first: number of the job's first attempt: what those before it wrote is another job's.
    """

    def __init__(
        self,
        directory: JobDirectory,
        log: AttemptLog,
        nodes: Sequence[NodeRun],
        bound: BoundPlan,
        unfenced: Callable[[], Collection[str]],
        first: int,
    ) -> None:
        self._directory = directory
        self._log = log
        self._nodes = nodes
        self._unfenced = unfenced
        self._resumption = bound.plan.resumption
        self._own_places = {node.name: checkpoint_directory(node) for node in bound.plan.nodes}
        resume = bound.bindings.resume
        self._spared = [] if resume is None else [resume.checkpoint, *resume.elsewhere.values()]
        self._numbers = range(log.attempt - 1, first - 1, -1)
        self._plans: dict[int, BoundPlan] | None = None
        self._begun: dict[int, float] = {}
        self._tried: int | None = None
        """Newest step of the running attempt when it was tried: with the next one it is tried again."""
        self._told: set[tuple[str, str]] = set()
        self.is_done = not self._numbers
        """Whether there is nothing left to remove."""

    async def remove(self, complete: Complete) -> None:
        """Remove those that the running attempt has made needless.

        Args:
            complete: what each node has that has any, where the running attempt writes.
        """
        if not self._has_enough(complete) or not self._is_quiet():
            return
        if self._plans is None or self._log.attempt not in self._begun:
            self._plans = await asyncio.to_thread(read_plans, self._directory, self._numbers)
            self._begun = await asyncio.to_thread(started_at, self._directory)
        own = self._own(complete)
        step = self._untried_step(own)
        if step is None:
            return
        # Where all see the same, whoever looked speaks for all.
        nodes = [node for node in self._nodes if node.name in own or not self._resumption.shared]
        where = {node.name: places(self._plans, node.name, shared=self._resumption.shared) for node in nodes}
        self._tried = step
        others = [node for node in nodes if node.name not in own]
        if not all(await asyncio.gather(*(_has_none(node, where[node.name]) for node in others))):
            return
        replies = []
        for node in (node for node in nodes if node.name in own):
            for request in self._requests(node, where[node.name], own[node.name], step):
                replies.append(await self._drop(node, request))
        self.is_done = all(reply is not None and not reply.detail for reply in replies)

    def _untried_step(self, own: Complete) -> int | None:
        """Return the newest step by which something may have become needless; `None` where there is none since."""
        steps = [item.step for item in choose(own).values() if item.step is not None]
        newest = max(steps, default=None)
        return newest if self._has_enough(own) and newest != self._tried else None

    def _has_enough(self, complete: Complete) -> bool:
        return bool(complete) and all(len(found) >= self._resumption.keep for found in complete.values())

    def _is_quiet(self) -> bool:
        """Whether the attempt runs everywhere, and nothing of an earlier one may run anywhere."""
        return not self._unfenced() and not any(node.is_over for node in self._nodes)

    def _own(self, complete: Complete) -> dict[str, list[FoundCheckpoint]]:
        """Return what was written since the attempt began: its directory may hold some of a job before."""
        begun = self._begun.get(self._log.attempt)
        if begun is None:
            return {}
        since = {node.name: begun + node.clock_offset_s for node in self._nodes}
        own = {
            name: [item for item in found if item.changed_ns is not None and item.changed_ns / 1e9 >= since[name]]
            for name, found in complete.items()
        }
        return {name: found for name, found in own.items() if found}

    def _requests(
        self, node: NodeRun, where: Sequence[CheckpointPlace], own: Sequence[FoundCheckpoint], step: int
    ) -> list[DropRequest]:
        offset_s = node.clock_offset_s
        written = []
        for place in where:
            if place.attempt in self._begun and place.directory != self._own_places.get(node.name):
                until = min((at for number, at in self._begun.items() if number > place.attempt), default=0.0)
                written.append(WrittenIn(place.directory, self._begun[place.attempt] + offset_s, until + offset_s))
        starts = range(0, len(written), MAX_DIRECTORIES)
        return [
            DropRequest(written[start : start + MAX_DIRECTORIES], self._spared, own=list(own), step=step)
            for start in starts
        ]

    async def _drop(self, node: NodeRun, request: DropRequest) -> DropReply | None:
        if not self._is_quiet():
            return None
        reply = await ask(node, "drop_checkpoints", request, DropReply)
        if reply is None:
            return None
        if reply.detail and (node.name, reply.detail) not in self._told:
            self._told.add((node.name, reply.detail))
            reason = agent_text(reply.detail, reply.detail_notice)
            message = msg("{host}: {reason}", host=node.name, reason=reason)
            self._log.tell(warning("checkpoint-not-removed", node.name, message))
        if reply.count:
            message = nmsg(
                "{count} checkpoint of earlier attempts is removed from {host}: {size}",
                "{count} checkpoints of earlier attempts are removed from {host}: {size}",
                reply.count,
                host=node.name,
                size=size_text(reply.size_bytes),
            )
            self._log.progress(message, removed=reply.count, node=node.name)
        return reply


async def _has_none(node: NodeRun, where: Sequence[CheckpointPlace]) -> bool:
    """Whether a host, which has none of the running attempt, certainly has none of earlier ones."""
    for start in range(0, len(where), MAX_DIRECTORIES):
        directories = [place.directory for place in where[start : start + MAX_DIRECTORIES]]
        reply = await ask(node, "checkpoints", CheckpointsRequest(directories), CheckpointsReply)
        if reply is None or len(reply.directories) < len(directories):
            return False
        if any(found.complete or found.detail for found in reply.directories):
            return False
    return True
