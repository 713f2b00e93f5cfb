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
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dtagent import __version__, facts, logs, processes
from dtagent.attempts import Attempts
from dtagent.calls import AttemptLocks, Later, Method, Workers
from dtagent.checks import Checks
from dtagent.connection import READ_BYTES, Connection, LargeFrames
from dtagent.errors import RootError, RpcError
from dtagent.host import HostProbe
from dtagent.locations import secure_root, socket_path
from dtagent.nvml import Nvml
from dtagent.probing import Listeners
from dtagent.protocol.jobs import (
    AttemptKey,
    FollowReply,
    FollowRequest,
    HelloReply,
    HelloRequest,
    NodeStatus,
    PrepareReply,
    PrepareRequest,
    PushRequest,
    RendezvousReply,
    RendezvousRequest,
    StartRequest,
    StopRequest,
    UploadRequest,
    WorkRequest,
)
from dtagent.protocol.probes import HushRequest, ListenRequest, PathsRequest, ReachRequest
from dtagent.protocol.rpc import MAX_CHUNK_BYTES, MAX_FRAME_BYTES, MAX_PUSH_BYTES, VERSIONS, ErrorCode
from dtagent.protocol.telemetry import FactsRequest, HostFacts, TelemetryRequest
from dtagent.sampler import Sampler
from dtagent.training import Training

LOG = logging.getLogger("dtagent")
ALREADY_RUNNING = 3
"""Exit status where another daemon serves this root."""
MAX_CLIENTS = 128
MAX_CHANGES = 32
"""Blocking calls on attempts under way; those that hang count."""
MAX_FACTS = 2
FOLLOW_POLL_S = 0.1
GATHER_S = 0.15
TRAINING_INTERVAL_S = 1.0
"""Between two looks for metrics in the logs of what runs."""
GPU_WAIT_S = 8.0
MAX_WAIT_S = 30.0
WORK_LIMIT_S = 150.0
"""How long it may take to lay out files: 2 GB on a slow disk."""


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
    try:
        os.unlink(name)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise RootError(f"{root / name} is in the way: {error.strerror}; remove it") from error
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(name)
    finally:
        os.umask(mask)
    os.chdir("/")
    listener.listen(64)
    _tell_ready()
    return listener


def _tell_ready() -> None:
    """Tell who waits that the socket is there: systemd by its own protocol, a bridge by the end of stdout."""
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notice, contextlib.suppress(OSError):
            notice.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


