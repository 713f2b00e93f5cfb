"""Has each complete checkpoint of a running attempt, or each node's part of one, copied to others, the newest first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from dtagent.protocol.checkpoints import PART, CheckpointsOf, CheckpointsReply, CheckpointsRequest, FoundCheckpoint

from dttui.engine.attempt_log import AttemptLog
from dttui.engine.checkpoints.checkpoint_calls import ask, let_copies_go
from dttui.engine.checkpoints.checkpoint_places import started_at
from dttui.engine.checkpoints.replication.transfer import CopyFailedError, Stores, transfer
from dttui.engine.checkpoints.resume_choice import whole_steps
from dttui.engine.nodes.node_run import NodeRun
from dttui.i18n import msg
from dttui.jobs import JobDirectory
from dttui.planning.binding import checkpoint_directory
from dttui.planning.models import BoundPlan
from dttui.planning.resumption import Resumption, store_of
from dttui.spec.findings import warning
from dttui.words import size_text

LEAST_LOOK_S, MOST_LOOK_S = 1.0, 15.0
"""From one look for new checkpoints to the next: a tenth of the time from one to the next, within these."""
MOST_RETRY_S = 60.0
"""Until a copy is tried again that has failed; the first time at the next look, then ever later."""
_EARLY_S = 1.0
"""By which two clocks may differ."""


def stores_of(resumption: Resumption, job_id: str, attempt: int, earlier: Sequence[str] = ()) -> Stores | None:
    """Return where copies are kept in an attempt; `None` where none are made.

    Args:
        resumption: of the plan.
        job_id: of the job.
        attempt: its number.
        earlier: job of each attempt before the job's first.
    """
    own = store_of(resumption, job_id, attempt)
    if own is None:
        return None
    owners = ((number, earlier[number] if number < len(earlier) else job_id) for number in range(attempt - 1, -1, -1))
    return Stores(own, [path for number, job in owners if (path := store_of(resumption, job, number)) is not None])


class Replicator:
    """Works until it is cancelled; nothing of it ends a job, and what cannot be copied is told once.

    Args:
        directory: of the job.
        log: of the attempt.
        nodes: in order of rank.
        bound: what runs.
        earlier: job of each attempt before the job's first.
    """

    def __init__(
        self,
        directory: JobDirectory,
        log: AttemptLog,
        nodes: Sequence[NodeRun],
        bound: BoundPlan,
        earlier: Sequence[str] = (),
    ) -> None:
        self._directory = directory
        self._log = log
        self._nodes = nodes
        self._resumption = bound.plan.resumption
        self._stores = stores_of(self._resumption, directory.job_id, log.attempt, earlier)
        self._places = {node.name: checkpoint_directory(node) for node in bound.plan.nodes}
        self._copied: dict[str, set[str]] = {}
        """Checkpoint, as it was found → nodes that have a copy."""
        self._parts: dict[str, list[FoundCheckpoint]] = {}
        """Node → what it has written of checkpoints that are complete with the parts of others, as it said last."""
        self._begun = 0.0
        """When the attempt began, by the login node's clock: parts that are older are another job's."""
        interval_s = self._resumption.interval_s or 10 * MOST_LOOK_S
        self._look_s = min(max(interval_s / 10, LEAST_LOOK_S), MOST_LOOK_S)

    async def run(self) -> None:
        """Look for new ones, and have them copied, again and again."""
        if self._stores is None or len(self._nodes) < 2:
            return
        begun = await asyncio.to_thread(started_at, self._directory)
        self._begun = begun.get(self._log.attempt, 0.0)
        await asyncio.gather(*(self._follow(node, self._stores) for node in self._nodes))

    async def drop(self) -> None:
        """Let all copies go: the job has come to its end, and its own checkpoints stay. Tell where they could not."""
        if self._stores is None:
            return
        stores = [self._stores.own, *self._stores.older]
        errors = await asyncio.gather(*(let_copies_go(node, stores) for node in self._nodes))
        for node, error in zip(self._nodes, errors, strict=True):
            if error is not None:
                message = msg("{host} keeps its copies of checkpoints in {directory}: {reason}",
                              host=node.name, directory=self._stores.own, reason=error.message)  # fmt: skip
                self._log.tell(warning("copies-left", node.name, message))

    async def _follow(self, node: NodeRun, stores: Stores) -> None:
        place = self._places.get(node.name)
        pause_s = self._look_s
        while place is not None:
            await asyncio.sleep(pause_s)
            is_well = await self._copy_newest(node, place, stores)
            pause_s = self._look_s if is_well else min(2 * pause_s, MOST_RETRY_S)

    async def _copy_newest(self, node: NodeRun, place: str, stores: Stores) -> bool:
        """Have the newest one copied where it is not yet; return whether nothing has failed."""
        found = await ask(node, "checkpoints", CheckpointsRequest([place], parts=True), CheckpointsReply)
        if found is None:
            return True
        told = found.directories[0] if found.directories else CheckpointsOf()
        self._parts[node.name] = [part for part in told.parts if self._is_own(part, node)]
        newest = self._part_of_whole(node) or next(iter(told.complete), None)  # Parts are told that are newer.
        if newest is None:
            return True
        name = f"{node.name} {newest.path} {newest.time} {newest.size_bytes} {newest.changed_ns}"
        have = self._copied.setdefault(name, set())
        for target in self._others(node):
            if len(have) >= self._resumption.copies:
                break
            if target.name in have:
                continue
            if not await self._copy(node, target, newest, stores):
                return False
            have.add(target.name)
        self._copied = {key: value for key, value in self._copied.items() if not _is_of(key, node) or key == name}
        return True

    async def _copy(self, node: NodeRun, target: NodeRun, newest: FoundCheckpoint, stores: Stores) -> bool:
        written = self._log.attempt, node.planned.node_rank
        try:
            reply = await transfer(node, target, newest, written, stores, self._resumption)
        except CopyFailedError as error:
            message = msg(
                "{checkpoint} of {host} is not copied to {target}: {reason}",
                checkpoint=newest.path,
                host=node.name,
                target=target.name,
                reason=error.why,
            )
            self._log.tell(warning("checkpoint-not-copied", node.name, message))
            return False
        if reply.sent_bytes or not reply.size_bytes:
            message = msg(
                "{checkpoint} of {host} is copied to {target}: {size} in {seconds} s",
                checkpoint=newest.path,
                host=node.name,
                target=target.name,
                size=size_text(reply.size_bytes),
                seconds=round(reply.seconds),
            )
            self._log.progress(message, copied=newest.path, step=newest.step, source=node.name, target=target.name)
        return True

    def _part_of_whole(self, node: NodeRun) -> FoundCheckpoint | None:
        """Return what a node has written of the newest checkpoint of which all have written theirs, where there is one.

        The file that names all of it is written last, by one of them: once it is there nobody writes to any part, or
        only shortly (DeepSpeed's ranks do not wait for each other), and then it is copied again.
        """
        parts = [self._parts.get(item.name, []) for item in self._nodes]
        steps = whole_steps(parts, offsets_s=[item.clock_offset_s for item in self._nodes])
        own = (part for part in self._parts[node.name] if steps and part.step == steps[0])
        return next((replace(part, form=PART) for part in own), None)

    def _is_own(self, part: FoundCheckpoint, node: NodeRun) -> bool:
        """Whether a part was written since the attempt began: what lay there before may yet be written over."""
        return part.changed_ns is None or part.changed_ns / 1e9 - node.clock_offset_s >= self._begun - _EARLY_S

    def _others(self, node: NodeRun) -> list[NodeRun]:
        """Return the nodes after one in a ring of ranks, without those that are silent."""
        start = next(index for index, item in enumerate(self._nodes) if item is node)
        ring = [*self._nodes[start + 1 :], *self._nodes[:start]]
        return [item for item in ring if item.client is not None and item.silent_since is None and not item.is_over]


def _is_of(key: str, node: NodeRun) -> bool:
    return key.startswith(f"{node.name} ")
