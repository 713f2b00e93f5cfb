"""Connections over SSH: asyncio outside, paramiko inside. Joins the steps, each of which has its own module."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from collections.abc import Coroutine, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import paramiko

from dttui import locations
from dttui.errors import HostError, HostUnreachableError
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.transport.base import Nobody, Prompter
from dttui.transport.deadline import Deadline
from dttui.transport.open_files import raise_open_files
from dttui.transport.ssh import sockets
from dttui.transport.ssh.authentication import Authentication
from dttui.transport.ssh.connection import SshConnection
from dttui.transport.ssh.dials import Dials
from dttui.transport.ssh.hop import Hop, route_to
from dttui.transport.ssh.host_keys import Entries, HostKeyCheck
from dttui.transport.ssh.jumps import Jumps, OpenLink, Route
from dttui.transport.ssh.keys import KeyRing
from dttui.transport.ssh.known_hosts import HostKey
from dttui.transport.ssh.link import Link, brief
from dttui.transport.ssh.passphrases import Unlocker
from dttui.transport.ssh.questions import Questions
from dttui.transport.ssh.ssh_config import SshConfig, SshTarget
from dttui.transport.ssh.threads import Threads
from dttui.transport.turns import Turns

T = TypeVar("T")

MOST_DIALS = 1000
"""Connects in flight; a kernel's table of neighbours has room for 1,024 by default."""
LOGINS_AT_ONCE = 128
"""With hosts that take half a second to answer, 200 connect in 2.7 s on 64, in 7.8 s on 16."""
LOGIN_S = 1.0
"""How long a login usually takes at most: who waits longer for a host holds up nobody else."""
READINGS_AT_ONCE = 8
READING_S = 0.1
"""More at once would only take turns at the interpreter, and make those wait that have got further."""
LOOK_UPS_AT_ONCE = 64
LOOK_UP_S = 0.25
UNKNOWN_AT_ONCE = 8
"""Connections to one server that have not logged in yet: sshd turns some away from the tenth on (MaxStartups)."""
FORWARDED_AT_ONCE = 32
"""Hosts that one jump host is asked to reach at a time."""


