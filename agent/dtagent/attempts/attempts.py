"""The attempts on this host: prepare, fill, start, stop and status, told from files: a restart forgets nothing."""

from __future__ import annotations

import base64
import binascii
import contextlib
import importlib.resources
import itertools
import json
import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from dtagent.attempts import (
    adoption,
    failure_records,
    grouping,
    health_record,
    history,
    numbering,
    preparation,
    rendezvous,
)
from dtagent.attempts.census import Census
from dtagent.attempts.host_requirements import HostRequirements, look
from dtagent.attempts.leases import Leases
from dtagent.attempts.preparation import is_known, key_of, was_started
from dtagent.attempts.retention import Retention
from dtagent.attempts.shared_gpus import SharedGpus
from dtagent.attempts.waiting_line import WaitingLine
from dtagent.attempts.warming import WarmStarts
from dtagent.attempts.work import Work
from dtagent.errors import RpcError
from dtagent.locations import AttemptFiles, make_private, rank_of, write_atomic
from dtagent.protocol import sentences
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import MAX_NODE_RANKS, NodeState, NodeStatus, StartRequest, StopRequest
from dtagent.protocol.meeting import RendezvousReply, RendezvousRequest
from dtagent.protocol.preparation import (
    PrepareReply,
    PrepareRequest,
    PushRequest,
    UploadRequest,
    WorkReply,
    WorkRequest,
)
from dtagent.protocol.queueing import QueueReply, QueueRequest
from dtagent.protocol.rpc import ErrorCode, to_wire
from dtagent.protocol.saved import KeepReply, KeepRequest
from dtagent.supervision import journal, supervisor
from dtagent.system import processes, untrusted_files

LOG = logging.getLogger("dtagent")
MOST_FOLDERS = 1000
"""Of checkpoints, that are looked into for a file."""


