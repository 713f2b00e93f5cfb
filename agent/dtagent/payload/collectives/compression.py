"""Fewer bytes on the wire for an all-reduce: in half precision, the largest values alone, or factors of low rank.

What top-k and PowerSGD leave out of a tensor is kept under its name and added the next time (error feedback), so that
nothing is lost for good, but for what is infinite or no number: all ranks get it once, where a gradient scaler looks
for it. Sources: Stich et al. 2018 (top-k with memory); Vogels et al. 2019 (PowerSGD).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from .errors import CollectiveError, MismatchError, named
from .job_settings import job_settings
from .schedules import Collective

if TYPE_CHECKING:
    from .communicator import DistributedCommunicator

COMPRESSIBLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Types that torch computes with as well as stores."""
_SAMPLED = 37
"""Of so many values one is looked at to guess how large the largest are."""
_ENOUGH = 50
"""Of a sample, to guess by."""


class Compression(Protocol):
    """How an all-reduce is done with fewer bytes."""

    @property
    def operations(self) -> Sequence[str]:
        """Those that it can do."""

    def all_reduce(
        self,
        comm: DistributedCommunicator,
        flat: torch.Tensor,
        parts: Sequence[torch.Tensor],
        op: str,
        *,
        name: str,
        algorithm: str,
        timeout_s: float | None,
    ) -> None:
        """Let a vector be about what an all-reduce makes of those of all ranks; the same on all of them.

        Args:
            comm: of this rank; each call by it says in words of which compression and operation it is a part, so that
                ranks which differ in those hear of it.
            flat: floating-point numbers, of one dimension.
            parts: views of it, in their order, in the shapes of the tensors that it is made of.
            op: of `operations`.
            name: under which what is left out is kept; without one it is lost.
            algorithm: of the all-reduces in it.
            timeout_s: of each collective in it.
        """


class HalfPrecision:
    """Numbers of 16 bits on the wire, also where they are added: half of the bytes of float32.

    Args:
        dtype: `torch.bfloat16`, with the range of float32 and 8 bits of precision, or `torch.float16`, with 11 bits and
            nothing beyond 65,504, which a sum of many ranks may pass; a mean is divided first.
    """

    operations = ("sum", "mean", "max", "min")

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        if dtype not in (torch.bfloat16, torch.float16):
            raise CollectiveError(f"half precision is torch.bfloat16 or torch.float16, and not {dtype}")
        self.dtype = dtype

    def all_reduce(
        self,
        comm: DistributedCommunicator,
        flat: torch.Tensor,
        parts: Sequence[torch.Tensor],
        op: str,
        *,
        name: str,
        algorithm: str,
        timeout_s: float | None,
    ) -> None:
        """See `Compression`."""
        is_mean = op == "mean"
        wire = (flat / comm.world_size if is_mean else flat).to(self.dtype)
        of_wire = "sum" if is_mean else op
        flat.copy_(
            comm.call(
                Collective.ALL_REDUCE,
                wire,
                op=of_wire,
                algorithm=algorithm,
                in_place=True,
                timeout_s=timeout_s,
                compression=f"{self.dtype}, {op}",
            )
        )


class TopK:
    """The values that are largest by amount, of each rank its own, with their places.

    Of n ranks each receives (n-1)·k values with their places, 8 bytes of float32 together: with 1% that is less than
    the ring's 2(n-1)/n of the vector up to about 100 ranks.

    Args:
        share: of the elements, above 0 and at most 1; of a vector one at least.
    """

    operations = ("sum", "mean")

    def __init__(self, share: float = 0.01) -> None:
        if not 0 < share <= 1:
            raise CollectiveError(f"the share of elements is above 0 and at most 1, and not {share:g}")
        self.share = share
        self._left: dict[str, torch.Tensor] = {}

    def all_reduce(
        self,
        comm: DistributedCommunicator,
        flat: torch.Tensor,
        parts: Sequence[torch.Tensor],
        op: str,
        *,
        name: str,
        algorithm: str,
        timeout_s: float | None,
    ) -> None:
        """See `Compression`."""
        left = self._left.get(name)
        whole = flat.clone() if left is None or len(left) != len(flat) else flat + left
        count = min(len(flat), max(1, round(self.share * len(flat))))
        places = _largest(whole.abs(), count)
        values = whole[places]
        whole[places] = 0
        # One row a rank, so that rows of other lengths are told by name; the number of elements in front of it.
        narrow = torch.int32 if len(flat) < 1 << 31 else torch.int64
        head = torch.tensor([len(flat)])
        where = _bytes(places.to(narrow))
        row = torch.cat([_bytes(head), where, _bytes(values)])
        told = f"top-k of {self.share:g}, {op}"
        rows = comm.call(Collective.ALL_GATHER, row.unsqueeze(0), timeout_s=timeout_s, compression=told)
        if name:  # Not before the others have it.
            self._left[name] = torch.nan_to_num(whole, nan=0.0, posinf=0.0, neginf=0.0)
        sizes = [int(other[:8].clone().view(torch.int64)) for other in rows]
        if set(sizes) != {len(flat)}:
            others = [rank for rank, size in enumerate(sizes) if size != sizes[0]]
            raise MismatchError(f"ranks bring another number of elements than rank 0 ({sizes[0]}): {named(others)}")
        flat.zero_()
        middle = 8 + len(where)
        for other in rows:  # In one order on all ranks, so that all have the same result.
            flat.index_add_(0, other[8:middle].clone().view(narrow), other[middle:].clone().view(flat.dtype))
        if op == "mean":
            flat.div_(comm.world_size)


