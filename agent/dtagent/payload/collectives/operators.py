"""Seed 003's operators: one class a collective, each made for one rank."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from .choosing import usual_algorithm
from .communicator import DistributedCommunicator, create_ring_topology
from .compression import COMPRESSIBLE
from .differentiable import GatheredRows, ScatteredRows
from .errors import CollectiveError
from .handles import CollectiveHandle
from .job_settings import job_settings
from .schedules import Collective
from .simulated import SimulatedGroup

if TYPE_CHECKING:
    from .compression import Compression

log = logging.getLogger("dttui.collectives")


class Timing(NamedTuple):
    """How long a collective of one size takes."""

    shape: tuple[int, ...]
    """Of what each rank brings."""
    dtype: torch.dtype
    device: torch.device
    algorithm: str
    """As it was named, or the usual one; `eager` where values went along with what ranks call."""
    ranks: int
    size_bytes: int
    """As nccl-tests counts it: of the vector that is reduced, of all parts together where they are gathered."""
    seconds: float
    """The median."""
    kind: Collective

    @property
    def algorithm_bandwidth(self) -> float:
        """Bytes a second: size by time."""
        return self.size_bytes / self.seconds

    @property
    def bus_bandwidth(self) -> float:
        """Bytes a second on the busiest link, whatever the number of ranks (nccl-tests, PERFORMANCE.md)."""
        return self.algorithm_bandwidth * bus_bandwidth_factor(self.kind, self.ranks)


def bus_bandwidth_factor(kind: Collective, ranks: int) -> float:
    """Return bus bandwidth by algorithm bandwidth."""
    if kind is Collective.ALL_REDUCE:
        return 2 * (ranks - 1) / ranks
    return 1.0 if kind is Collective.BROADCAST else (ranks - 1) / ranks


class _Operator:
    """What all operators have.

    Args:
        comm: the rank that it is for.
        algorithm: how; by default the one that the job names, else the usual one of the collective, see
            `schedules.ALGORITHMS`.
    """

    kind: Collective

    def __init__(self, comm: DistributedCommunicator, algorithm: str = "") -> None:
        self.comm = comm
        self.algorithm = algorithm or job_settings().algorithms.get(self.kind, "")

    def call(
        self,
        tensor: torch.Tensor,
        *,
        op: str = "sum",
        root: int = 0,
        in_place: bool = False,
        timeout_s: float | None = None,
        fault: str = "",
    ) -> torch.Tensor:
        """Take part, as `DistributedCommunicator.call`; at DEBUG it is logged how long that took."""
        began = time.perf_counter()
        try:
            return self.comm.call(
                self.kind,
                tensor,
                op=op,
                root=root,
                algorithm=self.algorithm,
                in_place=in_place,
                timeout_s=timeout_s,
                fault=fault,
            )
        finally:
            if log.isEnabledFor(logging.DEBUG) and isinstance(tensor, torch.Tensor):
                log.debug(
                    "rank %d of %d: %s of %s %s over %s took %.6f s",
                    self.comm.rank,
                    self.comm.world_size,
                    self.kind.value,
                    tuple(tensor.shape),
                    tensor.dtype,
                    self.comm.backend,
                    time.perf_counter() - began,
                )

    def begin(
        self,
        tensor: torch.Tensor,
        *,
        op: str = "sum",
        root: int = 0,
        in_place: bool = False,
        timeout_s: float | None = None,
    ) -> CollectiveHandle:
        """Take part as by `call`, without waiting for it."""
        return self.comm.begin(lambda: self.call(tensor, op=op, root=root, in_place=in_place, timeout_s=timeout_s))

    def benchmark(
        self,
        shapes: Sequence[Sequence[int]],
        num_trials: int = 10,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> list[Timing]:
        """Return how long the collective takes for tensors of some shapes, of which all ranks bring the same.

        Where all ranks are of this process, one of them measures for all; else every rank has to call.

        Args:
            shapes: of what each rank brings.
            num_trials: how often each is measured, after one that is not.
            dtype: of the elements.
            device: where tensors lie; by default where the back-end reduces, so over NCCL on the GPU, else on the CPU.
                Of a GPU it is timed by its events what it has done, and not what it was told.

        Raises CollectiveError where it is to be measured less than once.
        """
        if num_trials < 1:
            raise CollectiveError(f"num_trials is {num_trials}: at least one is needed")
        for shape in shapes:
            sizes = list(shape) if isinstance(shape, Iterable) else [-1]
            if not all(isinstance(size, int) and size >= 0 for size in sizes):
                raise CollectiveError(f"a shape is of lengths, as (1000,) is, and not {shape!r}")
        place = torch.device(device or self.comm.group.device or "cpu")
        return [self._timing(torch.ones(tuple(shape), dtype=dtype, device=place), num_trials) for shape in shapes]

    def _timing(self, tensor: torch.Tensor, trials: int) -> Timing:
        ranks = self.comm.world_size
        members: list[_Operator] = [self]
        if isinstance(self.comm.group, SimulatedGroup):
            topology = create_ring_topology(ranks, hosts=self.comm.group.hosts, network=self.comm.group.network)
            members = [type(self)(comm, self.algorithm) for comm in topology]
        else:
            self.comm.barrier()

        def work() -> None:
            for member in members:
                member.call(tensor)

        taken = [_seconds(work, tensor.device) for _trial in range(trials + 1)]
        size = tensor.numel() * tensor.element_size()
        whole = size * ranks if self.kind in (Collective.ALL_GATHER, Collective.GATHER) else size
        return Timing(
            tuple(tensor.shape),
            tensor.dtype,
            tensor.device,
            self.algorithm or self._usual(size, whole),
            ranks,
            whole,
            statistics.median(taken[1:]),
            self.kind,
        )

    def _usual(self, brought_bytes: int, whole_bytes: int) -> str:
        """Return how it goes where no algorithm is named."""
        group = self.comm.group
        if group.is_eager(brought_bytes):
            return "eager"
        return usual_algorithm(self.kind, self.comm.world_size, whole_bytes, group.hosts, group.network)


def _seconds(work: Callable[[], None], device: torch.device) -> float:
    """Return how long work takes."""
    if device.type != "cuda":
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    with torch.cuda.device(device):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch's
        begin.record()
        work()
        end.record()
        end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


class AllReduceOperator(_Operator):
    """Reduces the tensors of all ranks; every rank gets the result."""

    kind = Collective.ALL_REDUCE

    def all_reduce(
        self,
        tensor: torch.Tensor,
        op: str = "sum",
        *,
        in_place: bool = False,
        timeout: float | None = None,
        compression: Compression | None = None,
        name: str = "",
        parts: Sequence[torch.Tensor] = (),
    ) -> torch.Tensor:
        """Return the tensors of all ranks, reduced element by element.

        Args:
            tensor: of this rank; of one shape and type on all.
            op: `sum`, `max`, `min`, or `mean`, which integers do not have.
            in_place: whether the tensor is to hold the result, too.
            timeout: seconds after which ranks that have not called are given up; by default the communicator's.
            compression: what goes over the wire, of floating-point numbers; by default all as it is.
            name: of this tensor, under which the compression keeps for its next all-reduce what it leaves out now.
            parts: views of the tensor, where it is a vector made of several; the compression sees matrices in them.

        Raises:
            CollectiveError: what the ranks have called does not go together; names the ranks, on all of them.
            CollectiveTimeoutError: some have not called in time.
        """
        fault = _no_compression(compression, self.comm, tensor, op) if compression is not None else ""
        if compression is None or fault or not isinstance(tensor, torch.Tensor):
            return self.call(tensor, op=op, in_place=in_place, timeout_s=timeout, fault=fault)
        values = tensor.detach()
        if not (in_place and values.is_contiguous()):
            values, parts = values.clone(memory_format=torch.contiguous_format), ()
        compression.all_reduce(
            self.comm,
            values.view(-1),
            parts or [values],
            op,
            name=name,
            algorithm=self.algorithm,
            timeout_s=timeout,
        )
        return tensor.detach().copy_(values) if in_place else values

    def all_reduce_async(
        self,
        tensor: torch.Tensor,
        op: str = "sum",
        *,
        in_place: bool = False,
        timeout: float | None = None,
        compression: Compression | None = None,
        name: str = "",
        parts: Sequence[torch.Tensor] = (),
    ) -> CollectiveHandle:
        """Begin what `all_reduce` does, and return without waiting for it.

        What a rank has begun is carried out in that order, and calls that wait take their turn behind it, so all ranks
        have to call in one order, as ever. Leave the tensor alone until it has completed. What `all_reduce` raises,
        `wait` of the handle does, on every rank.
        """
        return self.comm.begin(
            lambda: self.all_reduce(
                tensor, op, in_place=in_place, timeout=timeout, compression=compression, name=name, parts=parts
            )
        )


def _no_compression(compression: Compression, comm: DistributedCommunicator, tensor: torch.Tensor, op: str) -> str:
    """Return why an all-reduce cannot be compressed; of what is no tensor all are told anyway."""
    if not hasattr(compression, "operations"):
        return f"a compression is one of HalfPrecision(), TopK(), PowerSgd(), and not {compression!r}"
    if isinstance(tensor, torch.Tensor) and tensor.dtype not in COMPRESSIBLE:
        return f"compression is of floating-point numbers, and the tensor is of {tensor.dtype}"
    if op not in compression.operations:
        return f"with this compression there is no {op!r}: take {' or '.join(compression.operations)}"
    if not comm.waits:
        return "compression needs ranks in threads or processes: create_ring_topology(threads=True)"
    return ""


def _goes_back(tensor: torch.Tensor, comm: DistributedCommunicator) -> bool:
    is_tensor = isinstance(tensor, torch.Tensor)  # Else all ranks are to be told so.
    return is_tensor and comm.waits and torch.is_grad_enabled() and tensor.requires_grad


class BroadcastOperator(_Operator):
    """Gives the tensor of one rank to all."""

    kind = Collective.BROADCAST

    def broadcast(self, tensor: torch.Tensor, root_rank: int = 0, *, in_place: bool = False) -> torch.Tensor:
        """Return the root's tensor.

        Args:
            tensor: on the root what all get; elsewhere of its shape, or empty: shape and type travel.
            root_rank: whose.
            in_place: whether the tensor is to hold the result, too, where it has its shape.

        Raises: as `AllReduceOperator.all_reduce`.
        """
        return self.call(tensor, root=root_rank, in_place=in_place)

    def broadcast_async(self, tensor: torch.Tensor, root_rank: int = 0, *, in_place: bool = False) -> CollectiveHandle:
        """Begin what `broadcast` does, as `AllReduceOperator.all_reduce_async`."""
        return self.begin(tensor, root=root_rank, in_place=in_place)


class AllGatherOperator(_Operator):
    """Brings the tensors of all ranks together on every rank."""

    kind = Collective.ALL_GATHER

    def all_gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensors of all ranks, one after another along dimension 0, in which they may differ.

        Where a tensor requires a gradient, on all ranks or on none, the result does, too: backwards each rank gets what
        all ranks together give for its rows. Ranks that are called one after another in one thread have none.

        Raises: as `AllReduceOperator.all_reduce`.
        """
        if not _goes_back(tensor, self.comm):
            return self.call(tensor)
        gathered: torch.Tensor = GatheredRows.apply(tensor, self.call, self.comm)  # type: ignore[no-untyped-call]  # torch's stubs
        return gathered

    def all_gather_async(self, tensor: torch.Tensor) -> CollectiveHandle:
        """Begin what `all_gather` does, as `AllReduceOperator.all_reduce_async`."""
        return self.begin(tensor)


