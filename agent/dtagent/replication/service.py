"""Has copies of checkpoints taken and sent, each end by a process of its own that ends with whoever asked for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Sequence
from typing import Any, TypeVar

from dacite import DaciteError, from_dict

from dtagent.calls import Workers
from dtagent.errors import RpcError
from dtagent.facts.interpreters import marked_object
from dtagent.locations import own_python
from dtagent.protocol import sentences
from dtagent.protocol.replication import (
    KEY_BYTES,
    MAX_COPY_S,
    MAX_STORES,
    STORE,
    CopiesReply,
    CopiesRequest,
    SendReply,
    SendRequest,
    TakeReply,
    TakeRequest,
)
from dtagent.protocol.rpc import ErrorCode, to_wire
from dtagent.replication import kept

LIMIT_S = MAX_COPY_S + 30.0
MOST_AT_ONCE = 8
BEGIN_S = 15.0
"""How long it may take until one listens."""
ENDS_S = 10.0
"""How long a process that was killed may take to be gone: it may stand in a write to a slow disk."""
_MARK = "dtagent-copy "
_LINE_BYTES = 64 * 1024
Reply = TypeVar("Reply")


class Replication:
    """Answers for one daemon."""

    def __init__(self) -> None:
        self._looks = Workers("copies", MOST_AT_ONCE)
        self._waits = Workers("copy", 2 * MOST_AT_ONCE)
        self._taking: set[_End] = set()
        self._sending = 0

    async def take(self, request: TakeRequest) -> TakeReply:
        """Listen for one copy. Raises RpcError where that cannot be."""
        _check_key(request.key)
        _check_stores([request.store, *request.older])
        first, last = request.port_range
        if not 1024 <= first <= last <= 65535:
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.BAD_PORT_RANGE(first=first, last=last))
        if len(self._taking) >= MOST_AT_ONCE:
            raise RpcError(ErrorCode.BUSY, sentences.COPY_UNDER_WAY())
        end = _End("take", request)
        self._taking.add(end)
        try:
            reply = await asyncio.wait_for(self._waits.run(lambda: end.first(TakeReply)), BEGIN_S)
        except BaseException as error:
            self._taking.discard(end)
            end.abandon()
            if isinstance(error, asyncio.TimeoutError):
                raise RpcError(ErrorCode.TIMED_OUT, sentences.COPY_NOT_BEGUN(error="listen")) from error
            raise
        if reply is None:
            self._taking.discard(end)
            end.abandon()
            raise RpcError(ErrorCode.REFUSED, sentences.PORTS_TAKEN(first=first, last=last))
        loop = asyncio.get_running_loop()
        end.when_over(lambda: loop.call_soon_threadsafe(self._taking.discard, end))
        return reply

    async def send(self, request: SendRequest) -> SendReply:
        """Send a copy; answer once the other host has it, or it cannot be. Raises RpcError for what makes no sense."""
        _check_key(request.key)
        if not os.path.isabs(request.path) or "\0" in request.path:
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.NOT_ABSOLUTE(path=repr(request.path)))
        if self._sending >= MOST_AT_ONCE:
            raise RpcError(ErrorCode.BUSY, sentences.COPY_UNDER_WAY())
        end = _End("send", request)
        self._sending += 1
        try:
            reply = await self._waits.run(lambda: end.first(SendReply))
        finally:
            self._sending -= 1
            end.abandon()
        return reply or SendReply(detail=sentences.COPY_NOT_BEGUN(error=f"code {end.code}"))

    async def copies(self, request: CopiesRequest) -> CopiesReply:
        """Tell which copies there are, or remove them. Raises RpcError for what is none, or stays."""
        _check_stores(request.stores)
        if request.drop:
            ending = [end for end in self._taking if end.store in request.stores]
            for end in ending:
                end.abandon()
            try:
                await self._looks.run(lambda: _drop(ending, request.stores))
            except OSError as error:
                reason = error.strerror or str(error)
                said = sentences.NOT_REMOVED(path=str(error.filename), error=reason)
                raise RpcError(ErrorCode.REFUSED, said) from error
            return CopiesReply()
        return CopiesReply(await self._looks.run(lambda: kept.held(request.stores)))

    def close(self) -> None:
        """End all that is taken."""
        for end in list(self._taking):
            end.abandon()


def _drop(ending: Sequence[_End], stores: Sequence[str]) -> None:
    """Remove copies once nobody writes there any more, who would make the directories anew. Blocks; raises OSError."""
    for end in ending:
        end.wait()
    kept.drop(stores)


class _End:
    """A process that has one end of a copy; it lives for as long as its stdin is open."""

    def __init__(self, what: str, request: TakeRequest | SendRequest) -> None:
        self._argv = [own_python(), "-I", "-m", "dtagent.replication", _MARK, what]
        self._words = json.dumps(to_wire(request)).encode() + b"\n"
        self._process: subprocess.Popen[bytes] | None = None
        self._is_abandoned = False
        self.store = request.store if isinstance(request, TakeRequest) else ""
        self._lock = threading.Lock()
        self.code: int | None = None

    def first(self, kind: type[Reply]) -> Reply | None:
        """Start it, and return what it says first; `None` where it ends without a word. Blocks."""
        with self._lock:
            if self._is_abandoned:
                return None
            process = self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - they are pipes
        with contextlib.suppress(OSError, ValueError):  # It has ended, or was told to.
            process.stdin.write(self._words)
            process.stdin.flush()
        self._words = b""
        told = _object(process.stdout.readline(_LINE_BYTES))
        if told is None:
            self.code = process.wait()
            return None
        try:
            return from_dict(kind, told)
        except DaciteError:
            return None

    def when_over(self, call: Any) -> None:
        """Call once the process has ended; on a thread."""

        def wait() -> None:
            process = self._process
            if process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(MAX_COPY_S)
                self.abandon()
            with contextlib.suppress(RuntimeError):  # The daemon has ended.
                call()

        threading.Thread(target=wait, name="copy", daemon=True).start()

    def wait(self) -> None:
        """Wait until its process has ended, which was abandoned, for a time. Blocks."""
        with self._lock:
            process = self._process
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDS_S)

    def abandon(self) -> None:
        """End it; what has come stays for the next try."""
        with self._lock:
            self._is_abandoned = True
            process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        threading.Thread(target=_reap, args=(process,), daemon=True).start()


def _reap(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.close()


def _object(line: bytes) -> dict[str, Any] | None:
    return marked_object(line.decode(errors="replace").rstrip("\n"), _MARK)


def _check_key(key: str) -> None:
    if len(key) != 2 * KEY_BYTES or not all(letter in "0123456789abcdef" for letter in key):
        raise RpcError(ErrorCode.INVALID_PARAMS, sentences.BAD_TOKEN(count=2 * KEY_BYTES))


def _check_stores(stores: Sequence[str]) -> None:
    if len(stores) > MAX_STORES:
        raise RpcError(ErrorCode.INVALID_PARAMS, sentences.TOO_MANY_PATHS(count=len(stores), limit=MAX_STORES))
    for path in stores:
        parts = path.split("/")
        if not os.path.isabs(path) or "\0" in path or ".." in parts or len(parts) < 3 or parts[-2] != STORE:
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.NO_STORE(path=repr(path)))
