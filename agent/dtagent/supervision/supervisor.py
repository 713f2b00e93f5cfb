"""Owns the processes of one attempt here, outlives the daemon, leaves nothing behind. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dtagent.locations import AttemptFiles, make_private, rank_of, write_atomic
from dtagent.protocol import sentences
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.health import Health, HealthCheck
from dtagent.protocol.jobs import EndReason, Leftover, NodeState, ProcessSpec, StartRequest
from dtagent.protocol.rpc import to_wire
from dtagent.protocol.said import Said
from dtagent.supervision import container_removal, journal, logcap, shared_memory, usage
from dtagent.supervision.family import KILL_DEADLINE_S, Family, kill_all
from dtagent.supervision.forked import ForkedProcess, fork
from dtagent.supervision.forkserver_client import ForkServerClient
from dtagent.supervision.health import HealthRunner
from dtagent.supervision.oom_kills import OomKills
from dtagent.supervision.records import Records
from dtagent.supervision.self_fence import SelfFence
from dtagent.system import cgroup, gpu_locks, proc_stat, processes, untrusted_files
from dtagent.system.retry import retry_when_short

PR_SET_CHILD_SUBREAPER = 36
LEFTOVER_GRACE_S = 3.0
"""Between TERM and KILL for what remains when the attempt's own processes have ended."""
HANDLES_S = 60.0
"""How long this host may be short of file handles before an attempt is given up for want of them."""
SHARED_MEMORY_NAMES = 100
"""Objects removed from /dev/shm that the journal names."""

NO_LOCK = 4
"""Exit status where the lock did not come along."""
STOP = signal.SIGTERM
"""Ends the attempt after its grace period."""
KILL = signal.SIGUSR1
"""Ends it at once."""
SERVED = signal.SIGUSR2
"""Ends services that have nothing on this node to serve: all of it has ended well elsewhere."""
WORDS = {"served": SERVED, "stop": STOP, "kill": KILL}
"""What the file `stop` of an attempt may say, the strongest last, and the signal that says the same."""


def supervise(directory: Path, forkserver: ForkServerClient | None = None, held: Sequence[int] = ()) -> int:
    """Run the attempt in `directory`, whose lock the caller holds, to its end; return 0, or 1 where it ran before.

    Args:
        directory: of the attempt.
        forkserver: what a process with `warm_start` is forked by.
        held: descriptors of the locks on its GPUs.
    """
    files = AttemptFiles(directory)
    if journal.has_run(files):
        return 1  # Nothing is started twice.
    request = _request(files.start)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    Supervisor(files, request, forkserver, held).run()
    return 0


