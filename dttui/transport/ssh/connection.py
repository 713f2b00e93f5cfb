"""A standing SSH connection to one environment: starts commands on it. Knows nothing of how it was made."""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import Callable

import paramiko

from dttui.errors import HostUnreachableError
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.transport.base import RemoteCommand
from dttui.transport.deadline import Deadline
from dttui.transport.ssh.jumps import OpenLink
from dttui.transport.ssh.link import brief
from dttui.transport.ssh.stream import ChannelStream
from dttui.transport.ssh.threads import Threads, Wakeups

COMMAND_TIMEOUT_S = 20.0
"""How long a host may take to start a command on a connection that stands."""


class SshConnection:
    """An authenticated connection to one environment."""

    def __init__(
        self,
        environment: Environment,
        address: str,
        opened: OpenLink,
        threads: Threads,
        forget: Callable[[SshConnection], None],
    ) -> None:
        """Take over an open link; `forget` is called once it is closed."""
        self._forget = forget
        self._environment = environment
        self._address = address
        self._opened = opened
        self.link = opened.link
        self._threads = threads
        self._streams: weakref.WeakSet[ChannelStream] = weakref.WeakSet()
        self._closing: asyncio.Task[None] | None = None

    @property
    def environment(self) -> Environment:
        """Where it leads."""
        return self._environment

    @property
    def address(self) -> str:
        """IP address of the peer; behind a jump host, what the host's name stands for here, or the name."""
        return self._address

    async def run(self, command: RemoteCommand) -> ChannelStream:
        """Start a command.

        Raises:
            HostUnreachableError: The link is gone, or the host does not start the command in time.
        """
        root = self._environment.agent_root if command is RemoteCommand.AGENT else None
        try:
            if root is None:
                return await Deadline(COMMAND_TIMEOUT_S).run(self._start(command))
            stream = await Deadline(COMMAND_TIMEOUT_S).run(self._start(RemoteCommand.AGENT_AT))
            with contextlib.suppress(HostUnreachableError):  # What it ended with is told to who reads.
                await stream.write(os.fsencode(root) + b"\n")
            return stream
        except TimeoutError as error:
            # Nothing else frees a thread that waits for an answer to an exec request.
            await self.close()
            message = _("{host} did not start a command within {seconds:.0f} s; the connection was closed")
            raise self._failed(message.format(host=self._name, seconds=COMMAND_TIMEOUT_S)) from error
        except paramiko.ChannelException as error:
            message = _("{host} opens no further session: {reason}")
            hint = _("`MaxSessions` of its SSH server limits how many a connection may have.")
            raise self._failed(message.format(host=self._name, reason=brief(error)), hint) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            reason = brief(error) or _("the connection broke")
            message = _("{host} did not start a command: {reason}")
            raise self._failed(message.format(host=self._name, reason=reason)) from error

    async def close(self) -> None:
        """Close the connection and all its streams. Safe to call twice."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _start(self, command: RemoteCommand) -> ChannelStream:
        if not self.link.is_alive:
            raise self._failed(self.link.lost(self._name))
        stream = await self._threads.connecting(self._open, command, self._threads.wakeups)
        stream.listen()
        self._streams.add(stream)
        return stream

    def _open(self, command: RemoteCommand, wakeups: Wakeups) -> ChannelStream:
        """Blocking: a step through the pool costs more than what it waits for."""
        link = self.link
        channel = link.call(link.transport.open_session, None, None, COMMAND_TIMEOUT_S)
        stream = ChannelStream(channel, link, self._threads, wakeups, self._environment)
        stream.start(command)
        return stream

    async def _close(self) -> None:
        await self._opened.close()
        for stream in list(self._streams):
            await stream.close()
        self._forget(self)

    @property
    def _name(self) -> str:
        return self._environment.name

    def _failed(self, message: str, hint: str = "") -> HostUnreachableError:
        return HostUnreachableError(self._environment.name, message, hint)
