"""What can be done on no rank: an error on all of them that names who brought it, and a group that stays of use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from dtagent.payload.collectives import (
    AllGatherOperator,
    AllReduceOperator,
    BroadcastOperator,
    CollectiveError,
    DistributedCommunicator,
    GradientSynchronizer,
    batch_all_reduce,
    broadcast_state,
    create_ring_topology,
    safe_all_reduce,
)

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf|Sparse")
WORLD = 3
TIMEOUT_S = 20.0
Work = Callable[[DistributedCommunicator], Any]


def told_in_turn(work: Work) -> list[str]:
    """Return what each rank hears, where one is called after another; then look that they are of use."""
    communicators = create_ring_topology(WORLD)
    results: list[Callable[[], Any]] = []
    for comm in communicators:
        try:
            found = work(comm)
        except CollectiveError as error:
            results.append(_raising(error))
        else:
            results.append(found.sum)
    told = [_message(read) for read in results]
    assert [AllReduceOperator(comm).all_reduce(torch.ones(1)) for comm in communicators][-1] == WORLD
    return told


def told_in_threads(work: Work) -> list[str]:
    """Return what each rank hears in a thread of its own; then look that they are of use."""
    communicators = create_ring_topology(WORLD, threads=True)
    told, sums = [""] * WORLD, [0.0] * WORLD

    def run(comm: DistributedCommunicator) -> None:
        comm.timeout_s = TIMEOUT_S
        told[comm.rank] = _message(lambda: work(comm))
        sums[comm.rank] = AllReduceOperator(comm).all_reduce(torch.ones(1)).item()

    threads = [threading.Thread(target=run, args=[comm]) for comm in communicators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * TIMEOUT_S)
    assert sums == [WORLD] * WORLD
    return told


def _raising(error: CollectiveError) -> Callable[[], Any]:
    def read() -> None:
        raise error

    return read


def _message(read: Callable[[], Any]) -> str:
    try:
        read()
    except CollectiveError as error:
        return str(error)
    return ""


# No type checker looks at what these are called with: it is mistakes.
all_reduce_of: Any = AllReduceOperator
all_gather_of: Any = AllGatherOperator
broadcast_of: Any = BroadcastOperator
batched: Any = batch_all_reduce
communicator_of: Any = DistributedCommunicator
ring_of: Any = create_ring_topology
in_both_ways = pytest.mark.parametrize("told_by", [told_in_turn, told_in_threads])


@in_both_ways
@pytest.mark.parametrize(
    ("dtype", "op"), [("uint16", "sum"), ("uint64", "max"), ("float8_e5m2", "min"), ("complex32", "mean")]
)
def test_a_type_that_torch_cannot_reduce_is_told_to_all(
    told_by: Callable[[Work], list[str]], dtype: str, op: str
) -> None:
    if not hasattr(torch, dtype):
        pytest.skip(f"this torch has no {dtype}")
    tensor = torch.ones(4).to(getattr(torch, dtype))
    told = told_by(lambda comm: AllReduceOperator(comm).all_reduce(tensor, op))
    assert told[0].startswith(f"ranks 0, 1, 2: torch has no {op} of torch.{dtype} on cpu")
    assert told == told[:1] * WORLD


@in_both_ways
@pytest.mark.parametrize(("tensor", "kind"), [("sparse", "torch.sparse_coo"), ("meta", "on the device meta")])
def test_a_tensor_without_values_in_a_row_is_told_to_all(
    told_by: Callable[[Work], list[str]], tensor: str, kind: str
) -> None:
    made = torch.eye(2).to_sparse() if tensor == "sparse" else torch.ones(2, device="meta")
    told = told_by(lambda comm: BroadcastOperator(comm).broadcast(made if comm.rank == 1 else torch.ones(2), 1))
    assert told == [f"rank 1: a collective is of dense tensors with values, and this one is {kind}"] * WORLD


@in_both_ways
@pytest.mark.parametrize(
    ("work", "said"),
    [
        (
            lambda comm, other: all_reduce_of(comm).all_reduce(other or [1, 2]),
            "tensors, and this is a list",
        ),
        (
            lambda comm, other: all_gather_of(comm).all_gather(other or 3.0),
            "tensors, and this is a float",
        ),
        (
            lambda comm, other: broadcast_of(comm).broadcast(torch.ones(1), 0 if other else "0"),
            "and not '0'",
        ),
        (
            lambda comm, other: broadcast_of(comm).broadcast(torch.ones(1), 0 if other else None),
            "and not None",
        ),
        (
            lambda comm, other: all_reduce_of(comm).all_reduce(torch.ones(1), "sum" if other else ["sum"]),
            "a name",
        ),
        (
            lambda comm, other: all_reduce_of(comm).all_reduce(other or torch.ones([1] * 65)),
            "64 dimensions",
        ),
        (
            lambda comm, other: batched([other or 1], all_reduce_of(comm))[0],
            "tensors, and this is a int",
        ),
        (
            lambda comm, other: batched(other or 7, all_reduce_of(comm))[0],
            "tensors, and this is a int",
        ),
        (
            lambda comm, other: all_reduce_of(comm).all_reduce(torch.ones(1), compression=None if other else "fp16"),
            "HalfPrecision(), TopK(), PowerSgd(), and not 'fp16'",
        ),
        (
            lambda comm, other: all_reduce_of(comm).all_reduce(torch.ones(1), timeout=9.0 if other else "3"),
            "a number of seconds, and not '3'",
        ),
        (
            lambda comm, other: all_reduce_of(comm).all_reduce(torch.ones(1), timeout=9.0 if other else float("nan")),
            "a number of seconds, and not nan",
        ),
        (
            lambda comm, other: all_reduce_of(comm).all_reduce(
                torch.ones(4) if other else torch.ones(1).expand(4), in_place=True
            ),
            "whose elements share memory",
        ),
    ],
)
def test_a_mistake_of_one_rank_that_is_no_tensor_or_number_is_told_to_all(
    told_by: Callable[[Work], list[str]], work: Callable[[DistributedCommunicator, Any], Any], said: str
) -> None:
    told = told_by(lambda comm: work(comm, None if comm.rank == 1 else torch.ones(1)))
    for message in told:
        assert message.startswith("rank 1: ")
        assert said in message


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda comm: comm.send(torch.ones(1), 1, 1 << 20), "a tag is a number from 0 to 1048575, and not 1048576"),
        (lambda comm: comm.isend(torch.ones(1), 1, -1), "a tag is a number from 0 to 1048575, and not -1"),
        (lambda comm: comm.recv(1, (1,), torch.float32, 1 << 40), "a tag is a number"),
        (lambda comm: comm.irecv(1, (1,), torch.float32, "a"), "and not 'a'"),
        (lambda comm: comm.send(torch.ones(1), "1"), "there is no rank '1': ranks are 0 to 2"),
        (lambda comm: comm.send([1, 2], 1), "a message is a tensor, and this is a list"),
        (lambda comm: comm.isend(None, 1), "a message is a tensor, and this is a NoneType"),
        (lambda comm: communicator_of("0", 4), "there is no rank '0': ranks are 0 to 3"),
        (lambda comm: communicator_of(0, 4, timeout_s=float("nan")), "a time-out is a number of seconds"),
        (lambda comm: ring_of("4"), "world_size is '4', and has to be a number, 1 at least"),
        (lambda comm: all_reduce_of(comm).benchmark([1000]), "a shape is of lengths, as (1000,) is, and not 1000"),
        (lambda comm: all_reduce_of(comm).benchmark([(-1,)]), "and not (-1,)"),
        (lambda comm: GradientSynchronizer(torch.nn.Linear(2, 2), comm, bucket_bytes=0), "bucket_bytes is 0"),
    ],
)
def test_what_is_wrong_by_itself_is_refused_before_others_feel_it(call: Callable[[Any], Any], said: str) -> None:
    (comm, *_others) = create_ring_topology(WORLD)
    with pytest.raises(CollectiveError) as refused:
        call(comm)
    assert said in str(refused.value)


def test_time_outs_that_are_none_or_for_ever_are_taken() -> None:
    comm, _silent = create_ring_topology(2, threads=True)
    comm.timeout_s = 0.05
    with pytest.raises(TimeoutError, match="All-Reduce operation timed out"):
        safe_all_reduce(torch.ones(1), AllReduceOperator(comm), None)
    told = told_in_threads(lambda comm: AllReduceOperator(comm).all_reduce(torch.ones(1), timeout=float("inf")))
    assert told == [""] * WORLD


def test_a_state_that_cannot_be_packed_is_told_to_all() -> None:
    def work(comm: DistributedCommunicator) -> None:
        broadcast_state(comm, {"lock": threading.Lock()} if comm.rank == 0 else None)

    assert [message.partition(":")[0] for message in told_in_threads(work)] == ["rank 0"] * WORLD
