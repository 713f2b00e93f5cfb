"""paramiko's Transport without a thread: who waits for an answer reads it, and later the event loop does.

The only module that relies on how paramiko is made inside. It leaves paramiko's own loop between two packets and enters
it again, so that what a packet means, and in which order they may come, stays paramiko's business. Where paramiko is
not as expected, `IS_AS_EXPECTED` is false, and each connection has paramiko's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import paramiko
from paramiko import transport as paramiko_transport
from paramiko.auth_handler import AuthHandler
from paramiko.packet import Packetizer

from dttui.transport.bounded_pipe import MAX_PACKET_BYTES, BoundedMessage, BoundedPipe, BytePipe
from dttui.transport.link_socket import LinkSocket

if TYPE_CHECKING:
    from typing_extensions import Buffer

KEEPALIVE_S = 15
_IDLE_WAKE_S = 5.0
"""How often paramiko's thread, where there is one, looks around. Its own 0.1 s costs a tenth of a core at 1,000."""

_COOKIE_BYTES = 16
_BEFORE_ITS_LOOP = ("write_all", "_check_banner", "start_handshake", "_send_kex_init", "_expect_packet")
_IN_ITS_LOOP = ("need_rekey", "in_kex", "_send_kex_init", "read_message")


def _is_as_expected() -> bool:
    """Whether `Transport.run` says hello in the steps that are skipped here, and then reads packet by packet."""
    names = paramiko.Transport.run.__code__.co_names
    try:
        places = [names.index(name) for name in (*_BEFORE_ITS_LOOP, "read_message")]
    except ValueError:
        return False
    wanted = ("_send_user_message", "_send_message", "start", "_active_check_timeout")
    return (
        places == sorted(places)
        and all(name in names for name in (*_IN_ITS_LOOP, "_active_threads"))
        and all(hasattr(paramiko.Transport, name) for name in wanted)
        and isinstance(getattr(paramiko_transport, "_active_threads", None), list)
        and callable(getattr(AuthHandler, "wait_for_response", None))
    )


IS_AS_EXPECTED = _is_as_expected()


class _Pause(BaseException):
    """Leaves paramiko's loop between two packets. No Exception: paramiko takes those for the connection's end."""


class QuietPacketizer(Packetizer):
    """Reads packets of bounded length.

    Without paramiko's time limit of a handshake, which is a thread a connection: ours is around the whole.
    """

    may_read: Callable[[], bool] | None = None
    """Asked before each packet; where it says no, paramiko's loop is left."""
    has_greeted = False
    """Whether the version string has gone out before paramiko's loop, whose first word it is."""
    greeting_thread: int | None = None
    """The thread that is on its way back into paramiko's loop, and does not say hello again."""

    def __init__(self, pipe: BytePipe) -> None:
        self.pipe = BoundedPipe(pipe)
        super().__init__(self.pipe)  # type: ignore[arg-type]  # paramiko asks for no more than a pipe has

    def start_handshake(self, timeout: float) -> None:
        """Start no timer. Packets come from here on."""
        self.pipe.begin_packets()

    def write_all(self, out: Buffer) -> None:
        """Send it; the version string only once."""
        if self.has_greeted:
            self.has_greeted = False
        elif self.greeting_thread != threading.get_ident():
            super().write_all(out)

    def read_message(self) -> tuple[int, paramiko.Message]:
        """Return the next packet, unless now is the time to leave."""
        if self.may_read is not None and not self.may_read():
            raise _Pause
        self.pipe.mac_bytes = self.get_mac_size_in()
        kind, message = super().read_message()
        message.__class__ = BoundedMessage  # A copy would cost as much as all the rest.
        return kind, message


class ThreadedTransport(paramiko.Transport):
    """paramiko's, with a thread that looks around less often."""

    packetizer: QuietPacketizer
    server_host_keys: tuple[str, ...] = ()
    """Algorithms of the keys and certificates that the server can show."""
    _active_check_timeout = _IDLE_WAKE_S

    def __init__(self, sock: Any) -> None:
        super().__init__(sock, packetizer_class=QuietPacketizer)

    def _parse_kex_init(self, m: paramiko.Message) -> None:
        """Note what paramiko forgets: all kinds of keys that the server has."""
        offered = paramiko.Message(m.asbytes())
        super()._parse_kex_init(m)  # type: ignore[misc]  # not in its stubs
        offered.get_bytes(_COOKIE_BYTES)
        offered.get_list()
        self.server_host_keys = tuple(offered.get_list())

    is_prompt = False
    """Whether the event loop reads, and so no call on it waits for the socket."""

    def greet(self) -> None:
        """Send the version string ahead of all else, so that the server's answer is there before anybody reads it."""
        with contextlib.suppress(OSError):  # The end of the connection is noticed by its reader.
            self.sock.sendall(f"{self.local_version}\r\n".encode())
        self.packetizer.has_greeted = True

    def settle(self) -> None:
        """Stay connected: a sign of life now and then, for what lies between. Called on the event loop."""
        self.sock.settimeout(_IDLE_WAKE_S)
        self.set_keepalive(KEEPALIVE_S)

    def leave(self) -> None:
        """Have the event loop let go of the socket, before it is closed."""


