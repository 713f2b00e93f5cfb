"""Going to the cgroup where a child of the supervisor would be."""

from __future__ import annotations

import os
from typing import Any

from dtagent.payload.forking.channel import notice


class PlaceError(Exception):
    """A process cannot be where a child of the supervisor would be, and why: as `channel.notice` has it."""

    def __init__(self, notice: dict[str, Any]) -> None:
        super().__init__(notice)
        self.notice = notice


def enter(own: str | None, home: str | None, wanted: list[str]) -> None:
    """Go to the cgroup where a child of the supervisor would be. Raises OSError or PlaceError where that fails.

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
                raise PlaceError(notice("warm-not-moved", directory=directory))
    if [line for line in _cgroups() if not line.startswith("0::")] != [
        line for line in wanted if directory is None or not line.startswith("0::")
    ]:
        raise PlaceError(notice("warm-cgroups"))


def _cgroups() -> list[str]:
    with open("/proc/self/cgroup") as stream:
        return stream.read().splitlines()
