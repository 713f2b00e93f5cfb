"""A conversation with the agent of one host that is taken up again where the link breaks: all that is asked may be."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TypeVar

from dtagent.protocol.rpc import ErrorCode

from dttui.errors import AgentError, BrokenProtocolError, HostError, HostUnreachableError
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.rpc.client import AgentClient
from dttui.transport.base import CONNECT_TIMEOUT_S, Prompter, Transport

PATIENCE_S = 60.0
"""How long a host that has answered once may give no answer before it is given up."""
HOSTS_AT_ONCE = 8
READS_AT_ONCE = 4
"""Each of what passes the link in 0.25 s: a heartbeat that waits behind them comes in time."""
RETRY_S = 2.0
"""Between two tries to reach it again."""
CALL_S = 70.0
"""For one answer: longer than an agent takes to say that it cannot."""
Reply = TypeVar("Reply")


class HostLink:
    """Reaches the agent of a host when it is first asked.

    Args:
        environment: the host.
        transport: how it is reached.
        prompter: who is asked for what it takes to log in.
    """

    def __init__(self, environment: Environment, transport: Transport, prompter: Prompter) -> None:
        self._environment = environment
        self._transport = transport
        self._prompter = prompter
        self._client: AgentClient | None = None
        self._connecting = asyncio.Lock()
        self._has_answered = False
        self._failing_since: float | None = None
        self.reading = asyncio.Semaphore(READS_AT_ONCE)
        """Held for each read: what else is asked meanwhile waits for those alone that are under way."""

    @property
    def name(self) -> str:
        """The environment's."""
        return self._environment.name

    @property
    def grant_bytes(self) -> int:
        """How many bytes pass the link in a moment."""
        return self._client.flow_control.grant_bytes if self._client is not None else 64 * 1024

    async def call(self, method: str, request: object, reply: type[Reply]) -> Reply:
        """Ask until there is an answer, over new connections where one is lost.

        Raises:
            HostUnreachableError: there was none for long, or never one at all.
            AgentError: the agent refused, or is too old.
        """
        while True:
            client: AgentClient | None = None
            try:
                client = await self._connect()
                answer = await client.call(method, request, reply, CALL_S)
            except HostError as error:
                if not self._may_try_again(error):
                    raise self._told(error) from error
                if isinstance(error, HostUnreachableError):
                    await self._drop(client)
                await asyncio.sleep(RETRY_S)
            else:
                self._has_answered, self._failing_since = True, None
                return answer

    async def close(self) -> None:
        """End the conversation."""
        await self._drop(self._client)

    async def _connect(self) -> AgentClient:
        async with self._connecting:
            if self._client is None:
                self._client = await AgentClient.connect(
                    self._environment, self._transport, self._prompter, CONNECT_TIMEOUT_S
                )
            return self._client

    async def _drop(self, client: AgentClient | None) -> None:
        """Let go of a connection, unless another has taken its place: several calls may fail with one link."""
        if client is not None and client is self._client:
            self._client = None
            with contextlib.suppress(HostError):
                await client.close()

    def _may_try_again(self, error: HostError) -> bool:
        if isinstance(error, BrokenProtocolError) or not self._has_answered:
            return False
        now = time.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        is_passing = isinstance(error, HostUnreachableError) or (
            isinstance(error, AgentError) and error.code in (ErrorCode.TIMED_OUT, ErrorCode.BUSY)
        )
        return is_passing and now - self._failing_since < PATIENCE_S

    def _told(self, error: HostError) -> HostError:
        if isinstance(error, AgentError) and error.code == ErrorCode.UNKNOWN_METHOD:
            return AgentError(
                self.name,
                _("{host}: its agent is too old to hand out files").format(host=self.name),
                _("Upgrade it: dttui agents upgrade {host}").format(host=self.name),
                code=error.code,
            )
        return error
