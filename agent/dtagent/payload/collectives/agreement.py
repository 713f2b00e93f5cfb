"""What all ranks call, known to each of them after ⌈log₂n⌉ rounds; of what is small, what they bring as well.

In round k a rank sends all that it knows to the one 2^k further, and learns what that many before it know (Bruck et al.
1997, the all-gather of "Efficient Algorithms for All-to-All Communications"). What neighbours call alike is sent once,
with their number: so a round is of one length, however many ranks there are. It must not know what carries messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")
_SIZES = struct.Struct("<II")
"""In front of a message: bytes of what is called, and of what is brought."""
SIZES_BYTES = _SIZES.size
_RUN = struct.Struct("<IHI")
"""Ranks that call alike, bytes of what they call, and of what each of them brings."""


class AgreementStep(NamedTuple):
    """A round of one rank."""

    target: int
    source: int
    ranks: int
    """Of how many each of the two messages tells."""


class Told(NamedTuple):
    """What is known of all ranks, in their order."""

    calls: tuple[bytes, ...]
    sizes: tuple[int, ...]
    """Bytes that each has brought with its call."""
    values: bytes
    """What they have brought, one after another."""


def steps_of(rank: int, ranks: int) -> Iterator[AgreementStep]:
    """Return the rounds of a rank; no two are with the same source or target."""
    distance = 1
    while distance < ranks:
        yield AgreementStep((rank + distance) % ranks, (rank - distance) % ranks, min(distance, ranks - distance))
        distance *= 2


def room_for(ranks: int, call_bytes: int, value_bytes: int) -> int:
    """Return the bytes of the longest message that tells of so many ranks.

    Args:
        ranks: of whom.
        call_bytes: of what one calls, at most.
        value_bytes: of what one brings with it, at most.
    """
    return SIZES_BYTES + ranks * (_RUN.size + call_bytes + value_bytes)


def length_of(begin: bytes) -> int:
    """Return how long a message is.

    Args:
        begin: its first `SIZES_BYTES`.
    """
    called, brought = _SIZES.unpack(begin)
    return SIZES_BYTES + int(called) + int(brought)


class Knowledge:
    """What a rank knows while ranks tell each other: of itself, the one before it, and so on backwards.

    Args:
        call: what it calls, in bytes.
        values: what it brings with that; empty for nothing.
    """

    def __init__(self, call: bytes, values: bytes | bytearray) -> None:
        self._runs = [(1, call, len(values))]
        self._values: bytes | bytearray = values

    def message(self, ranks: int) -> bytearray:
        """Return the first so many in bytes."""
        runs, size, left = [], 0, ranks
        for count, call, width in self._runs:
            taken = min(count, left)
            runs.append(_RUN.pack(taken, len(call), width) + call)
            size += taken * width
            left -= taken
            if not left:
                break
        called = b"".join(runs)
        return bytearray(_SIZES.pack(len(called), size) + called + self._values[:size])

    def add(self, message: bytes) -> None:
        """Take in what the ranks before the last one know."""
        called, brought = _SIZES.unpack_from(message)
        place, end = SIZES_BYTES, SIZES_BYTES + called
        while place < end:
            count, length, width = _RUN.unpack_from(message, place)
            place += _RUN.size
            call = message[place : place + length]
            place += length
            last_count, last_call, last_width = self._runs[-1]
            if (last_call, last_width) == (call, width):
                self._runs[-1] = (last_count + count, last_call, width)
            else:
                self._runs.append((count, call, width))
        if brought:
            self._values += message[end : end + brought]

    def told(self, rank: int) -> Told:
        """Return what is known of all, in the order of ranks, of which this is one."""
        calls = _in_order([call for count, call, _width in self._runs for _ in range(count)], rank)
        sizes = _in_order([width for count, _call, width in self._runs for _ in range(count)], rank)
        values: list[bytes | bytearray] = []
        end = 0
        for count, _call, width in self._runs:
            begin, end = end, end + count * width
            values += [self._values[begin + index * width : begin + (index + 1) * width] for index in range(count)]
        return Told(tuple(calls), tuple(sizes), b"".join(_in_order(values, rank)))


def _in_order(backwards: Sequence[Item], rank: int) -> list[Item]:
    return [backwards[(rank - other) % len(backwards)] for other in range(len(backwards))]
