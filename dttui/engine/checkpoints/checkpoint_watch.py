"""Looks at the checkpoints of a running attempt: how large they are, whether the next one has room, and how many stay.

Once there are as many as are to stay, those of earlier attempts go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from dtagent.protocol.checkpoints import CheckpointsReply, CheckpointsRequest, FoundCheckpoint
from dtagent.protocol.probes import PathsReply, PathsRequest

from dttui.engine.attempt_log import AttemptLog
from dttui.engine.checkpoints.checkpoint_calls import ask
from dttui.engine.checkpoints.earlier_checkpoints import EarlierCheckpoints
from dttui.engine.nodes.node_run import NodeRun
from dttui.i18n import msg
from dttui.jobs import JobDirectory
from dttui.planning.binding import checkpoint_directory
from dttui.planning.models import BoundPlan
from dttui.spec.findings import warning
from dttui.words import size_text

LEAST_LOOK_S, MOST_LOOK_S = 1.0, 60.0
"""From one look to the next: a tenth of the time from one checkpoint to the next, within these."""
LOOK_S = 15.0
"""Where nobody knows that."""


class CheckpointWatch:
    """Works until it is cancelled; nothing of it ends a job.

    Args:
        directory: of the job.
        log: of the attempt.
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
        first: int = 0,
    ) -> None:
        self._log = log
        self._nodes = nodes
        self._earlier = EarlierCheckpoints(directory, log, nodes, bound, unfenced, first)
        self._resumption = bound.plan.resumption
        self._places = {node.name: checkpoint_directory(node) for node in bound.plan.nodes}
        self._short: set[str] = set()
        """Nodes that were said to have no room for the next one."""
        self.sizes: dict[str, int] = {}
        """Node → bytes that its newest complete checkpoint takes."""

    async def run(self) -> None:
        """Look again and again."""
        if not self._resumption.is_kept:
            return
        interval_s = self._resumption.interval_s
        pause_s = LOOK_S if interval_s is None else min(max(interval_s / 10, LEAST_LOOK_S), MOST_LOOK_S)
        while True:
            await asyncio.sleep(pause_s)
            complete = await self.look()
            if complete is not None and not self._earlier.is_done:
                await self._earlier.remove(complete)

    async def look(self) -> Mapping[str, Sequence[FoundCheckpoint]] | None:
        """Take in the sizes, and warn of disks that are short of room.

        Returns:
            What each node has that has any, the newest first; `None` where one does not answer, or cannot look.
        """
        nodes = [node for node in self._nodes if not node.is_over and self._places.get(node.name) is not None]
        nodes = nodes[:1] if self._resumption.shared else nodes
        answers = await asyncio.gather(*map(self._complete, nodes))
        complete = {node.name: found for node, found in zip(nodes, answers, strict=True) if found}
        self.sizes |= {name: found[0].size_bytes for name, found in complete.items()}
        await asyncio.gather(*(self._check_room(node) for node in nodes if node.name in complete))
        return complete if None not in answers else None

    async def _complete(self, node: NodeRun) -> Sequence[FoundCheckpoint] | None:
        place = self._places[node.name]
        request = CheckpointsRequest([str(place)], most=self._resumption.keep)
        reply = await ask(node, "checkpoints", request, CheckpointsReply)
        found = reply.directories[0] if reply is not None and reply.directories else None
        return found.complete if found is not None and not found.detail else None

    async def _check_room(self, node: NodeRun) -> None:
        """Say once that the next one has no room, until it has."""
        reply = await ask(node, "paths", PathsRequest([str(self._places[node.name])]), PathsReply)
        free_mib = reply.paths[0].free_mib if reply is not None and reply.paths else None
        if free_mib is None:
            return
        wanted = self.sizes[node.name]
        if free_mib >= wanted >> 20:
            self._short.discard(node.name)
        elif node.name not in self._short:
            self._short.add(node.name)
            message = msg(
                "{host}: the next checkpoint takes about {wanted}, and {path} has {free}",
                host=node.name,
                wanted=size_text(wanted),
                path=self._places[node.name],
                free=size_text(free_mib << 20),
            )
            hint = msg("Make room, or keep fewer (recovery.checkpoint.keep).")
            self._log.tell(warning("checkpoint-room", node.name, message, hint))
