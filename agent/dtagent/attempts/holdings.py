"""Whose the GPUs of a host are: what the attempts of this user have that run, and what all users have locked."""

from __future__ import annotations

import os
from pathlib import Path

from dtagent.attempts import preparation
from dtagent.attempts.census import Census
from dtagent.attempts.shared_gpus import SharedGpus
from dtagent.errors import RpcError
from dtagent.locations import AttemptFiles
from dtagent.protocol.telemetry import GpuHold
from dtagent.system import users
from dtagent.system.gpu_locks import Purpose


class Holdings:
    """Looks who has GPUs. One thread at a time: it reads files, and may wait for a directory service.

    Args:
        census: knows the attempts that run.
        shared_gpus: the locks, which need be asked no more than that.
    """

    def __init__(self, census: Census, shared_gpus: SharedGpus) -> None:
        self._census = census
        self._shared_gpus = shared_gpus
        self._own: dict[Path, GpuHold | None] = {}
        """By the directory of an attempt that runs; what was prepared for it never changes."""

    def look(self) -> tuple[list[GpuHold], list[GpuHold]]:
        """Return what the attempts of this user have that run, and who else has locked GPUs."""
        running = self._census.running()
        self._own = {
            files.directory: self._own[files.directory] if files.directory in self._own else _prepared(files)
            for files in running
        }
        own = [hold for hold in self._own.values() if hold is not None]
        jobs = {hold.job for hold in own}
        locked: dict[tuple[int, Purpose], list[int]] = {}
        for index, holder in sorted(self._shared_gpus.holders([]).items()):
            if holder.uid != os.geteuid() or holder.purpose.job_id not in jobs:
                locked.setdefault((holder.uid, holder.purpose), []).append(index)
        others = [
            GpuHold(
                users.name_of(uid), purpose.job_id or None, gpus, since=purpose.since_s or None, until=purpose.until_s
            )
            for (uid, purpose), gpus in locked.items()
        ]
        return own, others


def _prepared(files: AttemptFiles) -> GpuHold | None:
    """Return what an attempt has; `None` where that is nothing, or cannot be read."""
    try:
        request, reply = preparation.read(files)
        since_s = files.prepared.stat().st_mtime
    except (RpcError, OSError):
        return None
    if not (reply.gpu_ids or request.simulated_slots):
        return None
    user = users.name_of(os.geteuid())
    until_s = since_s + request.for_s if request.for_s is not None else None
    return GpuHold(user, request.key.job_id, list(reply.gpu_ids), request.simulated_slots or None, since_s, until_s)