class Supervisor:
    """One attempt on this host, from its start to its end."""

    def __init__(
        self, files: AttemptFiles, request: StartRequest, forkserver: ForkServerClient | None, held: Sequence[int] = ()
    ) -> None:
        self._files = files
        self._held = held
        self._forkserver = forkserver
        """Until a process was started by it, or could not be."""
        self._forked: ForkedProcess | None = None
        self._request = request
        key = request.key
        name = f"dtagent-{key.job_id}-{key.attempt}-{request.node_rank}-{os.getpid()}"
        self._family = Family(key, request.node_rank, os.getpid(), cgroup=cgroup.create(name))
        inner = [self._family.cgroup.path] if self._family.cgroup is not None else []
        own = [*inner, *cgroup.memory_directories(and_above=False)]
        is_elsewhere_too = any(process.removal for process in request.processes)
        self._oom_kills = OomKills([*inner, *cgroup.memory_directories()], own=() if is_elsewhere_too else own)
        self._records = Records(files, lambda: self._family)
        self._memory = usage.MemoryPeak(self._family)
        self._shared_memory = set(shared_memory.private_objects().values())
        reports = (files.metrics, files.trainer)
        self._fence = SelfFence(files, request.self_fence_s)
        self._log_cap = logcap.LogCap(files.logs, request.log_cap_bytes, self._warn, reports, self._cut)
        self._health: HealthRunner | None = None
        self._health_told: Health | None = None
        self._children: dict[int, str] = {}
        self._services = {spec.name for spec in request.processes if spec.is_service}
        self._has_served = False
        """Whether services are needed no more, so that it does not matter how they end."""
        self._handles: list[subprocess.Popen[bytes]] = []
        self._failed = False
        self._signals: list[int] = []
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self) -> None:
        """Start the processes and return once all have ended, and what is told of them is on the disk."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, lambda *_: None)  # Not SIG_IGN: that would be inherited.
        for number in (STOP, signal.SIGINT, KILL, SERVED):
            signal.signal(number, lambda received, _: self._signals.append(received))
        # In this order: whoever asks for a stop writes it down first and then looks for whom to signal.
        self._announce()
        if self._files.stop.exists():
            self._signals.append(WORDS.get(self._files.stop.read_text(), STOP))
        self._record(NodeState.RUNNING)
        for spec in self._request.processes:
            if self._is_told_to_stop or not self._spawn(spec):
                break
        self._health = self._health_runner()
        stop_reason = self._wait_for_end()
        if self._health is not None:
            self._health.close(self._reap)
            self._health = None
        leftovers = self._end(stop_reason)
        if not leftovers and self._forked is not None:
            self._forked.await_forkserver()
        state = NodeState.UNKILLABLE if leftovers else NodeState.ENDED
        self._records.copy_logs()
        if not leftovers:
            clear_up(self._files, self._family, self._shared_memory)
        container_removal.carry_out(self._files, self._request.processes)
        if not leftovers:  # Before the end is known, from which on the next attempt may start.
            for descriptor in self._held:
                os.close(descriptor)
            self._held = ()
        why = sentences.SENTENCES[stop_reason]() if stop_reason is not None else Said("")
        told = {"reason": why, "notice": why.notice}
        self._record(state, **told, leftovers=to_wire(leftovers), usage=self._usage())

    def _health_runner(self) -> HealthRunner | None:
        check = self._request.health
        if check is None or not self._request.processes:
            return None
        environment = {**os.environ, **self._request.processes[0].env}
        return HealthRunner(check, self._family, environment, self._has_all_ranks, self._tell_health)

    def _has_all_ranks(self) -> bool:
        """Whether every rank of this node runs the user's code; their numbers say nothing where torchrun gives them."""
        return sum(rank_of(path) is not None for path in self._files.ranks.glob("*.json")) >= len(self._request.ranks)

    def _tell_health(self, health: Health) -> None:
        """Write what is known, unless it is there. No record: for want of it nothing else may go unwritten."""
        if health != self._health_told or not self._files.health.exists():
            with contextlib.suppress(OSError):  # It is tried again after the next run.
                write_atomic(self._files.health, json.dumps(to_wire(health)))
                self._health_told = health

    def _announce(self) -> None:
        identity = processes.identify(os.getpid())
        start_time = identity.start_time if identity else None
        body = {
            "boot_id": processes.boot_id(),
            "pid": os.getpid(),
            "start_time": start_time,
            # For whoever clears up if this process is killed.
            "cgroup": str(self._family.cgroup.path) if self._family.cgroup else None,
            "shared_memory": sorted(self._shared_memory),
        }
        self._records.keep(self._files.supervisor, json.dumps(body))

    def _spawn(self, spec: ProcessSpec) -> bool:
        name = spec.name
        environment = {**os.environ, **spec.env}
        if spec.python_path:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), spec.python_path)))
        with self._log(name, "out") as out, self._log(name, "err") as err:
            try:
                self._make_checkpoints(environment.get("DTTUI_CHECKPOINT_DIR"), spec.cwd)
            except OSError as error:  # The script may never use it, or only on another node.
                err.write(f"dtagent: cannot make DTTUI_CHECKPOINT_DIR: {error}\n".encode())
            if spec.warm_start and self._fork(spec, environment, out.fileno(), err.fileno()):
                return True
            try:
                child = subprocess.Popen(
                    spec.argv,
                    cwd=spec.cwd,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    # Before the program runs, so that nothing it forks is ever outside. There are no threads here.
                    preexec_fn=self._family.cgroup.enter if self._family.cgroup else None,
                    # Whoever kills this process must not free the GPUs that they still use.
                    pass_fds=self._held,
                )
            except (OSError, ValueError) as error:
                err.write(f"cannot start {spec.argv[0]}: {error}\n".encode())
                self._exited(name, 127)
                return False
        self._children[child.pid] = name
        self._handles.append(child)  # A Popen that is collected reaps its child, and the exit status would be lost.
        self._has_started(spec, child.pid, processes.identify(child.pid))
        return True

    def _fork(self, spec: ProcessSpec, environment: dict[str, str], out: int, err: int) -> bool:
        """Have a process forked that has its imports done; return whether it runs. Where not, nothing of it is left."""
        forkserver, self._forkserver = self._forkserver, None
        if forkserver is None:
            return False
        forked = fork(forkserver, spec, environment, (out, err), self._family, self._warn, self._forked_ended)
        if forked is None:
            return False
        self._forked = forked
        self._family = self._memory.family = dataclasses.replace(self._family, keepers=forked.keepers)
        for keeper in forked.keepers:
            self._note("stem", pid=keeper.pid, start_time=keeper.start_time)
        self._children[forked.pid] = spec.name
        self._has_started(spec, forked.pid, forked.id)
        return True

    def _forked_ended(self, code: int, used: dict[str, Any] | None) -> None:
        if self._forked is not None and (name := self._children.pop(self._forked.pid, None)) is not None:
            self._family = self._memory.family = dataclasses.replace(self._family, members=self._forked.orphans)
            self._exited(name, code, used)

    def _has_started(self, spec: ProcessSpec, pid: int, started: processes.ProcessId | None) -> None:
        body = {"pid": pid, "start_time": started.start_time if started else None}
        self._note("process", name=spec.name, **body)
        if spec.rank is not None:
            try:
                self._records.keep(self._files.ranks / f"{spec.rank}.json", json.dumps(body))
            except OSError as error:  # It runs; all that is lost is what is sampled of it.
                self._warn(sentences.CANNOT_WRITE(path=str(self._files.ranks), reason=str(error.strerror)))

    def _make_checkpoints(self, told: str | None, cwd: str) -> None:
        """Make the directory that a process is told to write to; outside of ours it may be for more than this user."""
        if not told:
            return
        directory = Path(cwd, told)
        if self._files.directory in directory.parents:
            make_private(directory)
        else:
            directory.mkdir(parents=True, exist_ok=True)

    def _log(self, name: str, stream: str) -> Any:
        path = self._files.logs / f"{name}.{stream}"
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "wb", 0)

    def _wait_for_end(self) -> EndReason | None:
        """Wait until all own processes but services have ended well, or something calls for an end; return why."""
        while self._is_needed and not self._failed and not self._is_told_to_stop and not self._fence.is_due:
            self._wait(self._memory.wait_s())
            self._memory.look()
        if self._is_told_to_stop:
            return EndReason.STOPPED
        if self._is_needed and not self._failed:
            return EndReason.SELF_FENCED
        self._has_served = not self._failed
        return EndReason.PROCESS_FAILED if self._failed else None

    @property
    def _is_told_to_stop(self) -> bool:
        return any(number != SERVED for number in self._signals)

    @property
    def _is_needed(self) -> bool:
        """Whether something runs that is no service, or, where there never was, services that others may need."""
        if all(spec.is_service for spec in self._request.processes):
            return bool(self._children) and SERVED not in self._signals
        return any(name not in self._services for name in self._children.values())

    def _end(self, reason: EndReason | None) -> list[Leftover]:
        if reason is EndReason.STOPPED and KILL not in self._signals:
            self._record(NodeState.STOPPING)
        if (reason or self._children) and KILL not in self._signals:
            # Only the own processes hear TERM: torchrun passes it on, and a data loader that dies of it
            # would make its rank fail before the rank has written its checkpoint.
            for pid in list(self._children):
                if self._forked is not None and self._forked.pid == pid:
                    self._forked.terminate()
                    continue
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            self._wake_stopped()
            needs_grace = self._has_served or (reason is EndReason.STOPPED and not self._waits_for_others())
            grace_s = self._request.grace_s if needs_grace else LEFTOVER_GRACE_S
            self._wait_while(lambda: bool(self._children), self._wait, grace_s)
        # Without file handles nobody can be told to end: then all are killed once there are some.
        with contextlib.suppress(OSError):
            if not self._children and (left := retry_when_short(self._family.scan, LEFTOVER_GRACE_S)):
                for process in left:
                    processes.send(process, signal.SIGTERM)
                self._wait_while(lambda: bool(self._family.scan()), self._wait_for_all, LEFTOVER_GRACE_S)
        return kill_all(self._family, KILL_DEADLINE_S, on_wait=self._reap)

    def _wake_stopped(self) -> None:
        """Let those run on that are stopped by a signal: only then do they hear TERM, and launchers wait for them."""
        with contextlib.suppress(OSError):
            for process in self._family.scan():
                stat = proc_stat.read(process.pid)
                if stat is not None and stat.state == "T":
                    processes.send(process, signal.SIGCONT)

    def _waits_for_others(self) -> bool:
        """Whether all ranks of this node have ended, and what is left is a launcher that waits for other nodes."""
        if any(spec.rank is not None for spec in self._request.processes):
            return False
        # Their names say nothing where torchrun numbers ranks by itself.
        records = [path for path in self._files.ranks.glob("*.json") if rank_of(path) is not None]
        for path in records:
            try:
                told = untrusted_files.read_object(path)
                process = processes.ProcessId(told["pid"], told["start_time"])
                if processes.identify(process.pid) == process:
                    return False
            except (OSError, ValueError, KeyError, TypeError, OverflowError):
                return False
        return bool(records) and len(records) >= len(self._request.ranks)

    def _wait_while(self, condition: Callable[[], bool], wait: Callable[[float], None], limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while KILL not in self._signals and condition() and (remaining_s := deadline - time.monotonic()) > 0:
            wait(remaining_s)

    def _wait_for_all(self, timeout_s: float) -> None:
        processes.wait_for_ends(self._family.scan(), timeout_s, wake=self._wake_read)
        self._wait(0)

    def _wait(self, timeout_s: float | None) -> None:
        """Wait for a signal; those of children that ended say nothing of which, so all are asked after."""
        due_s = min(self._log_cap.wait_s(), self._records.wait_s())
        if self._health is not None:
            due_s = min(due_s, self._health.wait_s())
        awaited: list[Any] = [self._wake_read, *(self._forked.awaited if self._forked is not None else [])]
        select.select(awaited, [], [], due_s if timeout_s is None else min(timeout_s, due_s))
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        self._log_cap.look()
        self._records.look()
        self._oom_kills.look(self._children)
        for descriptor in self._held:
            gpu_locks.restore(descriptor)
        self._fence.look()
        self._reap()
        if self._health is not None:
            self._health.look()

    def _usage(self) -> dict[str, Any]:
        return usage.of_all(self._memory, self._forked.used_below if self._forked is not None else None)

    def _reap(self) -> None:
        if self._forked is not None:
            self._forked.hear()
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, used = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                if self._health is not None:
                    self._health.reaped(pid, os.waitstatus_to_exitcode(status))
                name = self._children.pop(pid, None)
                if name is not None:
                    self._exited(name, os.waitstatus_to_exitcode(status), usage.of_exit(used), pid)

    def _exited(self, name: str, code: int, used: dict[str, Any] | None = None, pid: int | None = None) -> None:
        if self._has_served and name in self._services:
            code = 0
        self._failed = self._failed or code != 0
        self._note(
            "exit",
            name=name,
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            ended_at=time.time(),
            **(self._oom_kills.recent(pid) if code else {}),
            **(used or {}),
        )

    def _warn(self, said: Said) -> None:
        self._note("warning", time=time.time(), text=said, notice=said.notice)

    def _cut(self, stream: str) -> None:
        self._note("log_cut", stream=stream)

    def _record(self, state: NodeState, **more: Any) -> None:
        self._note("state", state=state.value, time=time.time(), **more)

    def _note(self, event: str, **more: Any) -> None:
        """Add a record to the journal, which takes a file handle."""
        retry_when_short(lambda: self._records.note({"event": event, **more}), HANDLES_S)


def _request(path: Path) -> StartRequest:
    """Return what is to be run: a daemon of this very version wrote it just now."""
    body = json.loads(path.read_text())
    specs = [ProcessSpec(**spec) for spec in body["processes"]]
    health = HealthCheck(**body["health"]) if body.get("health") else None
    return StartRequest(**{**body, "key": AttemptKey(**body["key"]), "processes": specs, "files": [], "health": health})


def clear_up(files: AttemptFiles, family: Family, shared_memory_before: set[int]) -> None:
    """Remove what the processes of an attempt left that nobody needs, now that they are gone, and journal it."""
    with contextlib.suppress(OSError):  # Its launcher may have ended before it could.
        files.rendezvous_key.unlink(missing_ok=True)
    if family.cgroup:
        family.cgroup.remove()
    removed = shared_memory.remove_leftovers(shared_memory_before)
    if removed:
        record = {"names": [item.name for item in removed[:SHARED_MEMORY_NAMES]], "count": len(removed)}
        size_bytes = sum(item.size_bytes for item in removed)
        journal.append(files.journal, {"event": "shared_memory_removed", **record, "size_bytes": size_bytes})


def main(directory: Path, lock: int, forkserver: int | None = None, *, gpu_locks: Sequence[int] = ()) -> int:
    """Take the secrets from stdin, detach from the caller, supervise.

    Args:
        directory: of the attempt.
        lock: inherited descriptor of its locked `supervisor.lock`, which is so never free between the request to start
            and the end of the supervisor.
        forkserver: inherited descriptor of a socket by which a process is forked.
        gpu_locks: inherited descriptors of the locks on its GPUs.
    """
    try:
        is_ours = os.path.samestat(os.fstat(lock), os.stat(AttemptFiles(directory).lock))
        for descriptor in (lock, *gpu_locks):
            os.set_inheritable(descriptor, False)
    except OSError:
        is_ours = False
    if not is_ours:
        sys.stderr.write(f"dtagent: descriptor {lock} is not the lock of {directory}\n")
        return NO_LOCK
    # Nothing at all came if the daemon died before it could say; then the job must not run without its secrets.
    os.environ.update(json.loads(sys.stdin.buffer.read()))
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if forkserver is None:
        return supervise(directory, held=gpu_locks)
    os.set_inheritable(forkserver, False)
    return supervise(directory, ForkServerClient(socket.socket(fileno=forkserver)), gpu_locks)
