"""What the daemon can tell of a supervisor that it may not have started, and what it does after one that vanished."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dtagent import linger
from dtagent.attempts import history
from dtagent.locations import AttemptFiles, make_private, own_python, write_atomic
from dtagent.protocol import sentences
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import Leftover, NodeState
from dtagent.protocol.rpc import to_wire
from dtagent.protocol.said import Said
from dtagent.supervision import container_removal, journal, supervisor
from dtagent.supervision.family import KILL_DEADLINE_S, Family, kill_all
from dtagent.supervision.records import LOOK_S
from dtagent.system import processes, untrusted_files
from dtagent.system.cgroup import SCOPE_PREFIX, Cgroup
from dtagent.system.processes import ProcessId
from dtagent.system.retry import PAUSE_S

LOG = logging.getLogger("dtagent")
SPAWN_TIMEOUT_S = 20.0
RECORDS_S = 3 * LOOK_S
"""For a supervisor to make anew what was removed."""


@contextlib.contextmanager
def locked(files: AttemptFiles) -> Iterator[int]:
    """Hold the lock that a supervisor is to be started with; whoever looks meanwhile takes it for alive."""
    lock = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # A look holds it for a moment.
        yield lock
    finally:
        os.close(lock)


def spawn(
    directory: Path, secrets: dict[str, str], lock: int, forkserver: int | None = None, *, gpu_locks: Sequence[int] = ()
) -> None:
    """Start a supervisor that no longer belongs to this process: own session, no terminal, own standard streams.

    Where systemd lets this user's processes outlive a logout, it goes into a scope of its own, which neither the end of
    the session nor that of the daemon's unit touches. Secrets go through a pipe, so that they are in no file and no
    command line.

    Args:
        directory: of the attempt.
        secrets: environment variables of its processes.
        lock: what `locked` gave; the supervisor inherits it.
        forkserver: a socket that it inherits too, by which its launcher is forked.
        gpu_locks: what keeps other users from its GPUs; it and its processes inherit them.
    """
    descriptors = [lock] if forkserver is None else [lock, forkserver]
    if linger.can_outlive_logout():
        name = f"{SCOPE_PREFIX}{hashlib.sha256(str(directory).encode()).hexdigest()[:16]}.scope"
        # It fails before there is a supervisor, or not at all; where it does not come back that is not known.
        if _supervise(linger.scope_argv(name), directory, secrets, descriptors, gpu_locks) == 0:
            return
        LOG.warning("no scope for %s: its supervisor stays with the daemon, whose end it outlives", directory)
    _supervise([], directory, secrets, descriptors, gpu_locks)


def _supervise(
    before: list[str], directory: Path, secrets: dict[str, str], descriptors: list[int], gpu_locks: Sequence[int]
) -> int:
    held = ["--gpu-locks", *map(str, gpu_locks)] if gpu_locks else []
    with open(AttemptFiles(directory).supervisor_errors, "ab") as errors:
        # `supervise` forks away, so this child ends at once and the daemon has none to wait for.
        return subprocess.run(
            [*before, own_python(), "-I", "-m", "dtagent", "supervise", str(directory), *map(str, descriptors), *held],
            input=json.dumps(secrets).encode(),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd="/",
            env=linger.user_environment() if before else None,
            start_new_session=True,
            pass_fds=[*descriptors, *gpu_locks],
            timeout=SPAWN_TIMEOUT_S,
            check=False,
        ).returncode


def is_locked(path: Path) -> bool:
    """Whether whoever holds this lock for as long as it lives does: a supervisor its file, a daemon its root."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # Of two who look at once, neither sees the other.
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def identity(files: AttemptFiles) -> ProcessId | None:
    """Return who the attempt's supervisor is or was in this boot of the host.

    Who has its lock open lives, whatever the host says of its boot: no lock outlives one.
    """
    told = _report_of(files)
    if told is None:
        return None
    process = ProcessId(told["pid"], told["start_time"])
    if told["boot_id"] != processes.boot_id() and not processes.has_open(process, files.lock):
        return None
    return process


def bury(files: AttemptFiles, key: AttemptKey, node_rank: int) -> None:
    """End what a supervisor left that holds its lock no more, and write its last word, unless that is written."""
    with open(files.lock, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if history.read(files).state.is_final:
            return
        records = journal.read(files.journal)
        told = _report_of(files)
        is_this_boot = told is not None and told["boot_id"] == processes.boot_id()
        family = Family(key, node_rank)
        if told and is_this_boot:
            members = tuple(
                ProcessId(record["pid"], record["start_time"])
                for record in records
                if record.get("event") in ("process", "stem") and {"pid", "start_time"} <= record.keys()
            )
            path = told.get("cgroup")
            family = Family(key, node_rank, members=members, cgroup=Cgroup(Path(path)) if path else None)
        left = kill_all(family, KILL_DEADLINE_S)
        if is_this_boot:
            container_removal.carry_out(files, container_removal.asked_for(files))
        if told and is_this_boot and not left:
            supervisor.clear_up(files, family, set(told.get("shared_memory", [])))
        if told is None:
            why = sentences.NO_SUPERVISOR()
        else:
            why = sentences.SUPERVISOR_DIED() if is_this_boot else sentences.HOST_RESTARTED()
        journal.append(files.journal, _last_word(left, why))


def end_unrecorded(files: AttemptFiles, key: AttemptKey, node_rank: int) -> bool:
    """End processes that bear an attempt's marks though nothing is recorded of it here; return whether there were any.

    A supervisor that lives makes its records anew first, and is then the one to be asked.

    Raises:
        OSError: that cannot be told, or not be written down.
    """
    family = Family(key, node_rank)
    deadline = time.monotonic() + RECORDS_S
    while family.scan() and not journal.has_run(files):
        if time.monotonic() > deadline:
            left = kill_all(family, KILL_DEADLINE_S)
            make_private(files.directory)
            write_atomic(files.discarded, "")  # So that it is known here, and nothing is started any more.
            journal.create(files.journal)
            journal.append(files.journal, _last_word(left, sentences.RECORDS_REMOVED()))
            return True
        time.sleep(PAUSE_S)
    return False


def _last_word(left: list[Leftover], why: Said) -> dict[str, Any]:
    """Return the record of the end of an attempt whose supervisor is gone."""
    state = NodeState.UNKILLABLE if left else NodeState.LOST
    record = {"event": "state", "state": state.value, "time": time.time(), "reason": why, "notice": why.notice}
    return {**record, "leftovers": to_wire(left)}


def _report_of(files: AttemptFiles) -> dict[str, Any] | None:
    """Return what the supervisor said of itself before it started anything."""
    try:
        told = untrusted_files.read_object(files.supervisor, untrusted_files.RECORD_BYTES)
    except (FileNotFoundError, untrusted_files.UnusableFileError, ValueError):
        return None
    return told if {"boot_id", "pid", "start_time"} <= told.keys() else None