class UnthreadedTransport(ThreadedTransport):
    """Read by whoever calls `start_client` or `auth_…`, until `settle`: then by the event loop, without any thread.

    Where it cannot tell from the first bytes how long a packet is, or has no socket but another connection's channel,
    `settle` starts paramiko's thread after all.
    """

    active: bool
    remote_cipher: str
    remote_mac: str
    completion_event: threading.Event | None
    _auth_handler: AuthHandler | None = None
    _has_begun = False
    _loop: asyncio.AbstractEventLoop | None = None
    _loop_thread: int | None = None
    _keepalive: asyncio.TimerHandle | None = None

    def __init__(self, sock: Any) -> None:
        self._held_back: list[paramiko.Message] = []
        super().__init__(sock)

    @property
    def auth_handler(self) -> AuthHandler | None:
        """What logs in. Its wait for the answer reads it."""
        return self._auth_handler

    @auth_handler.setter
    def auth_handler(self, handler: AuthHandler | None) -> None:
        self._auth_handler = handler
        if handler is not None:
            wait = handler.wait_for_response

            def read_and_wait(event: threading.Event) -> list[str]:
                self._read_until(event)
                return wait(event)

            handler.wait_for_response = read_and_wait  # type: ignore[method-assign]  # of this one only

    @property
    def is_prompt(self) -> bool:  # type: ignore[override]  # depends here
        """Whether the event loop reads, and so no call on it waits for the socket."""
        return self._loop is not None

    def start(self) -> None:
        """Exchange keys in the thread that calls; `start_client` finds it done."""
        if self.completion_event is not None:
            self._read_until(self.completion_event)

    def run(self) -> None:
        """Go on in paramiko's loop, until the connection ends or `may_read` says no."""
        self.packetizer.greeting_thread = threading.get_ident() if self._has_begun else None
        self._has_begun = True
        try:
            super().run()
        except _Pause:
            paramiko_transport._active_threads.remove(self)  # type: ignore[attr-defined]  # not in its stubs
        finally:
            self.packetizer.greeting_thread = None

    def settle(self) -> None:
        """Have the event loop that runs now read from here on, or else paramiko's thread."""
        self.packetizer.may_read = None
        self.completion_event = self._auth_handler = None  # They have done their work, and one holds keys.
        is_aead_or_etm = "gcm" in self.remote_cipher or "etm@" in self.remote_mac
        if not isinstance(self.sock, LinkSocket) or not is_aead_or_etm:
            super().settle()
            threading.Thread.start(self)
            return
        self._socket = self.sock
        self._loop_thread = threading.get_ident()
        self.packetizer.may_read = self._has_packet
        self._loop = asyncio.get_running_loop()
        self._keepalive = self._loop.call_later(KEEPALIVE_S, self._give_sign_of_life)
        self._socket.follow(self._loop, self._go_on)
        self._go_on()  # For what was read ahead.

    def leave(self) -> None:
        """Have the event loop let go of the socket, before it is closed."""
        if self._loop is not None:
            self._socket.leave()
            if self._keepalive is not None:
                self._keepalive.cancel()

    def _read_until(self, event: threading.Event) -> None:
        if self._loop is None and self.active:
            self.packetizer.may_read = lambda: not event.is_set()
            self.run()

    def _go_on(self) -> None:
        """On the event loop: act on the packets that have come."""
        self.run()
        if not self.active:
            self.leave()
        elif self._held_back and self.clear_to_send.is_set():
            held_back, self._held_back = self._held_back, []
            with contextlib.suppress(EOFError, OSError):  # The end of the connection is noticed by its reader.
                for message in held_back:
                    self._send_message(message)  # type: ignore[attr-defined]  # not in its stubs

    def _has_packet(self) -> bool:
        if self._socket.has_ended:
            return True
        size = self._socket.next_size
        if size is None:
            return False
        if size > MAX_PACKET_BYTES:
            self.packetizer.pipe.refuse_packet()
        return bool(self._socket.ahead_bytes >= 4 + size + self.packetizer.get_mac_size_in())

    def _give_sign_of_life(self) -> None:
        if self.active and self._loop is not None:
            self._keepalive = self._loop.call_later(KEEPALIVE_S, self._give_sign_of_life)
            with contextlib.suppress(EOFError, OSError):
                self.global_request("keepalive@lag.net", wait=False)

    def _send_user_message(self, data: paramiko.Message) -> None:
        """During a key exchange paramiko waits for its end, which comes by the event loop: that must not wait."""
        is_held_up = self._held_back or not self.clear_to_send.is_set()
        if is_held_up and self._loop_thread == threading.get_ident() and self.active:
            self._held_back.append(data)
        else:
            super()._send_user_message(data)  # type: ignore[misc]  # not in its stubs

    def _is_greeting(self) -> bool:
        return self.packetizer.greeting_thread == threading.get_ident()

    def _check_banner(self) -> None:
        if not self._is_greeting():
            super()._check_banner()  # type: ignore[misc]  # not in its stubs

    def _send_kex_init(self) -> None:
        if not self._is_greeting():
            super()._send_kex_init()  # type: ignore[misc]  # not in its stubs

    def _expect_packet(self, *ptypes: int) -> None:
        """The last step before paramiko's loop."""
        if self._is_greeting():
            self.packetizer.greeting_thread = None
        else:
            super()._expect_packet(*ptypes)  # type: ignore[misc]  # not in its stubs
