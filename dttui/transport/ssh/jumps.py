"""Connections to jump hosts: one each, shared by all who go through it and closed by the last."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from dttui.errors import HostError, HostKeyError
from dttui.i18n import _
from dttui.transport.base import Prompter
from dttui.transport.deadline import within
from dttui.transport.ssh.hop import Hop
from dttui.transport.ssh.link import Link
from dttui.transport.ssh.threads import Threads

CLOSE_S = 10.0


@dataclass
class OpenLink:
    """A link, and the one to the jump host below it."""

    link: Link
    threads: Threads
    below: Lease | None = None

    async def close(self) -> None:
        """Close the link, and let go of what it stood on, even if that is frozen and takes no farewell."""
        self.link.kill()
        with contextlib.suppress(asyncio.TimeoutError):
            await within(self.threads.traffic(self.link.close), CLOSE_S)
        if self.below is not None:
            below, self.below = self.below, None
            await below.release()


Route = Sequence[Hop]
Connect = Callable[[Route, Prompter, float], Awaitable[OpenLink]]


class Lease:
    """A share in the connection to a jump host."""

    def __init__(self, task: asyncio.Task[OpenLink], forget: Callable[[Lease], None]) -> None:
        self._task = task
        self._forget = forget
        self._holders = 0

    @property
    def link(self) -> Link:
        """The connection, once it stands."""
        return self._task.result().link

    @property
    def usable(self) -> bool:
        """Whether one more may join: it is being made, or it stands."""
        if not self._task.done():
            return True
        return not self._task.cancelled() and self._task.exception() is None and self.link.is_alive

    async def join(self) -> None:
        """Wait until the connection stands, and hold it. Raises HostError."""
        self._holders += 1
        try:
            await asyncio.shield(self._task)
        except BaseException:
            await self.release()
            raise

    async def release(self) -> None:
        """Let go; the last one closes the connection."""
        self._holders -= 1
        if self._holders:
            return
        self._forget(self)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        elif not self._task.cancelled() and self._task.exception() is None:
            await self._task.result().close()


class Jumps:
    """Who wants to pass a jump host asks here."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._leases: dict[tuple[object, ...], Lease] = {}

    async def lease(self, route: Route, prompter: Prompter, timeout_s: float) -> Lease:
        """Return a share in the connection to the last hop of `route`.

        The first to come sets the time limit and answers the questions; a bastion that wants a one-time code asks once.

        Raises:
            HostError: It cannot be made; the message names the jump host.
        """
        key = tuple((hop.target, hop.environment.known_hosts) for hop in route)
        lease = self._leases.get(key)
        if lease is None or not lease.usable:
            lease = Lease(asyncio.ensure_future(self._connect(route, prompter, timeout_s)), self._forget)
            self._leases[key] = lease
        try:
            await lease.join()
        except HostError as error:
            raise _on_the_way(error, route[-1]) from error
        return lease

    def _forget(self, lease: Lease) -> None:
        self._leases = {key: other for key, other in self._leases.items() if other is not lease}


def _on_the_way(error: HostError, jump: Hop) -> HostError:
    message = _("jump host {jump}: {message}").format(jump=jump.target.name, message=error.message)
    if isinstance(error, HostKeyError):
        return HostKeyError(error.host, message, error.hint, fingerprint=error.fingerprint)
    return type(error)(error.host, message, error.hint)