class _Daemon:
    def __init__(self, root: Path, idle_exit_s: float | None, interval_s: float) -> None:
        self._root = root
        self._nvml = Nvml()
        self._attempts = Attempts(root, self._free_gpus)
        # Numbers grow from daemon to daemon, so that a client sees at once that there is a new one.
        ranks = self._attempts.running_ranks
        self._sampler = Sampler(HostProbe(root), self._nvml, ranks, interval_s, first_seq=int(time.time()))
        self._idle_exit_s = idle_exit_s
        self._clients = 0
        self._stop = asyncio.Event()
        self._may_clean_up = asyncio.Event()
        self._locks = AttemptLocks()
        self._large_frames = LargeFrames()
        self._workers = Workers("change", MAX_CHANGES)
        self._facts_workers = Workers("facts", MAX_FACTS)
        self._listeners = Listeners()
        checks = Checks(root)
        self._training = Training()
        self._training_workers = Workers("training", MAX_CHANGES)
        upload_bytes = 2 * MAX_CHUNK_BYTES  # In base64, and its path.
        self._methods = {
            "hello": Method(HelloRequest, self._hello),
            "ping": Method(None, self._ping),
            "facts": Method(FactsRequest, self._facts, limit_s=50.0),
            "telemetry": Method(TelemetryRequest, self._telemetry, limit_s=MAX_WAIT_S + 45.0),
            "prepare": Method(PrepareRequest, self._prepare),
            "upload": Method(UploadRequest, self._changes(self._attempts.upload), max_bytes=upload_bytes),
            "work": Method(
                WorkRequest, self._changes(self._attempts.work), limit_s=WORK_LIMIT_S, max_bytes=upload_bytes
            ),
            "push": Method(PushRequest, self._changes(self._attempts.push), max_bytes=2 * MAX_PUSH_BYTES),
            "rendezvous": Method(RendezvousRequest, self._rendezvous),
            "start": Method(StartRequest, self._claims(self._attempts.start), max_bytes=MAX_FRAME_BYTES),
            "stop": Method(StopRequest, self._changes(self._attempts.stop)),
            "status": Method(AttemptKey, self._changes(self._attempts.status)),
            "attempts": Method(None, self._all),
            "follow": Method(FollowRequest, self._follow, limit_s=MAX_WAIT_S + 15.0),
            "listen": Method(ListenRequest, self._listeners.listen),
            "hush": Method(HushRequest, self._listeners.hush),
            "reach": Method(ReachRequest, checks.reach),
            "paths": Method(PathsRequest, checks.paths),
            "shutdown": Method(None, self._shutdown),
        }

    async def run(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._sampler.start()
        server = await asyncio.start_unix_server(self._client, sock=listener, limit=READ_BYTES)
        LOG.info("dtagent %s serves", __version__)
        self._may_clean_up.set()
        cleaner = asyncio.create_task(self._clean_up())
        watcher = asyncio.create_task(self._watch_idleness())
        trainer = asyncio.create_task(self._watch_training())
        await self._stop.wait()
        trainer.cancel()
        watcher.cancel()
        cleaner.cancel()
        self._listeners.close()
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

    async def _watch_training(self) -> None:
        """Look for metrics in what the ranks print, whether or not somebody follows."""
        failure = ""
        while True:
            await asyncio.sleep(TRAINING_INTERVAL_S)
            try:
                sample = self._sampler.latest()
                if sample is not None and sample.ranks:  # It knows without looking through all directories again.
                    await self._training_workers.run(lambda: self._training.look_at_all(self._attempts.running()))
                failure = ""
            except Exception as error:  # The top of a worker: told when it begins or changes.
                if repr(error) != failure:
                    failure = repr(error)
                    LOG.exception("cannot look for metrics")

    async def _clean_up(self) -> None:
        """Remove what old attempts left, one at a time: other calls get their turn in between."""
        while True:
            await self._may_clean_up.wait()
            self._may_clean_up.clear()
            try:
                for key in await self._workers.run(self._attempts.old):
                    await self._claims(self._attempts.remove)(key)
                await self._workers.run(self._attempts.prune_store)
            except Exception:  # The top of a worker: the next turn may go better.
                LOG.exception("cannot clean up")

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not _is_own(writer.get_extra_info("socket")):
            writer.close()
            return
        self._clients += 1
        try:
            connection = Connection(reader, writer, self._methods, self._large_frames)
            if self._clients > MAX_CLIENTS:
                await connection.refuse(f"{MAX_CLIENTS} clients are connected already")
            else:
                await connection.serve()
        finally:
            self._clients -= 1

    def _changes(self, act: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
        """Run a blocking call on an attempt in a thread, one at a time for each attempt."""

        def one_at_a_time(request: Any) -> Any:
            # Held by the thread that acts: a client that goes away must not let the next call in.
            with self._locks.hold(getattr(request, "key", request)):
                return act(request)

        async def call(request: Any) -> Any:
            return await self._workers.run(lambda: one_at_a_time(request))

        return call

    def _claims(self, act: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
        """As `_changes`, and one at a time on this host: what sets GPUs and ports aside looks at all attempts."""

        def one_at_a_time(request: Any) -> Any:
            with self._locks.hold(None, getattr(request, "key", request)):
                return act(request)

        async def call(request: Any) -> Any:
            return await self._workers.run(lambda: one_at_a_time(request))

        return call

    def _status(self, key: AttemptKey) -> NodeStatus:
        with self._locks.hold(key):
            return self._attempts.status(key)

    async def _all(self, _: None) -> list[NodeStatus]:
        def statuses() -> list[NodeStatus]:
            found = []
            for key in self._attempts.known_keys():
                try:
                    found.append(self._status(key))
                except RpcError as error:  # It was removed meanwhile, or is damaged.
                    LOG.warning("%s/%s: %s", key.job_id, key.attempt, error)
            return found

        return await self._workers.run(statuses)

    async def _hello(self, request: HelloRequest) -> HelloReply:
        common = [version for version in request.versions if version in VERSIONS]
        if not common:
            is_old = max(request.versions, default=0) > max(VERSIONS)
            remedy = "upgrade the agent: dttui agents deploy HOST" if is_old else "upgrade dttui"
            message = (
                f"dtagent {__version__} speaks protocol versions {list(VERSIONS)}, {request.client or 'the client'} "
                f"speaks {request.versions}; {remedy}"
            )
            raise RpcError(ErrorCode.VERSION, message, {"versions": list(VERSIONS), "agent_version": __version__})
        return HelloReply(max(common), __version__, os.uname().nodename, os.getpid(), processes.boot_id(), time.time())

    async def _ping(self, _: None) -> dict[str, float]:
        return {"time": time.time()}

    async def _prepare(self, request: PrepareRequest) -> PrepareReply:
        reply: PrepareReply = await self._claims(self._attempts.prepare)(request)
        self._may_clean_up.set()  # The reply does not wait for it.
        return reply

    async def _rendezvous(self, request: RendezvousRequest) -> RendezvousReply:
        return await self._workers.run(lambda: self._attempts.rendezvous(request))

    async def _facts(self, request: FactsRequest) -> HostFacts:
        return await self._facts_workers.run(lambda: facts.collect(request.pythons, self._nvml))

    async def _telemetry(self, request: TelemetryRequest) -> Later:
        await self._sampler.follow(replace(request, max_samples=1))  # To wait is not yet to hold samples.
        return lambda: self._sampler.follow(replace(request, wait_s=0.0))

    async def _follow(self, request: FollowRequest) -> Later:
        files = self._attempts.files(request.key)
        deadline = time.monotonic() + min(request.wait_s, MAX_WAIT_S)
        stamp = self._attempts.stamp(request.key)
        while time.monotonic() < deadline and stamp == request.stamp and not logs.has_more(files, request):
            await asyncio.sleep(FOLLOW_POLL_S)
            stamp = self._attempts.stamp(request.key)
        if time.monotonic() < deadline and stamp == request.stamp and logs.is_a_little(files, request):
            await asyncio.sleep(GATHER_S)  # Else a client that asks again at once gets every line by itself.

        async def reply() -> FollowReply:
            stamp = self._attempts.stamp(request.key)
            # The status comes first: when it says that all has ended, the bytes read after it are all there are.
            status = await self._changes(self._attempts.status)(request.key)
            if status.state.is_final and request.wants_trainer:
                with contextlib.suppress(OSError):  # No room for more metrics: the rest is worth having all the same.
                    await self._training_workers.run(lambda: self._training.look(files, is_over=True))
            chunks, more = logs.read(files, request)
            return FollowReply(status, stamp, chunks, more)

        return reply

    async def _shutdown(self, _: None) -> dict[str, bool]:
        asyncio.get_running_loop().call_later(0.1, self._stop.set)
        return {"stopping": True}

    def _free_gpus(self) -> list[int]:
        """Return the GPUs that no process holds memory of; one whose driver will not say counts as free."""
        # A daemon that is only just starting has not heard from the driver yet.
        wait_s = GPU_WAIT_S if self._nvml.facts(GPU_WAIT_S).gpus else 0.0
        sample = self._sampler.wait_for(lambda latest: bool(latest.gpus), wait_s)
        return [gpu.index for gpu in sample.gpus if not gpu.processes and not gpu.error] if sample else []


def _is_own(connection: socket.socket) -> bool:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1] in (os.getuid(), 0)