class Attempts:
    """All attempts under one root, by what a client may ask for."""

    def __init__(
        self,
        root: Path,
        free_gpus: Callable[[], list[int]],
        warm_starts: WarmStarts | None = None,
        shared_gpus: SharedGpus | None = None,
        line: WaitingLine | None = None,
    ) -> None:
        self._root = root
        self._warm_starts = warm_starts or WarmStarts()
        self._leases = Leases(root, free_gpus, shared_gpus or SharedGpus(), line or WaitingLine())
        self._work = Work(root)
        self.census = Census(root)
        self.retention = Retention(root, self.census, self.status)

    def prepare(self, request: PrepareRequest, found: HostRequirements | None = None) -> PrepareReply:
        """Make ready for an attempt; asking again gives the same answer, and keeps what was set aside from lapsing.

        Args:
            request: what it needs.
            found: what is here of that, where somebody has looked already.

        Raises:
            RpcError: REFUSED with what is missing here, or CONTENDED; WRONG_STATE once the attempt was discarded, was
                prepared otherwise, or a later one of the job was seen.
        """
        files = self.named(request.key)
        self._refuse_overtaken(files)
        if files.prepared.exists():
            before, reply = preparation.read(files)
            if before != request:
                raise RpcError(ErrorCode.WRONG_STATE, sentences.PREPARED_OTHERWISE())
            if not was_started(files):
                self._leases.confirm(request, reply)
                self._leases.renew(request.key)
            return reply
        self._overtake(files)
        found = found or look(request)
        if found.refusal is not None:
            raise found.refusal
        with self._leases.kept_on_success(request.key):
            gpu_ids = self._leases.take_gpus(request)
            for directory in (files.logs, files.ranks, files.failures, files.work, files.checkpoints):
                make_private(directory)
            _copy_payload(files.payload)
            reply = PrepareReply(
                directory=str(files.directory),
                python=found.python,
                payload=str(files.payload),
                interface=found.interface,
                source_address=found.source_address,
                master_port=self._leases.take_port(request) if request.reserve_port else None,
                gpu_ids=gpu_ids,
                user_ids=f"{os.getuid()}:{os.getgid()}",
            )
            if request.keeps or any(other.keep.exists() for other in self._of_job(request.key.job_id)):
                files.keep.touch(mode=0o600)
            preparation.write(files, request, reply)
        self._leases.renew(request.key)
        return reply

    def line_up(self, request: QueueRequest) -> QueueReply:
        """Keep a job's place in the line for GPUs, or end it; see `Leases.line_up`."""
        self.named(request.key)
        return self._leases.line_up(request)

    def work(self, request: WorkRequest) -> WorkReply:
        """Fill the attempt's `work`, or tell what of its files has to be pushed first; see `Work.fill`."""
        files = self.named(request.key)
        self._require_prepared(files)
        self._refuse_overtaken(files)
        if was_started(files):
            raise RpcError(ErrorCode.WRONG_STATE, sentences.STARTED_ALREADY())
        self._leases.renew(request.key)
        return self._work.fill(files, request)

    def push(self, request: PushRequest) -> int:
        """Take a part of the files; see `Work.push`."""
        received = self._work.push(request)
        self._leases.renew(request.key)
        return received

    def expire_leases(self) -> None:
        """Let go of what was set aside for those who have fallen silent."""
        self._leases.expire()

    def tidy(self) -> None:
        """Remove what was taken away, and contents of files that nobody has used for long."""
        self.retention.remove()
        self._work.store.prune(time.time())

    def upload(self, request: UploadRequest) -> int:
        """Append a part to a file under the attempt's `work`; return the file's length afterwards."""
        files = self.named(request.key)
        self._require_prepared(files)
        self._leases.renew(request.key)
        path = _inside(files.work, request.path)
        size = path.stat().st_size if path.exists() else 0
        if request.offset != size:
            return size
        try:
            data = base64.b64decode(request.data, validate=True)
        except binascii.Error as error:
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.NOT_BASE64(error=str(error))) from error
        self._write(path, data, request.executable, append=True)
        return size + len(data)

    def start(self, request: StartRequest) -> NodeStatus:
        """Start a prepared attempt; a second call changes nothing.

        Raises:
            RpcError: WRONG_STATE where it is not prepared, was discarded or overtaken, or comes so late that another
                has its GPUs.
        """
        files = self.named(request.key)
        self._require_prepared(files)
        self._refuse_overtaken(files)
        if not files.start.exists():
            if journal.has_run(files):
                raise RpcError(ErrorCode.DAMAGED, sentences.START_RECORD_GONE())
            self._leases.confirm(*preparation.read(files))
            for file in request.files:
                self._write(_inside(files.directory, file.path), file.text.encode(), file.executable)
            if request.rendezvous_key:
                write_atomic(files.rendezvous_key, request.rendezvous_key)
            # Last before the start is on disk: without room for what becomes of it nothing is started.
            journal.create(files.journal)
            self.census.expect(files)
            with adoption.locked(files) as lock:
                write_atomic(files.start, json.dumps(to_wire(replace(request, secrets={}, rendezvous_key=""))))
                with self._leases.handed_over(request.key) as held, contextlib.ExitStack() as stack:
                    warm = None
                    if any(process.warm_start for process in request.processes):
                        python = preparation.read(files)[1].python
                        warm = stack.enter_context(self._warm_starts.hand_over(python)).fileno()
                    adoption.spawn(files.directory, request.secrets, lock, warm, gpu_locks=held)
        return self.status(request.key)

    def stop(self, request: StopRequest) -> NodeStatus:
        """Ask the supervisor to end the attempt, or discard one that was never started. Does not wait."""
        files = self.named(request.key)
        is_ended = (
            not is_known(files)
            and request.node_rank is not None
            and adoption.end_unrecorded(files, request.key, request.node_rank)
        )
        if was_started(files):
            if not is_ended:
                self.ask_to_end(request)
        else:
            self._discard(files)
        return self.status(request.key)

    def ask_to_end(self, request: StopRequest) -> None:
        """Ask the supervisor to end an attempt that was started, also while another call on it hangs."""
        files = self.named(request.key)
        if not was_started(files):
            return
        before = ""
        with contextlib.suppress(OSError):
            before = untrusted_files.read(files.stop).decode(errors="replace")
        wanted = "kill" if request.force else "served" if request.services_only else "stop"
        wanted = max({wanted, before} & supervisor.WORDS.keys(), key=list(supervisor.WORDS).index)
        identity = adoption.identity(files) if adoption.is_locked(files.lock) else None
        try:
            write_atomic(files.stop, wanted)
        except OSError:
            if identity is None:
                raise
            LOG.warning("cannot write %s; the signal says it too", files.stop)
        identity = adoption.identity(files) if adoption.is_locked(files.lock) else None
        if identity is not None:
            processes.send(identity, supervisor.WORDS[wanted])

    def status(self, key: AttemptKey) -> NodeStatus:
        """Tell where an attempt stands; clears up after a supervisor that vanished.

        Raises:
            RpcError: NO_SUCH_ATTEMPT.
        """
        files = self.files(key)
        if not was_started(files):
            state = NodeState.DISCARDED if files.discarded.exists() else NodeState.PREPARED
            return NodeStatus(key, self._node_rank(files), state)
        told = history.read(files)
        if not told.state.is_final and not adoption.is_locked(files.lock):
            # It may have ended well since its journal was read.
            adoption.bury(files, key, self._node_rank(files))
            told = history.read(files)
        elif not told.state.is_final:
            self.census.expect(files)  # Its directory may have been gone for a while.
        ranks = {rank for path in files.ranks.glob("*.json") if (rank := rank_of(path)) is not None}
        well = {item.name for item in told.exits if item.exit_code == 0}
        failed = [item for item in failure_records.read(files) if str(item.rank) not in well]
        known = {item.name for item in told.exits} | {str(failure.rank) for failure in failed}
        return NodeStatus(
            key,
            self._node_rank(files),
            told.state,
            reason=told.reason,
            started_at=told.started_at,
            ranks_started=sorted(ranks)[:MAX_NODE_RANKS],
            exits=[*told.exits, *failure_records.clean_ends(files, known)],
            failures=failed,
            leftovers=told.leftovers,
            usage=told.usage,
            warnings=[*told.warnings],
            cut_logs=told.cut_logs,
            has_checkpoints=_has_checkpoints(files) if told.state.is_final else None,
            disturbances=failure_records.disturbances(files),
            numbering=numbering.read(files),
            groups=grouping.read(files),
            health=health_record.read(files),
        )

    def keep(self, request: KeepRequest) -> KeepReply:
        """Have the directories of a job's attempts stay, or go when their time has come.

        Raises:
            RpcError: INVALID_PARAMS for what is no job.
        """
        self.named(AttemptKey(request.job_id, 0))
        known = list(preparation.directories(self._root, request.job_id))
        for files in known:
            if request.keeps:
                files.keep.touch(mode=0o600)
            else:
                files.keep.unlink(missing_ok=True)
        return KeepReply([str(files.directory) for files in known])

    def rendezvous(self, request: RendezvousRequest) -> RendezvousReply:
        """Tell whether the attempt's processes have found the others. Raises RpcError NO_SUCH_ATTEMPT."""
        files = self.files(request.key)
        return rendezvous.look(files, self._node_rank(files), request.port)

    def files(self, key: AttemptKey) -> AttemptFiles:
        """Return the names of a known attempt's files.

        Raises:
            RpcError: NO_SUCH_ATTEMPT.
        """
        files = self.named(key)
        if not is_known(files):
            said = sentences.NO_SUCH_ATTEMPT(attempt=key.attempt, job=key.job_id)
            raise RpcError(ErrorCode.NO_SUCH_ATTEMPT, said)
        return files

    def left(self, key: AttemptKey) -> AttemptFiles:
        """Return the names of the files of an attempt of which there is anything, if only its checkpoints.

        Raises:
            RpcError: NO_SUCH_ATTEMPT.
        """
        files = self.named(key)
        return files if files.directory.is_dir() else self.files(key)

    def _of_job(self, job_id: str) -> list[AttemptFiles]:
        return list(preparation.known(self._root, job_id))

    def named(self, key: AttemptKey) -> AttemptFiles:
        """Return the names of the files of an attempt, of which there may be nothing.

        Raises:
            RpcError: INVALID_PARAMS for what can be none.
        """
        try:
            return AttemptFiles.of(self._root, key.job_id, key.attempt)
        except ValueError as error:
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.BAD_ATTEMPT(error=str(error))) from error

    def _require_prepared(self, files: AttemptFiles) -> None:
        if not files.prepared.exists():
            raise RpcError(ErrorCode.WRONG_STATE, sentences.NOT_PREPARED())

    def _refuse_overtaken(self, files: AttemptFiles) -> None:
        """Attempt numbers only grow: whatever comes late for an earlier one is refused."""
        key = key_of(files)
        newest = max((key_of(other).attempt for other in preparation.known(self._root, key.job_id)), default=0)
        if newest > key.attempt:
            raise RpcError(ErrorCode.WRONG_STATE, sentences.SEEN_ALREADY(attempt=newest, job=key.job_id))
        if files.discarded.exists():
            raise RpcError(ErrorCode.WRONG_STATE, sentences.GIVEN_UP_ALREADY())

    def _overtake(self, files: AttemptFiles) -> None:
        """Give up what was prepared for earlier attempts of the job. One that still runs has to be stopped first."""
        for other in preparation.known(self._root, files.directory.parent.name):
            if preparation.is_running(other):
                raise RpcError(ErrorCode.REFUSED, sentences.STILL_RUNS(attempt=key_of(other).attempt))
            if other != files and not was_started(other):
                self._discard(other)

    def _discard(self, files: AttemptFiles) -> None:
        make_private(files.directory)
        write_atomic(files.discarded, "")
        self._leases.release(key_of(files))
        self._work.forget(key_of(files))
        if files.prepared.exists():  # Else all that can be there are checkpoints of an attempt that was cleared.
            self.retention.put_aside(files.work)

    def _node_rank(self, files: AttemptFiles) -> int:
        return preparation.read(files)[0].node_rank if files.prepared.exists() else 0

    def _write(self, path: Path, data: bytes, executable: bool, *, append: bool = False) -> None:
        make_private(path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_APPEND if append else os.O_TRUNC)
        try:
            with os.fdopen(os.open(path, flags, 0o700 if executable else 0o600), "wb") as stream:
                stream.write(data)
        except OSError as error:
            said = sentences.CANNOT_WRITE(path=str(path), reason=str(error.strerror))
            raise RpcError(ErrorCode.REFUSED, said) from error


