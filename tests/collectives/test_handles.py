"""Collectives that are not waited for: results, order and errors, of ranks in threads and one after another."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("torch")

import torch
from dtagent.payload.collectives import (
    AllGatherOperator,
    AllReduceOperator,
    BroadcastOperator,
    CollectiveError,
    CollectiveHandle,
    CollectiveTimeoutError,
    DistributedCommunicator,
    GatherOperator,
    MismatchError,
    PendingError,
    ReduceScatterOperator,
    ScatterOperator,
    create_ring_topology,
    safe_all_reduce,
)
from dtagent.payload.collectives.handles import queue_of

from tests.collectives.ranks import in_threads
from tests.waiting import wait_until

WORLD = 3


def begun(comm: DistributedCommunicator) -> list[CollectiveHandle]:
    """Begin one of each."""
    own = torch.arange(6.0) + comm.rank
    return [
        AllReduceOperator(comm).all_reduce_async(own, "max"),
        BroadcastOperator(comm).broadcast_async(own, 1),
        AllGatherOperator(comm).all_gather_async(own[:2]),
        ReduceScatterOperator(comm).reduce_scatter_async(own),
        GatherOperator(comm).gather_async(own[:1], 2),
        ScatterOperator(comm).scatter_async(own, 1),
    ]


def check(rank: int, found: list[torch.Tensor]) -> None:
    reduced, told, gathered, part, of_one, share = (item.tolist() for item in found)
    assert of_one == ([0, 1, 2] if rank == 2 else [])
    assert share == [2 * rank + 1, 2 * rank + 2]
    assert reduced == [2, 3, 4, 5, 6, 7]
    assert told == [1, 2, 3, 4, 5, 6]
    assert gathered == [0, 1, 1, 2, 2, 3]
    assert part == [3 * place + 3 for place in (2 * rank, 2 * rank + 1)]


def test_ranks_in_threads_begin_several_and_wait_in_any_order() -> None:
    def work(comm: DistributedCommunicator) -> None:
        handles = begun(comm)
        last = AllReduceOperator(comm).all_reduce(torch.ones(1))  # It takes its turn behind them.
        assert all(handle.is_completed() for handle in handles)
        check(comm.rank, [handle.wait() for handle in reversed(handles)][::-1])
        assert last == WORLD

    in_threads(WORLD, work)


def test_one_after_another_they_are_complete_when_the_last_rank_has_called() -> None:
    communicators = create_ring_topology(WORLD)
    handles = [begun(comm) for comm in communicators[:2]]
    assert not any(handle.is_completed() for handle in handles[0])
    with pytest.raises(PendingError, match="before rank 2 called it"):
        handles[0][0].wait(1)
    handles.append(begun(communicators[2]))
    for rank, of_rank in enumerate(handles):
        assert all(handle.is_completed() for handle in of_rank)
        check(rank, [handle.wait() for handle in of_rank])


@pytest.mark.parametrize("in_one_thread", [True, False])
def test_what_does_not_go_together_is_raised_to_who_waits_on_every_rank(in_one_thread: bool) -> None:
    def work(handle: CollectiveHandle) -> str:
        with pytest.raises(MismatchError, match=r"bring another shape .*: rank 2: \(3,\)") as told:
            handle.wait(20)
        assert handle.is_completed()
        return str(told.value)

    def begin(comm: DistributedCommunicator) -> CollectiveHandle:
        return AllReduceOperator(comm).all_reduce_async(torch.ones(3 if comm.rank == 2 else 2))

    if in_one_thread:
        told = [work(handle) for handle in [begin(comm) for comm in create_ring_topology(WORLD)]]
    else:
        told = in_threads(WORLD, lambda comm: work(begin(comm)))
    assert len(set(told)) == 1


def test_waiting_ends_in_time_and_the_collective_goes_on() -> None:
    first, second = create_ring_topology(2, threads=True)
    handle = AllReduceOperator(first).all_reduce_async(torch.ones(2))
    with pytest.raises(CollectiveTimeoutError, match=r"has not completed within 0\.05 s, and goes on"):
        handle.wait(0.05)
    assert not handle.is_completed()
    other = AllReduceOperator(second).all_reduce_async(torch.ones(2))
    assert handle.wait(20).tolist() == other.wait(20).tolist() == [2, 2]


def test_a_call_with_a_bound_ends_in_time_behind_one_that_is_not_waited_for() -> None:
    first, second = create_ring_topology(2, threads=True)
    before = AllReduceOperator(first).all_reduce_async(torch.ones(2), timeout=60)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"^All-Reduce operation timed out") as late:
        safe_all_reduce(torch.ones(2), AllReduceOperator(first), timeout=0.05)
    assert time.monotonic() - began < 20
    assert vars(late.value)["__notes__"] == ["the collective has not completed within 0.05 s, and goes on"]
    others = [AllReduceOperator(second).all_reduce_async(torch.ones(2)) for _call in range(2)]
    assert before.wait(20).tolist() == others[0].wait(20).tolist() == others[1].wait(20).tolist() == [2, 2]


def test_a_rank_that_does_not_call_is_named_to_who_waits() -> None:
    first, _second = create_ring_topology(2, threads=True)
    handle = AllReduceOperator(first).all_reduce_async(torch.ones(2), timeout=0.05)
    with pytest.raises(CollectiveTimeoutError, match="rank 1 did not call") as late:
        handle.wait(20)
    assert late.value.missing == (1,)


def test_a_result_in_place_is_in_the_tensor() -> None:
    tensors = [torch.ones(2), torch.ones(2)]
    in_threads(2, lambda comm: AllReduceOperator(comm).all_reduce_async(tensors[comm.rank], in_place=True).wait(20))
    assert [tensor.tolist() for tensor in tensors] == [[2, 2]] * 2


def test_an_unknown_operation_reaches_who_waits() -> None:
    (comm,) = create_ring_topology(1)
    handle = AllReduceOperator(comm).all_reduce_async(torch.ones(1), "avg")
    with pytest.raises(CollectiveError, match="no operation 'avg'"):
        handle.wait(20)


def test_messages_are_sent_and_received_without_waiting_in_threads() -> None:
    """What is asked for before it is sent holds up no collective, and each tag has an order of its own."""

    def work(comm: DistributedCommunicator) -> list[float]:
        before, after = (comm.rank - 1) % WORLD, (comm.rank + 1) % WORLD
        asked = [comm.irecv(before, (2,), torch.float32, tag) for tag in (0, 0, 7)]
        assert AllReduceOperator(comm).all_reduce(torch.ones(1)) == WORLD
        sent = [comm.isend(torch.full((2,), comm.rank + value), after, tag) for value, tag in ((0.5, 7), (0.1, 0))]
        comm.send(torch.full((2,), comm.rank + 0.2), after)
        found = [handle.wait(20)[0].item() - before for handle in asked]
        assert [handle.wait(20)[0].item() - comm.rank for handle in sent] == pytest.approx([0.5, 0.1])
        assert all(handle.is_completed() for handle in (*asked, *sent))
        return found

    for found in in_threads(WORLD, work):
        assert found == pytest.approx([0.1, 0.2, 0.5], abs=1e-5)


def test_messages_of_ranks_one_after_another_are_complete_when_they_are_sent() -> None:
    first, second = create_ring_topology(2)
    asked = second.irecv(0, (2,), torch.int64)
    assert not asked.is_completed()
    with pytest.raises(PendingError, match="rank 0 has not sent to rank 1 yet"):
        asked.wait(1)
    sent = first.isend(torch.tensor([1, 2]), 1)
    assert sent.is_completed()
    assert asked.wait(1).tolist() == sent.wait(1).tolist() == [1, 2]
    first.send(torch.zeros(3), 1)
    with pytest.raises(MismatchError, match=r"rank 0 sent \(3,\)"):
        second.irecv(0, (2,), torch.int64).wait(1)
    with pytest.raises(CollectiveError, match="there is no rank 2"):
        first.isend(torch.zeros(1), 2)


def test_a_message_that_does_not_come_names_its_sender_to_who_waits() -> None:
    first, _second = create_ring_topology(2, threads=True)
    first.timeout_s = 0.05
    with pytest.raises(CollectiveTimeoutError, match="rank 1 has not sent") as late:
        first.irecv(1, (1,), torch.float32).wait(20)
    assert late.value.missing == (1,)


def test_lines_of_messages_end_when_nothing_is_on_its_way() -> None:
    """Scripts number tags by their steps."""
    first, second = create_ring_topology(2, threads=True)
    sending, receiving = [], []
    for tag in range(20):
        sent = first.isend(torch.ones(2), 1, tag)
        second.recv(0, (2,), torch.float32, tag)
        sent.wait(20)
        sending.append(weakref.ref(queue_of(first.group, 0, "isend", 1, tag)))
        receiving.append(weakref.ref(queue_of(second.group, 1, "recv", 0, tag)))
    assert not any(line() for line in receiving), "nothing was begun: it was received without a thread"
    wait_until(lambda: not any(line() for line in sending), "lines have ended", 20)


@contextmanager
def no_more_threads() -> Iterator[None]:
    before = threading.stack_size(1 << 47)  # All that a process can address.
    try:
        yield
    finally:
        threading.stack_size(before)


def test_where_there_are_no_more_threads_it_says_so_and_is_of_use_later() -> None:
    (comm,) = create_ring_topology(1, threads=True)
    operator = AllReduceOperator(comm)
    with no_more_threads(), pytest.raises(CollectiveError, match=r"no thread .* not begun: can't start new thread"):
        operator.all_reduce_async(torch.ones(1))
    assert operator.all_reduce(torch.ones(2)).tolist() == [1, 1]
    assert operator.all_reduce_async(torch.ones(3)).wait(20).tolist() == [1, 1, 1]


def test_where_there_are_no_more_threads_a_message_goes_and_is_waited_for_by_who_asks() -> None:
    first, second = create_ring_topology(2, threads=True)
    with no_more_threads():
        sent = first.isend(torch.ones(2), 1)
        with pytest.raises(CollectiveError, match="can't start new thread"):
            second.irecv(0, (2,), torch.float32)
        assert not sent.is_completed()
    assert second.recv(0, (2,), torch.float32).tolist() == [1, 1]
    assert [sent.wait(20).tolist() for _time in range(2)] == [[1, 1]] * 2
    assert sent.is_completed()
