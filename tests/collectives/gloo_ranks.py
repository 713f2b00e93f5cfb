"""One rank of a real gloo group: does every collective, and compares each result with what all ranks have brought."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from dtagent.payload.collectives import (
    AllGatherOperator,
    AllReduceOperator,
    BroadcastOperator,
    CollectiveError,
    CollectiveTimeoutError,
    DistributedCommunicator,
    GatherOperator,
    ReduceScatterOperator,
    ScatterOperator,
    batch_all_reduce,
    safe_all_reduce,
)
from dtagent.payload.collectives.backend import Backend
from dtagent.payload.collectives.buffers import BufferPool
from dtagent.payload.collectives.clock import NetworkLink, simulate
from dtagent.payload.collectives.message_passing import MessageGroup
from dtagent.payload.collectives.nccl_group import NcclGroup
from dtagent.payload.collectives.schedules import ALGORITHMS, Collective, even_cuts, schedule_of
from dtagent.payload.collectives.torch_group import TorchGroup

from tests.collectives.answer_times import be_patient
from tests.gloo import leave

REDUCED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda found: found.sum(0),
    "max": lambda found: found.amax(0),
    "min": lambda found: found.amin(0),
}
SHAPES = ((), (1,), (7,), (5, 3), (0, 2), (2, 3, 4))
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8)


def brought(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return what a rank brings: every rank knows it of every other. Sums of it are exact in each type."""
    made = torch.Generator().manual_seed(rank)
    return torch.randint(0, 9, shape, generator=made).to(dtype)


