"""Going to the cgroup where a child of the supervisor would be."""

from __future__ import annotations

import os


def enter(own: str | None, home: str | None, wanted: list[str]) -> None:
    """Go to the cgroup where a child of the supervisor would be. Raises OSError or ValueError where that fails.

    Args:
        own: directory of the attempt's own cgroup v2, if it has one.
        home: directory of the supervisor's, where that is known.
        wanted: lines of the supervisor's /proc/self/cgroup.
    """
    if own is None and _cgroups() == wanted:
        return
    directory = own or home
    if directory is not None:
        path = os.path.join(directory, "cgroup.procs")
        with open(path, "w") as stream:
            stream.write("0")
        with open(path) as stream:
            if str(os.getpid()) not in stream.read().split():
                raise ValueError(f"it cannot be moved to {directory}")
    if [line for line in _cgroups() if not line.startswith("0::")] != [
        line for line in wanted if directory is None or not line.startswith("0::")
    ]:
        raise ValueError("its cgroups are not those of the job")


def _cgroups() -> list[str]:
    with open("/proc/self/cgroup") as stream:
        return stream.read().splitlines()
