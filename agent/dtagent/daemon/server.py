"""The daemon: a Unix socket that only its user may open, and the calls behind it. Wiring only."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import resource
import signal
import socket
import stat
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from dtagent import __version__
from dtagent.attempts.attempts import Attempts
from dtagent.attempts.holdings import Holdings
from dtagent.attempts.host_requirements import look
from dtagent.attempts.idle_gpus import idle_gpus
from dtagent.attempts.shared_gpus import SharedGpus
from dtagent.attempts.waiting_line import WaitingLine
from dtagent.attempts.warming import WarmStarts
from dtagent.calls import Later, Method, Workers
from dtagent.checks.checkpoints import LIMIT_S as SEARCH_LIMIT_S
from dtagent.checks.checkpoints import Checkpoints
from dtagent.checks.checks import MAX_VALIDATION_BYTES, VALIDATION_LIMIT_S, Checks
from dtagent.checks.probing import Listeners
from dtagent.daemon import error_log
from dtagent.daemon.attempt_calls import Changes
from dtagent.daemon.client_connection import READ_BYTES, ClientConnection, LargeFrames
from dtagent.daemon.dialling import owner_of
from dtagent.daemon.following import MAX_WAIT_S, Following
from dtagent.daemon.greeting import greet
from dtagent.daemon.housekeeping import Housekeeping, watch_idleness
from dtagent.daemon.listing import AttemptListing
from dtagent.daemon.saved_calls import LOOK_LIMIT_S, READ_LIMIT_S, SavedCalls
from dtagent.daemon.sharing_watch import SharingWatch
from dtagent.daemon.training_watch import watch_training
from dtagent.daemon.unpacking import unpacked
from dtagent.errors import DtagentError, RootError
from dtagent.facts import collection
from dtagent.facts.interpreters import Behind, ModuleQuestion
from dtagent.locations import secure_root, socket_path
from dtagent.logs.trainer_metrics import Training
from dtagent.names import ALREADY_RUNNING
from dtagent.protocol import sentences
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.checkpoints import CheckpointsRequest, DropRequest, JoinRequest
from dtagent.protocol.facts import FactsRequest, HostFacts
from dtagent.protocol.greeting import HelloRequest
from dtagent.protocol.jobs import NodeStatus, PackedStartRequest, StartRequest, StopRequest
from dtagent.protocol.logs import FollowRequest
from dtagent.protocol.meeting import RendezvousReply, RendezvousRequest
from dtagent.protocol.preparation import PrepareReply, PrepareRequest, PushRequest, UploadRequest, WorkRequest
from dtagent.protocol.probes import (
    HushRequest,
    ImageRequest,
    ListenRequest,
    PathsRequest,
    ReachRequest,
    ValidationRequest,
)
from dtagent.protocol.queueing import QueueReply, QueueRequest
from dtagent.protocol.replication import CopiesRequest, SendRequest, TakeRequest
from dtagent.protocol.rpc import MAX_CHUNK_BYTES, MAX_FRAME_BYTES, MAX_PUSH_BYTES
from dtagent.protocol.saved import FilesRequest, KeepReply, KeepRequest, ReadRequest, SavedRequest
from dtagent.protocol.stacks import CallTimesReply, StacksReply, StacksRequest
from dtagent.protocol.telemetry import TelemetryRequest
from dtagent.protocol.traffic import TrafficReply, TrafficRequest
from dtagent.protocol.warm_start import WarmReply, WarmRequest
from dtagent.replication.service import LIMIT_S as COPY_LIMIT_S
from dtagent.replication.service import Replication
from dtagent.stacks import reading
from dtagent.system import gpu_line, gpu_locks
from dtagent.telemetry import rank_traffic
from dtagent.telemetry.host import HostReader
from dtagent.telemetry.nvml import Nvml
from dtagent.telemetry.sampler import Sampler

LOG = logging.getLogger("dtagent")
LEAST_HANDLES = 16
MAX_CLIENTS = 512
BACKLOG = 512
"""Clients that may knock at once."""
MAX_FACTS = 2
MAX_STACKS = 2
"""Looks at where ranks stand at once."""
STACKS_LIMIT_S = 60.0
MAX_ANSWERS = 4
"""Answers to those who catch up with telemetry that are made at once."""
WORK_LIMIT_S = 150.0
"""How long it may take to lay out files: 2 GB on a slow disk."""


def serve(root: Path, *, idle_exit_s: float | None = None, interval_s: float = 1.0) -> int:
    """Serve until told to stop; return the exit status.

    Args:
        root: state directory.
        idle_exit_s: end when no client is connected and no job runs for so long; `None` for never.
        interval_s: between two readings of the host.

    Raises:
        DtagentError: the root cannot be used, or the process is allowed too few open files.
    """
    handles = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if handles < LEAST_HANDLES:
        raise DtagentError(sentences.TOO_FEW_HANDLES(count=handles, needed=LEAST_HANDLES))
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
            raise RootError(sentences.SOCKET_IN_THE_WAY(path=str(root / name)))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made = f"{name}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(made)
    listener.bind(made)
    os.chmod(made, 0o600)
    listener.listen(BACKLOG)
    os.rename(made, name)  # Whoever finds it is not refused: it listens already.
    os.chdir("/")
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
        shared = SharedGpus(gpu_locks.from_environment(), self._nvml.uuids)
        line = WaitingLine(gpu_line.from_environment())
        self._attempts = Attempts(root, lambda: idle_gpus(self._nvml, self._sampler), self._warm_starts, shared, line)
        # Numbers grow from daemon to daemon, so that a client sees at once that there is a new one: counting seconds
        # from its first millisecond on, none catches up with the next.
        first_seq = time.time_ns() // 10**6
        census = self._attempts.census
        self._sharing = SharingWatch(Holdings(census, shared), line)
        self._sampler = Sampler(
            lambda: HostReader(root),
            self._nvml,
            census.running_ranks,
            interval_s,
            first_seq=first_seq,
            complete=self._sharing.complete,
        )
        self._answers = Workers("telemetry", MAX_ANSWERS)
        self._idle_exit_s = idle_exit_s
        self._clients = 0
        self._stop = asyncio.Event()
        self._changes = Changes()
        self._housekeeping = Housekeeping(root, self._attempts, self._changes, self._warm_starts.expire)
        self._large_frames = LargeFrames()
        self._facts_workers = Workers("facts", MAX_FACTS)
        self._stack_workers = Workers("stacks", MAX_STACKS)
        self._listeners = Listeners()
        self._replication = Replication()
        checks, checkpoints, saved = Checks(root), Checkpoints(), SavedCalls(self._attempts.named, self._attempts.left)
        self._training = Training()
        change = self._changes.in_turn
        status = change(self._attempts.status)
        following = Following(self._attempts, status, self._training)
        listing = AttemptListing(self._attempts, self._changes)
        upload_bytes = 2 * MAX_CHUNK_BYTES  # In base64, and its path.
        self._methods = {
            "hello": Method(HelloRequest, greet),
            "ping": Method(None, self._ping),
            "facts": Method(FactsRequest, self._facts, limit_s=50.0),
            "telemetry": Method(TelemetryRequest, self._telemetry, limit_s=MAX_WAIT_S + 15.0),
            "prepare": Method(PrepareRequest, self._prepare),
            # This one and `attempts` are dttui 0.1's, which newer ones do without.
            "upload": Method(UploadRequest, change(self._attempts.upload), max_bytes=upload_bytes),
            "queue": Method(QueueRequest, self._queue),
            "work": Method(WorkRequest, change(self._attempts.work), limit_s=WORK_LIMIT_S, max_bytes=upload_bytes),
            "push": Method(PushRequest, change(self._attempts.push), max_bytes=2 * MAX_PUSH_BYTES),
            "rendezvous": Method(RendezvousRequest, self._rendezvous),
            "start": Method(StartRequest, self._start, max_bytes=MAX_FRAME_BYTES),
            "start_packed": Method(PackedStartRequest, self._start_packed, max_bytes=MAX_FRAME_BYTES),
            "stop": Method(StopRequest, self._end),
            "status": Method(AttemptKey, status),
            "attempts": Method(None, listing.statuses),
            "follow": Method(FollowRequest, following.follow, limit_s=MAX_WAIT_S + 15.0),
            "listen": Method(ListenRequest, self._listeners.listen),
            "warm": Method(WarmRequest, self._warm),
            "hush": Method(HushRequest, self._listeners.hush),
            "reach": Method(ReachRequest, checks.reach),
            "paths": Method(PathsRequest, checks.paths),
            "image": Method(ImageRequest, checks.image),
            "stacks": Method(StacksRequest, self._stacks, limit_s=STACKS_LIMIT_S),
            "call_times": Method(StacksRequest, self._call_times, limit_s=STACKS_LIMIT_S),
            "traffic": Method(TrafficRequest, self._traffic),
            "checkpoints": Method(CheckpointsRequest, checkpoints.newest, limit_s=SEARCH_LIMIT_S),
            "join_checkpoint": Method(JoinRequest, checkpoints.join, limit_s=SEARCH_LIMIT_S),
            "drop_checkpoints": Method(DropRequest, checkpoints.drop, limit_s=SEARCH_LIMIT_S),
            "copies": Method(CopiesRequest, self._replication.copies),
            "copy_take": Method(TakeRequest, self._replication.take),
            "copy_send": Method(SendRequest, self._replication.send, limit_s=COPY_LIMIT_S),
            "verdict": Method(
                ValidationRequest, checks.validation, limit_s=VALIDATION_LIMIT_S, max_bytes=MAX_VALIDATION_BYTES
            ),
            "saved": Method(SavedRequest, saved.saved, limit_s=LOOK_LIMIT_S),
            "list_files": Method(FilesRequest, saved.files, limit_s=LOOK_LIMIT_S),
            "read_file": Method(ReadRequest, saved.read, limit_s=READ_LIMIT_S),
            "digest_file": Method(ReadRequest, saved.digest, limit_s=READ_LIMIT_S),
            "keep": Method(KeepRequest, self._keep),
            "shutdown": Method(None, self._shutdown),
        }

    async def run(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._finish, signal.Signals(number).name)
        self._sampler.start()
        server = await asyncio.start_unix_server(self._client, sock=listener, limit=READ_BYTES, backlog=BACKLOG)
        LOG.info("dtagent %s serves %s", __version__, self._root)
        duties = (
            self._housekeeping.remove_old(),
            self._housekeeping.expire(),
            watch_idleness(self._root, self._idle_exit_s, self._is_needed, self._finish),
            watch_training(self._training, self._attempts.census),
            self._sharing.watch(),
        )
        tasks = [asyncio.create_task(duty) for duty in duties]
        await self._stop.wait()
        for task in tasks:
            task.cancel()
        with contextlib.suppress(OSError):
            socket_path(self._root).unlink()
        self._listeners.close()
        self._replication.close()
        self._warm_starts.close()
        server.close()
        self._sampler.stop()

    def _is_needed(self) -> bool:
        return bool(self._clients or self._attempts.census.running())

    def _finish(self, reason: str) -> None:
        if not self._stop.is_set():
            LOG.info("dtagent ends: %s", reason)
        self._stop.set()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if owner_of(writer.get_extra_info("socket")) not in (os.getuid(), 0):
            writer.close()
            return
        self._clients += 1
        # asyncio logs the end of a handler that was cancelled, as all are when the daemon ends, as if it were a fault.
        with contextlib.suppress(asyncio.CancelledError):
            try:
                connection = ClientConnection(reader, writer, self._methods, self._large_frames)
                if self._clients > MAX_CLIENTS:
                    await connection.refuse(sentences.TOO_MANY_CLIENTS(count=MAX_CLIENTS))
                else:
                    await connection.serve()
            finally:
                self._clients -= 1

    async def _ping(self, _: None) -> dict[str, float]:
        return {"time": time.time()}

    async def _prepare(self, request: PrepareRequest) -> PrepareReply:
        # Under no lock: a disk that hangs is not to keep everybody else's job from being prepared.
        found = await self._changes.run(lambda: look(request))
        reply = await self._changes.in_turn(partial(self._attempts.prepare, found=found), alone=True)(request)
        self._housekeeping.remove_old_soon()  # The reply does not wait for it.
        self._sharing.look_soon()
        return reply

    async def _queue(self, request: QueueRequest) -> QueueReply:
        reply = await self._changes.in_turn(self._attempts.line_up, alone=True)(request)
        if request.leaves:
            self._sharing.look_soon()
        return replace(reply, holds=self._sharing.holds())

    async def _start(self, request: StartRequest) -> NodeStatus:
        status = await self._changes.in_turn(self._attempts.start, alone=True)(request)
        self._sharing.look_soon()
        return status

    async def _start_packed(self, request: PackedStartRequest) -> NodeStatus:
        started: NodeStatus = await self._methods["start"].call(await self._changes.run(lambda: unpacked(request)))
        return started

    async def _end(self, request: StopRequest) -> NodeStatus:
        # Before its turn comes: an earlier call on the attempt that hangs must not keep it running.
        await self._changes.run(lambda: self._attempts.ask_to_end(request))
        status = await self._changes.in_turn(self._attempts.stop)(request)
        self._housekeeping.remove_old_soon()
        self._sharing.look_soon()
        return status

    async def _rendezvous(self, request: RendezvousRequest) -> RendezvousReply:
        return await self._changes.run(lambda: self._attempts.rendezvous(request))

    async def _stacks(self, request: StacksRequest) -> StacksReply:
        files = self._attempts.files(request.key)
        return await self._stack_workers.run(lambda: reading.read(files, request))

    async def _call_times(self, request: StacksRequest) -> CallTimesReply:
        files = self._attempts.files(request.key)
        return await self._stack_workers.run(lambda: reading.read_times(files, request))

    async def _traffic(self, request: TrafficRequest) -> TrafficReply:
        files = self._attempts.files(request.key)
        return await self._answers.run(lambda: rank_traffic.read(reading.processes_of(files)))

    async def _warm(self, request: WarmRequest) -> WarmReply:
        return await self._changes.run(lambda: self._warm_starts.ask(request))

    async def _facts(self, request: FactsRequest) -> HostFacts:
        behind = Behind(request.prefix, request.env, request.cwd) if request.prefix else None
        packages, modules = request.packages, ModuleQuestion(request.modules, request.module_path)
        return await self._facts_workers.run(
            lambda: collection.collect(request.pythons, self._nvml, behind=behind, packages=packages, modules=modules)
        )

    async def _telemetry(self, request: TelemetryRequest) -> Later:
        request = replace(request, wait_s=min(request.wait_s, MAX_WAIT_S))
        await self._sampler.wait(request)  # To wait is not yet to hold samples.
        return lambda: self._answers.run(lambda: self._sampler.read(request))

    async def _keep(self, request: KeepRequest) -> KeepReply:
        def keep() -> KeepReply:
            with self._changes.locks.hold(None):  # Neither beside what prepares another one, nor what clears them.
                return self._attempts.keep(request)

        return await self._changes.run(keep)

    async def _shutdown(self, _: None) -> dict[str, bool]:
        asyncio.get_running_loop().call_later(0.1, self._finish, "a client asked for it")
        return {"stopping": True}
