"""Finds the lines of a block that may hold a metric, for little where there are none. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

MAX_LINE_BYTES = 4096
"""Longest line that is looked at; trainers' are below 1 KiB."""

_EPOCH_HINT = b"Epoch "
HINTS = (
    b"oss",
    b"OSS",
    b"lr=[",
    b"SamplesPerSec",
    b"poch",
    b"rain ",
    b"rain:",
    b"timesteps",
    b"tep",
    b"teration",
    b"SPS",
    b"[batch=",
    b"\n|",
    b"\r\r",
)
"""A line without any of these does not matter: a loss, a step, an epoch, a speed, a box, a bar drawn again."""
_BOX = b"|"
_HINT = re.compile(rb"\A\||" + b"|".join(re.escape(hint) for hint in HINTS))
_ROW = re.compile(rb"(?:^|(?<=[\r\n]))(?:\x1b\[\d*K)?(?:[ \t]+\S|\d)|" + _HINT.pattern)
"""The same and any line that begins with a number or with blanks, as rows of a table do, drawn again or not."""
_BREAK = re.compile(rb"[\r\n]")


def spans(block: bytes, in_table: Callable[[], bool] = lambda: False) -> Iterator[tuple[int, int]]:
    """Yield where the lines begin and end that may hold a metric, in order; a newline or a return ends a line.

    Args:
        block: whole lines. Those without a hint cost no more than the search for a few bytes.
        in_table: asked before each whether rows of a table may follow.
    """
    if not in_table() and not block.startswith(_BOX) and not any(hint in block for hint in HINTS):
        return
    end = 0
    while True:
        hint = (_ROW if in_table() else _HINT).search(block, end)
        if hint is None:
            return
        begin, end = _line_at(block, max(_place(block, hint), end))
        yield begin, end
        end = max(end, hint.end())


def count_hints(block: bytes, *, in_table: bool = False) -> int:
    """Return about how many lines `spans` would yield, and never too few, at a fraction of what that takes."""
    return (
        sum(map(block.count, HINTS))
        + block.startswith(_BOX)
        + (block.count(b"\n") + block.count(b"\r") if in_table else 0)
    )


def some_spans(block: bytes, most: int) -> Iterator[tuple[int, int]]:
    """Yield at most so many of the lines of `spans`, evenly spread over the block, and always the last of them.

    Where one names an epoch before another, as Keras does, that is yielded too: what follows is counted from there.
    """
    last = max(map(block.rfind, HINTS))
    if last < 0 or not most:
        return
    end = -1
    for number in range(most - 1):
        hint = _HINT.search(block, max(0, end, number * len(block) // most))
        if hint is None:
            break
        begin, stop = _line_at(block, _place(block, hint))
        epoch = block.rfind(_EPOCH_HINT, max(0, end), begin)
        if epoch >= 0:
            yield _line_at(block, epoch)
        yield begin, stop
        end = stop
    begin, stop = _line_at(block, last)
    if begin >= end:
        yield begin, stop


def line_around(block: bytes, at: int, until: int) -> bytes:
    """Return the line around a place, from its beginning to its end after `until`, as far as it is looked at."""
    floor = max(0, at - MAX_LINE_BYTES)
    begin = max(block.rfind(b"\n", floor, at), block.rfind(b"\r", floor, at), floor - 1) + 1
    end = _BREAK.search(block, until, until + MAX_LINE_BYTES)
    return block[begin : end.start() if end else until + MAX_LINE_BYTES]


def _place(block: bytes, hint: re.Match[bytes]) -> int:
    return hint.end() if block[hint.start()] in b"\r\n" else hint.start()


def _line_at(block: bytes, at: int) -> tuple[int, int]:
    """Return where the line around a place begins and ends, as far as it is looked at."""
    floor = max(0, at - MAX_LINE_BYTES)
    begin = max(block.rfind(b"\n", floor, at), block.rfind(b"\r", floor, at), floor - 1) + 1
    found = _BREAK.search(block, at, at + MAX_LINE_BYTES)
    return begin, found.start() if found else min(len(block), at + MAX_LINE_BYTES)