class SshTransport:
    """Makes connections over SSH, as the person's own ssh would: same configuration, keys, agent and known hosts."""

    def __init__(self, config_file: Path | None = None) -> None:
        """`config_file`, or `$DTTUI_SSH_CONFIG`, is read instead of ~/.ssh/config; `~` is `$HOME`."""
        self._config = SshConfig(config_file or locations.ssh_config_override())
        raise_open_files()
        self._threads = Threads()
        self._readings = Turns(READINGS_AT_ONCE, READING_S)
        self._look_ups = Turns(LOOK_UPS_AT_ONCE, LOOK_UP_S)
        self._dials = Dials(min(MOST_DIALS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
        self._logins = Turns(LOGINS_AT_ONCE, LOGIN_S)
        self._ways: dict[object, Turns] = {}
        """For what many connections may share: a server, a ProxyCommand, a jump host."""
        self._host_keys = HostKeyCheck(self._threads)
        self._ring = KeyRing()
        self._unlocker = Unlocker(self._threads)
        self._turn = asyncio.Lock()
        self._jumps = Jumps(self._connect_jump)
        self._connections: set[SshConnection] = set()
        _quiet_paramiko()

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

    async def vouched_for(self, environment: Environment, key: HostKey) -> bool:
        """Whether a key is known as the environment's. Raises HostKeyError where it has changed or is revoked."""
        route = await self._threads.connecting(self._route, environment)
        return await self._threads.connecting(self._host_keys.vouched_for, route[-1], key)

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
        route, known = await self._look_ahead(environment, deadline)
        opened = await self._establish(route, prompter, deadline, known)
        address = opened.link.address
        if not address:
            address = await self._threads.looking_up(sockets.resolve_address, route[-1].target.hostname)
        connection = SshConnection(environment, address, opened, self._threads, self._connections.discard)
        self._connections.add(connection)
        return connection

    async def _fetch(self, environment: Environment, deadline: Deadline) -> HostKey:
        route, known = await self._look_ahead(environment, deadline)
        opened = await self._reach(route, Nobody(), deadline, known)
        try:
            deadline.stage = _("exchanging keys")
            await opened.link.first_word()
            return await self._threads.connecting(opened.link.handshake)
        finally:
            await self._discard(opened)

    async def _connect_jump(self, route: Route, prompter: Prompter, timeout_s: float) -> OpenLink:
        deadline = Deadline(timeout_s)
        return await self._within(deadline, route[-1].environment, self._establish(route, prompter, deadline))

    async def _look_ahead(self, environment: Environment, deadline: Deadline) -> tuple[Route, Entries]:
        """Return the way, and what is known of the last server's keys before it is contacted."""

        def read() -> tuple[Route, Entries]:
            route = self._route(environment)
            return route, self._host_keys.known(route[-1])

        async with self._readings.turn(deadline):
            deadline.stage = _("reading the ssh configuration")
            return await self._threads.connecting(read)

    def _route(self, environment: Environment) -> Route:
        """Blocking. The servers to pass, the environment's own last."""
        return route_to(environment, self._config)

    async def _establish(
        self, route: Route, prompter: Prompter, deadline: Deadline, known: Entries | None = None
    ) -> OpenLink:
        hop = route[-1]
        if known is None:
            known = await self._threads.connecting(self._host_keys.known, hop)
        async with self._turns_on(route).turn(deadline):
            opened = await self._reach(route, prompter, deadline, known)
            questions = Questions(prompter, deadline, self._turn)
            login = Authentication(hop, opened.link, self._threads, self._ring, self._unlocker, questions)
            try:
                with closing(login):
                    deadline.stage = _("exchanging keys")
                    await opened.link.first_word()
                    await self._log_in(login, known, deadline)
                opened.link.settle()
            except BaseException:
                questions.abandon()
                await self._discard(opened)
                raise
            return opened

    async def _log_in(self, login: Authentication, known: Entries, deadline: Deadline) -> None:
        async with self._logins.turn(deadline):
            unknown, is_satisfied = await self._threads.connecting(self._enter, login, known, deadline)
            if unknown is not None:
                await self._host_keys.confirm(login.hop, unknown, login.questions)
                deadline.stage = _logging_in(login.hop)
                is_satisfied = await self._threads.connecting(login.begin)
            if not is_satisfied:
                await login.finish()

    def _turns_on(self, route: Route) -> Turns:
        """Return what paces those who go the same way: to one server, by one ProxyCommand, or through one jump host."""
        target = route[-1].target
        if len(route) > 1:
            jump = route[-2].target
            return self._ways.setdefault(("jump", jump), Turns(FORWARDED_AT_ONCE, LOGIN_S))
        command = target.proxy_command
        if command:
            for own in (target.hostname, target.name, str(target.port)):
                command = command.replace(own, "%")
        way = command or (target.hostname, target.port)
        return self._ways.setdefault(way, Turns(UNKNOWN_AT_ONCE, LOGIN_S))

    def _enter(self, login: Authentication, known: Entries, deadline: Deadline) -> tuple[HostKey | None, bool]:
        """Exchange keys, and where the host's is known, go on to log in. Blocking. Raises HostError.

        Returns the key where it is not known, and whether the server is satisfied.
        """
        deadline.stage = _("exchanging keys")
        key = login.link.handshake()
        address, offered = login.link.address, login.link.offered_host_keys
        if not self._host_keys.vouched_for(login.hop, key, known, address=address, offered=offered):
            return key, False
        deadline.stage = _logging_in(login.hop)
        return None, login.begin()

    async def _reach(self, route: Route, prompter: Prompter, deadline: Deadline, known: Entries) -> OpenLink:
        """Get as far as a byte pipe to the last server of the route."""
        target = route[-1].target
        if target.obstacle:
            raise _obstructed(route[-1])
        host_key_order = target.algorithms.host_key_order(known.types, has_authority=bool(known.authorities))
        if len(route) > 1:
            return await self._reach_by_jump(route, prompter, deadline, host_key_order)
        deadline.stage = _("connecting to {host} port {port}").format(host=target.hostname, port=target.port)
        if target.proxy_command:
            return OpenLink(Link(sockets.ProxyCommand(target), target, host_key_order), self._threads)
        addresses = await self._addresses(target, deadline)
        sock = await self._dials.run(lambda: sockets.connect(route[-1].title, target, addresses), deadline)
        link = Link(sock, target, host_key_order)
        with contextlib.suppress(OSError):
            link.address = sock.peer_address
        return OpenLink(link, self._threads)

    async def _addresses(self, target: SshTarget, deadline: Deadline) -> Sequence[sockets.Address]:
        written = sockets.written_address(target)
        if written is not None:
            return [written]
        async with self._look_ups.turn(deadline):
            return await self._threads.looking_up(sockets.look_up, target)

    async def _reach_by_jump(
        self, route: Route, prompter: Prompter, deadline: Deadline, host_key_order: Sequence[str]
    ) -> OpenLink:
        target, jump = route[-1].target, route[-2].target
        with deadline.paused():  # It has a time limit of its own, and perhaps someone to answer it.
            below = await self._jumps.lease(route[:-1], prompter, deadline.seconds)
        deadline.stage = _("connecting to {host} port {port} by way of {jump}").format(
            host=target.hostname, port=target.port, jump=jump.name
        )
        try:
            channel = await self._threads.forwarding(
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
        return OpenLink(Link(channel, target, host_key_order), self._threads, below)

    async def _discard(self, opened: OpenLink) -> None:
        await asyncio.shield(asyncio.ensure_future(opened.close()))


def _obstructed(hop: Hop) -> HostUnreachableError:
    message = _("{host}: ssh's {option} for it leaves nothing that dttui can do")
    hint = _("`ssh -G {name}` shows it. Change it for this host in ~/.ssh/config, where dttui is to reach it.")
    return HostUnreachableError(
        hop.environment.name,
        message.format(host=hop.title, option=hop.target.obstacle),
        hint.format(name=hop.target.name),
    )


def _logging_in(hop: Hop) -> str:
    return _("logging in as {user}").format(user=hop.target.user)


def _quiet_paramiko() -> None:
    """It logs what it then raises as well, with tracebacks. Someone who wants to see that sets the level first."""
    logger = logging.getLogger("paramiko")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
