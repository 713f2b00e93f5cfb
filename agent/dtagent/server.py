"""The daemon: a Unix socket that only its user may open, and the calls behind it. Wiring only."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import math
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from dacite import Config, DaciteError, from_dict

from dtagent import __version__, facts, logs, processes
from dtagent.attempts import Attempts
from dtagent.errors import RpcError
from dtagent.host import HostProbe
from dtagent.locations import secure_root, socket_path
from dtagent.nvml import Nvml
from dtagent.protocol.jobs import (
    AttemptKey,
    FollowReply,
    FollowRequest,
    HelloReply,
    HelloRequest,
    PrepareReply,
    PrepareRequest,
    StartRequest,
    StopRequest,
    UploadRequest,
)
from dtagent.protocol.rpc import MAX_FRAME_BYTES, VERSIONS, ErrorCode, FrameError, decode, encode, to_wire
from dtagent.protocol.telemetry import FactsRequest, HostFacts, TelemetryReply, TelemetryRequest
from dtagent.sampler import Sampler

LOG = logging.getLogger("dtagent")
ALREADY_RUNNING = 3
"""Exit status where another daemon serves this root."""
MAX_CALLS = 64
"""Calls one client may have under way."""
FOLLOW_POLL_S = 0.1
GPU_WAIT_S = 8.0
MAX_WAIT_S = 30.0

_DACITE = Config(cast=[Enum, tuple])


def serve(root: Path, *, idle_exit_s: float | None = None, interval_s: float = 1.0) -> int:
    """Serve until told to stop; return the exit status.

    Args:
        root: state directory.
        idle_exit_s: end when no client is connected and no job runs for so long; `None` for never.
        interval_s: between two readings of the host.
    """
    root = secure_root(root)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    # The lock on the directory itself makes this the only daemon here, and keeps systemd-tmpfiles from ageing it.
    lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return ALREADY_RUNNING
    listener = _listen(root)
    asyncio.run(_Daemon(root, idle_exit_s, interval_s).run(listener))
    return 0


def _listen(root: Path) -> socket.socket:
    os.chdir(root)  # The socket goes by its bare name: paths have a limit of 107 bytes.
    name = socket_path(Path()).name
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(name)
    finally:
        os.umask(mask)
    os.chdir("/")
    listener.listen(64)
    return listener


@dataclass(frozen=True)
class _Method:
    request: type | None
    """What its params are decoded to; `None` for no params."""
    call: Callable[[Any], Awaitable[Any]]


class _Daemon:
    def __init__(self, root: Path, idle_exit_s: float | None, interval_s: float) -> None:
        self._root = root
        self._nvml = Nvml()
        self._attempts = Attempts(root, self._free_gpus)
        self._sampler = Sampler(HostProbe(root), self._nvml, self._attempts.running_ranks, interval_s)
        self._idle_exit_s = idle_exit_s
        self._clients = 0
        self._stop = asyncio.Event()
        self._may_clean_up = asyncio.Event()
        self._changing = threading.Lock()
        self._methods = {
            "hello": _Method(HelloRequest, self._hello),
            "ping": _Method(None, self._ping),
            "facts": _Method(FactsRequest, self._facts),
            "telemetry": _Method(TelemetryRequest, self._telemetry),
            "prepare": _Method(PrepareRequest, self._prepare),
            "upload": _Method(UploadRequest, self._changes(self._attempts.upload)),
            "start": _Method(StartRequest, self._changes(self._attempts.start)),
            "stop": _Method(StopRequest, self._changes(self._attempts.stop)),
            "status": _Method(AttemptKey, self._changes(self._attempts.status)),
            "attempts": _Method(None, self._changes(lambda _: self._attempts.all())),
            "follow": _Method(FollowRequest, self._follow),
            "shutdown": _Method(None, self._shutdown),
        }

    async def run(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._sampler.start()
        server = await asyncio.start_unix_server(self._client, sock=listener, limit=MAX_FRAME_BYTES)
        LOG.info("dtagent %s serves", __version__)
        self._may_clean_up.set()
        cleaner = asyncio.create_task(self._clean_up())
        watcher = asyncio.create_task(self._watch_idleness())
        await self._stop.wait()
        watcher.cancel()
        cleaner.cancel()
        server.close()
        self._sampler.stop()

    async def _watch_idleness(self) -> None:
        busy_at = time.monotonic()
        limit_s = math.inf if self._idle_exit_s is None else self._idle_exit_s
        while True:
            await asyncio.sleep(min(5.0, limit_s / 2))
            if self._clients or self._attempts.running_ranks():
                busy_at = time.monotonic()
            # Without its socket nobody can reach this daemon, and its lock keeps another from starting.
            if time.monotonic() - busy_at > limit_s or not socket_path(self._root).exists():
                self._stop.set()

    async def _clean_up(self) -> None:
        """Remove what old attempts left, one at a time: other calls get their turn in between."""
        while True:
            await self._may_clean_up.wait()
            self._may_clean_up.clear()
            try:
                for key in await asyncio.to_thread(self._attempts.old):
                    await self._changes(self._attempts.remove)(key)
            except Exception:  # The top of a worker: the next turn may go better.
                LOG.exception("cannot clean up")

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not _is_own(writer.get_extra_info("socket")):
            writer.close()
            return
        self._clients += 1
        slots = asyncio.Semaphore(MAX_CALLS)
        calls: set[asyncio.Task[None]] = set()
        try:
            while line := await reader.readline():
                await slots.acquire()
                call = asyncio.create_task(self._answer(line, writer))
                calls.add(call)
                call.add_done_callback(calls.discard)
                call.add_done_callback(lambda _done: slots.release())
        except (ValueError, ConnectionError) as error:
            LOG.warning("client dropped: %s", error)
        finally:
            self._clients -= 1
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            writer.close()

    async def _answer(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        number: Any = None
        try:
            frame = decode(line)
            number = frame.get("id")
            reply = {"jsonrpc": "2.0", "id": number, "result": to_wire(await self._call(frame))}
        except FrameError as error:
            reply = _error(number, ErrorCode.PARSE, str(error))
        except RpcError as error:
            reply = _error(number, error.code, str(error))
        except Exception as error:  # The top of a handler: one bad call must not end the daemon.
            LOG.exception("call failed")
            reply = _error(number, ErrorCode.INTERNAL, f"{type(error).__name__}: {error}")
        try:
            frame_bytes = encode(reply)
        except (ValueError, TypeError) as error:
            frame_bytes = encode(_error(number, ErrorCode.INTERNAL, f"the answer cannot be sent: {error}"))
        with contextlib.suppress(ConnectionError):
            writer.write(frame_bytes)
            await writer.drain()

    async def _call(self, frame: dict[str, Any]) -> Any:
        name = frame.get("method")
        method = self._methods.get(name) if isinstance(name, str) else None
        if method is None:
            raise RpcError(ErrorCode.UNKNOWN_METHOD, f"no method {name!r} in dtagent {__version__}")
        if method.request is None:
            return await method.call(None)
        params = frame.get("params", {})
        try:
            request: Any = from_dict(method.request, params, _DACITE)
        except (DaciteError, TypeError, ValueError, AttributeError) as error:
            raise RpcError(ErrorCode.INVALID_PARAMS, f"{name}: {error}") from error
        return await method.call(request)

    def _changes(self, act: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
        """Run a blocking call in a thread, one at a time."""

        def one_at_a_time(request: Any) -> Any:
            # Held by the thread that acts: a client that goes away must not let the next call in.
            with self._changing:
                return act(request)

        async def call(request: Any) -> Any:
            return await asyncio.to_thread(one_at_a_time, request)

        return call

    async def _hello(self, request: HelloRequest) -> HelloReply:
        common = [version for version in request.versions if version in VERSIONS]
        if not common:
            raise RpcError(ErrorCode.VERSION, f"dtagent {__version__} speaks versions {list(VERSIONS)}")
        return HelloReply(max(common), __version__, os.uname().nodename, os.getpid(), processes.boot_id(), time.time())

    async def _ping(self, _: None) -> dict[str, float]:
        return {"time": time.time()}

    async def _prepare(self, request: PrepareRequest) -> PrepareReply:
        reply: PrepareReply = await self._changes(self._attempts.prepare)(request)
        self._may_clean_up.set()  # The reply does not wait for it.
        return reply

    async def _facts(self, request: FactsRequest) -> HostFacts:
        return await asyncio.to_thread(facts.collect, request.pythons, self._nvml)

    async def _telemetry(self, request: TelemetryRequest) -> TelemetryReply:
        return await self._sampler.follow(request)

    async def _follow(self, request: FollowRequest) -> FollowReply:
        files = self._attempts.files(request.key)
        deadline = time.monotonic() + min(request.wait_s, MAX_WAIT_S)
        stamp = self._attempts.stamp(request.key)
        while time.monotonic() < deadline and stamp == request.stamp and not logs.has_more(files, request.offsets):
            await asyncio.sleep(FOLLOW_POLL_S)
            stamp = self._attempts.stamp(request.key)
        # The status comes first: when it says that all has ended, the bytes read after it are all there are.
        status = await self._methods["status"].call(request.key)
        chunks, more = logs.read(files, request.offsets, request.max_bytes)
        return FollowReply(status, stamp, chunks, more)

    async def _shutdown(self, _: None) -> dict[str, bool]:
        asyncio.get_running_loop().call_later(0.1, self._stop.set)
        return {"stopping": True}

    def _free_gpus(self) -> list[int]:
        """Return the GPUs that no process holds memory of; one whose driver will not say counts as free."""
        deadline = time.monotonic() + GPU_WAIT_S
        present = self._nvml.facts(GPU_WAIT_S).gpus
        while True:
            sample = self._sampler.latest()
            # A daemon that is only just starting has not heard from the driver yet.
            if not present or (sample and sample.gpus) or time.monotonic() > deadline:
                return [gpu.index for gpu in sample.gpus if not gpu.processes and not gpu.error] if sample else []
            time.sleep(0.05)


def _is_own(connection: socket.socket) -> bool:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1] in (os.getuid(), 0)


def _error(number: Any, code: ErrorCode, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code.value, "message": message}}
