"""One SSH connection up to and including the key exchange: paramiko's Transport, and all that has to end with it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from dttui.errors import HostUnreachableError
from dttui.i18n import _
from dttui.sanitize import shortened
from dttui.transport.ssh.algorithms import RSA_SIGNATURES, Algorithms
from dttui.transport.ssh.known_hosts import HostKey
from dttui.transport.ssh.packets import BoundedTransport
from dttui.transport.ssh.sockets import ProxyCommand
from dttui.transport.ssh.ssh_config import SshTarget

T = TypeVar("T")

KEEPALIVE_S = 15
_A_DAY_S = 86_400.0
_JOIN_S = 5.0
MAX_REASON_CHARS = 200
_NEGOTIATED = {"kex": "KexAlgorithms", "host key": "HostKeyAlgorithms", "ciphers": "Ciphers", "macs": "MACs"}
"""Words of paramiko's errors, and the option that is about it."""
_REFUSALS = ("Not allowed at this time", "Exceeded MaxStartups")
"""What sshd says instead of its version when it turns a connection away."""


def brief(error: Exception) -> str:
    """What an error says, which may be a server's words, in a line."""
    return shortened(getattr(error, "text", "") or str(error), MAX_REASON_CHARS)


class _ServerWords(logging.Logger):
    """Keeps what a server says outside the protocol: paramiko offers it to nobody but its log."""

    def __init__(self) -> None:
        super().__init__("paramiko.transport")
        self.parent = logging.getLogger("paramiko")
        self.greeting: list[str] = []
        """Lines before the version string."""
        self.farewell = ""
        """Why the server hung up, in its words."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        text = str(msg)
        if text.startswith("Banner: ") and len(self.greeting) < 4:
            self.greeting.append(shortened(text.removeprefix("Banner: "), MAX_REASON_CHARS))
        elif text.startswith("Disconnect (code "):
            self.farewell = shortened(text.partition("): ")[2], MAX_REASON_CHARS)
        super().log(level, msg, *args, **kwargs)


class Link:
    """A connection to one SSH server. Its methods block, except `first_word`, `is_alive`, `settle`, `kill`."""

    def __init__(
        self, way: socket.socket | paramiko.Channel | ProxyCommand, target: SshTarget, host_key_order: Iterable[str]
    ) -> None:
        """Take over what leads to the server, which is asked for a host key by one of these algorithms."""
        self.target = target
        self.address = ""
        """IP address of the other end, as far as it is known."""
        self.words = _ServerWords()
        self._proxy = way if isinstance(way, ProxyCommand) else None
        self.sock = way.socket if isinstance(way, ProxyCommand) else way
        self._closing = threading.Lock()
        self._closed = False
        self.transport = BoundedTransport(self.sock)
        self.transport.logger = self.words
        # The deadline around the whole operation decides; these only have to be out of its way.
        self.transport.banner_timeout = self.transport.handshake_timeout = self.transport.auth_timeout = _A_DAY_S
        _restrict(self.transport, target.algorithms, host_key_order)

    @property
    def is_alive(self) -> bool:
        """Whether the connection still stands, as far as this side has noticed."""
        return self.transport.is_active()

    @property
    def refusal(self) -> str:
        """What the other side sent that this side would not take, and so cut the connection."""
        return self.transport.packetizer.pipe.refusal

    @property
    def offered_host_keys(self) -> Sequence[str]:
        """Algorithms of all keys and certificates that the host could have shown."""
        return self.transport.packetizer.server_host_keys

    async def first_word(self) -> None:
        """Say hello, and return once the server has begun to answer or has hung up, which `handshake` goes on from.

        A server that says nothing is waited for here, without a thread.
        """
        if not isinstance(self.sock, socket.socket):
            return
        with contextlib.suppress(OSError):  # The end of the connection is noticed by its reader.
            self.transport.packetizer.pipe.greet(f"{self.transport.local_version}\r\n".encode())
        loop, descriptor = asyncio.get_running_loop(), self.sock.fileno()
        heard = asyncio.Event()
        loop.add_reader(descriptor, heard.set)
        try:
            await heard.wait()
        finally:
            loop.remove_reader(descriptor)

    def handshake(self) -> HostKey:
        """Exchange keys and return the host's, which it has proven to own.

        Raises:
            HostUnreachableError: The other end is no SSH server, or not one we can talk to.
        """
        try:
            self.call(self.transport.start_client)
            key = self.transport.get_remote_server_key()
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._no_handshake(error) from error
        certificate = key.public_blob.key_blob if key.public_blob is not None else b""
        return HostKey(key.get_name(), key.asbytes(), key.get_bits(), certificate)

    def settle(self) -> None:
        """Stay connected: a sign of life now and then, for what lies between, and no more word of how one got in."""
        self.transport.set_keepalive(KEEPALIVE_S)
        login = self.transport.auth_handler
        if login is not None:
            login.password = login.private_key = None

    def open_channel_to(self, hostname: str, port: int, timeout_s: float) -> paramiko.Channel:
        """Return a TCP connection made from the other end, for the next hop."""
        return self.call(
            self.transport.open_channel, "direct-tcpip", (hostname, port), ("127.0.0.1", 0), None, None, timeout_s
        )

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call into paramiko. Raises SSHException, EOFError and OSError, and nothing else."""
        try:
            return function(*arguments)
        except Exception as error:  # paramiko re-raises whatever a hostile server made its thread die of
            # Where that was before the call, it says no more than that there is no session.
            reason = self.transport.get_exception() or error
            if isinstance(reason, (paramiko.SSHException, EOFError, OSError)):
                raise reason from (error if reason is not error else None)
            raise paramiko.SSHException(str(reason) or type(reason).__name__) from error

    def kill(self) -> None:
        """Cut the connection without waiting; every thread that is blocked on it wakes up."""
        with contextlib.suppress(OSError, EOFError):
            if isinstance(self.sock, socket.socket):
                self.sock.shutdown(socket.SHUT_RDWR)
            else:  # Its thread reads the end and closes it; to close it here may wait for the jump host.
                self.sock.in_buffer.close()

    def close(self) -> None:
        """End the connection, its channels and its threads. Safe to call twice."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self.kill()
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # What it stands on may be gone.
            self.transport.close()
            self.sock.close()
        if self.transport.ident is not None:
            self.transport.join(_JOIN_S)
        if self._proxy is not None:
            self._proxy.end()

    def lost(self, name: str) -> str:
        """What to say where the connection to `name` no longer stands."""
        if self.refusal:
            return _("the connection to {host} was cut: {reason}").format(host=name, reason=self.refusal)
        return _("the connection to {host} is lost").format(host=name)

    def cut_off(self) -> HostUnreachableError:
        """Where there is a `refusal`, the error that it makes of a login."""
        message = _("{host} was cut off: {reason}").format(host=self.target.hostname, reason=self.refusal)
        hint = _("No SSH server does that. Check `port`, and what lies between; `ssh -v {name} true` shows more.")
        return self._unreachable(message, hint.format(name=self.target.name))

    def _no_handshake(self, error: Exception) -> HostUnreachableError:
        place = {"host": self.target.hostname, "port": self.target.port}
        if self.refusal:
            return self.cut_off()
        if isinstance(error, IncompatiblePeer):
            message = _("{host} and dttui have no algorithm in common: {error}").format(error=brief(error), **place)
            hint = _("Update the OpenSSH server there; SHA-1 and CBC are not used.")
            named = next((option for word, option in _NEGOTIATED.items() if word in str(error)), "")
            if named:
                shows = _("`ssh -G {name}` shows what {option} allows.")
                hint += " " + shows.format(name=self.target.name, option=named)
            return self._unreachable(message, hint)
        if self.transport.remote_version:
            reason = self.words.farewell or brief(error) or _("it closed the connection")
            message = _("the key exchange with {host} failed: {reason}").format(reason=reason, **place)
            return self._unreachable(message, _("`ssh -v {name} true` shows more.").format(name=self.target.name))
        said = " / ".join(line for line in self.words.greeting if line.strip())
        if any(refusal in said for refusal in _REFUSALS):
            message = _("the SSH server of {host} turned the connection away: {said}").format(said=said, **place)
            return self._unreachable(
                message, _("It limits how many connect at once, or penalises failures: wait a minute.")
            )
        if said:
            message = _("what answers on port {port} of {host} is no SSH server; it said: {said}").format(
                said=said, **place
            )
            return self._unreachable(message, _("Check `port` in the inventory."))
        if self._proxy is not None:
            complaint = self._proxy.complaint() or _("it said nothing")
            message = _("the ProxyCommand of {host} ended before an SSH server answered: {complaint}")
            hint = _("`ssh -v {name} true` shows more.").format(name=self.target.name)
            return self._unreachable(message.format(complaint=complaint, **place), hint)
        message = _("{host} took the connection on port {port} and closed it without a word").format(**place)
        return self._unreachable(
            message, _("A firewall, or an SSH server that is overloaded or shutting down, does that.")
        )

    def _unreachable(self, message: str, hint: str) -> HostUnreachableError:
        return HostUnreachableError(self.target.name, message, hint)


def _restrict(transport: paramiko.Transport, allowed: Algorithms, host_key_order: Iterable[str]) -> None:
    options = transport.get_security_options()
    options.kex = _available(allowed.kex, options.kex)
    options.ciphers = _available(allowed.ciphers, options.ciphers)
    options.digests = _available(allowed.macs, options.digests)
    options.key_types = tuple(host_key_order)
    forbidden = [name for name in RSA_SIGNATURES if name not in allowed.public_keys]
    transport.disabled_algorithms = {"pubkeys": forbidden}


@functools.cache
def _available(wanted: tuple[str, ...], offered: tuple[str, ...]) -> tuple[str, ...]:
    names = set(offered)
    return tuple(dict.fromkeys(name for name in wanted if name in names))
