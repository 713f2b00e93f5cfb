"""One client of the daemon: frames in, answers out, within bounds of memory and time. Knows no method."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from dtagent.calls import LIMIT_S, SMALL_BYTES, Method, perform
from dtagent.errors import RpcError
from dtagent.protocol import sentences
from dtagent.protocol.rpc import (
    MAX_FRAME_BYTES,
    ErrorCode,
    FrameError,
    NotARequestError,
    RequestReader,
    decode,
    encode,
    to_wire,
)
from dtagent.protocol.said import Said

LOG = logging.getLogger("dtagent")
READ_BYTES = 64 * 1024
MAX_CALLS = 64
"""Calls one client may have under way; what it sends beyond waits in its own socket."""
MAX_LARGE_FRAMES = 6
"""Requests above `SMALL_BYTES` that the daemon holds at once, of all clients together."""
FRAME_LIMIT_S = 90.0
"""How long a large frame may take to arrive: 4 MiB at 0.4 Mbit/s."""
SEND_LIMIT_S = 120.0
"""How long an answer may take to leave: 350 KiB at 24 kbit/s. Whoever is slower than that does not read."""
LAST_WORD_S = 5.0
"""How long what was said last may take to leave when the connection ends."""
GREETING = "hello"
_ENCODERS = ThreadPoolExecutor(2, "encode")


class LargeFrames:
    """Lets so many requests above `SMALL_BYTES` into memory at once, until they are answered."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MAX_LARGE_FRAMES)

    async def enter(self) -> Callable[[], None]:
        """Wait for a place; return what gives it back, once."""
        await self._places.acquire()
        given_back = False

        def leave() -> None:
            nonlocal given_back
            if not given_back:
                given_back = True
                self._places.release()

        return leave


def _nothing() -> None:
    """Give no place back: a small frame has none."""


def _leave(leave: Callable[[], None], _done: asyncio.Task[None]) -> None:
    leave()


