"""What ranks call, whether that goes together, and how tensors become parts of a vector and a vector a result.

Nothing here moves data: the back-ends do, by the schedules.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from .choosing import KnownLinks, usual_algorithm
from .errors import CollectiveError, MismatchError, named
from .schedules import ALGORITHMS, Collective, even_cuts, schedule_of

if TYPE_CHECKING:
    from .buffers import Lend
    from .schedules import Schedule


OPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
    "mean": torch.add,
}
"""Operation → how two values become one; a mean is divided at the end."""
REDUCING = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)
ROOTED = (Collective.BROADCAST, Collective.GATHER, Collective.SCATTER)
BARRIER = "barrier"
"""In the place of an algorithm: of what is called to meet alone."""
REQUIRES_GRAD = "requires_grad"
"""In the place of a compression: of what a gather asks first whose gradients go back."""
MOST_DIMENSIONS = 64
"""As many as torch's own operations take, and as what a rank calls has room for."""


class Request(NamedTuple):
    """What one rank calls, but for its values: small, and sent to all."""

    kind: Collective
    shape: tuple[int, ...]
    dtype: torch.dtype
    op: str = "sum"
    root: int = 0
    algorithm: str = ""
    """Empty for the usual one."""
    fault: str = ""
    """Why it can be done on no rank; all are told, so that none waits."""
    compression: str = ""
    """Of which compressed all-reduce it is a part; empty for none."""


class VectorLayout(NamedTuple):
    """How the tensors of all ranks lie in one vector."""

    kind: Collective
    shape: tuple[int, ...]
    """Of the whole: what is reduced or broadcast, what has come together, what is shared out."""
    dtype: torch.dtype
    cuts: list[int]
    """Where the part of each rank begins, in elements, and where the last one ends."""
    rows: list[int]
    """How long each rank's part is along dimension 0."""

    @property
    def size(self) -> int:
        """How many elements the vector has."""
        return self.cuts[-1]


def request(
    kind: Collective,
    tensor: torch.Tensor,
    op: str = "sum",
    root: int = 0,
    algorithm: str = "",
    ranks: int = 1,
    device: torch.device | None = None,
    fault: str = "",
    compression: str = "",
) -> Request:
    """Return what a rank calls; where that can be done on no rank, with the reason.

    Args:
        kind: of the collective.
        tensor: what the rank brings.
        op: by which values are reduced.
        root: of a collective that has one.
        algorithm: how; empty for the usual one.
        ranks: how many there are.
        device: where values are reduced; by default where the tensor is.
        fault: why it cannot be done, where the caller knows that already.
        compression: of which compressed all-reduce it is a part.
    """
    fault = fault or _no_arguments(tensor, op, root, algorithm)
    fault = fault or _fault(kind, tensor, op, root, algorithm, ranks) or _unsupported(kind, tensor, op, device)
    if fault:
        return Request(kind, (), torch.uint8, fault=fault)
    reduced_by = op if kind in REDUCING else "sum"
    shape = tuple(tensor.shape)
    return Request(kind, shape, tensor.dtype, reduced_by, operator.index(root), algorithm, compression=compression)


def _no_arguments(tensor: object, op: object, root: object, algorithm: object) -> str:
    """Return what is of another type than it has to be: raised on one rank alone it would leave the others waiting."""
    if not isinstance(tensor, torch.Tensor):
        return f"a collective is of tensors, and this is a {type(tensor).__name__}"
    if tensor.dim() > MOST_DIMENSIONS:
        return f"a tensor has up to {MOST_DIMENSIONS} dimensions, and this one {tensor.dim()}"
    if not hasattr(type(root), "__index__"):
        return f"a root is the number of a rank, and not {root!r}"
    for what, value in (("an operation", op), ("an algorithm", algorithm)):
        if not isinstance(value, str):
            return f"{what} is a name, and not {value!r}"
    return ""


def _fault(kind: Collective, tensor: torch.Tensor, op: str, root: int, algorithm: str, ranks: int) -> str:
    if op not in OPS:
        return f"there is no operation {op!r}: take one of {', '.join(OPS)}"
    if op == "mean" and kind in REDUCING and not (tensor.is_floating_point() or tensor.is_complex()):
        return f"a mean of {tensor.dtype} is no {tensor.dtype}: take sum, or convert to a float first"
    if op in ("max", "min") and kind in REDUCING and tensor.is_complex():
        return f"{tensor.dtype} has no order: there is no {op} of it"
    if kind in ROOTED and not 0 <= root < ranks:
        return f"there is no rank {root} for a root: ranks are 0 to {ranks - 1}"
    if algorithm and algorithm not in ALGORITHMS[kind]:
        return f"{kind.value} has no algorithm {algorithm!r}: take one of {', '.join(ALGORITHMS[kind])}"
    if kind is Collective.REDUCE_SCATTER and not tensor.dim():
        return f"{kind.value} needs a dimension to share out, and the tensor is a single number"
    return ""


