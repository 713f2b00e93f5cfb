"""Finding and ending all processes of a job attempt on this host: by descent and by environment, never by name."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dtagent.protocol.jobs import AttemptKey, Leftover

POLL_S = 0.05


@dataclass(frozen=True)
class ProcessId:
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    start_time: int
    """Clock ticks since boot, field 22 of /proc/PID/stat."""


@dataclass(frozen=True)
class _Stat:
    parent: int
    state: str
    start_time: int


def boot_id() -> str:
    """Return an id that changes with each boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> ProcessId | None:
    """Return the identity of a live process; `None` where there is none or it is a zombie."""
    stat = _stat(pid)
    return ProcessId(pid, stat.start_time) if stat and stat.state not in "ZX" else None


def attempt_processes(key: AttemptKey, node_rank: int, ancestor: int | None) -> list[ProcessId]:
    """Return the live processes that descend from `ancestor` or carry the attempt's marks in their environment.

    Args:
        key: the attempt.
        node_rank: tells apart two nodes of one job on one machine.
        ancestor: the supervisor, which is not returned itself; `None` where it is gone.
    """
    stats = {int(name): stat for name in os.listdir("/proc") if name.isdigit() and (stat := _stat(int(name)))}
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    found: set[int] = set()
    pending = list(children.get(ancestor, [])) if ancestor else []
    while pending:
        pid = pending.pop()
        if pid not in found:
            found.add(pid)
            pending.extend(children.get(pid, []))
    marks = {
        f"DTTUI_JOB_ID={key.job_id}".encode(),
        f"DTTUI_ATTEMPT={key.attempt}".encode(),
        f"DTTUI_NODE_RANK={node_rank}".encode(),
    }
    for pid in stats.keys() - found:
        if marks <= _environment(pid):
            found.add(pid)
    found -= {os.getpid(), ancestor or 0}
    return [ProcessId(pid, stats[pid].start_time) for pid in sorted(found) if stats[pid].state not in "ZX"]


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Signal exactly this process; return whether it was still there."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if identify(process.pid) != process:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def kill_all(
    scan: Callable[[], list[ProcessId]], deadline_s: float, on_wait: Callable[[], None] = lambda: None
) -> list[Leftover]:
    """Kill what `scan` finds until two scans in a row are empty; return what is left at the deadline.

    Args:
        scan: finds the processes to end.
        deadline_s: how long to try.
        on_wait: called between scans; a subreaper reaps there.
    """
    deadline = time.monotonic() + deadline_s
    empty = 0
    while True:
        found = scan()
        empty = 0 if found else empty + 1
        if empty == 2:
            return []
        if found and time.monotonic() > deadline:
            return [_leftover(process) for process in found]
        for process in found:
            send(process, signal.SIGKILL)
        time.sleep(POLL_S if found else 0)
        on_wait()


def _leftover(process: ProcessId) -> Leftover:
    stat = _stat(process.pid)
    command = ""
    with contextlib.suppress(OSError):
        command = (
            Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        )
    return Leftover(process.pid, command[:200], stat.state if stat else "?")


def _stat(pid: int) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            # The command name in parentheses may hold spaces and parentheses itself.
            fields = stream.read().rpartition(b") ")[2].split()
        return _Stat(parent=int(fields[1]), state=fields[0].decode(), start_time=int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


def _environment(pid: int) -> set[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            return set(stream.read().split(b"\0"))
    except OSError:
        return set()