class ClientConnection:
    """Serves one client until it ends, breaks the rules of framing, or stops reading.

    Where there is a method `hello`, a client's first call is that one: before, it cannot know what others mean.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        methods: dict[str, Method],
        large_frames: LargeFrames,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._methods = methods
        self._large_frames = large_frames
        self._sending = asyncio.Lock()
        self._turn = asyncio.Lock()
        """Held while a bulky answer is made and sent: one at a time, and small answers go in between."""
        self._calls: set[asyncio.Task[None]] = set()
        self._has_greeted = GREETING not in methods

    async def serve(self) -> None:
        """Answer calls until the client is gone."""
        try:
            await self._read()
        except FrameError as error:
            LOG.warning("client dropped: %s", error)
            await self._send(_error(None, RpcError(ErrorCode.PARSE, sentences.BAD_FRAME(error=str(error)))))
        except (ConnectionError, asyncio.TimeoutError) as error:
            LOG.warning("client dropped: %s", error)
        finally:
            for call in self._calls:
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)
            await self._close()

    async def refuse(self, why: Said) -> None:
        """Tell why the client is not served, and end."""
        await self._send(_error(None, RpcError(ErrorCode.BUSY, why)))
        await self._close()

    async def _close(self) -> None:
        """End; whoever does not take the last word in time, and so would hold the connection open, does not get it."""
        self._writer.close()
        try:
            await asyncio.wait_for(self._writer.wait_closed(), LAST_WORD_S)
        except (ConnectionError, asyncio.TimeoutError):
            self._writer.transport.abort()

    async def _read(self) -> None:
        frames = RequestReader()
        slots = asyncio.Semaphore(MAX_CALLS)
        leave = _nothing
        deadline: float | None = None
        loop = asyncio.get_running_loop()
        try:
            while data := await self._next(deadline):
                for line, brought in frames.feed(data):
                    if not self._has_greeted:  # Nothing else goes on meanwhile.
                        await self._answer(line, brought)
                        leave()
                        leave, deadline = _nothing, None
                        continue
                    await slots.acquire()
                    call = asyncio.create_task(self._answer(line, brought))
                    self._calls.add(call)
                    call.add_done_callback(self._calls.discard)
                    call.add_done_callback(lambda _done: slots.release())
                    call.add_done_callback(partial(_leave, leave))
                    leave, deadline = _nothing, None
                if frames.pending_bytes > SMALL_BYTES and deadline is None:
                    leave = await self._large_frames.enter()
                    deadline = loop.time() + FRAME_LIMIT_S
        finally:
            leave()

    async def _next(self, deadline: float | None) -> bytes:
        if deadline is None:
            return await self._reader.read(READ_BYTES)
        remaining_s = deadline - asyncio.get_running_loop().time()
        try:
            return await asyncio.wait_for(self._reader.read(READ_BYTES), max(remaining_s, 0.0))
        except asyncio.TimeoutError as error:
            raise FrameError(f"a frame that was not whole after {FRAME_LIMIT_S:g} s") from error

    async def _answer(self, line: bytes, brought: bytes) -> None:
        number: Any = None
        wants_answer = True
        try:
            frame = decode(line)
            number = _number_of(frame)
            wants_answer = "id" in frame
            if not self._has_greeted and frame.get("method") != GREETING:
                raise RpcError(ErrorCode.INVALID_REQUEST, sentences.FIRST_CALL(method=GREETING))
            result = await perform(self._methods, frame, len(line) + len(brought), brought)
            self._has_greeted = True
            if callable(result):
                if wants_answer:
                    async with self._turn:
                        if not self._writer.is_closing():  # Else it was dropped while this waited.
                            await self._send(await _guarded(number, result))
                return
            reply = _result(number, result)
        except FrameError as error:
            code = ErrorCode.INVALID_REQUEST if isinstance(error, NotARequestError) else ErrorCode.PARSE
            reply = _error(None, RpcError(code, sentences.BAD_FRAME(error=str(error))))
        except RpcError as error:
            reply = _error(number, error)
        except Exception as error:  # noqa: BLE001 - the top of a handler: one bad call must not end the daemon
            reply = _crash(number, error)
        if wants_answer:
            await self._send(reply)

    async def _send(self, frame: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            async with self._sending:
                self._writer.write(frame)
                if not self._writer.transport.get_write_buffer_size():
                    return
                try:
                    await asyncio.wait_for(self._writer.drain(), SEND_LIMIT_S)
                except asyncio.TimeoutError:
                    LOG.warning("client dropped: it has read nothing to speak of for %g s", SEND_LIMIT_S)
                    self._writer.transport.abort()


async def _guarded(number: Any, later: Callable[[], Awaitable[Any]]) -> bytes:
    try:
        result = await asyncio.wait_for(later(), LIMIT_S)
        # It may be megabytes, during whose encoding the other clients want to be served.
        return await asyncio.get_running_loop().run_in_executor(_ENCODERS, _result, number, result)
    except asyncio.TimeoutError:
        return _error(number, RpcError(ErrorCode.TIMED_OUT, sentences.ANSWER_TOO_SLOW(seconds=f"{LIMIT_S:g}")))
    except RpcError as error:
        return _error(number, error)
    except Exception as error:  # noqa: BLE001 - as in `_answer`
        return _crash(number, error)


def _number_of(frame: dict[str, Any]) -> int | str | None:
    number = frame.get("id")
    if number is not None and (isinstance(number, bool) or not isinstance(number, (int, str))):
        raise RpcError(ErrorCode.INVALID_REQUEST, sentences.BAD_ID(kind=type(number).__name__))
    return number


def _result(number: Any, result: Any) -> bytes:
    try:
        frame = encode({"jsonrpc": "2.0", "id": number, "result": to_wire(result)})
    except (ValueError, TypeError) as error:
        return _error(number, RpcError(ErrorCode.INTERNAL, sentences.ANSWER_NOT_SENT(error=str(error))))
    if len(frame) > MAX_FRAME_BYTES:
        said = sentences.ANSWER_TOO_LARGE(size=len(frame), limit=MAX_FRAME_BYTES)
        return _error(number, RpcError(ErrorCode.TOO_LARGE, said))
    return frame


def _error(number: Any, error: RpcError) -> bytes:
    body: dict[str, Any] = {"code": error.code.value, "message": str(error)}
    if error.data is not None:
        body["data"] = error.data
    return encode({"jsonrpc": "2.0", "id": number, "error": body})


def _crash(number: Any, error: Exception) -> bytes:
    LOG.error("call failed", exc_info=error)
    said = sentences.CALL_BROKEN(error=f"{type(error).__name__}: {error}")
    return _error(number, RpcError(ErrorCode.INTERNAL, said))