def _has_checkpoints(files: AttemptFiles) -> bool | None:
    """Whether a file lies among the attempt's checkpoints; `None` where they are elsewhere, or nobody can tell."""
    try:
        specs = untrusted_files.read_object(files.start, untrusted_files.RECORD_BYTES)["processes"]
        told = {os.path.join(spec["cwd"], spec["env"]["DTTUI_CHECKPOINT_DIR"]) for spec in specs}
        if {os.path.normpath(path) for path in told} != {str(files.checkpoints)} or files.checkpoints.is_symlink():
            return None
        folders = itertools.islice(os.walk(files.checkpoints), MOST_FOLDERS)
        return any(names for _folder, _folders, names in folders)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _inside(directory: Path, relative: str) -> Path:
    pure = PurePosixPath(relative)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\0" in relative:
        raise RpcError(ErrorCode.INVALID_PARAMS, sentences.NOT_INSIDE(path=repr(relative)))
    return directory / pure


def _copy_payload(target: Path) -> None:
    """Copy the scripts and what they load from beside them; what they offer to the job's own has its name there too."""
    scripts = importlib.resources.files("dtagent.payload")
    for name in ("", "collectives", "sealed_rendezvous"):
        place = target / name
        place.mkdir(mode=0o700, exist_ok=True)
        for item in (scripts / name).iterdir():
            if re.fullmatch(r"[a-z_]+\.py", item.name) and (name or item.name != "__init__.py"):
                (place / item.name).write_bytes(item.read_bytes())
    modules = target / "modules"
    modules.mkdir(mode=0o700, exist_ok=True)
    for name, offered in (("dttui_collectives", "collectives"), ("sitecustomize.py", "sitecustomize.py")):
        with contextlib.suppress(FileExistsError):
            (modules / name).symlink_to(f"../{offered}")
