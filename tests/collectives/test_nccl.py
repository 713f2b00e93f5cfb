"""The operators over NCCL, a GPU a rank. Without GPUs its rounds are tried over gloo, by `test_gloo`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from dtagent.payload.collectives import AllReduceOperator, CollectiveError, create_ring_topology
from dtagent.payload.collectives.nccl_group import NcclGroup

from tests.collectives.starting import python, started

of_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU and a torch with CUDA")


@of_a_gpu
def test_the_time_of_a_gpu_is_what_it_has_done() -> None:
    """A copy of 256 MiB takes longer than to tell the GPU of it."""
    operator = AllReduceOperator(create_ring_topology(2)[0])
    small, large = operator.benchmark([(1000,), (1 << 26,)], num_trials=3, device="cuda")
    assert large.device.type == "cuda"
    assert large.seconds > 4 * small.seconds
    assert large.algorithm_bandwidth < 4e12, "no memory of a GPU is as fast"


def test_a_group_that_has_lost_a_rank_says_what_to_do() -> None:
    """And says so before anything is asked of a GPU."""
    group = NcclGroup.__new__(NcclGroup)
    with pytest.raises(CollectiveError, match=r"not made anew .*: start the job again from its last checkpoint"):
        group.regroup(0, everyone=False, timeout_s=1)


@pytest.mark.skipif(
    sys.platform != "linux" or torch.cuda.device_count() < 2,
    reason="needs two GPUs and a torch with NCCL: two ranks cannot share one",
)
def test_every_collective_gives_all_ranks_what_it_should(tmp_path: Path) -> None:
    world_size = min(4, torch.cuda.device_count())
    commands = [
        python("tests.collectives.gloo_ranks", rank, world_size, tmp_path / "store", "nccl")
        for rank in range(world_size)
    ]
    with started(commands) as ranks:
        told = [rank.told() for rank in ranks]
    assert told[0]["count"] > 150
    assert all("bring another shape" in found["errors"][0] for found in told)
