"""Owns the processes of one attempt here, outlives the daemon, leaves nothing behind. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from dtagent import journal, processes
from dtagent.locations import AttemptFiles, make_private, own_python, write_atomic
from dtagent.protocol.jobs import AttemptKey, Leftover, NodeState
from dtagent.protocol.rpc import to_wire

PR_SET_CHILD_SUBREAPER = 36
LEFTOVER_GRACE_S = 3.0
"""Between TERM and KILL for what remains when the attempt's own processes have ended."""
KILL_DEADLINE_S = 10.0
LOCK_DEADLINE_S = 2.0

STOP = signal.SIGTERM
"""Ends the attempt after its grace period."""
KILL = signal.SIGUSR1
"""Ends it at once."""


def supervise(directory: Path) -> int:
    """Run the attempt in `directory` to its end; return 0, or 1 where another supervisor has it already."""
    files = AttemptFiles(directory)
    lock = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _take(lock):
        return 1
    if journal.read(files.journal):
        return 1  # It ran before: nothing is started twice.
    request = json.loads(files.start.read_text())
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _Supervisor(files, request).run()
    return 0


def _take(lock: int) -> bool:
    """Lock it; a look at whether it is locked holds it for a moment, so one failure says nothing."""
    deadline = time.monotonic() + LOCK_DEADLINE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(processes.POLL_S / 10)
        else:
            return True


class _Supervisor:
    def __init__(self, files: AttemptFiles, request: dict[str, Any]) -> None:
        self._files = files
        self._request = request
        self._key = AttemptKey(request["key"]["job_id"], request["key"]["attempt"])
        self._children: dict[int, str] = {}
        self._handles: list[subprocess.Popen[bytes]] = []
        self._failed = False
        self._signals: list[int] = []
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, lambda *_: None)  # Not SIG_IGN: that would be inherited.
        for number in (STOP, signal.SIGINT, KILL):
            signal.signal(number, lambda received, _: self._signals.append(received))
        # In this order: whoever asks for a stop writes it down first and then looks for whom to signal.
        self._announce()
        if self._files.stop.exists():
            self._signals.append(KILL if self._files.stop.read_text() == "kill" else STOP)
        self._record(NodeState.RUNNING)
        for spec in self._request["processes"]:
            if self._signals or not self._spawn(spec):
                break
        stop_reason = self._wait_for_end()
        leftovers = self._end(stop_reason)
        state = NodeState.UNKILLABLE if leftovers else NodeState.ENDED
        self._record(state, reason=stop_reason or "", leftovers=to_wire(leftovers))

    def _announce(self) -> None:
        identity = processes.identify(os.getpid())
        start_time = identity.start_time if identity else None
        body = {"boot_id": processes.boot_id(), "pid": os.getpid(), "start_time": start_time}
        write_atomic(self._files.supervisor, json.dumps(body))

    def _spawn(self, spec: dict[str, Any]) -> bool:
        name = spec["name"]
        environment = {**os.environ, **spec.get("env", {})}
        with self._log(name, "out") as out, self._log(name, "err") as err:
            try:
                self._make_checkpoints(environment.get("DTTUI_CHECKPOINT_DIR"), spec["cwd"])
            except OSError as error:  # The script may never use it, or only on another node.
                err.write(f"dtagent: cannot make DTTUI_CHECKPOINT_DIR: {error}\n".encode())
            try:
                child = subprocess.Popen(
                    spec["argv"], cwd=spec["cwd"], env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
                )
            except (OSError, ValueError) as error:
                err.write(f"cannot start {spec['argv'][0]}: {error}\n".encode())
                self._exited(name, 127)
                return False
        self._children[child.pid] = name
        self._handles.append(child)  # A Popen that is collected reaps its child, and the exit status would be lost.
        if spec.get("rank") is not None:
            started = processes.identify(child.pid)
            body = {"pid": child.pid, "start_time": started.start_time if started else None}
            write_atomic(self._files.ranks / f"{spec['rank']}.json", json.dumps(body))
        return True

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

    def _wait_for_end(self) -> str | None:
        """Wait until all own processes have ended well, or something calls for a stop; return why."""
        while self._children and not self._failed and not self._signals:
            self._wait(None)
        if self._signals:
            return "stopped"
        return "a process failed" if self._failed else None

    def _end(self, reason: str | None) -> list[Leftover]:
        if reason == "stopped" and KILL not in self._signals:
            self._record(NodeState.STOPPING)
        if reason and KILL not in self._signals:
            # Only the own processes hear TERM: torchrun passes it on, and a data loader that dies of it
            # would make its rank fail before the rank has written its checkpoint.
            for pid in list(self._children):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            grace_s = self._request.get("grace_s", 15.0) if reason == "stopped" else LEFTOVER_GRACE_S
            self._wait_while(lambda: bool(self._children), grace_s)
        if not self._children and self._scan():
            for process in self._scan():
                processes.send(process, signal.SIGTERM)
            self._wait_while(lambda: bool(self._scan()), LEFTOVER_GRACE_S)
        return processes.kill_all(self._scan, KILL_DEADLINE_S, on_wait=self._reap)

    def _wait_while(self, condition: Any, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while condition() and KILL not in self._signals and time.monotonic() < deadline:
            self._wait(processes.POLL_S)

    def _scan(self) -> list[processes.ProcessId]:
        return processes.attempt_processes(self._key, self._request["node_rank"], os.getpid())

    def _wait(self, timeout_s: float | None) -> None:
        select.select([self._wake_read], [], [], timeout_s)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        self._reap()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                name = self._children.pop(pid, None)
                if name is not None:
                    self._exited(name, os.waitstatus_to_exitcode(status))

    def _exited(self, name: str, code: int) -> None:
        self._failed = self._failed or code != 0
        journal.append(
            self._files.journal,
            {
                "event": "exit",
                "name": name,
                "exit_code": code if code >= 0 else None,
                "signal": -code if code < 0 else None,
                "ended_at": time.time(),
            },
        )

    def _record(self, state: NodeState, **more: Any) -> None:
        journal.append(self._files.journal, {"event": "state", "state": state.value, "time": time.time(), **more})


def spawn(directory: Path, secrets: dict[str, str]) -> None:
    """Start a supervisor that no longer belongs to this process: own session, no terminal, own standard streams.

    Secrets go through a pipe, so that they are in no file and no command line.
    """
    with open(directory / "supervisor.err", "ab") as errors:
        # `main` forks away, so this child ends at once and the daemon has none to wait for.
        subprocess.run(
            [own_python(), "-I", "-m", "dtagent", "supervise", str(directory)],
            input=json.dumps(secrets).encode(),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd="/",
            start_new_session=True,
            check=False,
        )


def main(directory: Path) -> int:
    """Take the secrets from stdin, detach from the caller, supervise."""
    os.environ.update(json.loads(sys.stdin.buffer.read() or b"{}"))
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    return supervise(directory)
