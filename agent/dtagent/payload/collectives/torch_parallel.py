"""torch's own DistributedDataParallel, with the buckets and the compression that the job says."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from .communicator import DistributedCommunicator, group_over
from .compression import Compression, job_compression
from .job_settings import job_settings
from .operators import AllReduceOperator

_MIB = 1 << 20


def data_parallel(model: torch.nn.Module, **options: Any) -> DistributedDataParallel:
    """Return a model as `DistributedDataParallel(model, **options)` does, with what the job says of its gradients.

    That is the size of buckets (`bucket_cap_mb`), fp16 or bf16 on the wire by torch's hooks where it has them, else and
    for top-k and PowerSGD by the operators of this package; and without overlap one bucket for all, which is sent when
    the backward pass is over. What `options` say goes over it, and without dttui nothing is changed.

    Args:
        model: of this rank, whose process group has been initialised; all ranks make one of the same parameters.
        options: of DistributedDataParallel.
    """
    said = job_settings()
    if not said.overlaps:
        whole = sum(param.numel() * param.element_size() for param in model.parameters())
        options.setdefault("bucket_cap_mb", whole / _MIB + 1)
    elif said.bucket_bytes is not None:
        options.setdefault("bucket_cap_mb", said.bucket_bytes / _MIB)
    parallel = DistributedDataParallel(model, **options)
    group = parallel.process_group  # Of the options, or of their `device_mesh`.
    of_torch = {"fp16": default_hooks.fp16_compress_hook}
    if dist.get_backend(group) == "nccl":
        of_torch["bf16"] = default_hooks.bf16_compress_hook  # torch refuses it to any other.
    if said.compression in of_torch:
        parallel.register_comm_hook(group, of_torch[said.compression])
    elif (compression := job_compression()) is not None:
        # torch compares the annotations of a hook with its own types, and here they are text.
        parallel.register_comm_hook(_Compressing(model, group, compression), lambda state, bucket: state.reduce(bucket))
    return parallel


class _Compressing:
    """Reduces the buckets of one model by the operators, as a communication hook.

    Args:
        model: whose gradients they are.
        process_group: of the ranks that have one of it each.
        compression: by which nothing was reduced yet.
    """

    def __init__(self, model: torch.nn.Module, process_group: Any, compression: Compression) -> None:
        carrying = group_over(process_group)
        self._comm = DistributedCommunicator(carrying.rank, carrying.world_size, carrying)
        self._operator = AllReduceOperator(self._comm)
        self._made = compression
        self._places = {id(parameter): place for place, parameter in enumerate(model.parameters())}
        self._buckets: dict[int, tuple[list[int], Compression]] = {}
        """By index, of which parameters a bucket is and what keeps what is left out of them."""

    def reduce(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Let a GradBucket be about the mean of those of all ranks."""
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        index, buffer, parts = bucket.index(), bucket.buffer(), bucket.gradients()
        places = [self._places[id(parameter)] for parameter in bucket.parameters()]
        if index not in self._buckets or self._buckets[index][0] != places:
            # DDP makes its buckets anew after a step, of other parameters: what was left out is not of these.
            self._buckets[index] = places, copy.deepcopy(self._made)
        compression = self._buckets[index][1]

        def work() -> torch.Tensor:
            try:
                found = self._operator.all_reduce(
                    buffer, "mean", in_place=True, compression=compression, name="bucket", parts=parts
                )
            except Exception as error:
                future.set_exception(error)  # type: ignore[arg-type]  # torch's stubs want a result's type there
                raise
            future.set_result(found)
            return found

        handle = self._comm.begin(work)
        if buffer.is_cuda:
            handle.wait()  # A future of what is done in another thread knows nothing of this one's stream.
        return future
