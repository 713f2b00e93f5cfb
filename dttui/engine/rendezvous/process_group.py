"""Which ranks have not come to `init_process_group` while others wait there for them: what the ranks' sockets say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from dttui.engine.attempt_log import AttemptLog
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.rendezvous.arrivals import ask
from dttui.frameworks.traits import ProcessGroup
from dttui.i18n import msg, nmsg
from dttui.words import rank_names

FIRST_LOOK_S = 30.0
"""How long after the start of all ranks it is first looked."""
MOST_LOOK_S = 60.0
"""Between two looks, while some ranks wait for others."""
MOST_NAMED = 4


class ProcessGroupBoard:
    """Looks now and then, ever less often, until all ranks have come or one reports a step.

    A script that forms its process group elsewhere, or none, connects no rank to the master's port: then nothing is
    told. So it is where an agent is too old to tell of ranks.

    Args:
        nodes: of the attempt.
        log: where it is told.
        port: where the store of the rendezvous listens, which the ranks use as well.
        group: how the framework has ranks come together.
        own_ports: of nodes whose rank listens on a port of its own, which is how it is seen to have come; by name.
    """

    def __init__(
        self,
        nodes: Sequence[NodeRun],
        log: AttemptLog,
        port: int,
        group: ProcessGroup,
        own_ports: Mapping[str, int] | None = None,
    ) -> None:
        self._nodes = nodes
        self._log = log
        self._port = port
        self._call = group.call
        self._own_ports = own_ports or {}
        ranks = sum(len(node.ranks) for node in nodes)
        self._looks_twice = group.seen_at_once is not None and ranks > group.seen_at_once

    async def watch(self) -> None:
        """Look, and tell, for as long as there can be something to tell; to be cancelled when ranks end."""
        loop = asyncio.get_running_loop()
        began, pause_s, has_told = loop.time(), FIRST_LOOK_S, False
        before: dict[int, str] = {}
        while True:
            await asyncio.sleep(pause_s)
            seen = await self._look()
            if seen is None:
                pause_s = min(2 * pause_s, MOST_LOOK_S)
                continue
            missing, waiting = seen
            absent = {rank: name for rank, name in missing.items() if rank in before or not self._looks_twice}
            before = missing
            if absent and waiting:
                has_told, pause_s = True, min(2 * pause_s, MOST_LOOK_S)
                self._tell(absent, waiting, round(loop.time() - began))
                continue
            if has_told:
                has_told = False
                self._log.progress(msg("the ranks that were waited for have come"), absent_ranks={})
            if not missing:
                return
            pause_s *= 2

    async def _look(self) -> tuple[dict[int, str], int] | None:
        """Return the ranks that have not come, each with its node, and how many wait; no rank where all is well.

        `None` where a node does not say: who has come is unknown then.
        """
        if any(node.record.has_reported for node in self._nodes):
            return {}, 0
        ports = [self._own_ports.get(node.name, self._port) for node in self._nodes]
        replies = await asyncio.gather(*map(ask, self._nodes, ports))
        if any(reply is not None and reply.ranks_connected is None for reply in replies):
            return {}, 0
        missing: dict[int, str] = {}
        waiting = 0
        for node, reply in zip(self._nodes, replies, strict=True):
            ended = {item.name for item in node.status.exits} if node.status is not None else set()
            if {*map(str, node.ranks)} <= ended:
                continue
            if reply is None or reply.ranks_connected is None or node.silent_since is not None:
                return None
            come = {*reply.ranks_connected} & {*node.ranks}
            if node.name in self._own_ports:
                come = {*node.ranks} if reply.is_listening else set()
            waiting += len(come)
            missing |= {rank: node.name for rank in node.ranks if rank not in come and str(rank) not in ended}
        return missing, waiting

    def _tell(self, missing: dict[int, str], waiting: int, seconds: int) -> None:
        self._log.progress(
            nmsg(
                "{count} rank waits in {call}; not there {seconds} s after all ran: {who}",
                "{count} ranks wait in {call}; not there {seconds} s after all ran: {who}",
                waiting,
                call=self._call,
                seconds=seconds,
                who=rank_names(list(missing.items()), MOST_NAMED),
            ),
            waited_s=seconds,
            absent_ranks={str(rank): node for rank, node in missing.items()},
        )
