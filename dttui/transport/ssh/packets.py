"""paramiko's Transport as it is used here: packets of bounded length, no timers, and an exchange of keys that ends."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import paramiko
from paramiko.common import MSG_KEXINIT
from paramiko.packet import Packetizer

from dttui.transport.ssh.bounded_pipe import BoundedMessage, BoundedPipe, BytePipe

IDLE_WAKE_S = 5.0
"""How often paramiko's thread looks around while nothing comes. Its own 0.1 s costs a tenth of a core at 1,000."""
MAX_HELD_BACK = 256
_COOKIE_BYTES = 16

Send = Callable[[paramiko.Message], None]


class BoundedPacketizer(Packetizer):
    """paramiko's, on a `BoundedPipe`. Notes what paramiko forgets: all kinds of keys that the server has."""

    server_host_keys: tuple[str, ...] = ()
    """Algorithms of the keys and certificates that the server can show."""

    def __init__(self, pipe: BytePipe) -> None:
        self.pipe = BoundedPipe(pipe)
        self.before_read: Callable[[], None] = lambda: None
        super().__init__(self.pipe)  # type: ignore[arg-type]  # paramiko asks for no more than a pipe has

    def start_handshake(self, timeout: float) -> None:
        """Packets come from here on. No timer is started, which is a thread: our deadline is around the whole."""
        self.pipe.begin_packets()

    def read_message(self) -> tuple[int, paramiko.Message]:
        """Return the next packet."""
        self.before_read()
        self.pipe.mac_bytes = self.get_mac_size_in()
        kind, message = super().read_message()
        message.__class__ = BoundedMessage  # A copy would cost as much as all the rest.
        if kind == MSG_KEXINIT:
            message.get_bytes(_COOKIE_BYTES)
            message.get_list()
            self.server_host_keys = tuple(message.get_list())
            message.rewind()
        return kind, message


class BoundedTransport(paramiko.Transport):
    """Reads by a `BoundedPacketizer`, in a thread of its own, which waits for no other and not for itself.

    What comes after we asked for new keys, and before the other side heard of it, paramiko's thread may have to answer.
    It then waits for the new keys, which only it could take, and the connection dies of that. Here the answer waits.
    """

    packetizer: BoundedPacketizer

    def __init__(self, sock: Any) -> None:
        super().__init__(sock, packetizer_class=BoundedPacketizer)
        self.sock.settimeout(IDLE_WAKE_S)
        self._held_back: list[paramiko.Message] = []
        # The only private name of paramiko's that is used. Without it the connection works, but for what is said above.
        send: Send | None = getattr(self, "_send_user_message", None)
        if send is not None:
            self._send_user_message = functools.partial(self._send_or_hold_back, send)
            self.packetizer.before_read = functools.partial(self._send_held_back, send)

    def _send_or_hold_back(self, send: Send, message: paramiko.Message) -> None:
        is_held_up = self._held_back or not self.clear_to_send.is_set()
        if is_held_up and threading.get_ident() == self.ident and len(self._held_back) < MAX_HELD_BACK:
            self._held_back.append(message)
        else:
            send(message)

    def _send_held_back(self, send: Send) -> None:
        """Between two packets, in paramiko's thread, which alone begins an exchange of keys."""
        if self._held_back and self.clear_to_send.is_set():
            held_back, self._held_back = self._held_back, []
            for message in held_back:
                send(message)
