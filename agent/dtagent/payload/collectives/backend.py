"""What carries collectives: the simulated group and torch's process groups, and whatever else has these calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from .choosing import KnownLinks
from .requests import Request


class Backend(Protocol):
    """Ranks that can reach each other."""

    name: str
    """`simulated`, `gloo`, `nccl` or `mpi`."""
    hosts: Sequence[Sequence[int]] | None
    """The ranks of each host; `None` where all are on one."""
    network: KnownLinks | None
    """What is known of their links; `None` where nothing is."""
    takes_threads: bool
    """Whether messages of several threads may be on their way at once."""

    @property
    def device(self) -> torch.device | None:
        """Where values are reduced; `None` where each tensor is."""

    def is_eager(self, size_bytes: int) -> bool:
        """Return whether what each rank brings goes along with what it calls, where no algorithm is named.

        Args:
            size_bytes: of what each brings; of a broadcast or scatter, the root.
        """

    def call(
        self, rank: int, request: Request, tensor: torch.Tensor, *, in_place: bool, timeout_s: float
    ) -> torch.Tensor:
        """Take part in a collective; raises CollectiveError and CollectiveTimeoutError."""

    def send(self, data: torch.Tensor, source: int, target: int, tag: int) -> None:
        """Send a copy, without waiting until it is received."""

    def begin_send(
        self, data: torch.Tensor, source: int, target: int, tag: int, timeout_s: float
    ) -> Callable[[], torch.Tensor]:
        """Begin to send a tensor from its own memory; return what waits until it has gone, and returns it.

        That raises CollectiveTimeoutError.
        """

    def receive(
        self, source: int, target: int, shape: Sequence[int], dtype: torch.dtype, tag: int, timeout_s: float
    ) -> torch.Tensor:
        """Return what was sent; raises CollectiveTimeoutError and MismatchError."""

    def barrier(self, rank: int, timeout_s: float) -> None:
        """Wait for all ranks; raises CollectiveTimeoutError."""

    def regroup(self, rank: int, *, everyone: bool, timeout_s: float) -> tuple[Backend, Sequence[int]]:
        """Return a group in the place of one that is lost, and the ranks of before that it has, by their new numbers.

        Raises CollectiveTimeoutError, and CollectiveError where the back-end cannot do that.
        """
