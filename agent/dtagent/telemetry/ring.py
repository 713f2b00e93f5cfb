"""Keeps encoded rows: an hour at full rate, a day thinned, within a bound of bytes. Knows no threads and no clock."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

BLOCK_ROWS = 60
_LEVEL = 6
"""Of zlib: 4 ms a block of 8 busy GPUs, once a minute; it leaves a fifth of the bytes."""


@dataclass
class _Block:
    first: int
    last: int
    packed: bytes


@dataclass
class _Lane:
    """Rows in order of their numbers: the newest as they are, the others by the block and compressed."""

    most_rows: int
    most_bytes: int
    blocks: deque[_Block] = field(default_factory=deque)
    open_rows: list[tuple[int, bytes]] = field(default_factory=list)
    block_bytes: int = 0

    def append(self, seq: int, row: bytes) -> None:
        self.open_rows.append((seq, row))
        if len(self.open_rows) >= min(BLOCK_ROWS, self.most_rows):
            self._close_block()

    def _close_block(self) -> None:
        packed = zlib.compress(b"\n".join(row for _, row in self.open_rows), _LEVEL)
        self.blocks.append(_Block(self.open_rows[0][0], self.open_rows[-1][0], packed))
        self.block_bytes += len(packed)
        self.open_rows = []
        # One block more than asked for, so that the oldest may go as a whole.
        while len(self.blocks) * BLOCK_ROWS > self.most_rows + BLOCK_ROWS or self.block_bytes > self.most_bytes:
            self.block_bytes -= len(self.blocks.popleft().packed)

    @property
    def oldest(self) -> int | None:
        if self.blocks:
            return self.blocks[0].first
        return self.open_rows[0][0] if self.open_rows else None

    def after(self, seq: int) -> Iterator[bytes]:
        """Return the rows from the block on that may hold the first row after `seq`, as they are now."""
        blocks = [block.packed for block in self.blocks if block.last > seq]
        return _unpacked(blocks, [row for number, row in self.open_rows if number > seq])


def _unpacked(blocks: list[bytes], rows: list[bytes]) -> Iterator[bytes]:
    for packed in blocks:
        yield from zlib.decompress(packed).split(b"\n")
    yield from rows


class Ring:
    """The rows there are.

    Args:
        rows: how many are kept at full rate, at least.
        thin_rows: how many of every `thinning`-th are kept besides, at least.
        thinning: which of the numbers those are.
        most_bytes: bound of either, compressed; the oldest go first.
    """

    def __init__(self, rows: int, thin_rows: int, thinning: int, most_bytes: int) -> None:
        self._full = _Lane(rows, most_bytes)
        self._thin = _Lane(thin_rows, most_bytes)
        self._thinning = thinning

    def append(self, seq: int, row: bytes) -> None:
        """Add a row; its number is higher than all before. It holds no newline."""
        self._full.append(seq, row)
        if seq % self._thinning == 0:
            self._thin.append(seq, row)

    @property
    def oldest(self) -> int | None:
        """Number of the oldest row."""
        found = [lane.oldest for lane in (self._thin, self._full) if lane.oldest is not None]
        return min(found, default=None)

    def after(self, seq: int) -> Iterator[tuple[int, bytes]]:
        """Return number and row of those that came after `seq`, in order; thinned where no more is left.

        The row goes by its number, which is what follows its opening bracket. They are unpacked as they are taken,
        which may be while others are added.
        """
        full_from = self._full.oldest
        if full_from is None:
            return iter(())
        thin = self._thin.after(seq) if seq + 1 < full_from else iter(())
        return _joined(seq, full_from, thin, self._full.after(max(seq, full_from - 1)))


def _joined(seq: int, full_from: int, thin: Iterator[bytes], full: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    for row in thin:
        number = _number(row)
        if number >= full_from:
            break
        if number > seq:
            yield number, row
    for row in full:
        number = _number(row)
        if number > seq:
            yield number, row


def _number(row: bytes) -> int:
    return int(row[1 : row.index(b",")])
