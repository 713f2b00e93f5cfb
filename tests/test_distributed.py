"""Seed 003's six groups of tests, on the simulated back-end: its examples as they are written, and what it asks for."""

from __future__ import annotations

import io
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from itertools import chain
from typing import Any, TypeVar

import pytest

pytest.importorskip("torch")

import torch
from dtagent.payload.collectives import (
    AllGatherOperator,
    AllReduceOperator,
    BroadcastOperator,
    CollectiveError,
    CollectiveTimeoutError,
    CommunicationBuffer,
    DistributedCommunicator,
    GatherOperator,
    MismatchError,
    NetworkLink,
    PendingError,
    ReduceScatterOperator,
    ScatterOperator,
    batch_all_reduce,
    create_ring_topology,
    monitor_communication,
    safe_all_reduce,
)
from dtagent.payload.collectives.buffers import BufferPool
from dtagent.payload.collectives.choosing import KnownLinks

pytestmark = pytest.mark.torch
Result = TypeVar("Result")
WORLD = 4
_taken_s: list[float] = []
"""Of the processor, by each test before."""


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    """Count the time that a test takes of the processor, which other work on the machine does not lengthen.

    It would with several threads of torch: they spin until the last of them has had its turn.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    began = time.process_time()
    yield
    _taken_s.append(time.process_time() - began)
    torch.set_num_threads(threads)


def in_threads(world_size: int, work: Callable[[DistributedCommunicator], Result], **options: bool) -> list[Result]:
    """Return what each rank returns, each in a thread of its own; raises what the first of them raises."""
    results: dict[int, Result] = {}
    errors: dict[int, Exception] = {}

    def run(comm: DistributedCommunicator) -> None:
        try:
            results[comm.rank] = work(comm)
        except (CollectiveError, CollectiveTimeoutError) as error:
            errors[comm.rank] = error

    threads = [threading.Thread(target=run, args=[comm]) for comm in create_ring_topology(world_size, threads=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    if errors:
        raise errors[min(errors)]
    return [results[rank] for rank in range(world_size)]


class TestDistributedCommunicator:
    def test_what_is_sent_is_received_in_order_and_by_tag(self) -> None:
        first, second = DistributedCommunicator(0, 2), DistributedCommunicator(1, 2)
        for tag, value in ((0, 1.0), (7, 2.0), (0, 3.0)):
            first.send(torch.full((3,), value), 1, tag)
        received = [second.recv(0, torch.Size([3]), torch.float32, tag)[0].item() for tag in (7, 0, 0)]
        assert received == [2.0, 1.0, 3.0]

    def test_a_message_is_as_it_was_when_it_was_sent(self) -> None:
        first, second = create_ring_topology(2)
        data = torch.zeros(2)
        first.send(data, 1)
        data += 1
        assert second.recv(0, (2,), torch.float32).tolist() == [0.0, 0.0]

    def test_a_message_may_be_asked_for_before_it_is_sent(self) -> None:
        first, second = create_ring_topology(2)
        awaited = second.recv(0, (2,), torch.int64)
        with pytest.raises(PendingError, match="rank 0 has not sent to rank 1 yet"):
            awaited.sum()
        first.send(torch.tensor([1, 2]), 1)
        assert awaited.tolist() == [1, 2]

    def test_a_message_of_another_shape_names_both_ranks(self) -> None:
        first, second = create_ring_topology(2)
        first.send(torch.zeros(2), 1)
        with pytest.raises(MismatchError, match=r"rank 0 sent \(2,\) of torch.float32, and rank 1 expects \(3,\)"):
            second.recv(0, (3,), torch.float32)

    def test_a_barrier_is_passed_when_all_are_there(self) -> None:
        passed: list[int] = []

        def work(comm: DistributedCommunicator) -> int:
            passed.append(comm.rank)
            comm.barrier()
            return len(passed)

        assert in_threads(3, work) == [3, 3, 3]

    @pytest.mark.parametrize(("rank", "world_size"), [(0, 0), (0, -1), (2, 2), (-1, 2)])
    def test_a_rank_that_there_is_not_is_refused(self, rank: int, world_size: int) -> None:
        with pytest.raises(CollectiveError, match=r"world_size|ranks are 0 to 1"):
            DistributedCommunicator(rank, world_size)

    def test_a_ring_of_no_ranks_is_refused(self) -> None:
        with pytest.raises(CollectiveError, match="world_size"):
            create_ring_topology(0)

    def test_two_groups_of_one_size_do_not_mix(self) -> None:
        made = [DistributedCommunicator(rank, 2) for rank in (0, 0, 1, 1)]
        results = [
            AllReduceOperator(comm).all_reduce(torch.tensor([value]))
            for comm, value in zip(made, (1, 10, 2, 20), strict=True)
        ]
        assert [result.item() for result in results] == [3, 30, 3, 30]

    @pytest.mark.parametrize("has_called", [False, True])
    def test_a_rank_that_was_dropped_is_in_nobodys_group(self, has_called: bool) -> None:
        dropped = DistributedCommunicator(0, 2)
        if has_called:
            AllReduceOperator(dropped).all_reduce(torch.ones(1))
        del dropped
        results = [
            AllReduceOperator(comm).all_reduce(torch.tensor([comm.rank]))
            for comm in [DistributedCommunicator(rank, 2) for rank in range(2)]
        ]
        assert [result.item() for result in results] == [1, 1]


class TestAllReduceOperator:
    def test_the_example(self) -> None:
        communicators = create_ring_topology(WORLD)
        all_reduce_ops = [AllReduceOperator(comm) for comm in communicators]
        gradients = [torch.randn(1000) for _ in range(WORLD)]
        synchronized_grads = []
        for i, op in enumerate(all_reduce_ops):
            result = op.all_reduce(gradients[i])
            synchronized_grads.append(result)
        for result in synchronized_grads:
            assert isinstance(result, torch.Tensor)
            assert torch.allclose(result, torch.stack(gradients).sum(0), atol=1e-5)

    @pytest.mark.parametrize("algorithm", ["ring", "tree", "butterfly", "hierarchical"])
    @pytest.mark.parametrize("op", ["sum", "max", "min", "mean"])
    @pytest.mark.parametrize("world_size", [1, 2, 3, 6])
    def test_operations(self, op: str, world_size: int, algorithm: str) -> None:
        brought = [torch.randn(5, 3, dtype=torch.float64) for _ in range(world_size)]
        stacked = torch.stack(brought)
        expected = {"sum": stacked.sum(0), "max": stacked.amax(0), "min": stacked.amin(0), "mean": stacked.mean(0)}[op]
        operators = [AllReduceOperator(comm, algorithm) for comm in create_ring_topology(world_size)]
        results = [operator.all_reduce(brought[rank], op) for rank, operator in enumerate(operators)]
        for result in results:
            assert torch.allclose(result, expected)

    @pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 0), (2, 3, 4), (1001,)])
    def test_shapes(self, shape: tuple[int, ...]) -> None:
        results = [AllReduceOperator(comm).all_reduce(torch.ones(shape)) for comm in create_ring_topology(WORLD)]
        for result in results:
            assert result.shape == shape
            assert bool((result == WORLD).all())

    def test_what_is_brought_stays_as_it_is_unless_the_result_is_to_be_there(self) -> None:
        brought = [torch.ones(4).expand(2, 4).t() for _ in range(2)]
        results = [
            AllReduceOperator(comm).all_reduce(tensor)
            for comm, tensor in zip(create_ring_topology(2), brought, strict=True)
        ]
        assert brought[0].sum() == 8
        kept = [torch.ones(2, 4).t() for _ in range(2)]
        for comm, tensor in zip(create_ring_topology(2), kept, strict=True):
            AllReduceOperator(comm).all_reduce(tensor, in_place=True)
        assert [tensor.sum().item() for tensor in (*kept, results[1])] == [16, 16, 16]

    def test_a_tensor_counts_as_it_was_when_it_was_brought(self) -> None:
        brought = [torch.ones(3) for _ in range(WORLD)]
        results = []
        for comm, tensor in zip(create_ring_topology(WORLD), brought, strict=True):
            results.append(AllReduceOperator(comm).all_reduce(tensor))
            tensor.zero_()
        assert [result.tolist() for result in results] == [[WORLD] * 3] * WORLD

    def test_a_result_that_is_read_too_early_names_who_is_missing(self) -> None:
        communicators = create_ring_topology(WORLD)
        early = AllReduceOperator(communicators[1]).all_reduce(torch.ones(2))
        reads: tuple[Callable[[torch.Tensor], object], ...] = (repr, len, torch.sum, torch.Tensor.tolist)
        for read in reads:
            with pytest.raises(PendingError, match="before ranks 0, 2, 3 called it"):
                read(early)

    @pytest.mark.parametrize(
        ("tensor", "op", "said"),
        [
            (torch.ones(3), "sum", r"another shape than ranks 0, 1, 3 \(\(2,\)\): rank 2: \(3,\)"),
            (torch.ones(2, dtype=torch.int32), "sum", "another type than ranks 0, 1, 3 .*: rank 2: torch.int32"),
            (torch.ones(2), "max", "by another operation than ranks 0, 1, 3 .*: rank 2: max"),
            (torch.ones(2), "avg", "rank 2: there is no operation 'avg': take one of sum, max, min, mean"),
        ],
    )
    def test_what_does_not_go_together_is_told_to_all_and_the_communicator_stays(
        self, tensor: torch.Tensor, op: str, said: str
    ) -> None:
        operators = [AllReduceOperator(comm) for comm in create_ring_topology(WORLD)]
        early = [operators[rank].all_reduce(torch.ones(2)) for rank in (0, 1, 3)]
        with pytest.raises(CollectiveError, match=said):
            operators[2].all_reduce(tensor, op)
        for result in early:
            with pytest.raises(CollectiveError, match=said):
                result.sum()
        assert [operator.all_reduce(torch.ones(1)) for operator in operators][-1] == WORLD

    def test_a_mean_of_integers_is_refused_with_the_reason(self) -> None:
        (comm,) = create_ring_topology(1)
        with pytest.raises(CollectiveError, match=r"a mean of torch.int64 is no torch.int64: take sum, or convert"):
            AllReduceOperator(comm).all_reduce(torch.ones(2, dtype=torch.int64), "mean")

    def test_threads_wait_for_each_other_and_name_who_does_not_come(self) -> None:
        found = in_threads(3, lambda comm: AllReduceOperator(comm).all_reduce(torch.ones(())))
        assert [float(number) for number in found] == [3] * 3

        # Those who call do so together, and wait longer than a busy machine holds one of them up.
        together = threading.Barrier(2)

        def work(comm: DistributedCommunicator) -> torch.Tensor | None:
            comm.timeout_s = 3.0
            if comm.rank != 1:
                together.wait(30)
            return AllReduceOperator(comm).all_reduce(torch.ones(1)) if comm.rank != 1 else None

        with pytest.raises(CollectiveTimeoutError, match=r"all_reduce timed out after 3 s: rank 1 did not") as late:
            in_threads(3, work)
        assert late.value.missing == (1,)


class TestBroadcastOperator:
    @pytest.mark.parametrize("root", range(WORLD))
    @pytest.mark.parametrize("algorithm", ["tree", "linear"])
    def test_roots(self, root: int, algorithm: str) -> None:
        params = torch.randn(10, 2)
        broadcast_ops = [BroadcastOperator(comm, algorithm) for comm in create_ring_topology(WORLD)]
        broadcast_data = [params if i == root else torch.zeros(10, 2) for i in range(WORLD)]
        results = [op.broadcast(broadcast_data[i], root_rank=root) for i, op in enumerate(broadcast_ops)]
        assert all(torch.equal(result, params) for result in results)

    def test_parameters_take_what_is_broadcast_in_place(self) -> None:
        params = [torch.nn.Parameter(torch.full((3,), float(rank))) for rank in range(2)]
        for comm, param in zip(create_ring_topology(2), params, strict=True):
            BroadcastOperator(comm).broadcast(param, 1, in_place=True)
        assert [param.tolist() for param in params] == [[1.0] * 3] * 2

    def test_whoever_only_receives_may_bring_an_empty_tensor(self) -> None:
        params = torch.arange(6).reshape(2, 3)
        operators = [BroadcastOperator(comm) for comm in create_ring_topology(3)]
        results = [
            operator.broadcast(params if rank == 1 else torch.empty(0), 1) for rank, operator in enumerate(operators)
        ]
        assert all(torch.equal(result, params) and result.dtype == torch.int64 for result in results)

    def test_nothing_at_all_keeps_the_roots_type_also_in_place(self) -> None:
        operators = [BroadcastOperator(comm) for comm in create_ring_topology(2)]
        brought = [torch.empty(0, dtype=torch.int64), torch.empty(0)]
        results = [op.broadcast(brought[rank], 0, in_place=True) for rank, op in enumerate(operators)]
        assert [result.dtype for result in results] == [torch.int64] * 2

    def test_a_root_that_there_is_not_is_told_to_all(self) -> None:
        operators = [BroadcastOperator(comm) for comm in create_ring_topology(2)]
        early = operators[0].broadcast(torch.ones(1), 2)
        with pytest.raises(CollectiveError, match="ranks 0, 1: there is no rank 2 for a root: ranks are 0 to 1"):
            operators[1].broadcast(torch.ones(1), 2)
        with pytest.raises(CollectiveError, match="no rank 2"):
            early.sum()


class TestAllGatherOperator:
    def test_the_example(self) -> None:
        all_gather_ops = [AllGatherOperator(comm) for comm in create_ring_topology(WORLD)]
        local_stats = [torch.randn(100) for _ in range(WORLD)]
        global_stats = [op.all_gather(local_stats[i]) for i, op in enumerate(all_gather_ops)]
        for result in global_stats:
            assert torch.equal(result, torch.cat(local_stats))

    def test_lengths_may_differ_and_numbers_are_rows_of_one(self) -> None:
        brought = [torch.full((rank, 2), float(rank)) for rank in range(WORLD)]
        operators = [AllGatherOperator(comm) for comm in create_ring_topology(WORLD)]
        results = [operator.all_gather(brought[rank]) for rank, operator in enumerate(operators)]
        assert torch.equal(results[0], torch.cat(brought))
        assert [operator.all_gather(torch.tensor(7)) for operator in operators][3].tolist() == [7] * 4

    def test_other_dimensions_may_not(self) -> None:
        operators = [AllGatherOperator(comm) for comm in create_ring_topology(2)]
        operators[0].all_gather(torch.ones(1, 2))
        with pytest.raises(MismatchError, match="beyond dimension 0"):
            operators[1].all_gather(torch.ones(1, 3))

    @pytest.mark.parametrize("root", range(3))
    @pytest.mark.parametrize("algorithm", ["tree", "linear"])
    def test_a_gather_brings_them_to_one_and_a_scatter_shares_out(self, root: int, algorithm: str) -> None:
        brought = [torch.full((rank + 1,), float(rank)) for rank in range(3)]
        gathers = [GatherOperator(comm, algorithm) for comm in create_ring_topology(3)]
        gathered = [operator.gather(brought[rank], root) for rank, operator in enumerate(gathers)]
        assert [len(item) for item in gathered] == [6 if rank == root else 0 for rank in range(3)]
        assert torch.equal(gathered[root], torch.cat(brought))
        whole = torch.arange(7)
        scatters = [ScatterOperator(comm, algorithm) for comm in create_ring_topology(3)]
        parts = [op.scatter(whole if rank == root else torch.empty(0), root) for rank, op in enumerate(scatters)]
        assert [part.tolist() for part in parts] == [[0, 1, 2], [3, 4], [5, 6]]


class TestReduceScatterOperator:
    def test_the_example(self) -> None:
        reduce_scatter_ops = [ReduceScatterOperator(comm) for comm in create_ring_topology(WORLD)]
        full_data = [torch.randn(4000) for _ in range(WORLD)]
        scattered_results = [op.reduce_scatter(full_data[i]) for i, op in enumerate(reduce_scatter_ops)]
        assert [len(part) for part in scattered_results] == [1000] * WORLD
        assert torch.allclose(torch.cat(scattered_results), torch.stack(full_data).sum(0), atol=1e-5)

    @pytest.mark.parametrize("op", ["sum", "max", "min", "mean"])
    def test_rows_that_do_not_divide(self, op: str) -> None:
        brought = [torch.randn(6, 2, dtype=torch.float64) for _ in range(WORLD)]
        operators = [ReduceScatterOperator(comm) for comm in create_ring_topology(WORLD)]
        parts = [operator.reduce_scatter(brought[rank], op) for rank, operator in enumerate(operators)]
        assert [len(part) for part in parts] == [2, 2, 1, 1]
        stacked = torch.stack(brought)
        expected = {"sum": stacked.sum(0), "max": stacked.amax(0), "min": stacked.amin(0), "mean": stacked.mean(0)}[op]
        assert torch.allclose(torch.cat(parts), expected)


class TestDistributedIntegration:
    def test_gradients_that_are_synchronised_train_as_one_process_does(self) -> None:
        torch.manual_seed(1)
        data, target = torch.randn(12, 3), torch.randn(12, 1)
        alone = torch.nn.Linear(3, 1)
        copies = [torch.nn.Linear(3, 1) for _ in range(3)]
        for layer in copies:
            layer.load_state_dict(alone.state_dict())
        operators = [AllReduceOperator(comm) for comm in create_ring_topology(3)]
        for _step in range(5):
            for model, rows in ((alone, slice(None)), *((copies[rank], slice(rank, None, 3)) for rank in range(3))):
                model.zero_grad()
                loss = torch.nn.functional.mse_loss(model(data[rows]), target[rows])
                loss.backward()  # type: ignore[no-untyped-call]
            for model, operator in zip(copies, operators, strict=True):
                for param in model.parameters():
                    assert param.grad is not None
                    param.grad = operator.all_reduce(param.grad, op="mean")
            for param in chain.from_iterable(model.parameters() for model in (alone, *copies)):
                assert param.grad is not None
                param.data.sub_(param.grad, alpha=0.1)  # An optimizer's first step imports for a second and a half.
        for layer in copies:
            assert torch.allclose(layer.weight, alone.weight, atol=1e-6)

    def test_small_tensors_go_together_by_type(self) -> None:
        operators = [AllReduceOperator(comm) for comm in create_ring_topology(2)]
        brought = [torch.ones(2, 2), torch.ones(3, dtype=torch.float16), torch.tensor(5), torch.full((1,), 2.0)]
        results = [batch_all_reduce(brought, operator) for operator in operators]
        for found in results:
            assert [item.dtype for item in found] == [item.dtype for item in brought]
            assert [item.shape for item in found] == [item.shape for item in brought]
            assert [item.sum().item() for item in found] == [8, 6, 10, 4]
        assert brought[0].sum() == 4

    def test_a_buffer_is_lent_to_one_at_a_time(self) -> None:
        buffer = CommunicationBuffer(10)
        part = buffer.get_buffer(4)
        assert (part.shape, buffer.in_use) == ((4,), True)
        with pytest.raises(ValueError, match="Buffer in use"):
            buffer.get_buffer(1)
        del part
        assert not buffer.in_use
        with pytest.raises(ValueError, match="Buffer too small"):
            buffer.get_buffer(11)

    def test_a_buffer_is_in_use_as_long_as_any_view_of_what_was_lent(self) -> None:
        buffer = CommunicationBuffer(10, torch.bfloat16)
        matrix = buffer.get_buffer(6).view(2, 3).zero_()
        assert buffer.in_use
        with pytest.raises(ValueError, match="Buffer in use"):
            buffer.get_buffer(6)
        assert matrix.data_ptr() == buffer.buffer.data_ptr()
        del matrix
        assert not buffer.in_use
        kept = buffer.get_buffer(1)
        buffer.release()
        assert (buffer.in_use, len(kept)) == (False, 1)

    def test_a_buffer_may_be_marked_by_hand_and_has_no_size_below_zero(self) -> None:
        buffer = CommunicationBuffer(10)
        with pytest.raises(ValueError, match="not -2"):
            buffer.get_buffer(-2)
        buffer.in_use = True
        with pytest.raises(ValueError, match="Buffer in use"):
            buffer.get_buffer(1)
        buffer.in_use = False
        assert buffer.get_buffer(0).shape == (0,)

    def test_a_pool_lends_what_has_come_back_and_holds_no_more_than_it_may(self) -> None:
        pool = BufferPool(most_bytes=3 << 16)
        first, second = (pool.lend(1 << 14, torch.float32) for _ in range(2))
        assert first.data_ptr() != second.data_ptr()
        place = first.data_ptr()
        view = first.view(2, -1)[1]
        del first
        assert pool.lend(1 << 14, torch.float32).data_ptr() != place, "a view of it is still there"
        del view
        again = pool.lend(1 << 15, torch.bfloat16)
        assert (again.data_ptr(), again.shape, again.dtype) == (place, (1 << 15,), torch.bfloat16)
        assert (pool.held_bytes, pool.lent_again) == (3 << 16, 1)
        large = pool.lend(1 << 15, torch.float32)
        assert pool.held_bytes == 3 << 16
        assert pool.lend(1 << 20, torch.float32).numel() == 1 << 20, "more than it holds comes from the system"
        found = [large.fill_(1).sum().item(), second.fill_(2).sum().item(), again.fill_(3)[0].item()]
        assert found == [1 << 15, 2 << 14, 3]

    def test_a_rank_that_does_not_answer_is_in_the_notes(self) -> None:
        operator = AllReduceOperator(create_ring_topology(3, threads=True)[0])
        with pytest.raises(TimeoutError, match=r"^All-Reduce operation timed out") as late:
            safe_all_reduce(torch.ones(1), operator, timeout=0.05)
        assert str(late.value) == "All-Reduce operation timed out"
        assert vars(late.value)["__notes__"] == ["ranks 1, 2 did not answer within 0.05 s"]

    def test_time_is_printed_and_each_collective_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        (comm,) = create_ring_topology(1)
        said = io.StringIO()
        with redirect_stdout(said), caplog.at_level(logging.DEBUG, "dttui.collectives"):
            reduced = monitor_communication(AllReduceOperator(comm).all_reduce)(torch.ones(2))
        assert reduced.sum() == 2
        assert said.getvalue().startswith("all_reduce took 0.")
        assert "rank 0 of 1: all_reduce of (2,) torch.float32 over simulated took" in caplog.text

    def test_performance_consistency(self) -> None:
        operator = AllReduceOperator(create_ring_topology(WORLD)[0])
        rows = operator.benchmark([(1000,), (10000,), (200000,)], num_trials=2)
        assert [row.size_bytes for row in rows] == [4000, 40000, 800000]
        (elsewhere,) = operator.benchmark([(10,)], num_trials=1, device="cpu")
        for row in (*rows, elsewhere):
            assert (row.seconds > 0, row.device) == (True, torch.device("cpu"))
            assert row.bus_bandwidth == pytest.approx(1.5 * row.algorithm_bandwidth)

    def test_what_is_small_takes_the_time_of_its_messages_and_what_is_large_that_of_its_bytes(self) -> None:
        link, took = NetworkLink(1e-4, 1e7), {}
        for count in (WORLD, 4 * WORLD, 1 << 18):
            comms = create_ring_topology(WORLD, network=KnownLinks(link))
            for comm in comms:
                AllReduceOperator(comm, "ring").all_reduce(torch.ones(count))
            took[count] = comms[0].network_s or 0.0
        latency_s = 2 * (WORLD - 1) * link.latency_s
        assert took[WORLD] == pytest.approx(latency_s, rel=0.01)
        assert took[WORLD] <= took[4 * WORLD] <= 1.1 * latency_s
        bus_bandwidth = 2 * (WORLD - 1) / WORLD * 4 * (1 << 18) / took[1 << 18]
        assert bus_bandwidth == pytest.approx(link.bandwidth, rel=0.01)

    @pytest.mark.parametrize(
        ("operator", "whole"),
        [
            (BroadcastOperator, 400),
            (AllGatherOperator, 400 * WORLD),
            (ReduceScatterOperator, 400),
            (GatherOperator, 400 * WORLD),
            (ScatterOperator, 400),
        ],
    )
    def test_each_operator_is_measured(self, operator: Any, whole: int) -> None:
        (row,) = operator(create_ring_topology(WORLD)[0]).benchmark([(100,)], num_trials=2)
        assert (row.shape, row.size_bytes, row.ranks) == ((100,), whole, WORLD)
        assert row.seconds > 0
        with pytest.raises(CollectiveError, match="num_trials is 0: at least one"):
            operator(create_ring_topology(WORLD)[0]).benchmark([(100,)], num_trials=0)

    def test_all_groups_together_take_less_than_a_second_of_the_processor(self) -> None:
        assert sum(_taken_s) < 1, "without the import of torch"
