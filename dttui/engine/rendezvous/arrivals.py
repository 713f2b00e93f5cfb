"""Who has come to the rendezvous of an attempt and who has not, and what the missing ones last said."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dtagent.protocol.meeting import RendezvousReply, RendezvousRequest

from dttui.engine.attempt_log import AttemptLog
from dttui.engine.nodes.node_run import NodeRun
from dttui.errors import HostError
from dttui.i18n import Message, msg
from dttui.jobs import LAUNCHER, JobDirectory
from dttui.jobs.following import tail
from dttui.sanitize import clean
from dttui.words import listed, without_log_head

MOST_NAMES = 3
"""Hosts that a message names."""
FIRST_LOOK_S = 10.0
"""How long ranks may take to come up before anything is said of it."""
MOST_LOOK_S = 60.0
ASK_TIMEOUT_S = 3.0
MAX_SAID = 160
SAID_LINES = 80
"""Of the end of a launcher's stderr, among which its last word stands: a stack of C++ may follow it."""
_STACK = re.compile(r"frame #\d+: |Exception raised from |<omitting python frames>|\s*$")


@dataclass(frozen=True)
class Missing:
    """A node not all of whose ranks have started."""

    node: str
    has_come: bool | None
    """Whether its launcher has reached the rendezvous, and waits for others; `None` where that is not known."""
    said: str
    """The last line of its launcher's stderr that says anything; empty where there is none."""


class RendezvousBoard:
    """Looks at the nodes now and then while not all ranks have started, tells who is missing, and says when to give up.

    Args:
        nodes: of the attempt.
        directory: holds the launchers' logs.
        log: where it is told.
        port: where the master listens.
        limit_s: how long it may take; torchrun's own limit is longer, and its message names no node.
    """

    def __init__(
        self, nodes: Sequence[NodeRun], directory: JobDirectory, log: AttemptLog, port: int, limit_s: float
    ) -> None:
        self._nodes = nodes
        self._directory = directory
        self._log = log
        self._port = port
        self.limit_s = limit_s
        self._waited_s = 0.0
        self._looked_at = asyncio.get_running_loop().time()
        self._next_s = FIRST_LOOK_S

    @property
    def wait_s(self) -> float:
        """How long until it is worth looking again."""
        return max(0.1, min(self._next_s, self.limit_s) - self._waited_s)

    async def look(self) -> Message | None:
        """Tell who is missing where that is due; return why to give up, once it has taken too long.

        Time in which a node is silent does not count: what it does is unknown, and not late.
        """
        now = asyncio.get_running_loop().time()
        if not any(node.silent_since is not None for node in self._nodes):
            self._waited_s += now - self._looked_at
        self._looked_at = now
        if self._waited_s < min(self._next_s, self.limit_s):
            return None
        self._next_s += min(self._next_s, MOST_LOOK_S)
        missing = await self._missing()
        if not missing:
            return None
        seconds = round(self._waited_s)
        absent = [item for item in missing if item.has_come is False] or missing
        joined = len(self._nodes) - len(absent)
        self._log.progress(
            msg(
                "{joined} of {count} nodes have joined after {seconds} s; waiting for {who}",
                joined=joined,
                count=len(self._nodes),
                seconds=seconds,
                who=_named(absent),
            ),
            waited_s=seconds,
            port=self._port,
            missing={item.node: {"has_come": item.has_come, "said": item.said} for item in missing},
        )
        if self._waited_s >= self.limit_s:
            return msg("{who} did not join within {seconds} s", who=_named(absent), seconds=seconds)
        return None

    async def _missing(self) -> list[Missing]:
        nodes = [node for node in self._nodes if not node.has_all_ranks]
        replies = await asyncio.gather(*(ask(node, self._port) for node in nodes))
        return [
            Missing(node.name, _has_come(node, reply), self._said(node))
            for node, reply in zip(nodes, replies, strict=True)
        ]

    def _said(self, node: NodeRun) -> str:
        folder: Path = self._directory.logs(node.key.attempt, node.name)
        lines = [line for line in map(clean, tail(folder / f"{LAUNCHER}.err", SAID_LINES)) if not _STACK.match(line)]
        return without_log_head(lines[-1].strip())[:MAX_SAID] if lines else ""


async def ask(node: NodeRun, port: int) -> RendezvousReply | None:
    """Ask whether a node's processes have found the others; `None` where that cannot be told."""
    if node.client is None:
        return None
    try:
        return await node.client.call("rendezvous", RendezvousRequest(node.key, port), RendezvousReply, ASK_TIMEOUT_S)
    except HostError:
        return None


def _has_come(node: NodeRun, reply: RendezvousReply | None) -> bool | None:
    if reply is None:
        return None
    return reply.is_listening if node.planned.node_rank == 0 else reply.is_connected


def _named(missing: Sequence[Missing]) -> str:
    return listed([f"{item.node} ({item.said})" if item.said else item.node for item in missing], MOST_NAMES)
