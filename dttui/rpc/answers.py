"""What may come from an agent: answers to the calls that were made. Whatever else comes ends the link."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from dtagent.protocol.rpc import FrameError

from dttui.rpc.sample_rows import decode_frame
from dttui.rpc.text_bounds import MOST_TEXT_BYTES, bounded

MOST_UNASKED_BYTES = 64 * 1024
"""Of what comes while nothing is asked: the beginning of a frame that nobody waits for."""
MOST_VALUES = 50_000
"""In one frame. Decoding them takes 15 ms at most, in which no key is answered; 60 samples of 16 GPUs have 23,000."""
MOST_SPENT = 64
"""Calls that are over and may still be answered."""
Frame = dict[str, Any]
Reads = Callable[[bytes], "tuple[int, Any] | None"]
"""Decodes and checks the answer to a call; `None` for what is another frame."""


class CheckedAnswer(NamedTuple):
    """An answer that was checked as it was decoded."""

    reply: Any


class Answers:
    """The calls of one link that are under way."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[tuple[Frame | CheckedAnswer, int]]] = {}
        self._reads: dict[int, Reads] = {}
        """Of them those whose answers are decoded and checked at once."""
        self._spent: dict[int, None] = {}
        """Calls that nobody waits for any more, the oldest first; an answer to each may still come, late or again."""

    def expect(self, number: int, reads: Reads | None = None) -> asyncio.Future[tuple[Frame | CheckedAnswer, int]]:
        """Return what the answer to a call will be, and how many bytes it took; with `reads` it may be checked."""
        if reads is not None:
            self._reads[number] = reads
        self._waiting[number] = asyncio.get_running_loop().create_future()
        return self._waiting[number]

    def give_up(self, number: int, *, was_sent: bool) -> None:
        """Wait no longer for an answer; where the call has gone out, it may come all the same."""
        self._reads.pop(number, None)
        if self._waiting.pop(number, None) is not None and was_sent:
            self._spend(number)

    def check_pending(self, size: int) -> None:
        """Look at an unfinished frame of so many bytes. Raises FrameError where it is too long for anybody's."""
        if size > MOST_UNASKED_BYTES and not self._waiting:
            raise FrameError(f"{size} bytes that nobody asked for")

    def take(self, line: bytes) -> Frame | None:
        """Hand an answer to who waits for it; return what refuses to serve us at all.

        Raises:
            FrameError: it is no answer, or to a call that was not made.
        """
        if len(line) > MOST_VALUES and line.count(b",") + line.count(b"[") + line.count(b"{") > MOST_VALUES:
            raise FrameError(f"a frame of more than {MOST_VALUES} values")
        for call, reads in self._reads.items():
            found = reads(line)
            if found is not None and found[0] == call:
                self._hand_over(call, CheckedAnswer(found[1]), len(line))
                return None
        frame: Frame = decode_frame(line)
        if len(line) > MOST_TEXT_BYTES:
            frame = bounded(frame)
        number = frame.get("id")
        if number is None and "error" in frame:
            return frame
        if type(number) is not int or (number not in self._waiting and number not in self._spent):
            raise FrameError("an answer to a call that was not made")
        if number in self._waiting:
            self._hand_over(number, frame, len(line))
        else:
            del self._spent[number]
        return None

    def _hand_over(self, number: int, answer: Frame | CheckedAnswer, size: int) -> None:
        self._reads.pop(number, None)
        future = self._waiting.pop(number)
        self._spend(number)
        if not future.done():
            future.set_result((answer, size))

    def _spend(self, number: int) -> None:
        self._spent[number] = None
        if len(self._spent) > MOST_SPENT:
            del self._spent[next(iter(self._spent))]

    def end(self, error: Exception) -> None:
        """Tell everybody who waits that nothing comes any more."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # Seen, even where the call itself failed in its write.
