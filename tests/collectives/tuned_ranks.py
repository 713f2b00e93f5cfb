"""One rank of a real gloo group that trains by DDP once for each file of settings, and tells what it has sent."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from dtagent.payload.collectives import (
    AllReduceOperator,
    BroadcastOperator,
    DistributedCommunicator,
    GatherOperator,
    GradientSynchronizer,
    data_parallel,
    job_compression,
)
from dtagent.payload.collectives.torch_group import TorchGroup
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional

from tests.gloo import leave

STEPS, ROWS, WIDTH, HIDDEN, CLASSES = 6, 16, 64, 256, 4
PARAMETERS = (WIDTH + 1) * HIDDEN + (HIDDEN + 1) * HIDDEN + (HIDDEN + 1) * CLASSES


class Messages:
    """Counts what the operators of this process send; it is sent all the same."""

    def __init__(self) -> None:
        self._sent: list[int] = []
        really = TorchGroup._post_send  # noqa: SLF001  below it are torch's own threads

        def counting(group: TorchGroup, data: torch.Tensor, peer: int, tag: int) -> Any:
            self._sent.append(data.numel() * data.element_size())
            return really(group, data, peer, tag)

        TorchGroup._post_send = counting  # type: ignore[method-assign, assignment]  # noqa: SLF001  likewise

    def taken(self) -> dict[str, int]:
        """Return what was sent since the last time."""
        sent, self._sent = self._sent, []
        return {"messages": len(sent), "bytes": sum(sent)}


def made_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        *(nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))
    )


def rows_of(rank: int, world_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    data = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))
    target = data[:, :CLASSES].argmax(1)
    return data[rank::world_size], target[rank::world_size]


def all_reduces() -> list[tuple[int, str]]:
    """Return elements and type of each all-reduce of torch's own up to now, as its flight recorder has them."""
    c10d: Any = torch._C._distributed_c10d  # noqa: SLF001  there is no other way in
    entries = json.loads(c10d._dump_fr_trace_json()).get("entries", [])  # noqa: SLF001
    calls = [item for item in entries if item["profiling_name"] == "gloo:all_reduce"]
    return [(item["input_sizes"][0][0], item["input_dtypes"][0]) for item in calls]


class Twice(nn.Module):
    """Multiplies by one parameter, and then by another of the same size, of which the gradient is there first."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.zeros(100)) for _place in range(2))

    def forward(self, of_first: torch.Tensor, of_second: torch.Tensor) -> torch.Tensor:
        return (self.first * of_first).sum() + (self.second * of_second).sum()


def gradients(*values: float, **options: Any) -> list[list[float]]:
    """Return by step the sum of each parameter's reduced gradient.

    Args:
        values: of each step what this rank has for all elements of the first's gradient; the second's is zero.
        options: of DDP.
    """
    model = Twice()
    parallel, found = data_parallel(model, **options), []
    for value in values:
        model.zero_grad()
        parallel(torch.full((100,), value), torch.zeros(100)).backward()
        found.append([item.grad.sum().item() for item in model.parameters() if item.grad is not None])
    return found


def trained(comm: DistributedCommunicator, messages: Messages, mesh: DeviceMesh) -> dict[str, Any]:
    """Train by DDP, of all ranks and of a mesh, then take a step by the synchronizer and call some operators."""
    messages.taken()
    before, losses = len(all_reduces()), []
    model = made_model()
    parallel = data_parallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data, target = rows_of(comm.rank, comm.world_size)
    for _step in range(STEPS):
        optimizer.zero_grad()
        loss = functional.cross_entropy(parallel(data), target)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    found = {
        "losses": losses,
        "buckets": parallel._get_ddp_logging_data()["rebuilt_bucket_sizes"],  # type: ignore[no-untyped-call]  # noqa: SLF001
        "all_reduces": all_reduces()[before:],
        "by_operators": messages.taken(),
    }
    own = made_model()
    sync = GradientSynchronizer(own, comm, compression=job_compression())
    functional.cross_entropy(own(data), target).backward()  # type: ignore[no-untyped-call]
    found["synchronized"] = sync.started
    sync.wait()
    found["moved"] = gradients(1.0, 1.0, 0.0)
    found["apart"] = [
        gradients(float(comm.rank), process_group=mesh.get_group()),
        gradients(float(comm.rank), device_mesh=mesh),
    ]
    vector = torch.ones(1 << 12)
    for name, call in (
        ("all_reduce", AllReduceOperator(comm).all_reduce),
        ("butterfly", AllReduceOperator(comm, "butterfly").all_reduce),
        ("broadcast", BroadcastOperator(comm).broadcast),
        ("linear", BroadcastOperator(comm, "linear").broadcast),
        ("gather", GatherOperator(comm).gather),
        ("linear_gather", GatherOperator(comm, "linear").gather),
    ):
        comm.barrier()
        messages.taken()
        call(vector)
        found[name] = messages.taken()
    return found


def sharded(rank: int, world_size: int, file: str) -> dict[str, Any]:
    """Train a step with the parameters shared out as a file of settings for FSDP says."""
    policy = json.loads(Path(file).read_text(encoding="utf-8"))["mp_policy"]
    kinds: dict[str, Any] = {name: getattr(torch, kind) if kind else None for name, kind in policy.items()}
    before, model = len(all_reduces()), made_model()
    fully_shard(model, mesh=init_device_mesh("cpu", (world_size,)), mp_policy=MixedPrecisionPolicy(**kinds))
    data, target = rows_of(rank, world_size)
    functional.cross_entropy(model(data), target).backward()  # type: ignore[no-untyped-call]
    return {"all_reduces": all_reduces()[before:]}  # Over gloo FSDP reduces and scatters by them.


def main(rank: int, world_size: int, place: str, files: list[str]) -> None:
    store = dist.FileStore(place, world_size)  # type: ignore[attr-defined]  # it is in no `__all__`
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=60))
    torch.set_num_threads(1)
    comm, messages, told = DistributedCommunicator(rank, world_size, timeout_s=60), Messages(), {}
    pairs = init_device_mesh("cpu", (world_size // 2, 2), mesh_dim_names=("pair", "member"))["member"]
    for file in files:
        name = Path(file).name
        if name.startswith("fsdp"):
            told[name] = sharded(rank, world_size, file)
        else:
            os.environ["DTTUI_CONFIG"] = file
            told[name] = trained(comm, messages, pairs)
    print(json.dumps(told), flush=True)
    comm.barrier()
    leave()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
