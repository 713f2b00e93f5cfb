"""The locks by which the attempts of this user keep GPUs from other users of the host, by the GPUs' numbers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dtagent.errors import RpcError
from dtagent.protocol import sentences
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.rpc import ErrorCode
from dtagent.system import gpu_locks
from dtagent.system.gpu_locks import GpuLocks, Holder, Purpose
from dtagent.system.shared_files import UnsafeDirectoryError


class SharedGpus:
    """What is locked here. Callers see to it that one at a time asks.

    Args:
        locks: of this host; `None` where nobody else uses its GPUs.
        names: number → a name that it goes by whoever sees it, its UUID.
    """

    def __init__(self, locks: GpuLocks | None = None, names: Callable[[], dict[int, str]] = dict) -> None:
        self._locks = locks
        self._names = names
        self._held: dict[AttemptKey, tuple[Purpose, list[int]]] = {}
        """What for, and descriptors; none of an attempt where this host has no place for locks."""

    def is_held(self, key: AttemptKey) -> bool:
        """Whether an attempt's GPUs are locked, as far as they can be."""
        return self._locks is None or key in self._held

    def keys(self) -> list[AttemptKey]:
        """Return the attempts that hold some."""
        return list(self._held)

    def there(self) -> frozenset[int]:
        """Return the GPUs that there are, as far as their names are known."""
        return frozenset(self._names())

    def names(self, indices: Sequence[int]) -> tuple[str, ...]:
        """Return what GPUs are called by whoever sees them."""
        names = self._names()
        return tuple(_name(names, index) for index in indices)

    def indices(self, named: Sequence[str]) -> frozenset[int]:
        """Return which of the GPUs here are called so."""
        if not named:  # The driver, which may hang, is asked for nothing else.
            return frozenset()
        known = {name: index for index, name in self._names().items()}
        found = (known.get(name, _index(name)) for name in named)
        return frozenset(index for index in found if index is not None)

    def take(
        self, key: AttemptKey, indices: Sequence[int], count: int, for_s: float | None = None, leaves: int = 0
    ) -> list[int]:
        """Lock as many of these GPUs as are wanted and nobody holds; return which.

        Args:
            key: of the attempt.
            indices: the GPUs, the most wanted first.
            count: how many.
            for_s: for how long others are told that they are needed; `None` where nobody has said.
            leaves: how many are left for others who come first.

        Raises:
            RpcError: REFUSED where users of this host are not safe from one another.
        """
        self.release(key)
        if self._locks is None:
            return list(indices[: min(count, max(0, len(indices) - leaves))])
        names = self._names()
        by_name = {_name(names, index): index for index in indices}
        now = time.time()
        until_s = now + for_s if for_s is not None else None
        purpose = Purpose(key.job_id, key.attempt, now, until_s, is_started=False)
        try:
            taken = self._locks.take(list(by_name), count, purpose, leaves)
        except UnsafeDirectoryError as error:
            said = sentences.GPUS_NOT_LOCKED(path=str(error.filename), reason=str(error.strerror))
            raise RpcError(ErrorCode.REFUSED, said) from error
        self._held[key] = purpose, [descriptor for descriptor in taken.values() if descriptor is not None]
        return [by_name[name] for name in taken]

    def holders(self, own: Sequence[int]) -> dict[int, Holder]:
        """Return who has which GPU, but for those that are known to be this agent's own."""
        if self._locks is None:
            return {}
        indices = {name: index for index, name in self._names().items()}
        found = {indices.get(holder.gpu): holder for holder in self._locks.holders()}
        return {index: holder for index, holder in found.items() if index is not None and index not in own}

    def hand_over(self, key: AttemptKey) -> list[int]:
        """Return the descriptors of an attempt that is being started; they are the caller's to close."""
        if key not in self._held:
            return []
        purpose, held = self._held.pop(key)
        for descriptor in held:
            gpu_locks.tell(descriptor, replace(purpose, is_started=True))
        return held

    def release(self, key: AttemptKey) -> None:
        """Let go of what an attempt has."""
        if key in self._held:
            for descriptor in self._held.pop(key)[1]:
                os.close(descriptor)


_UNNAMED = "index-"
"""Begins what a GPU is called whose driver does not tell its UUID."""


def _name(names: Mapping[int, str], index: int) -> str:
    return names.get(index, f"{_UNNAMED}{index}")


def _index(name: str) -> int | None:
    number = name.removeprefix(_UNNAMED)
    return int(number) if name.startswith(_UNNAMED) and number.isdecimal() and len(number) < 5 else None
