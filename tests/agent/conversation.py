"""A plain client of a real agent: `dtagent connect` as a child process, JSON lines on its stdio."""

from __future__ import annotations

import base64
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from dtagent.protocol.rpc import MAGIC
from dtagent.system import proc_stat

from tests.agent.notices import check_notices
from tests.waiting import wait_until

DEADLINE_S = 30.0


class Conversation:
    """One client of the agent under `root`; the daemon is shut down at the end unless told otherwise."""

    def __init__(
        self,
        root: Path,
        *,
        env: dict[str, str] | None = None,
        keep_daemon: bool = False,
        greets: bool = True,
        before: Sequence[str] = (),
    ) -> None:
        self.root = root
        self._numbers = itertools.count(1)
        self._keep_daemon = keep_daemon
        self.child = subprocess.Popen(
            [*before, sys.executable, "-I", "-m", "dtagent", "connect", "--root", str(root), "--idle-exit", "60"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
        )
        assert self.child.stdout is not None
        assert self.child.stdout.readline() == MAGIC
        if greets:
            self.call("hello", {"versions": [1]})

    def __enter__(self) -> Conversation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._keep_daemon and self.child.poll() is None:
            self.call("shutdown")
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.close()
        self.child.wait(DEADLINE_S)
        self.child.stdout.close()

    def kill_daemon(self) -> None:
        """Kill the daemon, and wait until it holds nothing any more: its clients hear of its end a moment before."""
        pid = self.call("hello", {"versions": [1]})["pid"]
        os.kill(pid, signal.SIGKILL)
        self.child.wait(DEADLINE_S)
        wait_until(lambda: not is_alive(pid), "the daemon to be gone", DEADLINE_S)

    def ask(self, method: str, params: Any = None) -> dict[str, Any]:
        """Return the whole reply frame."""
        frame = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params or {}}
        return self.ask_raw(json.dumps(frame).encode() + b"\n")

    def ask_raw(self, line: bytes) -> dict[str, Any]:
        """Send bytes as they are and return the next frame."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(line)
        self.child.stdin.flush()
        reply = json.loads(self.child.stdout.readline())
        assert isinstance(reply, dict)
        check_notices(reply)
        return reply

    def call(self, method: str, params: Any = None) -> Any:
        """Return the result; fail on an error."""
        reply = self.ask(method, params)
        assert "result" in reply, reply
        return reply["result"]

    def prepare(self, job_id: str, attempt: int = 0, **more: Any) -> Any:
        """Prepare an attempt of one node on loopback."""
        return self.call(
            "prepare",
            {
                "key": {"job_id": job_id, "attempt": attempt},
                "node_rank": 0,
                "python": sys.executable,
                "master_address": "127.0.0.1",
                "reserve_port": True,
                "port_range": [29500, 29999],
                "cuda_slots": 0,
                **more,
            },
        )

    def start(self, job_id: str, commands: list[list[str]], attempt: int = 0, grace_s: float = 5.0, **more: Any) -> Any:
        """Start one process a command, each a rank."""
        env = {"DTTUI_JOB_ID": job_id, "DTTUI_ATTEMPT": str(attempt), "DTTUI_NODE_RANK": "0"}
        processes = [
            {"name": str(rank), "rank": rank, "argv": argv, "cwd": "/", "env": env}
            for rank, argv in enumerate(commands)
        ]
        return self.call(
            "start",
            {
                "key": {"job_id": job_id, "attempt": attempt},
                "node_rank": 0,
                "processes": processes,
                "ranks": list(range(len(commands))),
                "grace_s": grace_s,
                **more,
            },
        )

    def stop(self, job_id: str, *, force: bool = False) -> Any:
        """Ask for the end of attempt 0."""
        return self.call("stop", {"key": {"job_id": job_id, "attempt": 0}, "force": force})

    def status(self, job_id: str) -> Any:
        """Return the status of attempt 0."""
        return self.call("status", {"job_id": job_id, "attempt": 0})

    def end_of(self, job_id: str) -> Any:
        """Wait for a final state of attempt 0 and return the status."""
        final = ("ended", "unkillable", "lost", "discarded")
        return wait_until(
            lambda: status if (status := self.status(job_id))["state"] in final else None,
            f"{job_id} to end",
        )

    def streams(self, job_id: str, **more: Any) -> dict[str, bytes]:
        """Follow attempt 0 to its end and return what every stream held."""
        found: dict[str, bytes] = {}
        stamp = ""
        is_over = False
        while True:
            request = {
                "key": {"job_id": job_id, "attempt": 0},
                "offsets": {name: len(data) for name, data in found.items()},
                "stamp": stamp,
                "wait_s": 0 if is_over else 5,
                **more,
            }
            reply = self.call("follow", request)
            stamp = reply["stamp"]
            for chunk in reply["chunks"]:
                assert chunk["offset"] == len(found.get(chunk["stream"], b""))
                found[chunk["stream"]] = found.get(chunk["stream"], b"") + base64.b64decode(chunk["data"])
            is_over = reply["status"]["state"] in ("ended", "lost")
            if is_over and not reply["chunks"]:
                return found


def is_alive(pid: int) -> bool:
    """Whether a process runs, and may have files open and locked."""
    found = proc_stat.read(pid)
    return found is not None and found.is_alive


def processes_with(mark: str) -> list[int]:
    """Return the live processes whose environment holds a string."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (
                mark.encode() in (path / "environ").read_bytes()
                and (path / "stat").read_text().split(") ")[1][0] not in "ZX"
            ):
                found.append(int(path.name))
        except OSError:
            continue
    return found
