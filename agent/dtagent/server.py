"""The daemon: a Unix socket that only its user may open, and the calls behind it. Wiring only."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import math
import os
import resource
import signal
import socket
import stat
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from dtagent import __version__, error_log, facts, processes
from dtagent.attempts import Attempts
from dtagent.bridge import owner_of
from dtagent.calls import AttemptLocks, Later, Method, Workers
from dtagent.checks import Checks
from dtagent.connection import READ_BYTES, Connection, LargeFrames
from dtagent.errors import AgentError, RootError, RpcError
from dtagent.following import MAX_WAIT_S, Following
from dtagent.host import HostProbe
from dtagent.idle_gpus import idle_gpus
from dtagent.locations import secure_root, socket_path
from dtagent.names import ALREADY_RUNNING
from dtagent.nvml import Nvml
from dtagent.probing import Listeners
from dtagent.protocol.jobs import (
    AttemptKey,
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
    WarmReply,
    WarmRequest,
    WorkRequest,
)
from dtagent.protocol.probes import HushRequest, ListenRequest, PathsRequest, ReachRequest
from dtagent.protocol.rpc import MAX_CHUNK_BYTES, MAX_FRAME_BYTES, MAX_PUSH_BYTES, VERSIONS, ErrorCode
from dtagent.protocol.telemetry import FactsRequest, HostFacts, TelemetryRequest
from dtagent.sampler import Sampler
from dtagent.training import Training
from dtagent.warming import WarmStarts

LOG = logging.getLogger("dtagent")
LEAST_HANDLES = 16
MAX_CLIENTS = 512
BACKLOG = 512
"""Clients that may knock at once."""
MAX_CHANGES = 32
"""Blocking calls on attempts under way; those that hang count."""
MAX_FACTS = 2
MAX_ANSWERS = 4
"""Answers to those who catch up with telemetry that are made at once."""
TRAINING_INTERVAL_S = 1.0
"""Between two looks for metrics in the logs of what runs."""
UPKEEP_INTERVAL_S = 30.0
"""Between two looks for what has had its time: leases, warm processes, a long log."""
WORK_LIMIT_S = 150.0
"""How long it may take to lay out files: 2 GB on a slow disk."""
Request = TypeVar("Request")
Result = TypeVar("Result")


def serve(root: Path, *, idle_exit_s: float | None = None, interval_s: float = 1.0) -> int:
    """Serve until told to stop; return the exit status.

    Args:
        root: state directory.
        idle_exit_s: end when no client is connected and no job runs for so long; `None` for never.
        interval_s: between two readings of the host.

    Raises:
        AgentError: the root cannot be used, or the process is allowed too few open files.
    """
    handles = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if handles < LEAST_HANDLES:
        raise AgentError(
            f"{handles} open files are not enough for the daemon, which needs {LEAST_HANDLES}: `ulimit -n`"
        )
    root = secure_root(root)
    error_log.turn_over(root)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    # The lock on the directory itself makes this the only daemon here, and keeps systemd-tmpfiles from ageing it.
    lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        LOG.info("a daemon serves %s already", root)
        return ALREADY_RUNNING
    listener = _listen(root)
    asyncio.run(_Daemon(root, idle_exit_s, interval_s).run(listener))
    return 0


def _listen(root: Path) -> socket.socket:
    os.chdir(root)  # The socket goes by its bare name: paths have a limit of 107 bytes.
    name = socket_path(Path()).name
    with contextlib.suppress(FileNotFoundError):
        kind = os.lstat(name).st_mode
        if not stat.S_ISSOCK(kind) and not stat.S_ISLNK(kind):
            raise RootError(f"{root / name} is in the way: it is no socket, and not the agent's; move it away")
        os.unlink(name)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(name)
    finally:
        os.umask(mask)
    os.chdir("/")
    listener.listen(BACKLOG)
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
        self._warm_starts = WarmStarts()
        self._attempts = Attempts(root, lambda: idle_gpus(self._nvml, self._sampler), self._warm_starts)
        # Numbers grow from daemon to daemon, so that a client sees at once that there is a new one: counting seconds
        # from its first millisecond on, none catches up with the next.
        first_seq = time.time_ns() // 10**6
        ranks = self._attempts.census.running_ranks
        self._sampler = Sampler(lambda: HostProbe(root), self._nvml, ranks, interval_s, first_seq=first_seq)
        self._answers = Workers("telemetry", MAX_ANSWERS)
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
        self._training_workers = Workers("training", 1)
        status = self._change(self._attempts.status)
        following = Following(self._attempts, status, self._training)
        self._told: set[str] = set()
        """Damage that was logged."""
        upload_bytes = 2 * MAX_CHUNK_BYTES  # In base64, and its path.
        self._methods = {
            "hello": Method(HelloRequest, self._hello),
            "ping": Method(None, self._ping),
            "facts": Method(FactsRequest, self._facts, limit_s=50.0),
            "telemetry": Method(TelemetryRequest, self._telemetry, limit_s=MAX_WAIT_S + 15.0),
            "prepare": Method(PrepareRequest, self._prepare),
            # This one and `attempts` are dttui 0.1's, which newer ones do without.
            "upload": Method(UploadRequest, self._change(self._attempts.upload), max_bytes=upload_bytes),
            "work": Method(
                WorkRequest, self._change(self._attempts.work), limit_s=WORK_LIMIT_S, max_bytes=upload_bytes
            ),
            "push": Method(PushRequest, self._change(self._attempts.push), max_bytes=2 * MAX_PUSH_BYTES),
            "rendezvous": Method(RendezvousRequest, self._rendezvous),
            "start": Method(StartRequest, self._change(self._attempts.start, alone=True), max_bytes=MAX_FRAME_BYTES),
            "stop": Method(StopRequest, self._end),
            "status": Method(AttemptKey, status),
            "attempts": Method(None, self._all),
            "follow": Method(FollowRequest, following.follow, limit_s=MAX_WAIT_S + 15.0),
            "listen": Method(ListenRequest, self._listeners.listen),
            "warm": Method(WarmRequest, self._warm),
            "hush": Method(HushRequest, self._listeners.hush),
            "reach": Method(ReachRequest, checks.reach),
            "paths": Method(PathsRequest, checks.paths),
            "shutdown": Method(None, self._shutdown),
        }

    async def run(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._finish, signal.Signals(number).name)
        self._sampler.start()
        server = await asyncio.start_unix_server(self._client, sock=listener, limit=READ_BYTES, backlog=BACKLOG)
        LOG.info("dtagent %s serves %s", __version__, self._root)
        self._may_clean_up.set()
        cleaner = asyncio.create_task(self._clean_up())
        watcher = asyncio.create_task(self._watch_idleness())
        trainer = asyncio.create_task(self._watch_training())
        keeper = asyncio.create_task(self._keep_up())
        await self._stop.wait()
        for task in (cleaner, watcher, trainer, keeper):
            task.cancel()
        with contextlib.suppress(OSError):
            socket_path(self._root).unlink()
        self._listeners.close()
        self._warm_starts.close()
        server.close()
        self._sampler.stop()

    async def _watch_idleness(self) -> None:
        limit_s = math.inf if self._idle_exit_s is None else self._idle_exit_s
        turn_s, idle_s = min(5.0, limit_s / 2), 0.0
        while True:
            await asyncio.sleep(turn_s)
            # By turns and not by the clock: whoever lost the connection while this host slept gets time to come back.
            idle_s = 0.0 if self._clients or self._attempts.census.running() else idle_s + turn_s
            if idle_s > limit_s:
                self._finish(f"nobody has needed it for {limit_s:g} s")
            # Without its socket nobody can reach this daemon, and its lock keeps another from starting.
            elif not socket_path(self._root).exists():
                self._finish("its socket is gone")

    def _finish(self, reason: str) -> None:
        if not self._stop.is_set():
            LOG.info("dtagent ends: %s", reason)
        self._stop.set()

    async def _keep_up(self) -> None:
        """End what has had its time."""

        def expire_leases() -> None:
            with self._locks.hold(None):
                self._attempts.expire_leases()

        while True:
            await asyncio.sleep(UPKEEP_INTERVAL_S)
            for act in (self._warm_starts.expire, expire_leases, lambda: error_log.turn_over(self._root)):
                try:
                    await self._workers.run(act)
                except Exception:  # The top of a worker: the next turn may go better.
                    LOG.exception("cannot clean up")

    async def _watch_training(self) -> None:
        """Look for metrics in what the ranks print, whether or not somebody follows."""
        failure = ""
        while True:
            await asyncio.sleep(TRAINING_INTERVAL_S)
            try:
                sample = self._sampler.latest()
                if sample is not None and sample.ranks:  # It knows without looking through all directories again.
                    await self._training_workers.run(self._look_for_metrics)
                failure = ""
            except Exception as error:  # The top of a worker: told when it begins or changes.
                if repr(error) != failure:
                    failure = repr(error)
                    LOG.exception("cannot look for metrics")

    def _look_for_metrics(self) -> None:
        self._training.look_at_all(self._attempts.census.running())

    async def _clean_up(self) -> None:
        """Remove what old attempts left, one at a time: other calls get their turn in between."""
        while True:
            await self._may_clean_up.wait()
            self._may_clean_up.clear()
            try:
                for key in await self._workers.run(self._attempts.retention.old):
                    await self._change(self._attempts.retention.clear, alone=True)(key)
                await self._workers.run(self._attempts.tidy)
            except Exception:  # The top of a worker: the next turn may go better.
                LOG.exception("cannot clean up")

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if owner_of(writer.get_extra_info("socket")) not in (os.getuid(), 0):
            writer.close()
            return
        self._clients += 1
        # asyncio logs the end of a handler that was cancelled, as all are when the daemon ends, as if it were a fault.
        with contextlib.suppress(asyncio.CancelledError):
            try:
                connection = Connection(reader, writer, self._methods, self._large_frames)
                if self._clients > MAX_CLIENTS:
                    await connection.refuse(f"{MAX_CLIENTS} clients are connected already")
                else:
                    await connection.serve()
            finally:
                self._clients -= 1

    def _change(
        self, act: Callable[[Request], Result], *, alone: bool = False
    ) -> Callable[[Request], Awaitable[Result]]:
        """Run a blocking call on an attempt in a thread, one at a time for each attempt.

        Args:
            act: takes the attempt's key, or a request with it.
            alone: one at a time on this host too: what sets GPUs and ports aside looks at all attempts.
        """

        def one_at_a_time(request: Request) -> Result:
            key: Any = getattr(request, "key", request)
            # Held by the thread that acts: a client that goes away must not let the next call in.
            with self._locks.hold(*([None] if alone else []), key):
                return act(request)

        async def call(request: Request) -> Result:
            return await self._workers.run(lambda: one_at_a_time(request))

        return call

    async def _all(self, _: None) -> list[NodeStatus]:
        def statuses() -> list[NodeStatus]:
            found = []
            for key in self._attempts.census.known_keys():
                try:
                    with self._locks.hold(key):
                        found.append(self._attempts.status(key))
                except RpcError as error:  # It was removed meanwhile, or is damaged.
                    told = f"{key.job_id}/{key.attempt}: {error}"
                    if told not in self._told:
                        self._told.add(told)
                        LOG.warning("%s", told)
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
        reply = await self._change(self._attempts.prepare, alone=True)(request)
        self._may_clean_up.set()  # The reply does not wait for it.
        return reply

    async def _end(self, request: StopRequest) -> NodeStatus:
        # Before its turn comes: an earlier call on the attempt that hangs must not keep it running.
        await self._workers.run(lambda: self._attempts.ask_to_end(request))
        status = await self._change(self._attempts.stop)(request)
        self._may_clean_up.set()
        return status

    async def _rendezvous(self, request: RendezvousRequest) -> RendezvousReply:
        return await self._workers.run(lambda: self._attempts.rendezvous(request))

    async def _warm(self, request: WarmRequest) -> WarmReply:
        return await self._workers.run(lambda: self._warm_starts.ask(request))

    async def _facts(self, request: FactsRequest) -> HostFacts:
        return await self._facts_workers.run(lambda: facts.collect(request.pythons, self._nvml))

    async def _telemetry(self, request: TelemetryRequest) -> Later:
        request = replace(request, wait_s=min(request.wait_s, MAX_WAIT_S))
        await self._sampler.wait(request)  # To wait is not yet to hold samples.
        return lambda: self._answers.run(lambda: self._sampler.read(request))

    async def _shutdown(self, _: None) -> dict[str, bool]:
        asyncio.get_running_loop().call_later(0.1, self._finish, "a client asked for it")
        return {"stopping": True}
