"""Gradients by the operators: a model that ranks train together loses what one process, and DDP, would."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from dtagent.payload.collectives import (
    AllGatherOperator,
    AllReduceOperator,
    CollectiveError,
    DistributedCommunicator,
    GradientSynchronizer,
    ReduceScatterOperator,
    create_ring_topology,
)

from tests.collectives.ranks import in_threads
from tests.collectives.starting import printed
from tests.collectives.training import Mixed, losses_alone, losses_of_a_plain_one

WORLD = 3


def test_over_gloo_all_ways_lose_the_same(tmp_path: Path) -> None:
    commands = [
        ["-m", "tests.collectives.training", str(rank), str(WORLD), str(tmp_path / "store")] for rank in range(WORLD)
    ]
    found = json.loads(printed(commands, 120)[0])
    alone = losses_alone()
    assert alone[-1] < 0.8 * alone[0]
    for way in ("ddp", "loop", "hooks", "views", "accumulated", "half"):
        assert found[way] == pytest.approx(alone, abs=2e-3 if way == "half" else 1e-5), way
    plain = losses_of_a_plain_one(WORLD)
    assert plain[-1] < 0.9 * plain[0]
    assert found["parallel"] == pytest.approx(plain, abs=1e-5)


def test_buckets_go_on_their_way_while_the_backward_pass_computes() -> None:
    def work(comm: DistributedCommunicator) -> tuple[int, list[float]]:
        torch.manual_seed(comm.rank)  # The first rank's parameters become those of all.
        model = torch.nn.Sequential(*(torch.nn.Linear(8, 8, bias=False) for _ in range(4)))
        sync = GradientSynchronizer(model, comm, bucket_bytes=8 * 8 * 4)
        before: list[int] = []
        first = model[0](torch.full((2, 8), comm.rank + 1.0))
        first.register_hook(lambda _grad: before.append(sync.started))
        model[1:](first).sum().backward()
        sync.wait(20)
        found = [param.grad.sum().item() for param in model.parameters() if param.grad is not None]
        assert len(found) == 4
        return before[0], found

    started, sums = zip(*in_threads(2, work), strict=True)
    assert min(started) >= 2, "the layers behind the first were on their way before its gradient was there"
    assert sums[0] == sums[1]


def test_types_go_apart_and_a_parameter_that_is_not_reached_counts_as_zeros() -> None:
    def work(comm: DistributedCommunicator) -> list[list[float]]:
        model = Mixed()
        sync = GradientSynchronizer(model, comm)
        model(use_other=comm.rank == 1).backward()
        sync.wait(20)
        return [param.grad.double().tolist() for param in model.parameters() if param.grad is not None]

    for found in in_threads(2, work):
        assert found == [[1.0, 1.0], [1.0, 1.0], [0.5, 0.5]]


def test_gradients_that_come_twice_are_refused() -> None:
    def work(comm: DistributedCommunicator) -> None:
        layer = torch.nn.Linear(2, 1)
        sync = GradientSynchronizer(layer, comm)
        layer(torch.ones(2)).sum().backward()
        with pytest.raises(CollectiveError, match=r"came twice: call wait\(\) after a backward pass"):
            layer(torch.ones(2)).sum().backward()
        sync.wait(20)

    in_threads(1, work)


def test_whoever_gave_up_waiting_may_wait_again() -> None:
    late = threading.Event()

    def work(comm: DistributedCommunicator) -> list[float]:
        layer = torch.nn.Linear(2, 1, bias=False)
        other = torch.nn.Parameter(torch.ones(1))  # Of no backward pass.
        model = torch.nn.ParameterList([*layer.parameters(), other])
        sync = GradientSynchronizer(model, comm)
        layer(torch.full((2,), comm.rank + 1.0)).sum().backward()
        if comm.rank == 0:
            with pytest.raises(TimeoutError, match="and goes on"):
                sync.wait(0.05)
            assert layer.weight.grad is not None
            assert layer.weight.grad.tolist() == [[1.0, 1.0]], "its own, still"
            late.set()
        assert late.wait(20)
        sync.wait(20)
        return [*layer.weight.grad.view(-1).tolist(), *other.grad.tolist()]  # type: ignore[union-attr]

    assert in_threads(2, work) == [[1.5, 1.5, 0.0]] * 2


def test_gradients_that_are_views_lie_in_the_buckets_from_one_step_to_the_next() -> None:
    def work(comm: DistributedCommunicator) -> list[float]:
        layer = torch.nn.Linear(2, 1, bias=False)
        other = torch.nn.Parameter(torch.ones(1))  # Of no backward pass.
        sync = GradientSynchronizer(torch.nn.ParameterList([layer.weight, other]), comm, gradients_as_views=True)
        places, found = set(), []
        for step in range(3):
            layer.zero_grad(set_to_none=step == 2)
            with sync.no_sync():
                layer(torch.full((2,), float(comm.rank))).sum().backward()
            layer(torch.full((2,), 1.0)).sum().backward()
            sync.wait(20)
            assert layer.weight.grad is not None
            assert other.grad is not None
            places.add(layer.weight.grad.data_ptr())
            found.append(layer.weight.grad.sum().item())
            assert layer.weight.grad.untyped_storage().data_ptr() == other.grad.untyped_storage().data_ptr()
        assert len(places) == 1
        return found

    assert in_threads(2, work) == [[3.0] * 3] * 2


def test_models_that_differ_are_told_to_all() -> None:
    def work(comm: DistributedCommunicator) -> None:
        with pytest.raises(CollectiveError, match="bring another shape"):
            GradientSynchronizer(torch.nn.Linear(2 + comm.rank, 1), comm)

    in_threads(2, work)


def test_gradients_go_back_to_rows_of_unequal_numbers() -> None:
    def work(comm: DistributedCommunicator) -> None:
        own = torch.full((comm.rank + 1, 2), 1.0, requires_grad=True)
        gathered = AllGatherOperator(comm).all_gather(own)
        (gathered * torch.arange(len(gathered)).unsqueeze(1) * (comm.rank + 1)).sum().backward()  # type: ignore[no-untyped-call]
        first = sum(range(comm.rank + 1))
        assert own.grad is not None
        assert own.grad[:, 0].tolist() == [6.0 * (first + row) for row in range(comm.rank + 1)]
        whole = torch.ones(4, requires_grad=True)  # Four rows for three ranks.
        part = ReduceScatterOperator(comm).reduce_scatter(whole, "mean")
        (part.sum() * (comm.rank + 1)).backward()  # type: ignore[no-untyped-call]
        assert whole.grad is not None
        assert (whole.grad * 3).tolist() == [1, 1, 2, 3]
        most = ReduceScatterOperator(comm).reduce_scatter(whole, "max").sum()
        with pytest.raises(CollectiveError, match="no gradient of a reduce-scatter by max"):
            most.backward()  # type: ignore[no-untyped-call]

    in_threads(WORLD, work)


def test_a_gradient_may_be_set_before_it_is_there() -> None:
    layers = [torch.nn.Linear(3, 1, bias=False) for _ in range(2)]
    for layer, comm in zip(layers, create_ring_topology(2), strict=True):
        layer.weight.grad = AllReduceOperator(comm).all_reduce(torch.full((1, 3), comm.rank + 1.0))
    for layer in layers:
        before = layer.weight.detach().clone()
        torch.optim.SGD(layer.parameters(), lr=1.0).step()
        assert torch.allclose(layer.weight, before - 3)
