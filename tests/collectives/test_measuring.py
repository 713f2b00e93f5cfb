"""What the ranks of `dttui bench` measure, each a process of this machine that stands for a host."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port

pytest.importorskip("torch")

import torch.distributed as dist
from dtagent.payload.collectives.measuring import Bench, typical
from dtagent.payload.collectives.schedules import ALGORITHMS
from dtagent.payload.collectives.timed_collectives import USUAL, SizedWork

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
DEADLINE_S = 280.0
ENOUGH_S = "600"
"""For all sizes, however busy the machine is."""
MEASURE = "from dtagent.payload.collectives.measuring import main\nmain()"


def measured(
    hosts: int,
    directory: Path,
    *options: str,
    before: Sequence[str] = (),
    backend: str = "gloo",
    variables: Mapping[str, str] | None = None,
    ranks_a_host: int = 1,
) -> list[dict[str, Any]]:
    """Return what rank 0 tells.

    Args:
        hosts: how many.
        directory: for the file that says the backend.
        options: of the command line.
        before: by rank, what is run before it.
        backend: what the plan says.
        variables: more of the environment.
        ranks_a_host: how many.
    """
    config = directory / "config.json"
    told = {"backend": backend, "distributed": {"ranks_per_node": [ranks_a_host] * hosts}}
    config.write_text(json.dumps(told))
    world_size = hosts * ranks_a_host
    usual = {
        **os.environ,
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "DTTUI_NODE_ADDRESSES": ",".join(["127.0.0.1"] * hosts),
        "DTTUI_CONFIG": str(config),
        **(variables or {}),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", (before[rank] if before else "") + MEASURE, *options],
            env={
                **usual,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank % ranks_a_host),
                "DTTUI_NODE_RANK": str(rank // ranks_a_host),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world_size)
    ]
    try:
        said, errors = ranks[0].communicate(timeout=DEADLINE_S)
        for rank in ranks:
            rank.wait(DEADLINE_S)
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
    usual = {(kind.value, algorithm) for kind, algorithm in USUAL}
    assert usual <= sizes.keys()
    assert sum(sizes[kind] for kind in usual) > 5, sizes
    assert told[-1] == {"kind": "end", "whole": False}
    assert (
        len(results(told)) + sum(record["results"] for record in told if record["kind"] == "left-out")
        == (told[0]["total"])
    )


def test_hosts_of_several_ranks_are_measured_inside_and_over_all_ranks_each_algorithm_is(tmp_path: Path) -> None:
    told = measured(2, tmp_path, "--max", "512", "--limit-s", ENOUGH_S, ranks_a_host=2)
    collectives = [record for record in told if record["kind"] == "collective"]
    rows = Counter((row["host"], row["op"], row["algorithm"], row["ranks"]) for row in collectives)
    inside = {key: count for key, count in rows.items() if key[0] is not None}
    assert inside == {(host, "all_reduce", "native", 2): 4 for host in (0, 1)}
    of_all = {key[1:]: count for key, count in rows.items() if key[0] is None}
    operators = [(kind, algorithm) for kind, algorithms in ALGORITHMS.items() for algorithm in algorithms]
    assert of_all == {(kind.value, algorithm, 4): 4 for kind, algorithm in {*USUAL, *operators}}
    assert list(of_all)[: len(USUAL)] == [(kind.value, algorithm, 4) for kind, algorithm in USUAL]
    assert {record["wrong"] for record in results(told)} == {0}
    assert len(results(told)) == told[0]["total"]
    assert told[-1] == {"kind": "end", "whole": True}


def results(told: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in told if record["kind"] in ("pair", "collective")]


def test_how_many_results_there_will_be_and_over_which_interface_is_told_first(tmp_path: Path) -> None:
    told = measured(2, tmp_path, "--max", "512", "--limit-s", ENOUGH_S, variables={"GLOO_SOCKET_IFNAME": "lo"})
    assert told[0] == {"kind": "begin", "backend": "gloo", "ranks": 2, "interfaces": ["lo", "lo"], "total": 64}
    assert len(results(told)) == 64
    assert told[-1] == {"kind": "end", "whole": True}


def test_a_size_for_which_a_rank_has_no_memory_ends_what_it_has_a_part_in_and_not_the_bench(tmp_path: Path) -> None:
    """Before, the rank ended with torch's error, and all others with it."""
    told = measured(3, tmp_path, "--max", "8192", "--limit-s", ENOUGH_S, before=["", "", NO_ROOM])
    assert {"butterfly", "hierarchical"}.isdisjoint(record.get("algorithm") for record in told)
    assert {(record["host"], record["size"]) for record in told if record["kind"] == "memory"} == {(2, 8192)}
    sizes = {tuple(record["between"]): record["size"] for record in told if record["kind"] == "pair"}
    assert sizes == {(0, 1): 8192, (0, 2): 2048, (1, 2): 2048}
    assert told[-1] == {"kind": "end", "whole": False}
    assert (
        len(results(told)) + sum(record["results"] for record in told if record["kind"] == "left-out")
        == (told[0]["total"])
    )


def test_the_first_two_turns_of_a_size_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes long here; with either of them the median would be another."""
    monkeypatch.setenv("DTTUI_NODE_RANK", "0")
    monkeypatch.delenv("DTTUI_CONFIG", raising=False)
    clock, turns = [0.0], Counter[int]()
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    kept: list[tuple[int, list[float]]] = []

    def make(size: int) -> SizedWork:
        def work() -> None:
            turns[size] += 1
            clock[0] += 1.0 if turns[size] <= 2 else 0.25

        return SizedWork(size, lambda: None, work, lambda: 0)

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        bench = Bench(32, 60.0)
        bench.grow([[0]], math.inf, make, lambda _party, size, medians, _wrong: kept.append((size, medians)))
    finally:
        dist.destroy_process_group()
    assert turns == {8: 3, 32: 3}, "as many as are due in a second, of what took one"
    assert kept == [(8, [0.25]), (32, [0.25])]


def test_of_many_trials_the_median_counts_and_of_a_few_the_fastest() -> None:
    """A machine that is busy beside it makes some slower, and none faster."""
    assert typical([0.42, 0.61, 0.44]) == 0.42
    assert typical([0.42, 0.61, 0.44, 0.45, 0.9, 0.46]) == pytest.approx(0.455)
