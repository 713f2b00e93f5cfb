"""This machine as a host: commands are child processes, without SSH."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Sequence

from dttui.errors import HostUnreachableError
from dttui.i18n import _
from dttui.inventory.models import LOOPBACK, Environment
from dttui.transport.base import Prompter, RemoteCommand
from dttui.transport.process_stream import ProcessStream
from dttui.transport.remote_commands import COMMANDS

IDLE_EXIT_S = "300"
"""After which an embedded agent that nobody needs ends."""


class LocalConnection:
    """A stand-in for a connection: there is nothing to connect to."""

    def __init__(self, environment: Environment, agent_command: Sequence[str]) -> None:
        self._environment = environment
        self._agent_command = agent_command
        self._streams: weakref.WeakSet[ProcessStream] = weakref.WeakSet()
        self._closed = False

    @property
    def environment(self) -> Environment:
        """Where it leads."""
        return self._environment

    @property
    def address(self) -> str:
        """The loopback address."""
        return LOOPBACK

    async def run(self, command: RemoteCommand) -> ProcessStream:
        """Start a command. Raises HostUnreachableError where that fails."""
        name = self._environment.name
        if self._closed:
            message = _("the connection to {host} is closed").format(host=self._environment.name)
            raise HostUnreachableError(name, message)
        arguments: Sequence[str] = ("/bin/sh", "-c", COMMANDS[command])
        if command is RemoteCommand.AGENT:
            root = self._environment.agent_root
            # An agent with a root of its own belongs to an embedded cluster, and is not to stay for ever.
            arguments = (*self._agent_command, *(("--root", root, "--idle-exit", IDLE_EXIT_S) if root else ()))
        try:
            stream = await ProcessStream.start(arguments, name)
        except OSError as error:
            message = _("a command cannot be started on this machine: {error}").format(error=error)
            raise HostUnreachableError(name, message) from error
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        """End all commands started here. Safe to call twice."""
        self._closed = True
        await asyncio.gather(*(stream.close() for stream in list(self._streams)))


class LocalTransport:
    """Reaches environments that are this machine."""

    def __init__(self, agent_command: Sequence[str] | None = None) -> None:
        """`agent_command` starts the bridge; by default that of the dtagent installed beside dttui."""
        self._agent_command = agent_command or (sys.executable, "-I", "-m", "dtagent", "connect")

    async def connect(self, environment: Environment, prompter: Prompter, timeout_s: float) -> LocalConnection:
        """Return a connection; nothing can go wrong before a command is run."""
        return LocalConnection(environment, self._agent_command)

    async def close(self) -> None:
        """Connections have nothing in common."""
