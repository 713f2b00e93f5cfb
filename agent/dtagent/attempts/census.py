"""Which attempts there are on this host, and which of them run: told from files, and looked at no more than needed."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from dtagent.attempts import adoption, preparation
from dtagent.errors import RpcError
from dtagent.locations import AttemptFiles, rank_of
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.system import untrusted_files
from dtagent.telemetry.rank_use import RankProcess


class Census:
    """The attempts under one root. For any number of threads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._may_run: set[Path] | None = None
        """Directories of the attempts that run or will; `None` until those have been looked for that ran before."""
        self._local_ranks: dict[Path, dict[int, int]] = {}
        self._slots: dict[Path, int | None] = {}

    def known(self) -> list[AttemptFiles]:
        """Return every attempt; one of which only checkpoints are left is none any more."""
        return list(preparation.known(self._root))

    def known_keys(self) -> list[AttemptKey]:
        """Return the names of all."""
        return [preparation.key_of(files) for files in self.known()]

    def expect(self, files: AttemptFiles) -> None:
        """Look whether an attempt runs from now on: it is about to be started."""
        self._candidates()  # Those of before first: its lock is not there yet.
        with self._lock:
            self._may_run = {*(self._may_run or ()), files.directory}

    def running(self) -> list[AttemptFiles]:
        """Return the attempts that run."""
        running, over = [], set()
        for directory in self._candidates():
            files = AttemptFiles(directory)
            # In this order: the lock is held from before the start is on disk until the end, and never again.
            was_started = files.start.exists()
            if adoption.is_locked(files.lock):
                running.append(files)
            elif was_started or not directory.exists():
                over.add(directory)
        with self._lock:
            self._may_run = (self._may_run or set()) - over
            self._local_ranks = {path: told for path, told in self._local_ranks.items() if path not in over}
            self._slots = {path: told for path, told in self._slots.items() if path not in over}
        return running

    def running_ranks(self) -> dict[str, dict[int, RankProcess]]:
        """Return job id → rank → its process of the attempts that run."""
        found: dict[str, dict[int, RankProcess]] = {}
        for files in self.running():
            ranks = found.setdefault(files.directory.parent.name, {})
            local_ranks, slots = self._local_ranks_of(files), self._slots.get(files.directory)
            for path in files.ranks.glob("*.json"):
                rank = rank_of(path)
                with contextlib.suppress(OSError, ValueError):
                    body = untrusted_files.read_object(path)
                    pid, start_time = body.get("pid"), body.get("start_time")
                    local_rank = body.get("local_rank", local_ranks.get(rank)) if rank is not None else None
                    if rank is not None and isinstance(pid, int) and isinstance(start_time, (int, type(None))):
                        local_rank = local_rank if isinstance(local_rank, int) else None
                        ranks[rank] = RankProcess(pid, start_time, local_rank, slots)
        return found

    def _candidates(self) -> list[Path]:
        with self._lock:
            if self._may_run is None:
                self._may_run = {lock.parent for lock in self._root.glob("jobs/*/*/supervisor.lock")}
            return sorted(self._may_run)

    def _local_ranks_of(self, files: AttemptFiles) -> dict[int, int]:
        """Return rank → local rank, from the request that started the attempt, which never changes."""
        told = self._local_ranks.get(files.directory)
        if told is None:
            told = {}
            try:
                ranks = untrusted_files.read_object(files.start, untrusted_files.RECORD_BYTES)["ranks"]
                told = {rank: local_rank for local_rank, rank in enumerate(ranks)}
            except (untrusted_files.UnusableFileError, ValueError, TypeError, KeyError):
                pass  # It will never tell.
            except OSError:  # It is not there yet, or there are no file handles at the moment.
                return told
            with self._lock:
                self._local_ranks[files.directory] = told
                self._slots[files.directory] = _slots_of_one(files) if len(told) == 1 else None
        return told


def _slots_of_one(files: AttemptFiles) -> int | None:
    """Return how many simulated GPUs an attempt has here, which are all its only rank's; `None` for none."""
    with contextlib.suppress(RpcError):
        return preparation.read(files)[0].simulated_slots or None
    return None
