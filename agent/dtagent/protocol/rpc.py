"""JSON-RPC 2.0, one JSON object a line, UTF-8: versions, limits, error codes and the frame codec of both sides."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

from dtagent.protocol.first_line import MAGIC as MAGIC
from dtagent.protocol.said import NOTICE, notice_of

VERSIONS = (1,)
"""Protocol versions this side speaks, newest last."""

MAX_NOISE_BYTES = 64 * 1024
"""How much a login shell may print before `MAGIC`."""

MAX_FRAME_BYTES = 4 * 1024 * 1024
"""Longest line either side accepts, newline included."""

MAX_CHUNK_BYTES = 256 * 1024
"""Most payload bytes a log chunk or an uploaded part carries, so that no frame delays the next one for long."""

MAX_PUSH_BYTES = 1024 * 1024
"""Most payload bytes one part of the files carries that are sent along."""

MAX_DEPTH = 32
"""Deepest nesting of a frame."""

MAX_DIGITS = 20
"""Of a whole number: more is none of ours, and may be too large for arithmetic."""


class ErrorCode(int, Enum):
    """Codes of a JSON-RPC error object; those below -32000 are the standard's."""

    PARSE = -32700
    INVALID_REQUEST = -32600
    UNKNOWN_METHOD = -32601
    INVALID_PARAMS = -32602
    INTERNAL = -32603
    VERSION = 1
    """No common protocol version."""
    NO_SUCH_ATTEMPT = 2
    """The job and attempt are not on this host."""
    WRONG_STATE = 3
    """The attempt is in a state that does not allow the call."""
    REFUSED = 4
    """The host cannot do it: no room, no free port, not enough GPUs, a path that does not exist."""
    TOO_LARGE = 5
    """The request is longer than its method allows."""
    TIMED_OUT = 6
    """The call took longer than its method may; whether it still takes effect must be asked."""
    BUSY = 7
    """Too many clients, or an earlier call on the same attempt that has not come back."""
    DAMAGED = 8
    """A record of the attempt cannot be read any more, so nothing is done with it."""
    CONTENDED = 9
    """What is wanted is held by a job that is itself only being prepared and goes second: worth asking again soon."""


class FrameError(Exception):
    """A line that is no frame: too long, not UTF-8, not JSON, too deep or not an object."""


class NotARequestError(FrameError):
    """JSON, but no object: a batch, or a lone value."""


class FrameReader:
    """Cuts a stream of bytes, as they happen to arrive, into lines."""

    def __init__(self, limit_bytes: int = MAX_FRAME_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._rest = bytearray()

    @property
    def pending_bytes(self) -> int:
        """How much of an unfinished line is held."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that `data` completes, without their newline; to be read to its end.

        Raises:
            FrameError: a line is longer than the limit; nothing after it can be told apart.
        """
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._rest:
                self._rest += line
                line, self._rest = bytes(self._rest), bytearray()
            self._check(len(line))
            yield line
        self._rest += rest
        self._check(len(self._rest))

    def _check(self, size: int) -> None:
        if size >= self._limit_bytes:
            raise FrameError(f"a frame of {size} bytes or more; the limit is {self._limit_bytes}")


class RequestReader:
    """Cuts what a client sends into requests: a line each, and the bytes that some bring along.

    Such a line begins with `+COUNT `, which no JSON does, and so many bytes follow its end.
    """

    def __init__(self) -> None:
        self._lines = FrameReader()
        self._head: bytes | None = None
        self._size = 0
        self._data = bytearray()

    @property
    def pending_bytes(self) -> int:
        """How much of an unfinished request is held."""
        return self._lines.pending_bytes + len(self._head or b"") + len(self._data)

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the requests that `data` completes, each with the bytes it brings; to be read to its end.

        Raises:
            FrameError: a request is longer than the limits; nothing after it can be told apart.
        """
        at = 0
        while at < len(data):
            if self._head is not None:
                end = min(len(data), at + self._size - len(self._data))
                self._data += data[at:end]
            else:
                end = data.find(b"\n", at) + 1 or len(data)
                for line in self._lines.feed(data[at:end]):
                    self._begin(line)
            at = end
            if self._head is not None and len(self._data) == self._size:
                head, self._head = self._head, None
                brought, self._data = bytes(self._data), bytearray()
                yield head, brought

    def _begin(self, line: bytes) -> None:
        count = _BRINGS.match(line)
        self._head, self._size = (line[count.end() :], int(count[1])) if count else (line, 0)
        if self._size > MAX_PUSH_BYTES:
            raise FrameError(f"a request with {self._size} bytes; the limit is {MAX_PUSH_BYTES}")


def encode(message: dict[str, Any], brings: bytes = b"") -> bytes:
    """Return one frame, newline included, with the bytes it brings. Raises ValueError for NaN, which JSON lacks."""
    return _framed(encode_value(message), brings)


def encode_call(number: int, method: str, params: str, brings: bytes = b"") -> bytes:
    """Return the frame of a request whose parameters are encoded already, as `encode` does."""
    return _framed(f'{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{params}}}', brings)


def encode_value(value: Any) -> str:
    """Return plain JSON values as they stand in a frame. Raises ValueError for NaN, which JSON lacks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _framed(text: str, brings: bytes) -> bytes:
    # A name that was no UTF-8 comes as lone surrogates, which UTF-8 cannot carry either.
    line = text.encode(errors="replace") + b"\n"
    return b"+%d %b%b" % (len(brings), line, brings) if brings else line


def decode(line: bytes) -> dict[str, Any]:
    """Return the object in one frame. Raises FrameError and nothing else, whatever the bytes are."""
    if len(line) > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {len(line)} bytes; the limit is {MAX_FRAME_BYTES}")
    try:
        # Decoded here: json.loads would also take UTF-16, UTF-32 and lone surrogates.
        message = _DECODER.decode(line.decode("utf-8"))
        if _SURROGATE.search(line):  # An escape may stand for half a character, which nobody can write down.
            json.dumps(message, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise FrameError(f"not a JSON frame: {error}") from error
    if not isinstance(message, dict):
        raise NotARequestError(f"a frame must be an object, not {type(message).__name__}")
    if _depth_exceeds(message, MAX_DEPTH):
        raise FrameError(f"a frame nested deeper than {MAX_DEPTH}")
    return message


def to_wire(value: Any) -> Any:
    """Turn a dataclass (or a container of them) into plain JSON values; `None` fields are left out.

    A text that is `Said`, and a list of such, fill the field for their notices, where the dataclass has one.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((field.name, value_of(value, field.name)) for field in dataclasses.fields(value))
        return {name: to_wire(item) for name, item in pairs if item is not None}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: to_wire(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_wire(item) for item in value]
    return value


def value_of(item: Any, name: str) -> Any:
    """Return what a field of a dataclass has on the wire: of one for notices, those of the texts that it is beside."""
    value = getattr(item, name)
    if value is None and name.endswith(NOTICE):
        return notice_of(getattr(item, name[: -len(NOTICE)]))
    return value


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_BRINGS = re.compile(rb"\+([0-9]{1,8}) ")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:MAX_DIGITS]} is too large for a number")
    return number


def _bounded(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise ValueError(f"{digits[:MAX_DIGITS]}… is too large for a number")
    return int(digits)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, parse_int=_bounded)


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            item
            for parent in level
            for item in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return False
    return True
