"""A node as a preflight sees it: what is planned for it, and how its agent is reached."""

from __future__ import annotations

import contextlib
from typing import Protocol

from dttui.errors import HostError
from dttui.inventory.models import Environment
from dttui.planning.models import PlannedNode
from dttui.rpc.client import AgentClient
from dttui.transport.base import CONNECT_TIMEOUT_S, Prompter, Transport


class Checked(Protocol):
    """A node to check."""

    environment: Environment
    planned: PlannedNode
    clock_offset_s: float

    async def connect(self) -> AgentClient:
        """Connect, or return the connection there is. Raises HostError."""


class CheckedHost:
    """A node that is checked, and nothing else."""

    def __init__(self, environment: Environment, planned: PlannedNode, transport: Transport, prompter: Prompter):
        self.environment = environment
        self.planned = planned
        self.clock_offset_s = 0.0
        self._transport = transport
        self._prompter = prompter
        self._client: AgentClient | None = None

    async def connect(self) -> AgentClient:
        """Connect, or return the connection there is. Raises HostError."""
        if self._client is None:
            self._client = await AgentClient.connect(
                self.environment, self._transport, self._prompter, CONNECT_TIMEOUT_S
            )
        return self._client

    async def close(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            with contextlib.suppress(HostError):
                await self._client.close()