class PowerSgd:
    """Each matrix as the product of two thin ones, found by one step of power iteration from those of the time before.

    Of an (n, m) gradient (n+m)·r numbers go over the wire. Tensors of one dimension go as they are, and those for which
    that is half of their numbers or more. Dimensions beyond the first count as one.

    Args:
        matrix_rank: columns of the thin matrices, r.
    """

    operations = ("sum", "mean")

    def __init__(self, matrix_rank: int = 2) -> None:
        if matrix_rank < 1:
            raise CollectiveError(f"matrices have a rank of 1 at least, and not {matrix_rank}")
        self.matrix_rank = matrix_rank
        self._left: dict[str, list[torch.Tensor]] = {}
        self._right: dict[str, list[torch.Tensor]] = {}
        """Name → the second factor of each matrix, to begin with the next time."""

    def all_reduce(
        self,
        comm: DistributedCommunicator,
        flat: torch.Tensor,
        parts: Sequence[torch.Tensor],
        op: str,
        *,
        name: str,
        algorithm: str,
        timeout_s: float | None,
    ) -> None:
        """See `Compression`."""
        thick = [part.view(len(part), -1) for part in parts if self._gains(part)]
        plain = [part for part in parts if not self._gains(part)]
        left = self._left.get(name)
        if left is not None and [item.shape for item in left] == [item.shape for item in thick]:
            wholes, rights = [item + kept for item, kept in zip(thick, left)], self._right[name]
        else:
            wholes, rights = [item.clone() for item in thick], [self._start(item) for item in thick]

        def mean(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            sizes = [item.numel() for item in tensors]
            together = torch.cat([item.reshape(-1) for item in tensors]) if tensors else flat.new_empty(0)
            found = comm.call(
                Collective.ALL_REDUCE,
                together,
                op="mean",
                algorithm=algorithm,
                in_place=True,
                timeout_s=timeout_s,
                compression=f"matrices of rank {self.matrix_rank}, {op}",
            )
            return [part.view(item.shape) for part, item in zip(torch.split(found, sizes), tensors)]

        found = mean([*(whole @ right for whole, right in zip(wholes, rights)), *plain])
        columns = [_orthogonal(item) for item in found[: len(thick)]]
        rights = mean([whole.t() @ column for whole, column in zip(wholes, columns)])
        for target, reduced in zip(plain, found[len(thick) :]):
            target.copy_(reduced)
        for target, column, right in zip(thick, columns, rights):
            torch.mm(column, right.t(), out=target)
        if name:
            self._keep(name, [whole - target for whole, target in zip(wholes, thick)], rights)
        if op == "sum":
            flat.mul_(comm.world_size)

    def _keep(self, name: str, left: Sequence[torch.Tensor], rights: list[torch.Tensor]) -> None:
        """Keep what the next time begins with; nothing after factors that are not finite, of which all ranks know."""
        whether = [right.isfinite().all() for right in rights]
        if not whether or torch.stack(whether).all():
            self._left[name] = [torch.nan_to_num(item, nan=0.0, posinf=0.0, neginf=0.0) for item in left]
            self._right[name] = rights
        else:
            self._left.pop(name, None)
            self._right.pop(name, None)

    def _gains(self, part: torch.Tensor) -> bool:
        if part.dim() < 2 or not part.numel():
            return False
        rows, columns = len(part), part.numel() // len(part)
        return 2 * self.matrix_rank * (rows + columns) < rows * columns

    def _start(self, matrix: torch.Tensor) -> torch.Tensor:
        """Return the second factor to begin with: random numbers, the same on all ranks."""
        numbers = torch.Generator().manual_seed(1)
        made = torch.randn(matrix.shape[1], self.matrix_rank, generator=numbers)
        return made.to(dtype=matrix.dtype, device=matrix.device)


def _orthogonal(columns: torch.Tensor) -> torch.Tensor:
    """Return columns that span the same and are orthogonal; torch has that of no numbers of 16 bits."""
    exact = columns if columns.dtype in (torch.float32, torch.float64) else columns.float()
    found: torch.Tensor = torch.linalg.qr(exact)[0]
    return found.to(columns.dtype)


def _largest(amounts: torch.Tensor, count: int) -> torch.Tensor:
    """Return where the largest are: of many, among those above a bound that a sample says, in a seventh of the time."""
    sample = amounts[::_SAMPLED]
    likely = math.ceil(1.3 * count / _SAMPLED)
    if _ENOUGH <= likely < len(sample) // 2:
        bound = torch.topk(sample, likely).values[-1]
        found = (~(amounts <= bound)).nonzero().view(-1)  # Also what is no number, which counts as the largest.
        if len(found) >= count:
            return found[torch.topk(amounts[found], count, sorted=False).indices]
    return torch.topk(amounts, count, sorted=False).indices


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def job_compression() -> Compression | None:
    """Return how the job has gradients compressed, as an option of `all_reduce` and of `GradientSynchronizer`.

    Each call makes another one, with nothing left out yet; `None` where they are sent as they are.
    """
    kinds: dict[str, Callable[[], Compression]] = {
        "fp16": lambda: HalfPrecision(torch.float16),
        "bf16": HalfPrecision,
        "topk": TopK,
        "powersgd": PowerSgd,
    }
    kind = job_settings().compression
    return kinds[kind]() if kind in kinds else None
