"""A connection on which both sides have proven that they know one key, and every frame that it is of theirs.

What is sent goes in clear, as gradients do; nobody without the key can say anything, alter or repeat it. Each side
brings a random word, and the keys of both directions are made of those and of the key: no frame is of use twice. A
frame is four bytes of length, the content and the HMAC-SHA256 of number, length and content.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
import time
from typing import Any

from dtagent.system.units import MIB

MAGIC = b"dttcopy1"
WORD_BYTES = 32
CODE_BYTES = 32
MAX_FRAME_BYTES = 8 * MIB
PROOF_LIMIT_S = 5.0
"""How long a stranger may take, all in all, until he has proven that he is none."""
SILENCE_LIMIT_S = 30.0
"""After which the other side counts as gone."""
_LENGTH = struct.Struct(">I")
_NUMBER = struct.Struct(">Q")
_DATA, _WORDS = b"D", b"J"


class PeerLinkError(Exception):
    """The connection is gone, or somebody else has spoken on it."""


class PeerLink:
    """One end, once both have proven themselves.

    Args:
        stream: connected.
        own: key of what this side says.
        other: key of what the other side says.
    """

    def __init__(self, stream: socket.socket, own: bytes, other: bytes) -> None:
        stream.settimeout(SILENCE_LIMIT_S)
        self._stream = stream
        self._own, self._other = own, other
        self._sent = self._received = 0

    def say(self, **words: Any) -> None:
        """Send an object. Raises PeerLinkError."""
        self._send(_WORDS + json.dumps(words).encode())

    def send(self, data: bytes | memoryview) -> None:
        """Send bytes. Raises PeerLinkError."""
        self._send(_DATA, data)

    def hear(self) -> dict[str, Any]:
        """Return the next object. Raises PeerLinkError where none comes."""
        found = self.receive()
        if isinstance(found, bytes):
            raise PeerLinkError("bytes came where words were expected")
        return found

    def receive(self) -> bytes | dict[str, Any]:
        """Return what comes next, bytes or an object. Raises PeerLinkError."""
        head = _exactly(self._stream, _LENGTH.size)
        (length,) = _LENGTH.unpack(head)
        if not 1 <= length <= MAX_FRAME_BYTES:
            raise PeerLinkError(f"a frame of {length} bytes")
        content = _exactly(self._stream, length)
        code = _exactly(self._stream, CODE_BYTES)
        if not hmac.compare_digest(code, _code(self._other, self._received, head, content)):
            raise PeerLinkError("a frame that is not the other side's")
        self._received += 1
        if content[:1] == _DATA:
            return content[1:]
        try:
            words = json.loads(content[1:])
        except (ValueError, RecursionError) as error:
            raise PeerLinkError("words that make no sense") from error
        if content[:1] != _WORDS or not isinstance(words, dict):
            raise PeerLinkError("words that make no sense")
        return words

    def close(self) -> None:
        """End the connection."""
        self._stream.close()

    def _send(self, kind: bytes, data: bytes | memoryview = b"") -> None:
        head = _LENGTH.pack(len(kind) + len(data))
        try:
            self._stream.sendall(head + kind)
            self._stream.sendall(data)
            self._stream.sendall(_code(self._own, self._sent, head, kind, data))
        except OSError as error:
            raise PeerLinkError(error.strerror or str(error)) from error
        self._sent += 1


def reach(stream: socket.socket, key: bytes) -> PeerLink:
    """Prove to whoever listens that the key is known here, and have it proven. Raises PeerLinkError."""
    stream.settimeout(SILENCE_LIMIT_S)
    mine = secrets.token_bytes(WORD_BYTES)
    _send_all(stream, MAGIC + mine)
    theirs = _exactly(stream, WORD_BYTES)
    if not hmac.compare_digest(_exactly(stream, CODE_BYTES), _proof(key, b"taker", mine, theirs)):
        raise PeerLinkError("who listens there does not know the key")
    _send_all(stream, _proof(key, b"sender", mine, theirs))
    return PeerLink(stream, _proof(key, b"from sender", mine, theirs), _proof(key, b"from taker", mine, theirs))


def admit(stream: socket.socket, key: bytes) -> PeerLink:
    """The same for who listens: reads a hundred bytes of a stranger at most, for seconds. Raises PeerLinkError."""
    deadline = time.monotonic() + PROOF_LIMIT_S
    if _exactly(stream, len(MAGIC), deadline) != MAGIC:
        raise PeerLinkError("a stranger")
    theirs, mine = _exactly(stream, WORD_BYTES, deadline), secrets.token_bytes(WORD_BYTES)
    _send_all(stream, mine + _proof(key, b"taker", theirs, mine))
    if not hmac.compare_digest(_exactly(stream, CODE_BYTES, deadline), _proof(key, b"sender", theirs, mine)):
        raise PeerLinkError("a stranger")
    return PeerLink(stream, _proof(key, b"from taker", theirs, mine), _proof(key, b"from sender", theirs, mine))


def _proof(key: bytes, what: bytes, sender: bytes, taker: bytes) -> bytes:
    return hmac.new(key, what + b"\n" + sender + taker, hashlib.sha256).digest()


def _code(key: bytes, number: int, *parts: bytes | memoryview) -> bytes:
    made = hmac.new(key, _NUMBER.pack(number), hashlib.sha256)
    for part in parts:
        made.update(part)
    return made.digest()


def _send_all(stream: socket.socket, data: bytes) -> None:
    try:
        stream.sendall(data)
    except OSError as error:
        raise PeerLinkError(error.strerror or str(error)) from error


def _exactly(stream: socket.socket, count: int, deadline: float | None = None) -> bytes:
    """Return so many bytes. Raises PeerLinkError; also where they have not come by a time of the monotonic clock."""
    data = bytearray(count)
    view, have = memoryview(data), 0
    while have < count:
        try:
            if deadline is not None:
                stream.settimeout(max(0.001, deadline - time.monotonic()))
            got = stream.recv_into(view[have:])
        except OSError as error:
            raise PeerLinkError(error.strerror or str(error)) from error
        if not got:
            raise PeerLinkError("the other side has gone")
        have += got
    return bytes(data)
