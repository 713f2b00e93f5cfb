"""The operators over real gloo, each rank a process: what comes of all collectives, and what ranks hear of mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collectives.starting import check_mistakes

pytest.importorskip("torch")

import torch
from dtagent.payload.collectives.torch_group import backend_for


@pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=pytest.mark.thorough), 5])
def test_every_collective_of_every_algorithm_gives_all_ranks_what_it_should(world_size: int, tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.collectives.gloo_ranks", str(rank), str(world_size), str(tmp_path / "store")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world_size)
    ]
    told = []
    try:
        for process in ranks:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            told.append(json.loads(line))
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    assert {found["count"] for found in told} == {told[0]["count"]}
    assert told[0]["count"] > 150
    for found in told:
        check_mistakes(found["errors"], world_size)
        if world_size > 2:
            is_last = found is told[-1]
            assert found["missed"] == ([] if is_last else [world_size - 1])


@pytest.mark.parametrize(
    ("config", "cpu", "cuda"),
    [
        ("gloo", "gloo", "gloo"),
        ("nccl", "nccl", "nccl"),
        ("cpu:gloo", "gloo", ""),
        ("cuda:nccl", "", "nccl"),
        ("cpu:gloo,cuda:nccl", "gloo", "nccl"),
        ("cpu:gloo,cuda:gloo", "gloo", "gloo"),
    ],
)
def test_a_process_group_has_a_back_end_for_each_device(config: str, cpu: str, cuda: str) -> None:
    assert [backend_for(config, device) for device in ("cpu", "cuda")] == [cpu, cuda]


def test_process_groups_as_torch_makes_them_by_default_are_taken(tmp_path: Path) -> None:
    script = (
        "import sys, torch, torch.distributed as dist\n"
        "from dtagent.payload.collectives import AllReduceOperator, DistributedCommunicator\n"
        "for place, options in ((sys.argv[1], {}), (sys.argv[2], {'backend': 'cpu:gloo'})):\n"
        "    dist.init_process_group(init_method='file://' + place, rank=0, world_size=1, **options)\n"
        "    comm = DistributedCommunicator(0, 1)\n"
        "    print(comm.backend, AllReduceOperator(comm).all_reduce(torch.ones(1)).item())\n"
        "    dist.destroy_process_group()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "default"), str(tmp_path / "named")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    expected = "nccl" if torch.cuda.is_available() else "gloo"
    assert done.stdout.split() == [expected, "1.0", "gloo", "1.0"], done.stderr
