"""What may come from an agent: answers to the calls that were made. Whatever else comes ends the link."""

from __future__ import annotations

import asyncio
from typing import Any

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


class Answers:
    """The calls of one link that are under way."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[tuple[Frame, int]]] = {}
        self._spent: dict[int, None] = {}
        """Calls that nobody waits for any more, the oldest first; an answer to each may still come, late or again."""

    def expect(self, number: int) -> asyncio.Future[tuple[Frame, int]]:
        """Return what the answer to a call will be, and how many bytes it took."""
        self._waiting[number] = asyncio.get_running_loop().create_future()
        return self._waiting[number]

    def give_up(self, number: int, *, was_sent: bool) -> None:
        """Wait no longer for an answer; where the call has gone out, it may come all the same."""
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
        frame: Frame = decode_frame(line)
        if len(line) > MOST_TEXT_BYTES:
            frame = bounded(frame)
        number = frame.get("id")
        if number is None and "error" in frame:
            return frame
        if type(number) is not int or (number not in self._waiting and number not in self._spent):
            raise FrameError("an answer to a call that was not made")
        future = self._waiting.pop(number, None)
        if future is None:
            del self._spent[number]
            return None
        self._spend(number)
        if not future.done():
            future.set_result((frame, len(line)))
        return None

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
