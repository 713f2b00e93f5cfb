"""Processes that cannot be mistaken for others: who one is, a signal to exactly it, a wait for its end."""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from dtagent.system import proc_stat

WATCHED = 16
"""Processes whose end is waited for at a time: each takes a file handle."""


@dataclass(frozen=True)
class ProcessId:
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    start_time: int
    """Clock ticks since boot, field 22 of /proc/PID/stat."""

    @classmethod
    def of(cls, stat: proc_stat.ProcessStat) -> ProcessId:
        """Return whose a line of /proc/PID/stat is."""
        return cls(stat.pid, stat.start_time)


def boot_id() -> str:
    """Return an id that changes with each boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def umask() -> int:
    """Return this process's mask of files; without setting it for a moment, as all of its threads would have that."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    mask = os.umask(0o077)  # Linux before 4.7.
    os.umask(mask)
    return mask


def identify(pid: int) -> ProcessId | None:
    """Return the identity of a live process; `None` where there is none or it is a zombie."""
    stat = proc_stat.read(pid)
    return ProcessId.of(stat) if stat and stat.is_alive else None


def has_open(process: ProcessId, path: Path) -> bool:
    """Whether exactly this process lives and has a file open. It must be a process of the same user, or ours to see."""
    try:
        wanted = os.stat(path)
        with os.scandir(f"/proc/{process.pid}/fd") as handles:
            found = any(_is_file(handle.path, wanted) for handle in handles)
    except OSError:
        return False
    return found and identify(process.pid) == process


def _is_file(path: str, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), wanted)
    except OSError:
        return False


def owner_of(pid: int) -> int | None:
    """Return the uid that a process runs as; `None` where there is none."""
    # The owner of /proc/PID is root for a process that may not dump core; the Uid line always tells.
    try:
        with open(f"/proc/{pid}/status", "rb") as stream:
            return next((int(line.split()[1]) for line in stream if line.startswith(b"Uid:")), None)
    except (FileNotFoundError, ProcessLookupError, PermissionError, ValueError, IndexError):
        return None


def send(process: ProcessId, number: int) -> bool:
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
