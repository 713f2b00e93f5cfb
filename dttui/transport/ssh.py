"""Connections over SSH: asyncio outside, paramiko inside. Joins the steps, each of which has its own module."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from collections.abc import Coroutine, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import paramiko

from dttui import locations
from dttui.errors import HostError, HostUnreachableError
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.transport import sockets
from dttui.transport.authentication import Authentication
from dttui.transport.base import Prompter
from dttui.transport.connection import SshConnection
from dttui.transport.deadline import Deadline
from dttui.transport.host_keys import Entries, Hop, HostKeyCheck
from dttui.transport.jumps import Jumps, OpenLink, Route
from dttui.transport.keys import KeyRing
from dttui.transport.known_hosts import HostKey
from dttui.transport.link import Link, brief
from dttui.transport.passphrases import Unlocker
from dttui.transport.questions import Nobody, Questions
from dttui.transport.ssh_config import HostQuery, SshConfig, split_hop
from dttui.transport.threads import Threads

T = TypeVar("T")

MAX_HOPS = 8
OPEN_FILES = 16_384


class _Prospect(NamedTuple):
    """What is known of the last server of a route before it is contacted."""

    keys: Entries
    addresses: Sequence[sockets.Address]
    """None where it is not this machine that connects to it."""


class SshTransport:
    """Makes connections over SSH, as the person's own ssh would: same configuration, keys, agent and known hosts."""

    def __init__(self, config_file: Path | None = None) -> None:
        """`config_file`, or `$DTTUI_SSH_CONFIG`, is read instead of ~/.ssh/config; `~` is `$HOME`."""
        self._config = SshConfig(config_file or locations.ssh_config_override())
        self._threads = Threads()
        self._host_keys = HostKeyCheck(self._threads)
        self._ring = KeyRing()
        self._unlocker = Unlocker(self._threads)
        self._turn = asyncio.Lock()
        self._jumps = Jumps(self._connect_jump)
        self._connections: set[SshConnection] = set()
        _quiet_paramiko()
        _raise_open_files()

    @property
    def warnings(self) -> list[str]:
        """Lines of known_hosts files read so far that could not be used."""
        return self._host_keys.warnings

    async def connect(self, environment: Environment, prompter: Prompter, timeout_s: float) -> SshConnection:
        """Connect and authenticate; the time a person takes to answer does not count.

        Raises:
            HostUnreachableError: No answer within `timeout_s`, refused, or no such name.
            HostKeyError: The key is unknown and was not confirmed, has changed, or is revoked.
            AuthenticationError: No credential was accepted.
        """
        deadline = Deadline(timeout_s)
        return await self._within(deadline, environment, self._connect(environment, prompter, deadline))

    async def fetch_host_key(self, environment: Environment, timeout_s: float) -> HostKey:
        """Return the key a host shows, without logging in, whether it is known or not. Raises HostError."""
        deadline = Deadline(timeout_s)
        return await self._within(deadline, environment, self._fetch(environment, deadline))

    async def user_on(self, environment: Environment) -> str:
        """Return whom the host would be asked to let in. Raises HostError."""
        return (await self._threads.connecting(self._route, environment))[-1].target.user

    async def trust(self, environment: Environment, key: HostKey) -> None:
        """Enter a key as the environment's, in its own `known_hosts` or in dttui's. Raises HostError."""
        route = await self._threads.connecting(self._route, environment)
        await self._host_keys.trust(route[-1], key)

    async def close(self) -> None:
        """Close all connections and end all threads."""
        for connection in list(self._connections):
            await connection.close()
        self._threads.close()

    async def _within(self, deadline: Deadline, environment: Environment, operation: Coroutine[Any, Any, T]) -> T:
        try:
            return await deadline.run(operation)
        except TimeoutError as error:
            message = _("no answer from {host} within {seconds:g} s, while {stage}").format(
                host=environment.name, seconds=deadline.seconds, stage=deadline.stage
            )
            hint = _("Check that the host is up, and that no firewall drops what goes to it.")
            raise HostUnreachableError(environment.name, message, hint) from error
        except HostError as error:
            error.host = environment.name
            raise

    async def _connect(self, environment: Environment, prompter: Prompter, deadline: Deadline) -> SshConnection:
        route, prospect = await self._threads.connecting(self._look_ahead, environment, deadline)
        opened = await self._establish(route, prompter, deadline, prospect)
        address = opened.link.address
        if not address:
            address = await self._threads.connecting(sockets.resolve_address, route[-1].target.hostname)
        connection = SshConnection(environment, address, opened, self._threads, self._connections.discard)
        self._connections.add(connection)
        return connection

    async def _fetch(self, environment: Environment, deadline: Deadline) -> HostKey:
        route, prospect = await self._threads.connecting(self._look_ahead, environment, deadline)
        opened = await self._reach(route, Nobody(), deadline, prospect)
        try:
            deadline.stage = _("exchanging keys")
            return await self._threads.connecting(opened.link.handshake)
        finally:
            await self._discard(opened)

    async def _connect_jump(self, route: Route, prompter: Prompter, timeout_s: float) -> OpenLink:
        deadline = Deadline(timeout_s)
        return await self._within(deadline, route[-1].environment, self._establish(route, prompter, deadline))

    def _look_ahead(self, environment: Environment, deadline: Deadline) -> tuple[Route, _Prospect]:
        """Blocking."""
        deadline.stage = _("reading the ssh configuration")
        route = self._route(environment)
        return route, self._prospect(route, deadline)

    def _prospect(self, route: Route, deadline: Deadline) -> _Prospect:
        """Blocking."""
        target = route[-1].target
        deadline.stage = _("connecting to {host} port {port}").format(host=target.hostname, port=target.port)
        is_direct = len(route) == 1 and not target.proxy_command
        addresses = sockets.look_up(target) if is_direct else ()
        return _Prospect(self._host_keys.known(route[-1]), addresses)

    def _route(self, environment: Environment) -> Route:
        """Blocking. The servers to pass, the environment's own last."""
        query = HostQuery(
            environment.host, environment.user, environment.port, environment.proxy_jump, environment.identity_file
        )
        target = self._config.resolve(query)
        route = [Hop(environment, target)]
        ahead = list(target.proxy_jump)
        while ahead:
            jump = self._config.resolve(split_hop(ahead.pop()))
            route.insert(0, Hop(environment, jump, jump=True))
            # Only the first jump host's own configuration counts: the others are reached as the list says.
            ahead = ahead or list(jump.proxy_jump)
            if len(route) > MAX_HOPS:
                names = " → ".join(hop.target.name for hop in route[-4:])
                message = _("more than {count} jump hosts on the way to {host} (… {names})")
                raise HostUnreachableError(
                    environment.name,
                    message.format(count=MAX_HOPS, host=environment.name, names=names),
                    _("Two hosts name each other as ProxyJump; `ssh -G` shows what each one says."),
                )
        return route

    async def _establish(
        self, route: Route, prompter: Prompter, deadline: Deadline, prospect: _Prospect | None = None
    ) -> OpenLink:
        hop = route[-1]
        if prospect is None:
            prospect = await self._threads.connecting(self._prospect, route, deadline)
        opened = await self._reach(route, prompter, deadline, prospect)
        questions = Questions(prompter, deadline, self._turn)
        login = Authentication(hop, opened.link, self._threads, self._ring, self._unlocker, questions)
        try:
            with closing(login):
                unknown, is_satisfied = await self._threads.connecting(self._enter, login, prospect, deadline)
                if unknown is not None:
                    await self._host_keys.confirm(hop, unknown, questions)
                    deadline.stage = _logging_in(hop)
                    is_satisfied = await self._threads.connecting(login.begin)
                if not is_satisfied:
                    await login.finish()
            opened.link.settle()
        except BaseException:
            questions.abandon()
            await self._discard(opened)
            raise
        return opened

    def _enter(self, login: Authentication, prospect: _Prospect, deadline: Deadline) -> tuple[HostKey | None, bool]:
        """Exchange keys, and where the host's is known, go on to log in. Blocking. Raises HostError.

        Returns the key where it is not known, and whether the server is satisfied.
        """
        deadline.stage = _("exchanging keys")
        key = login.link.handshake()
        if not self._host_keys.vouched_for(login.hop, key, prospect.keys):
            return key, False
        deadline.stage = _logging_in(login.hop)
        return None, login.begin()

    async def _reach(self, route: Route, prompter: Prompter, deadline: Deadline, prospect: _Prospect) -> OpenLink:
        """Get as far as a byte pipe to the last server of the route."""
        target = route[-1].target
        known_types = prospect.keys.types
        if len(route) > 1:
            return await self._reach_by_jump(route, prompter, deadline, known_types)
        if target.proxy_command:
            return OpenLink(Link(sockets.ProxyCommand(target), target, known_types), self._threads)
        sock = await sockets.connect(route[-1].title, target, prospect.addresses)
        link = Link(sock, target, known_types)
        with contextlib.suppress(OSError):
            link.address = sock.peer_address
        return OpenLink(link, self._threads)

    async def _reach_by_jump(
        self, route: Route, prompter: Prompter, deadline: Deadline, known_types: Sequence[str]
    ) -> OpenLink:
        target, jump = route[-1].target, route[-2].target
        with deadline.paused():  # It has a time limit of its own, and perhaps someone to answer it.
            below = await self._jumps.lease(route[:-1], prompter, deadline.seconds)
        deadline.stage = _("connecting to {host} port {port} by way of {jump}").format(
            host=target.hostname, port=target.port, jump=jump.name
        )
        try:
            channel = await self._threads.connecting(
                below.link.open_channel_to, target.hostname, target.port, deadline.seconds
            )
        except (paramiko.SSHException, EOFError, OSError) as error:
            await below.release()
            reason = brief(error) or _("the connection broke")
            message = _("jump host {jump} cannot reach {host} port {port}: {reason}").format(
                jump=jump.name, host=target.hostname, port=target.port, reason=reason
            )
            hint = _("Check the name and port as the jump host sees them, and that it allows TCP forwarding.")
            raise HostUnreachableError(target.name, message, hint) from error
        except BaseException:
            await below.release()
            raise
        return OpenLink(Link(channel, target, known_types), self._threads, below)

    async def _discard(self, opened: OpenLink) -> None:
        opened.link.kill()
        await asyncio.shield(asyncio.ensure_future(opened.close()))


def _logging_in(hop: Hop) -> str:
    return _("logging in as {user}").format(user=hop.target.user)


def _quiet_paramiko() -> None:
    """It logs what it then raises as well, with tracebacks. Someone who wants to see that sets the level first."""
    logger = logging.getLogger("paramiko")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)


def _raise_open_files() -> None:
    """A thousand connections need more descriptors than the usual soft limit of 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
