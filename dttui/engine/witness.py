"""Whether this machine reaches anybody, asked of a host that takes no part: a job's only host cannot tell by itself."""

from __future__ import annotations

import asyncio
import time

from dttui.errors import HostError
from dttui.inventory.models import Environment
from dttui.rpc.client import AgentClient
from dttui.transport.base import CONNECT_TIMEOUT_S, Prompter, Transport

PAUSE_S = 10.0
"""From one look to the next."""


class Witness:
    """Asks hosts in turn.

    Args:
        environments: that are asked.
        transport: how they are reached.
        prompter: who is asked for what it takes to log in.
    """

    def __init__(self, environments: tuple[Environment, ...], transport: Transport, prompter: Prompter) -> None:
        self._environments = environments
        self._transport = transport
        self._prompter = prompter
        self._looking: asyncio.Task[None] | None = None
        self.seen_at = 0.0
        """Unix time at which one of them answered last."""

    def look(self) -> None:
        """Ask, unless that is being done."""
        if self._environments and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._ask())

    async def close(self) -> None:
        """Ask no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _ask(self) -> None:
        for environment in self._environments:
            try:
                client = await AgentClient.connect(environment, self._transport, self._prompter, CONNECT_TIMEOUT_S)
                await client.close()
            except HostError:
                continue
            self.seen_at = time.time()
            break
        await asyncio.sleep(PAUSE_S)