def _unsupported(kind: Collective, tensor: torch.Tensor, op: str, device: torch.device | None) -> str:
    """Return what torch cannot do with such a tensor: who finds that out later leaves the others waiting."""
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        return f"a collective is of dense tensors with values, and this one is {_kind_of(tensor)}"
    return _cannot_reduce(op, tensor.dtype, device or tensor.device) if kind in REDUCING else ""


def _kind_of(tensor: torch.Tensor) -> str:
    return "on the device meta" if tensor.is_meta else "quantized" if tensor.is_quantized else f"{tensor.layout}"


@functools.cache
def _cannot_reduce(op: str, dtype: torch.dtype, device: torch.device) -> str:
    """Try an operation on one element."""
    one = torch.zeros(1, dtype=dtype, device=device)
    try:
        OPS[op](one, one, out=one)  # type: ignore[call-arg]  # each has it
        if op == "mean":
            one.div_(1)
    except (RuntimeError, TypeError):
        return f"torch has no {op} of {dtype} on {device.type}: convert it first, or send it by a gather or broadcast"
    return ""


def agree(requests: Sequence[Request]) -> VectorLayout:
    """Return how the tensors of all ranks lie in a vector.

    Args:
        requests: what each rank has called.

    Raises:
        CollectiveError: it can be done on no rank: an unknown operation or algorithm, a root that there is not.
        MismatchError: that does not go together; names the ranks that differ.
    """
    faults: dict[str, list[int]] = {}
    for rank, item in enumerate(requests):
        if item.fault:
            faults.setdefault(item.fault, []).append(rank)
    if faults:
        raise CollectiveError("; ".join(f"{named(ranks)}: {fault}" for fault, ranks in faults.items()))
    lead = requests[requests[0].root] if requests[0].kind in (Collective.BROADCAST, Collective.SCATTER) else requests[0]
    compressed = [item.compression if item.compression != REQUIRES_GRAD else "" for item in requests]
    for what, values in (
        ("compress otherwise", [how or "not at all" for how in compressed]),
        ("call another collective", [BARRIER if item.algorithm == BARRIER else item.kind.value for item in requests]),
        ("bring a tensor with another requires_grad", [item.compression == REQUIRES_GRAD for item in requests]),
        ("reduce by another operation", [item.op for item in requests]),
        ("name another root", [item.root for item in requests]),
        ("take another algorithm", [item.algorithm for item in requests]),
    ):
        _alike(what, values)
    kind, ranks = lead.kind, len(requests)
    _check_tensors(lead, requests)
    if kind in (Collective.ALL_REDUCE, Collective.BROADCAST):
        return VectorLayout(kind, lead.shape, lead.dtype, even_cuts(_count(lead.shape), ranks), [])
    if kind in (Collective.ALL_GATHER, Collective.GATHER):
        rows = [item.shape[0] if item.shape else 1 for item in requests]
        inner = lead.shape[1:]
        return VectorLayout(kind, (sum(rows), *inner), lead.dtype, _cuts_of(rows, inner), rows)
    if not lead.shape:  # Of a scatter, where the root alone knows.
        raise CollectiveError(
            f"{kind.value} needs a dimension to share out, and {named([lead.root])} brings one number"
        )
    whole = even_cuts(lead.shape[0], ranks)
    rows = [end - begin for begin, end in zip(whole, whole[1:])]
    return VectorLayout(kind, lead.shape, lead.dtype, _cuts_of(rows, lead.shape[1:]), rows)


def _check_tensors(lead: Request, requests: Sequence[Request]) -> None:
    """Look at shapes and types. Whoever only receives may bring an empty tensor, or one of the right shape."""
    kind = lead.kind
    receives = kind in (Collective.BROADCAST, Collective.SCATTER)
    brought = [not (receives and 0 in item.shape and item is not lead) for item in requests]
    if kind is Collective.SCATTER:
        brought = [item is lead for item in requests]
    _alike("bring another type", [item.dtype if found else lead.dtype for item, found in zip(requests, brought)])
    if kind in (Collective.ALL_GATHER, Collective.GATHER):
        _alike("bring another shape beyond dimension 0", [item.shape[1:] for item in requests])
    else:
        shapes = [item.shape if found else lead.shape for item, found in zip(requests, brought)]
        _alike("bring another shape", shapes)


def _alike(what: str, values: Sequence[object]) -> None:
    """Raise MismatchError where values of ranks differ; the fewer are called the others."""
    by_value: dict[object, list[int]] = {}
    for rank, value in enumerate(values):
        by_value.setdefault(value, []).append(rank)
    if len(by_value) < 2:
        return
    (usual, most), *others = sorted(by_value.items(), key=lambda item: -len(item[1]))
    told = "; ".join(f"{named(ranks)}: {_text(value)}" for value, ranks in others[:4])
    raise MismatchError(f"ranks {what} than {named(most)} ({_text(usual)}): {told}")


def _text(value: object) -> str:
    return str(tuple(value)) if isinstance(value, tuple) else str(value)


