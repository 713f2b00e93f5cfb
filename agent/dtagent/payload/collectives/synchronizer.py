"""Gradients that are averaged while the backward pass still computes others: what DDP's reducer does, by the operators.

Source: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training" (buckets, hooks,
`no_sync`).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from .errors import CollectiveError
from .job_settings import job_settings
from .operators import AllReduceOperator, BroadcastOperator

if TYPE_CHECKING:
    from .communicator import DistributedCommunicator
    from .compression import Compression
    from .handles import CollectiveHandle

BUCKET_BYTES = 25 << 20
"""As DDP's `bucket_cap_mb`."""


class _Bucket:
    """Gradients of one type and device that go together.

    Args:
        params: whose; their gradients lie in this order.
    """

    def __init__(self, params: list[torch.nn.Parameter]) -> None:
        self.params = params
        like = params[0]
        self.flat = torch.zeros(sum(param.numel() for param in params), dtype=like.dtype, device=like.device)
        self.parts = [
            part.view(param.shape)
            for part, param in zip(torch.split(self.flat, [param.numel() for param in params]), params)
        ]
        self.ready: set[int] = set()
        """Places of those whose gradients are in."""
        self.handle: CollectiveHandle | None = None


class GradientSynchronizer:
    """Makes the gradients of a model those of all ranks, bucket by bucket, from the last layer to the first.

    A bucket goes on its way once the backward pass has computed its gradients, while it computes others; all ranks send
    them in one order. `wait` lets the gradients be what came of it: call it after the backward pass, before they are
    clipped or the optimizer's step, or have `wait_before(optimizer)` do so.

    A parameter that this rank's backward pass did not reach counts with the gradient that it has, or with zeros.

    Args:
        model: its parameters and buffers become those of rank 0.
        comm: of this rank; all ranks make one for models of the same parameters in the same order.
        bucket_bytes: of the gradients that go together, at most, but for one larger than that; by default what the job
            says, all of them where it wants no overlap, else 25 MiB.
        op: as of `AllReduceOperator.all_reduce`.
        algorithm: of the all-reduce; by default as of `AllReduceOperator`.
        gradients_as_views: whether gradients lie in the buckets, as of DDP's `gradient_as_bucket_view`: nothing is
            copied back, and with `zero_grad(set_to_none=False)` nothing there either. Where a bucket does not come to
            its end they are neither this rank's nor those of all.
        compression: what goes over the wire, such as `job_compression()`; by default the gradients as they are.

    Raises:
        CollectiveError: the models of ranks differ in a shape or type; names the ranks, on all of them.
        CollectiveTimeoutError: some have not called in time.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        comm: DistributedCommunicator,
        *,
        bucket_bytes: int | None = None,
        op: str = "mean",
        algorithm: str = "",
        gradients_as_views: bool = False,
        compression: Compression | None = None,
    ) -> None:
        self._operator = AllReduceOperator(comm, algorithm)
        self._op = op
        self._compression = compression
        self._as_views = gradients_as_views
        self._syncs = True
        self._started = 0
        """How many buckets are on their way, or back."""
        broadcast = BroadcastOperator(comm)
        for tensor in (*model.parameters(), *model.buffers()):
            broadcast.broadcast(tensor.detach(), in_place=True)
        params = [param for param in model.parameters() if param.requires_grad]
        if bucket_bytes is not None and bucket_bytes < 1:
            raise CollectiveError(f"bucket_bytes is {bucket_bytes}, and has to be 1 at least")
        self._buckets = [_Bucket(group) for group in _grouped(params, bucket_bytes or _usual_bucket_bytes())]
        self._place = {param: (bucket, place) for bucket in self._buckets for place, param in enumerate(bucket.params)}
        self._hooks = [
            param.register_post_accumulate_grad_hook(self._take)  # type: ignore[no-untyped-call]  # torch's stubs
            for param in params
        ]

    @property
    def started(self) -> int:
        """How many buckets of this backward pass have been sent on their way."""
        return self._started

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let backward passes only accumulate gradients of this rank; the first one outside of this sends their sum."""
        before, self._syncs = self._syncs, False
        try:
            yield
        finally:
            self._syncs = before

    def wait(self, timeout: float | None = None) -> None:
        """Return when the gradients are those of all ranks.

        Args:
            timeout: seconds for each bucket, after which this gives up waiting, though they go on and may be waited
                for again; by default as long as the communicator says.

        Raises: as `AllReduceOperator.all_reduce`; the gradients are still this rank's own then, unless they are views.
        """
        if not self._syncs:
            return
        for bucket in self._buckets[self._started :]:
            for place, param in enumerate(bucket.params):
                if place not in bucket.ready:
                    self._put(bucket, place, param)
        self._send(len(self._buckets))
        handles = [bucket.handle for bucket in self._buckets if bucket.handle is not None]
        try:
            for handle in handles:
                handle.wait(timeout)  # In place: what it returns is in the bucket.
            for bucket in self._buckets:
                for param, part in zip(bucket.params, bucket.parts):
                    self._give_back(param, part)
        finally:
            if all(handle.is_completed() for handle in handles):
                self._begin_anew()

    def _put(self, bucket: _Bucket, place: int, param: torch.nn.Parameter) -> None:
        """Have a gradient lie in its bucket; zeros for none."""
        part, grad = bucket.parts[place], param.grad
        if grad is None:
            part.zero_()
        elif not _is_view(grad, part):
            part.copy_(grad)
            if self._as_views:
                param.grad = part

    def _give_back(self, param: torch.nn.Parameter, part: torch.Tensor) -> None:
        """Let a gradient be what came of it."""
        if self._as_views:
            param.grad = part
        elif param.grad is None:
            param.grad = torch.empty_like(param).copy_(part)
        else:
            param.grad.copy_(part)

    def _begin_anew(self) -> None:
        for bucket in self._buckets:
            bucket.ready.clear()
            bucket.handle = None
        self._started = 0

    def wait_before(self, optimizer: torch.optim.Optimizer) -> None:
        """Have each step of an optimizer wait first."""

        def wait_first(*_of_step: Any) -> None:
            self.wait()

        self._hooks.append(optimizer.register_step_pre_hook(wait_first))

    def remove(self) -> None:
        """Leave the model and the optimizers alone from now on."""
        for hook in self._hooks:
            hook.remove()

    def _take(self, param: torch.nn.Parameter) -> None:
        """Take a gradient that the backward pass has computed, and send its bucket where it is the last of that."""
        if not self._syncs:
            return
        bucket, place = self._place[param]
        if place in bucket.ready:
            raise CollectiveError(
                "gradients came twice: call wait() after a backward pass, or accumulate under no_sync()"
            )
        self._put(bucket, place, param)
        bucket.ready.add(place)
        full = self._started
        while full < len(self._buckets) and len(self._buckets[full].ready) == len(self._buckets[full].params):
            full += 1
        self._send(full)

    def _send(self, count: int) -> None:
        """Send the first buckets, of which all ranks have the same."""
        for number in range(self._started, count):
            bucket = self._buckets[number]
            bucket.handle = self._operator.all_reduce_async(
                bucket.flat,
                self._op,
                in_place=True,
                compression=self._compression,
                name=f"bucket {number}",
                parts=bucket.parts,
            )
        self._started = max(self._started, count)


def _is_view(grad: torch.Tensor, part: torch.Tensor) -> bool:
    return grad.data_ptr() == part.data_ptr() and grad.stride() == part.stride()


def _usual_bucket_bytes() -> int:
    said = job_settings()
    return (said.bucket_bytes or BUCKET_BYTES) if said.overlaps else sys.maxsize


def _grouped(params: list[torch.nn.Parameter], bucket_bytes: int) -> list[list[torch.nn.Parameter]]:
    """Return parameters by bucket: in the order in which a backward pass gets to them, each bucket of one kind."""
    groups: list[list[torch.nn.Parameter]] = []
    filling: dict[tuple[torch.dtype, torch.device], tuple[list[torch.nn.Parameter], int]] = {}
    for param in reversed(params):
        kind, size = (param.dtype, param.device), param.numel() * param.element_size()
        group, filled = filling.get(kind, ([], 0))
        if not group or filled + size > bucket_bytes:
            group, filled = [], 0
            groups.append(group)
        group.append(param)
        filling[kind] = group, filled + size
    return groups
