"""Who waits for GPUs of a host, of all its users: a locked file each, beside the locks of the GPUs.

A place lasts for as long as the process that stands there for a job, and no longer. The order is by the time of asking;
it is the users' own word, and who lies about it goes first.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dtagent.protocol.bounds import MOST_GPUS
from dtagent.system import shared_files
from dtagent.system.gpu_locks import DEFAULT, VARIABLE, point_in_time

MOST_PLACES = 64
"""Of one user that are looked at."""
PADDED_BYTES = shared_files.MOST_BYTES
"""What a file is filled up to, so that whoever reads while it is written over finds the one or the other."""
_FILE = re.compile(r"_wait\.([a-z0-9][a-z0-9._-]{0,62})\.[0-9]{1,10}(?:-[0-9])?")


@dataclass(frozen=True)
class Ticket:
    """What a job waits for, on one host."""

    job_id: str
    asked_s: float
    """Unix time at which its user asked, by the clock of the login node; the same on all hosts."""
    gpus: int = 0
    simulated: int = 0
    """Simulated GPUs, for which no other user waits."""
    stands_aside: bool = False
    """Whether it lets others by for now."""
    named: tuple[str, ...] = ()
    """Names of the GPUs that it waits for, as `gpu_locks` has them; none where any will do."""


@dataclass(frozen=True)
class Waiter:
    """Who waits."""

    uid: int
    ticket: Ticket

    @property
    def turn(self) -> tuple[float, str, int]:
        """What the order is by."""
        return self.ticket.asked_s, self.ticket.job_id, self.uid


class GpuLine:
    """The line of one host. For any number of threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def stand(self, ticket: Ticket) -> int | None:
        """Take a place; return the descriptor that keeps it, `None` where this host has no place for such files.

        Raises:
            UnsafeDirectoryError: users of this host are not safe from one another, or others keep it to themselves.
            OSError: the host is short of something.
        """
        with shared_files.opened(self._directory) as directory:
            if directory is None:
                return None
            shared_files.lock(directory, shared_files.TURN_S, "others keep it locked")
            _clear(directory)
            descriptor = shared_files.take(directory, f"_wait.{ticket.job_id}")
        tell(descriptor, ticket)
        return descriptor

    def waiters(self) -> list[Waiter]:
        """Return who waits, the first one first; nobody where that cannot be told."""
        found: list[Waiter] = []
        with contextlib.suppress(OSError), shared_files.opened(self._directory, makes=False) as directory:
            for name in sorted(os.listdir(directory)) if directory is not None else ():
                named = _FILE.fullmatch(name)
                if not named or directory is None:
                    continue
                with contextlib.suppress(OSError):  # One that is gone, or unreadable, hides no other.
                    if (seen := shared_files.look(directory, name)) is None:
                        continue
                    ticket = _ticket(named[1], seen.text)
                    if ticket is not None and sum(item.uid == seen.uid for item in found) < MOST_PLACES:
                        found.append(Waiter(seen.uid, ticket))
        return sorted(found, key=lambda waiter: waiter.turn)


def from_environment(environment: Mapping[str, str] = os.environ) -> GpuLine:
    """Return the line of this host."""
    return GpuLine(Path(environment.get(VARIABLE) or DEFAULT))


def tell(descriptor: int, ticket: Ticket) -> None:
    """Let others read what is waited for."""
    text = json.dumps(asdict(ticket)).encode()
    if len(text) > PADDED_BYTES:  # By their number alone it holds back more than it need, and is seen.
        text = json.dumps(asdict(replace(ticket, named=()))).encode()
    with contextlib.suppress(OSError):
        os.pwrite(descriptor, text.ljust(PADDED_BYTES), 0)


def is_there(descriptor: int) -> bool:
    """Whether a place is still to be seen: its file may have been removed."""
    return os.fstat(descriptor).st_nlink > 0


def leave(descriptor: int) -> None:
    """Give a place up."""
    with contextlib.suppress(OSError):
        if is_there(descriptor):
            os.unlink(os.readlink(f"/proc/self/fd/{descriptor}"))
    os.close(descriptor)


def _clear(directory: int) -> None:
    """Remove the files of this user's at which nobody stands: who did was killed. The directory is locked."""
    for name in os.listdir(directory):
        if _FILE.fullmatch(name):
            with contextlib.suppress(OSError):
                if os.stat(name, dir_fd=directory, follow_symlinks=False).st_uid != os.geteuid():
                    continue
                descriptor = os.open(name, os.O_RDWR | shared_files.SAFELY, dir_fd=directory)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(name, dir_fd=directory)
                finally:
                    os.close(descriptor)


def _ticket(job_id: str, text: bytes) -> Ticket | None:
    """Read what another user has written, which may be anything."""
    try:
        told = json.loads(text)
        asked_s, gpus = point_in_time(told["asked_s"]), told["gpus"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    if asked_s is None or type(gpus) is not int or not 0 < gpus <= MOST_GPUS:
        return None
    named = told.get("named")
    is_named = isinstance(named, list) and len(named) == gpus and all(isinstance(name, str) for name in named)
    return Ticket(
        job_id,
        asked_s,
        gpus,
        stands_aside=told.get("stands_aside") is True,
        named=tuple(named) if is_named else (),
    )
