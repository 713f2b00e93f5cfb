"""Keeps the users of a host off one another's GPUs: by locked files in a directory that all of them share.

A lock lasts for as long as some process has the file open that was locked, and no longer. No device is opened, so that
GPUs can be reset and persistence mode be switched. Nothing here knows a driver: GPUs go by names.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dtagent.system import shared_files

VARIABLE = "DTAGENT_GPU_LOCKS"
"""Names another directory, where containers share one, say."""
DEFAULT = "/var/tmp/dtagent-gpus"  # noqa: S108 - whoever uses it looks what it is, and whose the files in it are
_FILE = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]{0,99})\.[0-9]{1,10}(?:-[0-9])?")
_JOB = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Purpose:
    """What a GPU is held for."""

    job_id: str = ""
    """Empty where the holder did not say."""
    attempt: int = 0
    since_s: float = 0.0
    """Unix time."""
    until_s: float | None = None
    """Unix time until which its user means to need it; nothing happens then."""
    is_started: bool = True
    """Whether the job runs; until then whoever prepares it may give way."""


@dataclass(frozen=True)
class Holder:
    """Who holds a GPU."""

    gpu: str
    uid: int
    """Of the owner of the file, whom the kernel vouches for."""
    purpose: Purpose


class GpuLocks:
    """The locks of one host, as this process's user takes and sees them. For any number of threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def take(self, gpus: Sequence[str], count: int, purpose: Purpose, leaves: int = 0) -> dict[str, int | None]:
        """Lock the first GPUs that nobody holds; return the descriptors that hold them, to be closed by the caller.

        Args:
            gpus: names, the most wanted first.
            count: how many; fewer are locked where there are not as many.
            purpose: what others are told.
            leaves: how many are left for others who come first.

        Returns:
            name → descriptor; `None` where this host has no place for such files.

        Raises:
            UnsafeDirectoryError: see there; or others keep it to themselves.
            OSError: the host is short of something.
        """
        taken: dict[str, int | None] = {}
        with shared_files.opened(self._directory) as directory, contextlib.ExitStack() as stack:
            if directory is None:
                return dict.fromkeys(gpus[: min(count, max(0, len(gpus) - leaves))])
            shared_files.lock(directory, shared_files.TURN_S, "others keep it locked")
            held = {holder.gpu for holder in _holders(directory)}
            free = [gpu for gpu in gpus if gpu not in held]
            for gpu in free[: min(count, max(0, len(free) - leaves))]:
                descriptor = shared_files.take(directory, gpu)
                stack.callback(os.close, descriptor)
                tell(descriptor, purpose)
                taken[gpu] = descriptor
            stack.pop_all()
        return taken

    def holders(self) -> list[Holder]:
        """Return who holds which GPUs, this user too; nobody where that cannot be told."""
        with contextlib.suppress(OSError), shared_files.opened(self._directory, makes=False) as directory:
            if directory is not None:
                return _holders(directory)
        return []


def from_environment(environment: Mapping[str, str] = os.environ) -> GpuLocks:
    """Return the locks of this host."""
    return GpuLocks(Path(environment.get(VARIABLE) or DEFAULT))


def tell(descriptor: int, purpose: Purpose) -> None:
    """Let others read what a GPU is held for; without room on the disk it is held all the same."""
    text = json.dumps(asdict(purpose)).encode()
    with contextlib.suppress(OSError):
        os.pwrite(descriptor, text, 0)
        os.ftruncate(descriptor, len(text))


def restore(descriptor: int) -> None:
    """Lock a file anew that was removed, under the same descriptor."""
    if os.fstat(descriptor).st_nlink:
        return
    path = Path(os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)"))
    with contextlib.suppress(OSError), shared_files.opened(path.parent) as directory:
        if directory is not None:
            made = shared_files.take(directory, path.name.partition(".")[0])
            try:
                os.pwrite(made, os.pread(descriptor, shared_files.MOST_BYTES, 0), 0)
                os.dup2(made, descriptor, inheritable=False)
            finally:
                os.close(made)


def _holders(directory: int) -> list[Holder]:
    found = []
    for name in sorted(os.listdir(directory)):
        named = _FILE.fullmatch(name)
        with contextlib.suppress(OSError):
            seen = shared_files.look(directory, name) if named else None
            if named and seen is not None:
                found.append(Holder(named[1], seen.uid, _purpose(seen.text, seen.written_s)))
    return found


def _purpose(text: bytes, written_s: float) -> Purpose:
    """Read what another user has written, which may be anything."""
    try:
        told = json.loads(text)
        job_id, attempt, since_s, until_s = (told[key] for key in ("job_id", "attempt", "since_s", "until_s"))
    except (ValueError, RecursionError, TypeError, KeyError):
        return Purpose(since_s=written_s)
    return Purpose(
        job_id if isinstance(job_id, str) and _JOB.fullmatch(job_id) else "",
        attempt if isinstance(attempt, int) and 0 <= attempt < 10**9 else 0,
        point_in_time(since_s) or written_s,
        point_in_time(until_s),
        told.get("is_started") is not False,
    )


def point_in_time(told: object) -> float | None:
    """Return a point in time that a calendar has."""
    is_time = isinstance(told, (int, float)) and not isinstance(told, bool) and math.isfinite(told)
    return float(told) if is_time and 0 < told < 2**33 else None  # type: ignore[arg-type,operator]  # as just seen