class ReduceScatterOperator(_Operator):
    """Reduces the tensors of all ranks; each rank gets a part of the result."""

    kind = Collective.REDUCE_SCATTER

    def reduce_scatter(self, tensor: torch.Tensor, op: str = "sum") -> torch.Tensor:
        """Return this rank's rows of the reduced tensor: where they do not divide, the first ranks get one more.

        Args:
            tensor: of this rank; of one shape and type on all. Where it requires a gradient, the result does, too, as
                of `AllGatherOperator.all_gather`: backwards each rank gets the gradients for all rows.
            op: as of `AllReduceOperator.all_reduce`; backwards there are `sum` and `mean` alone.

        Raises: as `AllReduceOperator.all_reduce`.
        """
        if not _goes_back(tensor, self.comm):
            return self.call(tensor, op=op)
        scattered: torch.Tensor = ScatteredRows.apply(tensor, self.call, self.comm, op)  # type: ignore[no-untyped-call]  # torch's stubs
        return scattered

    def reduce_scatter_async(self, tensor: torch.Tensor, op: str = "sum") -> CollectiveHandle:
        """Begin what `reduce_scatter` does, as `AllReduceOperator.all_reduce_async`."""
        return self.begin(tensor, op=op)


class GatherOperator(_Operator):
    """Brings the tensors of all ranks together on one."""

    kind = Collective.GATHER

    def gather(self, tensor: torch.Tensor, root_rank: int = 0) -> torch.Tensor:
        """Return on the root what `all_gather` returns, and elsewhere a tensor without rows.

        Raises: as `AllReduceOperator.all_reduce`.
        """
        return self.call(tensor, root=root_rank)

    def gather_async(self, tensor: torch.Tensor, root_rank: int = 0) -> CollectiveHandle:
        """Begin what `gather` does, as `AllReduceOperator.all_reduce_async`."""
        return self.begin(tensor, root=root_rank)


class ScatterOperator(_Operator):
    """Shares the tensor of one rank out among all."""

    kind = Collective.SCATTER

    def scatter(self, tensor: torch.Tensor, root_rank: int = 0) -> torch.Tensor:
        """Return this rank's rows of the root's tensor, shared out as by `reduce_scatter`.

        Args:
            tensor: on the root what is shared out; elsewhere anything, an empty one for instance.
            root_rank: whose.

        Raises: as `AllReduceOperator.all_reduce`.
        """
        return self.call(tensor, root=root_rank)

    def scatter_async(self, tensor: torch.Tensor, root_rank: int = 0) -> CollectiveHandle:
        """Begin what `scatter` does, as `AllReduceOperator.all_reduce_async`."""
        return self.begin(tensor, root=root_rank)