def check(comm: DistributedCommunicator, group_of: Callable[[list[Sequence[int]] | None], Backend]) -> int:
    """Do all that goes well; return how many collectives that were.

    Args:
        comm: of this rank.
        group_of: returns a group of the same ranks with those of each host.
    """
    count, rank, world = 0, comm.rank, comm.world_size
    everyone = range(world)
    halves = group_of([everyone[: world // 2], everyone[world // 2 :]] if world > 1 else None)
    stepped = AllReduceOperator(DistributedCommunicator(rank, world, halves), "hierarchical")
    for shape, dtype in itertools.islice(zip(itertools.cycle(SHAPES), itertools.cycle(TYPES)), 10):
        of_all = [brought(other, shape, dtype) for other in everyone]
        own = of_all[rank].clone()
        for op, reduce in REDUCED.items():
            expected = reduce(torch.stack(of_all)).to(dtype)
            for algorithm in ("ring", "tree", "butterfly"):
                assert torch.equal(AllReduceOperator(comm, algorithm).all_reduce(own, op), expected), (shape, op)
            assert torch.equal(stepped.all_reduce(own, op), expected)
            count += 4
            if shape:
                part = ReduceScatterOperator(comm).reduce_scatter(own, op)
                assert torch.equal(torch.cat([AllGatherOperator(comm).all_gather(part)]), expected)
                count += 2
        for root in everyone:
            for algorithm in ("tree", "linear"):
                given = own if rank == root else torch.empty(0)
                assert torch.equal(BroadcastOperator(comm, algorithm).broadcast(given, root), of_all[root])
                gathered = GatherOperator(comm, algorithm).gather(own, root)
                rows = [item.reshape(-1) if not shape else item for item in of_all]
                assert torch.equal(gathered, torch.cat(rows) if rank == root else rows[0][:0])
                count += 2
                if shape:
                    share = ScatterOperator(comm, algorithm).scatter(given, root)
                    assert torch.equal(share, torch.tensor_split(of_all[root], world)[rank])
                    count += 1
        assert torch.equal(own, of_all[rank])
    uneven = AllGatherOperator(comm).all_gather(torch.full((rank, 2), float(rank)))
    assert uneven[:, 0].tolist() == [float(other) for other in everyone for _ in range(other)]
    mean = AllReduceOperator(comm).all_reduce(torch.full((3,), rank + 1.0), "mean")
    assert mean.tolist() == [(world + 1) / 2] * 3
    kept = torch.ones(4)
    AllReduceOperator(comm).all_reduce(kept, in_place=True)
    assert kept.sum() == 4 * world
    brought_here = (torch.full((2,), rank + 1.0), torch.full((3,), rank + 1, dtype=torch.int64))
    together = batch_all_reduce((item for item in brought_here), AllReduceOperator(comm))
    assert [item.tolist() for item in together] == [[world * (world + 1) / 2] * 2, [world * (world + 1) // 2] * 3]
    together = batch_all_reduce(brought_here, AllReduceOperator(comm), "max")
    assert [item.tolist() for item in together] == [[float(world)] * 2, [world] * 3]
    return count + 5 + check_begun(comm)


def check_begun(comm: DistributedCommunicator) -> int:
    """Begin several without waiting, of large tensors too; wait for them last first."""
    rank, world = comm.rank, comm.world_size
    operator, large = AllReduceOperator(comm), torch.full((1 << 20,), rank + 1.0)
    handles = [operator.all_reduce_async(large + number) for number in range(3)]
    others = [
        BroadcastOperator(comm).broadcast_async(large, world - 1),
        AllGatherOperator(comm).all_gather_async(torch.tensor([rank])),
        ReduceScatterOperator(comm).reduce_scatter_async(torch.arange(world)),
    ]
    total = world * (world + 1) // 2
    assert operator.all_reduce(torch.ones(2)).tolist() == [world] * 2
    assert all(handle.is_completed() for handle in (*handles, *others))
    told, gathered, part = (handle.wait(60) for handle in others)
    assert told.eq(world).all()
    assert (gathered.tolist(), part.tolist()) == ([*range(world)], [rank * world])
    for number, handle in reversed(list(enumerate(handles))):
        assert handle.wait(60).eq(total + number * world).all()
    refused = operator.all_reduce_async(torch.ones(2 + (rank == world - 1)))
    with pytest.raises(CollectiveError, match="bring another shape") if world > 1 else nullcontext():
        refused.wait(60)
    return 7


class Counting(TorchGroup):
    """One that notes what it sends: where that begins in memory, and how many bytes it has."""

    def __init__(self, hosts: Sequence[Sequence[int]] | None = None) -> None:
        super().__init__(hosts=hosts)
        self.sent: list[tuple[int, int]] = []

    def _post_send(self, data: torch.Tensor, peer: int, tag: int) -> Any:
        self.sent.append((data.data_ptr(), data.nbytes))
        return super()._post_send(data, peer, tag)


def check_traffic(rank: int, world: int) -> None:
    """Send as often and as much as the schedules say, besides what ranks call; out of a tensor's own memory."""
    everyone, count = range(world), world << 15
    hosts = [everyone[::2], everyone[1::2]]
    group = Counting(hosts)
    comm, rounds = DistributedCommunicator(rank, world, group, timeout_s=60), (world - 1).bit_length()
    AllReduceOperator(comm).all_reduce(torch.ones(1))  # Ranks tell each other once where they answer.
    large, part = torch.ones(count), torch.ones(count // world)
    calls: dict[Collective, Callable[[str], torch.Tensor]] = {
        Collective.ALL_REDUCE: lambda name: AllReduceOperator(comm, name).all_reduce(large, in_place=True),
        Collective.BROADCAST: lambda name: BroadcastOperator(comm, name).broadcast(large, in_place=True),
        Collective.ALL_GATHER: lambda _name: AllGatherOperator(comm).all_gather(part),
        Collective.REDUCE_SCATTER: lambda _name: ReduceScatterOperator(comm).reduce_scatter(large),
        Collective.GATHER: lambda name: GatherOperator(comm, name).gather(part),
        Collective.SCATTER: lambda name: ScatterOperator(comm, name).scatter(large),
    }
    for kind, algorithms in ALGORITHMS.items():
        for name in algorithms:
            group.sent.clear()
            calls[kind](name)
            messages = group.sent[rounds:]
            schedules = [schedule_of(kind, name, each, even_cuts(count, world), hosts=hosts) for each in everyone]
            expected = simulate(schedules, 4, NetworkLink(1e-6, 1e9))
            found = len(messages), sum(size for _place, size in messages)
            assert found == (expected.messages[rank], expected.sent_bytes[rank]), (kind, name, found)
            if kind in (Collective.ALL_REDUCE, Collective.BROADCAST):
                assert all(_lies_in(large, place, size) for place, size in messages), (kind, name)
    group.sent.clear()
    sent = comm.isend(large, (rank + 1) % world)
    comm.recv((rank - 1) % world, large.shape, large.dtype)
    assert sent.wait(60) is large
    assert group.sent[-1] == (large.data_ptr(), large.nbytes)


def _lies_in(tensor: torch.Tensor, place: int, size: int) -> bool:
    return tensor.data_ptr() <= place and place + size <= tensor.data_ptr() + tensor.nbytes


def check_small(rank: int, world: int) -> None:
    """Do what is small by as many messages as 2 has to be doubled to come to all ranks, again after a mistake."""
    group = Counting()
    comm = DistributedCommunicator(rank, world, group, timeout_s=60)
    operator, rounds = AllReduceOperator(comm), (world - 1).bit_length()
    operator.all_reduce(torch.ones(1))  # Ranks tell each other once where they answer.
    calls: tuple[Callable[[], torch.Tensor], ...] = (
        lambda: operator.all_reduce(torch.ones(2)),
        lambda: BroadcastOperator(comm).broadcast(torch.ones(2) if rank == world - 1 else torch.empty(0), world - 1),
        lambda: AllGatherOperator(comm).all_gather(torch.ones(rank)),
        lambda: ReduceScatterOperator(comm).reduce_scatter(torch.ones(world)),
    )
    for _time in range(2):
        for call in calls:
            group.sent.clear()
            found = call()
            assert found.untyped_storage().nbytes() == found.nbytes, "a result keeps no more than itself"
            assert len(group.sent) == rounds
        if world > 1:
            with pytest.raises(
                CollectiveError, match=f"rank {world - 1}: torch.int64" if world > 2 else "another type"
            ):
                operator.all_reduce(torch.ones(2, dtype=torch.int64 if rank == world - 1 else torch.float32))


def check_messages(comm: DistributedCommunicator) -> None:
    """Send around the ring, before anybody receives."""
    after, before = (comm.rank + 1) % comm.world_size, (comm.rank - 1) % comm.world_size
    for tag in (0, 5):
        comm.send(torch.full((2, 3), comm.rank * 10 + tag), after, tag)
    for tag in (0, 5):
        assert comm.recv(before, (2, 3), torch.int64, tag).eq(before * 10 + tag).all()
    own = comm.irecv(comm.rank, (3,), torch.float32, 7)
    comm.send(torch.arange(3.0), comm.rank, 7)
    assert own.wait(60).tolist() == [0, 1, 2]
    assert comm.isend(torch.ones(1), comm.rank, (1 << 20) - 1).wait(60) == 1
    assert comm.recv(comm.rank, (1,), torch.float32, (1 << 20) - 1) == 1
    large, turned = torch.full((1 << 18,), comm.rank), torch.arange(6.0).view(2, 3).t()
    asked = [comm.irecv(before, large.shape, torch.int64, 3), comm.irecv(before, turned.shape, torch.float32, 3)]
    AllReduceOperator(comm).all_reduce(torch.ones(1 << 16))  # They hold up nothing.
    sent = [comm.isend(large, after, 3), comm.isend(turned, after, 3)]
    assert asked[0].wait(60).eq(before).all()
    assert asked[1].wait(60).equal(turned)
    assert sent[0].wait(60) is large
    assert sent[1].wait(60) is turned
    comm.barrier()
    if isinstance(comm.group, MessageGroup) and comm.backend != "nccl":  # Which has torch's own, of a GPU.
        check_pool(comm, comm.group.pool)


def check_pool(comm: DistributedCommunicator, pool: BufferPool) -> None:
    """Do what needs memory besides its result again: there is none but what is lent a second time."""
    tensor, root = torch.ones(comm.world_size, 1 << 16), comm.world_size - 1
    calls: tuple[Callable[[], torch.Tensor], ...] = (
        lambda: ReduceScatterOperator(comm).reduce_scatter(tensor),
        lambda: AllReduceOperator(comm).all_reduce(tensor),
        lambda: GatherOperator(comm).gather(tensor, root),
        lambda: ScatterOperator(comm).scatter(tensor, root),
    )
    for call in calls:
        kept = [call().clone(), call(), call()]
        held, before = pool.held_bytes, pool.lent_again
        assert torch.equal(call(), kept[0])
        assert pool.held_bytes == held
        gets_all = comm.rank == root and call in calls[2:]
        assert (pool.lent_again > before) != gets_all
        assert torch.equal(kept[1], kept[0]), "a result is not lent to another"
    if comm.backend == "gloo" and not isinstance(comm.group, NcclGroup):
        before = pool.lent_again
        beside = DistributedCommunicator(comm.rank, comm.world_size, TorchGroup(), timeout_s=60)
        ReduceScatterOperator(beside).reduce_scatter(tensor)
        assert pool.lent_again > before, "groups over the same messages have one pool"


def said(comm: DistributedCommunicator) -> list[str]:
    """Return what this rank gets to hear of what cannot be done; the group stays usable."""
    operator, broadcast, told = AllReduceOperator(comm), BroadcastOperator(comm), []
    last = comm.rank == comm.world_size - 1
    calls: tuple[Callable[[], object], ...] = (
        lambda: operator.all_reduce(torch.ones(3 if last else 2)),
        lambda: operator.all_reduce(torch.ones(2), "avg" if last else "sum"),
        lambda: operator.all_reduce(torch.ones(2).to(torch.uint16 if last else torch.float32)),
        lambda: broadcast.broadcast(torch.ones(1), comm.world_size),
        lambda: broadcast.broadcast(torch.ones(1), "0" if last else 0),  # type: ignore[arg-type]  # that is the mistake
        lambda: operator.all_reduce([1, 2] if last else torch.ones(2)),  # type: ignore[arg-type]  # that is the mistake
        lambda: operator.all_reduce(torch.ones(2), "平均" * 50 if last else "sum"),
        lambda: operator.all_reduce(torch.ones(2), compression="fp16" if last else None),  # type: ignore[arg-type]
        lambda: operator.all_reduce(torch.ones(2), timeout="3" if last else 60.0),  # type: ignore[arg-type]
        lambda: comm.barrier() if last else operator.all_reduce(torch.ones(2)),
        lambda: AllGatherOperator(comm).all_gather(torch.ones(2, requires_grad=last)),
        lambda: operator.all_reduce(torch.ones(2, dtype=torch.int64), "mean"),
        lambda: ReduceScatterOperator(comm).reduce_scatter(torch.ones(comm.world_size, dtype=torch.int64), "mean"),
    )
    for call in calls:
        try:
            call()
        except CollectiveError as error:
            told.append(str(error))
    assert operator.all_reduce(torch.ones(1), timeout=float("inf")) == comm.world_size
    return told


def missed(comm: DistributedCommunicator) -> list[int]:
    """Return whom this rank has missed, where the last one does not call."""
    if comm.rank == comm.world_size - 1:
        return []
    with pytest.raises(TimeoutError, match="All-Reduce operation timed out") as caught:
        safe_all_reduce(torch.ones(1), AllReduceOperator(comm), timeout=5.0)
    assert str(caught.value) == "All-Reduce operation timed out"
    cause = caught.value.__cause__
    assert isinstance(cause, CollectiveTimeoutError)
    return list(cause.missing)


class GlooInRounds(NcclGroup):
    """What is done over NCCL, over gloo: this machine may have no GPU."""

    def __init__(self, hosts: Sequence[Sequence[int]] | None = None) -> None:
        super().__init__(hosts=hosts, device="cpu")

    def _finish(self, work: Any, deadline: float) -> None:
        work.wait()  # Gloo does not say whether it is completed.


class Unfinished(GlooInRounds):
    """One of which no message is ever over by what torch says, as where a GPU waits for a rank that is lost."""

    aborted = 0

    def _finish(self, work: Any, deadline: float) -> None:
        NcclGroup._finish(self, work, deadline)  # noqa: SLF001 - of gloo's work no word is to be had, so that it is never over.

    def _abort(self) -> None:
        self.aborted += 1


def check_unfinished(rank: int, world_size: int) -> None:
    """What is not over in time is aborted, its peer named, and the group of no use any more, which says what to do."""
    group = Unfinished()
    comm = DistributedCommunicator(rank, world_size, group, timeout_s=60)
    with pytest.raises(CollectiveTimeoutError) as late:
        AllReduceOperator(comm, "ring").all_reduce(torch.ones(100), timeout=2.0)
    assert group.aborted == 1
    assert rank not in late.value.missing
    for call in (lambda: AllReduceOperator(comm).all_reduce(torch.ones(1)), comm.shrink, comm.rebuild):
        with pytest.raises((CollectiveError, CollectiveTimeoutError), match="start the job again from its last"):
            call()


def main(rank: int, world_size: int, place: str, backend: str = "gloo") -> None:
    be_patient()
    if backend == "nccl":
        torch.cuda.set_device(rank)
    store = dist.FileStore(place, world_size)  # type: ignore[attr-defined]  # it is in no `__all__`
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=60))
    torch.set_num_threads(1)
    comm = DistributedCommunicator(rank, world_size, timeout_s=60)
    assert comm.backend == backend
    count = check(comm, lambda hosts: (NcclGroup if backend == "nccl" else TorchGroup)(hosts=hosts))
    if backend == "gloo":
        check_small(rank, world_size)
    if world_size > 1:
        check_messages(comm)
    if world_size > 1 and backend == "gloo":
        check_traffic(rank, world_size)
    if world_size in (2, 3) and backend == "gloo":
        in_rounds = DistributedCommunicator(rank, world_size, GlooInRounds(), timeout_s=60)
        assert check(in_rounds, GlooInRounds) == count
        check_messages(in_rounds)
        check_unfinished(rank, world_size)
    errors = said(comm) if world_size > 1 else []
    (row,) = AllReduceOperator(comm).benchmark([(1000,)], num_trials=2)
    found = {"count": count, "errors": errors, "seconds": row.seconds, "missed": missed(comm) if world_size > 2 else []}
    print(json.dumps(found), flush=True)
    sys.stdin.read()  # Until all have told.
    leave()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
