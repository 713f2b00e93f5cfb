"""A cgroup v2 of an attempt's own, where this user may make one: nothing forks its way out of it."""

from __future__ import annotations

import contextlib
import os
import select
import time
from dataclasses import dataclass
from pathlib import Path

from dtagent.system import mounts

SCOPE_PREFIX = "dtagent-"
"""What the systemd scopes are called that hold a supervisor and nothing else."""
EMPTY_DEADLINE_S = 1.0
_PROCESSES = "cgroup.procs"
_OWN = Path("/proc/self/cgroup")
_COUNTERS = ("memory.events", "memory.oom_control")
"""Files of a cgroup that counts kills for want of memory, of v2 and of v1."""


@dataclass(frozen=True)
class Cgroup:
    """A directory below /sys/fs/cgroup. Any of it may fail at any time: there are other ways to tell the processes."""

    path: Path

    def enter(self) -> None:
        """Move the calling process in; it stays where it is if the kernel says no."""
        with contextlib.suppress(OSError):
            (self.path / _PROCESSES).write_text("0")

    def pids(self) -> set[int]:
        """Return the processes in it and in what they made below it."""
        found: set[int] = set()
        for directory, _, _ in os.walk(self.path):
            with contextlib.suppress(OSError):
                found.update(map(int, Path(directory, _PROCESSES).read_text().split()))
        return found - {0}  # What another pid namespace hides.

    def kill(self) -> None:
        """Send KILL to all in it at once, also to what is being forked just now; nothing before Linux 5.14."""
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_text("1")

    def peak_memory_bytes(self) -> int | None:
        """Return the most memory it ever used; `None` where the kernel does not count it."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.path / "memory.peak").read_text())
        return None

    def remove(self) -> None:
        """Remove it with what was made below it; what still has a process in it after a moment stays."""
        with contextlib.suppress(OSError):
            self._wait_until_empty()
        for directory, _, _ in os.walk(self.path, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(directory)

    def _wait_until_empty(self) -> None:
        """Wait for the kernel: it lets go of a process a little after that has ended and was waited for."""
        deadline = time.monotonic() + EMPTY_DEADLINE_S
        poll = select.poll()
        with open(self.path / "cgroup.events", "rb", buffering=0) as events:
            poll.register(events, select.POLLPRI)
            while b"populated 1" in events.read() and (remaining_s := deadline - time.monotonic()) > 0:
                poll.poll(remaining_s * 1000)
                events.seek(0)


def create(name: str) -> Cgroup | None:
    """Make an empty cgroup below the caller's own; `None` where that is not delegated to this user.

    Args:
        name: its name, which no other supervisor of this boot has.
    """
    try:
        parent = own_directory()
        if parent is None or not _is_delegated(parent):
            return None
        path = parent / name
        path.mkdir()
    except OSError:
        return None
    if parent.name.startswith(SCOPE_PREFIX) and parent.suffix == ".scope":
        _count_memory(parent)
    return Cgroup(path)


def own_directory() -> Path | None:
    """Return the directory of the caller's cgroup v2; `None` without one, or where the mount does not show it."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    inner = next((line[3:] for line in lines if line.startswith("0::/")), None)
    for mount in mounts.read():
        if inner is None or mount.kind != "cgroup2":
            continue
        path = Path(mount.point) / os.path.relpath(inner, mount.root)
        with contextlib.suppress(OSError):
            if str(os.getpid()) in (path / _PROCESSES).read_text().split():
                return path
    return None


def memory_directories(own: Path = _OWN, mountinfo: Path = mounts.MOUNTINFO, *, and_above: bool = True) -> list[Path]:
    """Return the directories of the caller's cgroups that count its memory, v2 or v1, and of those above them.

    Args:
        own: the kernel's list of the caller's cgroups.
        mountinfo: the kernel's list of mounts.
        and_above: whether those above count, too.
    """
    found: list[Path] = []
    with contextlib.suppress(OSError, ValueError):
        mounted = list(mounts.read(mountinfo))
        for line in own.read_text().splitlines():
            _number, controllers, path = line.split(":", 2)
            for mount in mounted:
                kind = "cgroup" if "memory" in controllers.split(",") else "cgroup2" if not controllers else ""
                inner = os.path.relpath(path, mount.root)
                if mount.kind == kind and not inner.startswith(".."):
                    top = Path(mount.point)
                    above = (top / inner).parents if and_above else ()
                    found += [item for item in (top / inner, *above) if item.is_relative_to(top)]
    return [path for path in dict.fromkeys(found) if any((path / name).exists() for name in _COUNTERS)]


def _is_delegated(path: Path) -> bool:
    if os.getuid() != 0:
        return os.access(path, os.W_OK) and os.access(path / _PROCESSES, os.W_OK)
    # Root may write everywhere; where systemd rules, only what it gave away is free to use.
    return not Path("/run/systemd/system").is_dir() or any(
        _attribute(directory, name) == b"1"
        for directory in (path, *path.parents)
        for name in ("trusted.delegate", "user.delegate")
    )


def _attribute(path: Path, name: str) -> bytes | None:
    try:
        return os.getxattr(path, name)
    except OSError:
        return None


def _count_memory(scope: Path) -> None:
    """Let the kernel count the memory of what is below the scope, for which the scope itself must hold no process."""
    with contextlib.suppress(OSError):
        inner = scope / "supervisor"
        inner.mkdir(exist_ok=True)
        for pid in (scope / _PROCESSES).read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (inner / _PROCESSES).write_text(pid)
        (scope / "cgroup.subtree_control").write_text("+memory")
