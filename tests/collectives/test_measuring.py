"""What the ranks of `dttui bench` measure, each a process of this machine that stands for a host."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MARK = "DTTUI_BENCH "
HAS_GPUS = "import torch\ntorch.cuda.is_available = lambda: True\ntorch.cuda.device_count = lambda: 8\n"
SLOW = (
    "import time, torch.distributed as dist\n"
    "send = dist.send\n"
    "dist.send = lambda *told: (time.sleep(0.3), send(*told))\n"
)
NO_ROOM = (
    "import torch\n"
    "full = torch.full\n"
    "torch.full = lambda shape, *told, **named: full((1 << 50,) if shape[0] >= 1 << 10 else shape, *told, **named)\n"
)
"""Of 1,024 elements and more, 4 PiB are asked for instead, of which torch itself says that they are not there."""
MEASURE = "from dtagent.payload.collectives.measuring import main\nmain()"


def measured(
    hosts: int,
    directory: Path,
    *options: str,
    before: Sequence[str] = (),
    backend: str = "gloo",
    variables: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Return what rank 0 tells, of one rank a host.

    Args:
        hosts: how many.
        directory: for the file that says the backend.
        options: of the command line.
        before: by rank, what is run before it.
        backend: what the plan says.
        variables: more of the environment.
    """
    config = directory / "config.json"
    config.write_text(json.dumps({"backend": backend}))
    usual = {
        **os.environ,
        "WORLD_SIZE": str(hosts),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "LOCAL_RANK": "0",
        "DTTUI_NODE_ADDRESSES": ",".join(["127.0.0.1"] * hosts),
        "DTTUI_CONFIG": str(config),
        **(variables or {}),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", (before[rank] if before else "") + MEASURE, *options],
            env={**usual, "RANK": str(rank), "DTTUI_NODE_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(hosts)
    ]
    try:
        said, errors = ranks[0].communicate(timeout=150)
        for rank in ranks:
            rank.wait(60)
            assert rank.returncode == 0, errors
    finally:
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                rank.kill()
            rank.communicate()
    return [json.loads(line.removeprefix(MARK)) for line in said.splitlines() if line.startswith(MARK)]


def test_all_ranks_take_the_back_end_of_the_plan_where_one_alone_has_gpus(tmp_path: Path) -> None:
    told = measured(2, tmp_path, "--max", "64", "--limit-s", "30", before=[HAS_GPUS, ""])
    assert (told[0]["backend"], told[-1]["kind"]) == ("gloo", "end")
    assert {record["wrong"] for record in told if "wrong" in record} == {0}


def test_each_pair_is_told_and_slow_links_do_not_take_the_time_of_all_ranks_together(tmp_path: Path) -> None:
    """Four rounds of pairs, each size of which takes 1.8 s, in half of 30 s: before, all else had one size alone."""
    told = measured(4, tmp_path, "--max", "512", "--limit-s", "30", "--zones", "0,0,1,1", before=[SLOW] * 4)
    pairs = [record for record in told if record["kind"] == "pair"]
    assert {tuple(record["between"]) for record in pairs} == {*combinations(range(4), 2)}
    assert {record["wrong"] for record in told if "wrong" in record} == {0}
    assert sorted(record["between"] for record in told if record["kind"] == "tcp") == [
        list(pair) for pair in combinations(range(4), 2)
    ]
    sizes = Counter((record["op"], record["algorithm"]) for record in told if record["kind"] == "collective")
    assert len(sizes) == 5
    assert sizes.total() > 5, sizes
    assert told[-1] == {"kind": "end", "whole": False}
    assert (
        len(results(told)) + sum(record["results"] for record in told if record["kind"] == "left-out")
        == (told[0]["total"])
    )


def results(told: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in told if record["kind"] in ("pair", "collective")]


def test_how_many_results_there_will_be_and_over_which_interface_is_told_first(tmp_path: Path) -> None:
    told = measured(2, tmp_path, "--max", "512", "--limit-s", "60", variables={"GLOO_SOCKET_IFNAME": "lo"})
    assert told[0] == {"kind": "begin", "backend": "gloo", "ranks": 2, "interfaces": ["lo", "lo"], "total": 24}
    assert len(results(told)) == 24
    assert told[-1] == {"kind": "end", "whole": True}


def test_a_size_for_which_a_rank_has_no_memory_ends_what_it_has_a_part_in_and_not_the_bench(tmp_path: Path) -> None:
    """Before, the rank ended with torch's error, and all others with it."""
    told = measured(3, tmp_path, "--max", "8192", "--limit-s", "60", before=["", "", NO_ROOM])
    assert {(record["host"], record["size"]) for record in told if record["kind"] == "memory"} == {(2, 8192)}
    sizes = {tuple(record["between"]): record["size"] for record in told if record["kind"] == "pair"}
    assert sizes == {(0, 1): 8192, (0, 2): 2048, (1, 2): 2048}
    assert told[-1] == {"kind": "end", "whole": False}
    assert (
        len(results(told)) + sum(record["results"] for record in told if record["kind"] == "left-out")
        == (told[0]["total"])
    )
