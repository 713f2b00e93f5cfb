"""Finding and ending all processes of a job attempt on this host: by cgroup, descent and environment, never by name."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dtagent.protocol.jobs import AttemptKey, Leftover
from dtagent.system import proc_stat
from dtagent.system.cgroup import Cgroup
from dtagent.system.patience import PAUSE_S

LONGEST_PAUSE_S = 1.0
WATCHED = 16
"""Processes whose end is waited for at a time: each takes a file handle."""


@dataclass(frozen=True)
class ProcessId:
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    start_time: int
    """Clock ticks since boot, field 22 of /proc/PID/stat."""


@dataclass(frozen=True)
class Family:
    """By what the processes of an attempt are told from all others."""

    key: AttemptKey
    node_rank: int
    """Tells apart two nodes of one job on one machine."""
    supervisor: int | None = None
    """Whose descendants belong to it, not itself; `None` where it is gone."""
    members: tuple[ProcessId, ...] = ()
    """What a supervisor that is gone had started: they and their descendants belong to it."""
    cgroup: Cgroup | None = None
    keepers: tuple[ProcessId, ...] = ()
    """Whose descendants belong to it, not themselves: they adopt what is left below them, and end after it."""

    def scan(self) -> list[ProcessId]:
        """Return the live processes. Raises OSError where that cannot be told, which is not the same as none."""
        stats = proc_stat.read_all()
        found = self.cgroup.pids() & stats.keys() if self.cgroup else set()
        found |= {item.pid for item in self.members if item.pid in stats and _id(stats[item.pid]) == item}
        keepers = {item.pid for item in self.keepers if item.pid in stats and _id(stats[item.pid]) == item}
        roots = {*found, *keepers, *([self.supervisor] if self.supervisor else [])}
        found |= set(proc_stat.descendants(proc_stat.children_of(stats), roots))
        marks = {
            f"DTTUI_JOB_ID={self.key.job_id}".encode(),
            f"DTTUI_ATTEMPT={self.key.attempt}".encode(),
            f"DTTUI_NODE_RANK={self.node_rank}".encode(),
        }
        # Where root looks for them, another user's process may bear the same marks and is not ours to end.
        found |= {pid for pid in stats.keys() - found if marks <= _environment(pid) and owner_of(pid) == os.getuid()}
        found -= {os.getpid(), self.supervisor or 0, *keepers}
        return [_id(stats[pid]) for pid in sorted(found) if stats[pid].is_alive]


def boot_id() -> str:
    """Return an id that changes with each boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> ProcessId | None:
    """Return the identity of a live process; `None` where there is none or it is a zombie."""
    stat = proc_stat.read(pid)
    return _id(stat) if stat and stat.is_alive else None


def owner_of(pid: int) -> int | None:
    """Return the uid that a process runs as; `None` where there is none."""
    # The owner of /proc/PID is root for a process that may not dump core; the Uid line always tells.
    try:
        with open(f"/proc/{pid}/status", "rb") as stream:
            return next((int(line.split()[1]) for line in stream if line.startswith(b"Uid:")), None)
    except (FileNotFoundError, ProcessLookupError, PermissionError, ValueError, IndexError):
        return None


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Signal exactly this process; return whether it was still there."""
    descriptor = _open(process)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait_for_ends(found: list[ProcessId], timeout_s: float, wake: int | None = None) -> None:
    """Return when these have ended, or `wake` can be read, or the time is over; perhaps sooner.

    Raises:
        OSError: there are no file handles to wait with.
    """
    poll = select.poll()
    if wake is not None:
        poll.register(wake, select.POLLIN)
    watched: list[int] = []
    try:
        for process in found[:WATCHED]:
            handle = _open(process)
            if handle is not None:
                watched.append(handle)
                poll.register(handle, select.POLLIN)
        deadline = time.monotonic() + timeout_s
        left = set(watched)
        while left and (remaining_s := deadline - time.monotonic()) > 0:
            ended = {handle for handle, _ in poll.poll(remaining_s * 1000)}
            if wake in ended:
                return
            for handle in ended:
                poll.unregister(handle)
            left -= ended
    finally:
        for handle in watched:
            os.close(handle)


def kill_all(family: Family, deadline_s: float, on_wait: Callable[[], None] = lambda: None) -> list[Leftover]:
    """Kill a family until two scans in a row are empty; return what is left at the deadline.

    Args:
        family: the processes to end.
        deadline_s: how long to try.
        on_wait: called between scans; a subreaper reaps there.

    Raises:
        OSError: nothing could be told of them until the deadline, as for want of file handles.
    """
    deadline = time.monotonic() + deadline_s
    empty = 0
    pause_s = PAUSE_S
    before: list[ProcessId] = []
    while True:
        try:
            found = family.scan()
            empty = 0 if found else empty + 1
            if empty == 2:
                return []
            if found and time.monotonic() > deadline:
                return [_leftover(process) for process in found]
            if found and family.cgroup:
                family.cgroup.kill()
            for process in found:
                send(process, signal.SIGKILL)
            # What stays although it was killed waits in the kernel: looking again at once would not help.
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S) if found == before else PAUSE_S
            wait_for_ends(found, pause_s)
            before = found
        except OSError:
            # A look that failed says nothing, least of all that nobody is left.
            empty = 0
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)
        on_wait()


def _open(process: ProcessId) -> int | None:
    """Return a handle to exactly this process; `None` where it has ended.

    Raises:
        OSError: there are no file handles left.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    is_it = False
    try:
        is_it = identify(process.pid) == process
    finally:
        if not is_it:
            os.close(descriptor)
    return descriptor if is_it else None


def _leftover(process: ProcessId) -> Leftover:
    stat = proc_stat.read(process.pid)
    command = ""
    with contextlib.suppress(OSError):
        command = (
            Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        )
    return Leftover(process.pid, command[:200], stat.state if stat else "?")


def _id(stat: proc_stat.ProcessStat) -> ProcessId:
    return ProcessId(stat.pid, stat.start_time)


def _environment(pid: int) -> set[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            return set(stream.read().split(b"\0"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return set()
