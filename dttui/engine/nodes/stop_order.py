"""Telling one node to end its part, apart from all others: again until it has heard, and always the newest level."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum

from dttui.engine.nodes.node_run import NodeRun
from dttui.errors import AgentError, AuthenticationError, HostError, HostKeyError, without_frames

STOP_RETRY_S = 1.0
"""Between two tries; a host that is short of threads or memory for a moment has both again soon."""


class StopLevel(IntEnum):
    """What a node may be told, the strongest last."""

    SERVED = 0
    """Services are needed no more: those end that have nothing on the node to serve."""
    STOP = 1
    KILL = 2


class StopOrder:
    """What one node is to be told, and whether it has heard.

    Args:
        node: is told.
        on_change: called when it has heard, has refused, or is not asked any longer.
    """

    def __init__(self, node: NodeRun, on_change: Callable[[], None]) -> None:
        self.node = node
        self.is_heard = False
        """Whether the node has answered to the newest level."""
        self.refusal: AgentError | None = None
        """What it said instead, the last time that it was asked."""
        self._on_change = on_change
        self._level: StopLevel | None = None
        self._is_repeated = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_under_way(self) -> bool:
        """Whether the node is being told, or is to be asked again."""
        return bool(self._tasks) and not self._tasks[-1].done()

    def give(self, level: StopLevel, *, is_repeated: bool = False) -> None:
        """Tell the node to end, unless it has heard that or is being told; a kill replaces a stop, never the reverse.

        Args:
            level: what to tell.
            is_repeated: whether to go on though the node is silent; else it is told by the next call after it is back.
        """
        is_stronger = self._level is None or level > self._level
        self._is_repeated = self._is_repeated or is_repeated
        if not is_stronger and (self.is_heard or self.is_under_way):
            return
        self._level = level if self._level is None else max(level, self._level)
        self.is_heard = False
        for task in self._tasks:  # The answer to an older level must not be taken for the newest status.
            task.cancel()
        self._tasks = [task for task in self._tasks if not task.done()]
        if self._may_ask:
            self._tasks.append(asyncio.create_task(self._tell(self._level, 0.0 if is_stronger else STOP_RETRY_S)))

    async def close(self) -> None:
        """Ask no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def _may_ask(self) -> bool:
        """Whether asking is no login that fails for want of a person: finding that out is left to `follow`."""
        node = self.node
        return not node.is_over and (self._is_repeated or (node.silent_since is None and not node.needs_person))

    async def _tell(self, level: StopLevel, pause_s: float) -> None:
        try:
            await asyncio.sleep(pause_s)
            while self._may_ask and level == self._level:
                try:
                    if level is StopLevel.SERVED:
                        await self.node.end_services()
                    else:
                        await self.node.stop(force=level is StopLevel.KILL)
                except (AuthenticationError, HostKeyError):
                    return
                except HostError as error:
                    self.refusal = without_frames(error) if isinstance(error, AgentError) else None
                    self._on_change()
                else:
                    self.is_heard, self.refusal = level == self._level, None
                    return
                await asyncio.sleep(STOP_RETRY_S)
        finally:
            self._on_change()
