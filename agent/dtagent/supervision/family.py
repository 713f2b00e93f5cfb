"""Finding and ending all processes of a job attempt on this host: by cgroup, descent and environment, never by name."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import Leftover
from dtagent.system import proc_stat, processes
from dtagent.system.cgroup import Cgroup
from dtagent.system.processes import ProcessId
from dtagent.system.retry import PAUSE_S

KILL_DEADLINE_S = 10.0
"""How long to try to end all of an attempt before what is left counts as unkillable."""
LONGEST_PAUSE_S = 1.0


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
    mark: str = ""
    """`NAME=value` that processes have in their environment besides, where only a part of the attempt is meant."""

    def scan(self) -> list[ProcessId]:
        """Return the live processes. Raises OSError where that cannot be told, which is not the same as none."""
        stats = proc_stat.read_all()
        found = self.cgroup.pids() & stats.keys() if self.cgroup else set()
        found |= {item.pid for item in self.members if item.pid in stats and ProcessId.of(stats[item.pid]) == item}
        keepers = {item.pid for item in self.keepers if item.pid in stats and ProcessId.of(stats[item.pid]) == item}
        roots = {*found, *keepers, *([self.supervisor] if self.supervisor else [])}
        found |= set(proc_stat.descendants(proc_stat.children_of(stats), roots))
        marks = {
            f"DTTUI_JOB_ID={self.key.job_id}".encode(),
            f"DTTUI_ATTEMPT={self.key.attempt}".encode(),
            f"DTTUI_NODE_RANK={self.node_rank}".encode(),
            *([self.mark.encode()] if self.mark else []),
        }
        # Where root looks for them, another user's process may bear the same marks and is not ours to end.
        found |= {
            pid for pid in stats.keys() - found if marks <= _environment(pid) and processes.owner_of(pid) == os.getuid()
        }
        found -= {os.getpid(), self.supervisor or 0, *keepers}
        return [ProcessId.of(stats[pid]) for pid in sorted(found) if stats[pid].is_alive]


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
                processes.send(process, signal.SIGKILL)
            # What stays although it was killed waits in the kernel: looking again at once would not help.
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S) if found == before else PAUSE_S
            processes.wait_for_ends(found, pause_s)
            before = found
        except OSError:
            # A look that failed says nothing, least of all that nobody is left.
            empty = 0
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)
        on_wait()


def _leftover(process: ProcessId) -> Leftover:
    stat = proc_stat.read(process.pid)
    command = ""
    with contextlib.suppress(OSError):
        command = (
            Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        )
    return Leftover(process.pid, command[:200], stat.state if stat else "?")


def _environment(pid: int) -> set[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            return set(stream.read().split(b"\0"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return set()