def schedule(
    request: Request,
    layout: VectorLayout,
    rank: int,
    hosts: Sequence[Sequence[int]] | None = None,
    network: KnownLinks | None = None,
) -> Schedule:
    """Return what a rank does.

    Args:
        request: what it has called.
        layout: how the tensors lie.
        rank: of whom.
        hosts: the ranks of each host, for the hierarchical algorithm; all are on one without it.
        network: by which one is chosen where none is named; `None` where that is not known.
    """
    ranks, root, count, cuts = len(layout.cuts) - 1, request.root, layout.size, layout.cuts
    algorithm = request.algorithm or usual_algorithm(request.kind, ranks, count * _width(layout.dtype), hosts, network)
    return schedule_of(request.kind, algorithm, rank, cuts, root, hosts)


def vector_of(
    tensor: torch.Tensor,
    layout: VectorLayout,
    rank: int,
    root: int,
    lend: Lend | None = None,
    *,
    in_place: bool = False,
) -> torch.Tensor:
    """Return the vector that a rank begins with.

    Args:
        tensor: what it brought.
        layout: how the tensors lie.
        rank: whose.
        root: of the collective.
        lend: gives memory for a vector of which the result is no part; by default it is new.
        in_place: whether the tensor itself may be the vector, where it is one.
    """
    flat = tensor.detach().reshape(-1)

    def room(*, is_lent: bool) -> torch.Tensor:
        if is_lent and lend is not None:
            return lend(layout.size, layout.dtype, tensor.device)
        return torch.empty(layout.size, dtype=layout.dtype, device=tensor.device)

    if layout.kind in (Collective.ALL_GATHER, Collective.GATHER):
        vector = room(is_lent=layout.kind is Collective.GATHER and rank != root)
        vector[layout.cuts[rank] : layout.cuts[rank + 1]] = flat
        return vector
    if layout.kind in (Collective.BROADCAST, Collective.SCATTER) and rank != root:
        is_whole = in_place and (flat.numel(), flat.dtype) == (layout.size, layout.dtype) and tensor.is_contiguous()
        return flat if is_whole else room(is_lent=layout.kind is Collective.SCATTER)
    if layout.kind is Collective.REDUCE_SCATTER:
        return room(is_lent=True).copy_(flat)
    is_read_only = layout.kind is Collective.SCATTER
    return flat if is_read_only or (in_place and tensor.is_contiguous()) else flat.clone()


def bringing(request: Request, ranks: int) -> Sequence[int]:
    """Return whose values a collective is of."""
    return [request.root] if request.kind in (Collective.BROADCAST, Collective.SCATTER) else range(ranks)


def bytes_of(request: Request) -> int:
    """Return the size of what a rank brings."""
    return _count(request.shape) * _width(request.dtype)


def vector_from_all(
    values: bytes, layout: VectorLayout, request: Request, combine: Callable[..., torch.Tensor]
) -> torch.Tensor:
    """Return the vector that ranks end with, made here of what all have brought; alike on all, to the last bit.

    Args:
        values: of the ranks, one after another.
        layout: how they lie.
        request: of this rank.
        combine: how two values become one, with `out`.
    """
    if not values:
        return torch.empty(0, dtype=layout.dtype)
    vector = torch.frombuffer(bytearray(values), dtype=torch.uint8).view(layout.dtype)
    if request.kind not in REDUCING:
        return vector
    own: torch.Tensor
    own, *others = vector.view(-1, layout.size)
    for other in others:
        combine(own, other, out=own)
    return own.clone()  # A view would keep what all have brought, and `torch.save` would write it.


def result_of(vector: torch.Tensor, layout: VectorLayout, rank: int, request: Request) -> torch.Tensor:
    """Return what a rank gets of the vector that it ends with; of a gather all but the root get nothing, in rows."""
    ranks, inner = len(layout.cuts) - 1, layout.shape[1:]
    if layout.kind in (Collective.REDUCE_SCATTER, Collective.SCATTER):
        vector = vector[layout.cuts[rank] : layout.cuts[rank + 1]].clone().reshape(layout.rows[rank], *inner)
    elif layout.kind is Collective.GATHER and rank != request.root:
        return vector.new_empty((0, *inner))
    else:
        vector = vector.reshape(layout.shape)
    return vector.div_(ranks) if request.op == "mean" and request.kind in REDUCING else vector


def holds(tensor: torch.Tensor, values: torch.Tensor) -> bool:
    """Return whether a tensor can hold values; one without elements may be of another type."""
    return tensor.shape == values.shape and tensor.dtype == values.dtype


@functools.cache
def _width(dtype: torch.dtype) -> int:
    return torch.empty((), dtype=dtype).element_size()


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _cuts_of(rows: Sequence[int], inner: Sequence[int]) -> list[int]:
    width, cuts = _count(inner), [0]
    for size in rows:
        cuts.append(cuts[-1] + size * width)
    return cuts
