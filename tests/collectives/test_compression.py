"""All-reduces with fewer bytes: how near they come, what is kept for the next time, and what they refuse."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from dtagent.payload.collectives import (
    AllReduceOperator,
    CollectiveError,
    Compression,
    DistributedCommunicator,
    GradientSynchronizer,
    HalfPrecision,
    MismatchError,
    PowerSgd,
    TopK,
    create_ring_topology,
)

from tests.collectives.ranks import in_threads

WORLD = 3


def brought(rank: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank))


def repeated(compression: type[TopK] | type[PowerSgd], option: float, times: int, *shape: int) -> list[torch.Tensor]:
    """Return by rank the mean of what several all-reduces of the same tensors give."""

    def work(comm: DistributedCommunicator) -> torch.Tensor:
        made: Compression = compression(option)  # type: ignore[arg-type]
        operator, own = AllReduceOperator(comm), brought(comm.rank, *shape)
        found = [operator.all_reduce(own, "mean", compression=made, name="weight") for _time in range(times)]
        assert torch.equal(own, brought(comm.rank, *shape)), "what is brought stays as it is"
        return torch.stack(found).mean(0)

    return in_threads(WORLD, work)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", ["sum", "mean", "max", "min"])
def test_half_precision_is_as_near_as_its_bits(dtype: torch.dtype, op: str) -> None:
    def work(comm: DistributedCommunicator) -> None:
        operator, own = AllReduceOperator(comm), brought(comm.rank, 100)
        found = operator.all_reduce(own, op, compression=HalfPrecision(dtype))
        assert found.dtype == torch.float32
        assert torch.allclose(found, operator.all_reduce(own, op), atol=0.05 if dtype == torch.bfloat16 else 0.005)

    in_threads(WORLD, work)


def test_a_mean_in_half_precision_does_not_pass_its_range() -> None:
    def work(comm: DistributedCommunicator) -> float:
        own = torch.full((2,), 60_000.0)
        return AllReduceOperator(comm).all_reduce(own, "mean", compression=HalfPrecision(torch.float16)).max().item()

    assert in_threads(WORLD, work) == [pytest.approx(60_000, rel=1e-3)] * WORLD


def test_top_k_takes_each_ranks_largest() -> None:
    def work(comm: DistributedCommunicator) -> list[float]:
        own = torch.tensor([0.1, 5.0, 0.2, 0.0]) if comm.rank else torch.tensor([-7.0, 1.0, 0.0, 0.0])
        return AllReduceOperator(comm).all_reduce(own, compression=TopK(0.25)).tolist()

    assert in_threads(2, work) == [[-7.0, 5.0, 0.0, 0.0]] * 2


def test_top_k_of_many_values_takes_the_largest() -> None:
    own = brought(1, 300_000)
    (comm,) = create_ring_topology(1)
    found = AllReduceOperator(comm).all_reduce(own, compression=TopK(0.01))
    assert torch.equal(found.nonzero().view(-1), own.abs().topk(3000).indices.sort().values)
    assert torch.equal(found[found != 0], own[found != 0])


@pytest.mark.parametrize(("compression", "option"), [(TopK, 0.1), (PowerSgd, 2)])
def test_what_is_left_out_comes_later(compression: type[TopK] | type[PowerSgd], option: float) -> None:
    exact = torch.stack([brought(rank, 30, 20) for rank in range(WORLD)]).mean(0)
    off = []
    for times in (1, 40):
        found = repeated(compression, option, times, 30, 20)
        assert all(torch.equal(other, found[0]) for other in found), "all ranks have the same"
        off.append(((found[0] - exact).norm() / exact.norm()).item())
    assert off[0] > 0.3, "one time leaves much out"
    assert off[1] < off[0] / 3, off


def test_a_matrix_of_low_rank_comes_whole_and_vectors_as_they_are() -> None:
    column, row = brought(7, 40, 1), brought(8, 1, 30)

    def work(comm: DistributedCommunicator) -> None:
        scale = comm.rank + 1.0
        vector = brought(comm.rank, 5)
        flat = torch.cat([(column @ row * scale).reshape(-1), vector])
        parts = [flat[:1200].view(40, 30), flat[1200:]]
        AllReduceOperator(comm).all_reduce(flat, in_place=True, compression=PowerSgd(1), name="bucket", parts=parts)
        assert torch.allclose(parts[0], column @ row * 6, atol=1e-3)
        expected = torch.stack([brought(rank, 5) for rank in range(WORLD)]).sum(0)
        assert torch.allclose(parts[1], expected, atol=1e-5)

    in_threads(WORLD, work)


@pytest.mark.parametrize("compression", [TopK(0.2), PowerSgd(1)])
def test_a_model_trains_with_it(compression: Compression) -> None:
    goal = brought(1000, 16, 12)

    def work(comm: DistributedCommunicator) -> list[float]:
        made = TopK(0.2) if isinstance(compression, TopK) else PowerSgd(1)
        model = torch.nn.Linear(16, 12)
        sync = GradientSynchronizer(model, comm, compression=made)
        optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.5), []
        sync.wait_before(optimizer)
        for step in range(60):
            data = brought(100 * step + comm.rank, 32, 16)
            loss = torch.nn.functional.mse_loss(model(data), data @ goal)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
        return losses

    for losses in in_threads(2, work):
        assert losses[-1] < losses[0] / 50


def test_what_it_cannot_do_is_refused() -> None:
    (comm,) = create_ring_topology(1)
    operator = AllReduceOperator(comm)
    with pytest.raises(CollectiveError, match=r"of floating-point numbers, and the tensor is of torch\.int64"):
        operator.all_reduce(torch.ones(2, dtype=torch.int64), compression=TopK())
    with pytest.raises(CollectiveError, match="there is no 'max': take sum or mean"):
        operator.all_reduce(torch.ones(2), "max", compression=PowerSgd())
    first, second = (AllReduceOperator(comm) for comm in create_ring_topology(2))
    first.all_reduce(torch.ones(2), compression=TopK())
    with pytest.raises(CollectiveError, match="ranks in threads or processes"):
        second.all_reduce(torch.ones(2), compression=TopK())
    for wrong in (lambda: TopK(0), lambda: PowerSgd(0), lambda: HalfPrecision(torch.float32)):
        with pytest.raises(CollectiveError):
            wrong()


@pytest.mark.parametrize("sizes", [(100, 100, 200), (100, 100, 101)])
def test_shapes_that_differ_are_told_to_all(sizes: tuple[int, ...]) -> None:
    def work(comm: DistributedCommunicator) -> None:
        with pytest.raises(MismatchError, match="rank 2"):
            AllReduceOperator(comm).all_reduce(torch.ones(sizes[comm.rank]), compression=TopK())

    in_threads(WORLD, work)


@pytest.mark.parametrize(
    ("usual", "of_last", "said"),
    [
        (
            (TopK(0.5), "sum"),
            (TopK(0.5), "mean"),
            "compress otherwise .*rank 2: top-k of 0.5, mean",
        ),
        ((TopK(0.5), "sum"), (TopK(0.1), "sum"), r"compress otherwise .*rank 2: top-k of 0\.1, sum"),
        ((TopK(0.5), "sum"), (None, "sum"), "compress otherwise .*rank 2: not at all"),
        ((TopK(0.5), "sum"), (TopK(0.5), "max"), "rank 2: with this compression there is no 'max'"),
        ((PowerSgd(1), "sum"), (PowerSgd(1), "mean"), "compress otherwise .*rank 2: matrices of rank 1, mean"),
        ((HalfPrecision(), "sum"), (HalfPrecision(), "mean"), r"compress otherwise .*rank 2: torch\.bfloat16, mean"),
    ],
)
def test_ranks_that_compress_otherwise_all_hear_of_it(
    usual: tuple[Compression | None, str], of_last: tuple[Compression | None, str], said: str
) -> None:
    def work(comm: DistributedCommunicator) -> float:
        comm.timeout_s = 20
        compression, op = of_last if comm.rank == WORLD - 1 else usual
        operator = AllReduceOperator(comm)
        with pytest.raises(CollectiveError, match=said):
            operator.all_reduce(brought(comm.rank, 30, 30), op, compression=compression)
        return operator.all_reduce(torch.ones(1)).item()

    assert in_threads(WORLD, work) == [WORLD] * WORLD


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_matrices_of_sixteen_bits_are_as_near_as_their_bits(dtype: torch.dtype) -> None:
    whole = (brought(7, 40, 1) @ brought(8, 1, 30)).to(dtype)

    def work(comm: DistributedCommunicator) -> None:
        found = AllReduceOperator(comm).all_reduce(whole, "mean", compression=PowerSgd(1))
        assert found.dtype == dtype
        assert ((found - whole).float().norm() / whole.float().norm()).item() < 0.02

    in_threads(2, work)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize("compression", [TopK(0.01), PowerSgd(2)])
def test_an_overflow_reaches_all_ranks_once(compression: Compression, bad: float) -> None:
    """A gradient scaler of every rank has to see it, and to find the next gradients as they are."""

    def work(comm: DistributedCommunicator) -> None:
        made = TopK(0.01) if isinstance(compression, TopK) else PowerSgd(2)
        operator, own = AllReduceOperator(comm), brought(comm.rank, 200, 100)
        operator.all_reduce(own, "mean", compression=made, name="weight")
        over = own.clone()
        if comm.rank == 1:
            over.view(-1)[[5, 38, 37]] = bad  # Of which top-k has one in its sample.
        if comm.rank == 2:
            over.view(-1)[1000:1400] = bad  # More than top-k sends.
        assert not operator.all_reduce(over, "mean", compression=made, name="weight").isfinite().all()
        exact = torch.stack([brought(rank, 200, 100) for rank in range(WORLD)]).mean(0)
        found = []
        for _time in range(60):
            found.append(operator.all_reduce(own, "mean", compression=made, name="weight"))
            assert found[-1].isfinite().all()
        assert (torch.stack(found).mean(0) - exact).norm() < 0.9 * exact.norm()

    in_threads(WORLD, work)


def test_top_k_of_many_values_takes_what_is_no_number() -> None:
    own = brought(1, 300_000)
    own[12_345] = float("nan")
    (comm,) = create_ring_topology(1)
    found = AllReduceOperator(comm).all_reduce(own, compression=TopK(0.01))
    assert found.isnan().nonzero().tolist() == [[12_345]]
