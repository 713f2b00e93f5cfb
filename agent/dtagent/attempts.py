"""The attempts on this host: prepare, upload, start, stop and status, told from files: a restart forgets nothing."""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import importlib.resources
import json
import logging
import math
import os
import re
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from dacite import DaciteError, from_dict

from dtagent import journal, processes, retention, supervisor
from dtagent.errors import RpcError
from dtagent.locations import AttemptFiles, make_private, write_atomic
from dtagent.network import interface_toward, reserve_port
from dtagent.protocol.jobs import (
    AttemptKey,
    Leftover,
    NodeState,
    NodeStatus,
    PrepareReply,
    PrepareRequest,
    ProcessExit,
    RankFailure,
    StartRequest,
    StopRequest,
    UploadRequest,
)
from dtagent.protocol.rpc import ErrorCode, to_wire

LOG = logging.getLogger("dtagent")
MAX_FAILURE_BYTES = 4 * 1024 * 1024
MAX_TEXT = 16 * 1024
"""Characters of an error or traceback that are passed on."""


class Attempts:
    """All attempts under one root."""

    def __init__(self, root: Path, free_gpus: Callable[[], list[int]]) -> None:
        self._root = root
        self._free_gpus = free_gpus
        self._ports: dict[AttemptKey, socket.socket] = {}

    def prepare(self, request: PrepareRequest) -> PrepareReply:
        """Make ready for an attempt; asking again gives the same answer.

        Raises:
            RpcError: REFUSED with what is missing here, WRONG_STATE once the attempt was discarded.
        """
        files = self._files(request.key)
        if files.discarded.exists():
            raise RpcError(ErrorCode.WRONG_STATE, "the attempt was given up already")
        if files.prepared.exists():
            return _prepared(files)[1]
        missing = [path for path in request.required_paths if not Path(path).exists()]
        if missing:
            raise RpcError(ErrorCode.REFUSED, f"there is no {', no '.join(missing)} here")
        python = shutil.which(os.path.expanduser(request.python))
        if python is None:
            raise RpcError(ErrorCode.REFUSED, f"there is no interpreter {request.python} here")
        interface, source = interface_toward(request.master_address)
        gpu_ids = self._claim_gpus(request.cuda_slots)
        for directory in (files.logs, files.ranks, files.failures, files.work, files.checkpoints):
            make_private(directory)
        _copy_payload(files.payload)
        reply = PrepareReply(
            directory=str(files.directory),
            python=python,
            payload=str(files.payload),
            interface=interface,
            source_address=source,
            master_port=self._reserve(request) if request.reserve_port else None,
            gpu_ids=gpu_ids,
        )
        write_atomic(files.prepared, json.dumps({"request": to_wire(request), "reply": to_wire(reply)}))
        return reply

    def upload(self, request: UploadRequest) -> int:
        """Append a part to a file under the attempt's `work`; return the file's length afterwards."""
        files = self._files(request.key)
        self._require_prepared(files)
        path = _inside(files.work, request.path)
        size = path.stat().st_size if path.exists() else 0
        if request.offset != size:
            return size
        try:
            data = base64.b64decode(request.data, validate=True)
        except binascii.Error as error:
            raise RpcError(ErrorCode.INVALID_PARAMS, f"not base64: {error}") from error
        self._write(path, data, request.executable, append=True)
        return size + len(data)

    def start(self, request: StartRequest) -> NodeStatus:
        """Start a prepared attempt; a second call changes nothing."""
        files = self._files(request.key)
        self._require_prepared(files)
        if files.discarded.exists():
            raise RpcError(ErrorCode.WRONG_STATE, "the attempt was given up already")
        if not files.start.exists():
            for file in request.files:
                self._write(_inside(files.directory, file.path), file.text.encode(), file.executable)
            write_atomic(files.start, json.dumps(to_wire(replace(request, secrets={}))))
            self._release(request.key)
            supervisor.spawn(files.directory, request.secrets)
        return self.status(request.key)

    def stop(self, request: StopRequest) -> NodeStatus:
        """Ask the supervisor to end the attempt, or discard one that was never started. Does not wait."""
        files = self._files(request.key)
        if not files.start.exists():
            make_private(files.directory)
            write_atomic(files.discarded, "")
            self._release(request.key)
            if files.prepared.exists():  # Else all that can be there are checkpoints of an attempt that was cleared.
                shutil.rmtree(files.work, ignore_errors=True)
            return self.status(request.key)
        wanted = "kill" if request.force or (files.stop.exists() and files.stop.read_text() == "kill") else "stop"
        write_atomic(files.stop, wanted)
        identity = self._supervisor_of(files)
        if identity is not None and _is_locked(files.lock):
            processes.send(identity, supervisor.KILL if request.force else supervisor.STOP)
        return self.status(request.key)

    def status(self, key: AttemptKey) -> NodeStatus:
        """Tell where an attempt stands; clears up after a supervisor that vanished.

        Raises:
            RpcError: NO_SUCH_ATTEMPT.
        """
        files = self.files(key)
        if not files.start.exists():
            state = NodeState.DISCARDED if files.discarded.exists() else NodeState.PREPARED
            return NodeStatus(key, self._node_rank(files), state)
        records = journal.read(files.journal)
        states = [record for record in records if record["event"] == "state"]
        state = NodeState(states[-1]["state"]) if states else NodeState.RUNNING
        if not state.is_final and not _is_locked(files.lock) and not self._is_starting(files):
            self._bury(files, key)
            return self.status(key)
        last = states[-1] if states else {}
        return NodeStatus(
            key,
            self._node_rank(files),
            state,
            reason=last.get("reason", ""),
            started_at=states[0]["time"] if states else None,
            ranks_started=sorted(int(path.stem) for path in files.ranks.glob("*.json") if path.stem.isdigit()),
            exits=[
                ProcessExit(record["name"], record["ended_at"], record["exit_code"], record["signal"])
                for record in records
                if record["event"] == "exit"
            ],
            failures=_failures(files),
            leftovers=[Leftover(**item) for item in last.get("leftovers", [])],
        )

    def all(self) -> list[NodeStatus]:
        """Return the status of every attempt; one of which only checkpoints are left is none any more."""
        return [self.status(_key(files)) for files in self._known()]

    def old(self) -> list[AttemptKey]:
        """Return the attempts that are over and, as `retention` says, may go."""
        over = [files for files in self._known() if not _is_locked(files.lock)]
        return [_key(files) for files in retention.expired(over, time.time())]

    def remove(self, key: AttemptKey) -> None:
        """Remove all but the checkpoints of an attempt that was `old`, unless it was started since or may still run."""
        files = self._files(key)
        try:
            # Asking for the status ends what a supervisor that vanished left running.
            if not retention.is_old(files, time.time()) or self.status(key).state is NodeState.UNKILLABLE:
                return
            kept = retention.clear(files)
        except (RpcError, DaciteError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            LOG.warning("cannot remove %s: %s", files.directory, error)
        else:
            LOG.info("removed %s%s", files.directory, f" but {', '.join(map(str, kept))}" if kept else "")

    def running_ranks(self) -> dict[str, dict[int, tuple[int, int | None]]]:
        """Return job id → rank → pid and start time of the attempts that run."""
        found: dict[str, dict[int, tuple[int, int | None]]] = {}
        for lock in self._root.glob("jobs/*/*/supervisor.lock"):
            if not _is_locked(lock):
                continue
            ranks = found.setdefault(lock.parent.parent.name, {})
            for path in (lock.parent / "ranks").glob("*.json"):
                with contextlib.suppress(ValueError, OSError, KeyError):
                    body = json.loads(path.read_text())
                    ranks[int(path.stem)] = (body["pid"], body["start_time"])
        return found

    def stamp(self, key: AttemptKey) -> str:
        """Return a string that changes whenever the status of the attempt may have."""
        files = self.files(key)
        journal_size = files.journal.stat().st_size if files.journal.exists() else 0
        listed = [sum(1 for _ in directory.glob("*.json")) for directory in (files.ranks, files.failures)]
        flags = [files.start.exists(), files.discarded.exists(), _is_locked(files.lock)]
        return ":".join(str(int(part)) for part in [journal_size, *listed, *flags])

    def files(self, key: AttemptKey) -> AttemptFiles:
        """Return the names of a known attempt's files.

        Raises:
            RpcError: NO_SUCH_ATTEMPT.
        """
        files = self._files(key)
        if not _is_known(files):
            raise RpcError(ErrorCode.NO_SUCH_ATTEMPT, f"no attempt {key.attempt} of job {key.job_id} here")
        return files

    def _known(self) -> list[AttemptFiles]:
        found = [AttemptFiles(path) for path in sorted(self._root.glob("jobs/*/*")) if path.name.isdigit()]
        return [files for files in found if _is_known(files)]

    def _files(self, key: AttemptKey) -> AttemptFiles:
        try:
            return AttemptFiles.of(self._root, key.job_id, key.attempt)
        except ValueError as error:
            raise RpcError(ErrorCode.INVALID_PARAMS, str(error)) from error

    def _require_prepared(self, files: AttemptFiles) -> None:
        if not files.prepared.exists():
            raise RpcError(ErrorCode.WRONG_STATE, "the attempt was not prepared")

    def _reserve(self, request: PrepareRequest) -> int:
        held = reserve_port(*request.port_range)
        if held is None:
            first, last = request.port_range
            raise RpcError(ErrorCode.REFUSED, f"every port from {first} to {last} is taken")
        self._ports[request.key] = held
        return int(held.getsockname()[1])

    def _release(self, key: AttemptKey) -> None:
        held = self._ports.pop(key, None)
        if held is not None:
            held.close()

    def _claim_gpus(self, count: int) -> list[int]:
        if not count:
            return []
        taken = {
            gpu
            for path in self._root.glob("jobs/*/*/prepared.json")
            if self._holds_gpus(AttemptFiles(path.parent))
            for gpu in _prepared(AttemptFiles(path.parent))[1].gpu_ids
        }
        free = [index for index in self._free_gpus() if index not in taken]
        if len(free) < count:
            used = f"; GPUs {', '.join(map(str, sorted(taken)))} belong to other jobs" if taken else ""
            raise RpcError(ErrorCode.REFUSED, f"{count} GPUs are wanted and {len(free)} are free here{used}")
        return free[:count]

    def _holds_gpus(self, files: AttemptFiles) -> bool:
        return not files.discarded.exists() and (not files.start.exists() or _is_locked(files.lock))

    def _node_rank(self, files: AttemptFiles) -> int:
        return _prepared(files)[0].node_rank if files.prepared.exists() else 0

    def _supervisor_of(self, files: AttemptFiles) -> processes.ProcessId | None:
        try:
            body = json.loads(files.supervisor.read_text())
        except (OSError, ValueError):
            return None
        if body["boot_id"] != processes.boot_id():
            return None
        return processes.ProcessId(body["pid"], body["start_time"])

    def _is_starting(self, files: AttemptFiles) -> bool:
        """Whether the supervisor may still be on its way: it was asked for moments ago and has not spoken yet."""
        return not files.supervisor.exists() and time.time() - files.start.stat().st_mtime < 10

    def _bury(self, files: AttemptFiles, key: AttemptKey) -> None:
        """End what a vanished supervisor left and write its last word."""
        node_rank = self._node_rank(files)
        left = processes.kill_all(lambda: processes.attempt_processes(key, node_rank, None), 10.0)
        state = NodeState.UNKILLABLE if left else NodeState.LOST
        reason = "the supervisor on this host died" if files.supervisor.exists() else "the supervisor did not start"
        record = {"event": "state", "state": state.value, "time": time.time(), "reason": reason}
        journal.append(files.journal, {**record, "leftovers": to_wire(left)})

    def _write(self, path: Path, data: bytes, executable: bool, *, append: bool = False) -> None:
        make_private(path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_APPEND if append else os.O_TRUNC)
        try:
            with os.fdopen(os.open(path, flags, 0o700 if executable else 0o600), "wb") as stream:
                stream.write(data)
        except OSError as error:
            raise RpcError(ErrorCode.REFUSED, f"cannot write {path}: {error.strerror}") from error


def _inside(directory: Path, relative: str) -> Path:
    pure = PurePosixPath(relative)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\0" in relative:
        raise RpcError(ErrorCode.INVALID_PARAMS, f"not a path inside the attempt's directory: {relative!r}")
    return directory / pure


def _key(files: AttemptFiles) -> AttemptKey:
    return AttemptKey(files.directory.parent.name, int(files.directory.name))


def _is_known(files: AttemptFiles) -> bool:
    """Whether more than checkpoints is left of an attempt."""
    return files.prepared.exists() or files.start.exists() or files.discarded.exists()


def _prepared(files: AttemptFiles) -> tuple[PrepareRequest, PrepareReply]:
    body = json.loads(files.prepared.read_text())
    request = {**body["request"], "port_range": tuple(body["request"]["port_range"])}
    return from_dict(PrepareRequest, request), from_dict(PrepareReply, body["reply"])


def _copy_payload(target: Path) -> None:
    target.mkdir(mode=0o700, exist_ok=True)
    for item in importlib.resources.files("dtagent.payload").iterdir():
        if re.fullmatch(r"[a-z]+\.py", item.name):
            (target / item.name).write_bytes(item.read_bytes())


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _failures(files: AttemptFiles) -> list[RankFailure]:
    """Join what the ranks recorded themselves (traceback) with what their launcher saw (exit code or signal)."""
    found: dict[int, dict[str, Any]] = {}
    for path in sorted(files.failures.glob("*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            if path.stat().st_size > MAX_FAILURE_BYTES:
                continue
            body = json.loads(path.read_text())
            for item in body if isinstance(body, list) else [body]:
                known = found.setdefault(int(item["rank"]), {})
                # The rank's own word on its error beats the launcher's, the launcher's on its exit beats the rank's.
                known.update({key: value for key, value in item.items() if value is not None and key not in known})
                if isinstance(body, list):
                    known.update(exit_code=item.get("exit_code"), signal=item.get("signal"))
    failures = []
    for rank, body in sorted(found.items()):
        # The job's own processes can write these files: what does not fit is left out, and never breaks the status.
        with contextlib.suppress(DaciteError, ValueError, TypeError):
            texts = {name: text[-MAX_TEXT:] for name, text in body.items() if isinstance(text, str)}
            fields = {**body, **texts, "rank": rank, "time": _finite(body.get("time", 0.0))}
            failures.append(from_dict(RankFailure, fields))
    return failures


def _finite(value: Any) -> float:
    number = float(value)
    return number if math.isfinite(number) else 0.0
