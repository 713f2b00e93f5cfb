"""Memory for messages that is used again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.dlpack import from_dlpack

Lend = Callable[[int, torch.dtype, "torch.device | str"], torch.Tensor]
"""Returns memory for so many elements; what is in it is left from before."""

POOLED_BYTES = 1 << 16
"""From here on memory is pooled: the system gives less at once."""
MOST_BYTES = 256 << 20
"""A pool holds so much at most, and what is lent beyond goes back to the system."""


class CommunicationBuffer:
    """One piece of memory, lent to one user at a time.

    Args:
        max_size: elements it has.
        dtype: of its elements.
        device: where it is.
    """

    def __init__(
        self, max_size: int, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> None:
        self.buffer = torch.empty(max_size, dtype=dtype, device=device)
        self._lent: StorageWeakRef | None = None
        self._is_kept = False

    @property
    def in_use(self) -> bool:
        """Whether it is lent: any view of what `get_buffer` returned is there, and nobody has said `release`.

        To set it to false is to release it; to true, to have it lent until then.
        """
        return self._is_kept or (self._lent is not None and not self._lent.expired())  # type: ignore[no-untyped-call]  # torch's

    @in_use.setter
    def in_use(self, value: bool) -> None:
        self.release()
        self._is_kept = value

    def get_buffer(self, size: int) -> torch.Tensor:
        """Lend the first elements of the buffer.

        Raises:
            ValueError: it has fewer elements, or it is lent, or the size is below 0.
        """
        if size < 0:
            raise ValueError(f"a buffer has 0 elements at least, and not {size}")
        if size > len(self.buffer):
            raise ValueError("Buffer too small")
        if self.in_use:
            raise ValueError("Buffer in use: release it first, or take another one")
        # The same memory under a storage of its own, which lives as long as any view of it: of a slice of the buffer
        # views know the buffer alone. As bytes, which the exchange of tensors has for every type.
        raw: torch.Tensor = from_dlpack(self.buffer.view(torch.uint8))
        part = raw.view(self.buffer.dtype)[:size]
        self._lent = StorageWeakRef(part.untyped_storage())  # type: ignore[no-untyped-call]  # torch's
        return part

    def release(self) -> None:
        """Take it back, whoever still has views of it."""
        self._lent, self._is_kept = None, False


class BufferPool:
    """Buffers for what collectives need besides their results; each is lent again once no view of it is left.

    They are of the CPU's memory: of a GPU's torch has a pool of its own.

    Memory of some megabytes would be new from the system each time, page by page.

    Args:
        most_bytes: which it holds.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self.lent_again = 0
        """How often a buffer was there already."""
        self._held: dict[int, list[CommunicationBuffer]] = {}
        """By bytes, in the order in which they were asked for."""
        self._lending = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """How much it holds."""
        return sum(size * len(buffers) for size, buffers in self._held.items())

    def lend(self, count: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> torch.Tensor:
        """Return memory for so many elements, in one dimension; it comes back by itself."""
        size = count * torch.empty((), dtype=dtype).element_size()
        if torch.device(device).type != "cpu" or not POOLED_BYTES <= size <= self.most_bytes:
            return torch.empty(count, dtype=dtype, device=device)
        with self._lending:
            buffers = self._held[size] = self._held.pop(size, [])  # Now the one that was asked for last.
            free = next((buffer for buffer in buffers if not buffer.in_use), None)
            if free is not None:
                self.lent_again += 1
            else:
                free = CommunicationBuffer(size, torch.uint8)
                buffers.append(free)
            part = free.get_buffer(size)
            self._let_go()
        return part.view(dtype)

    def _let_go(self) -> None:
        """Hold no more than it may: what is lent goes with its views."""
        over = self.held_bytes - self.most_bytes
        for size in list(self._held):
            while over > 0 and self._held[size]:
                self._held[size].pop(0)
                over -= size
            if not self._held[size]:
                del self._held[size]
