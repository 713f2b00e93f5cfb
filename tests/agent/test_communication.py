"""The share of communication that a rank measures beside its script, with clocks of the test and over gloo for real."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dtagent import payload
from dtagent.payload.communication import METRIC, STEPLESS, Meter

from tests.gloo import without_abort
from tests.ports import free_port

RUNNER = Path(payload.__file__).parent / "rank.py"
NO_TORCH = "torch is not installed: pip install .[torch]"
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason=NO_TORCH)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Moment:
    """An event of a GPU."""

    def __init__(self, at_s: float, *, is_over: bool = True) -> None:
        self.at_s, self.is_over = at_s, is_over

    def query(self) -> bool:
        return self.is_over

    def elapsed_time(self, other: Moment) -> float:
        return 1e3 * (other.at_s - self.at_s)


def test_time_in_which_several_are_under_way_counts_once_and_reports_are_of_whole_steps() -> None:
    told: list[float] = []
    clock = Clock()
    meter = Meter(told.append, 5.0, clock)
    clock.now += 50.0  # Before the first collective nobody trains.
    for at, call in ((0, meter.begin), (1, meter.begin), (2, meter.end), (3, meter.end), (4, meter.step)):
        clock.now = 150.0 + at
        call()
    assert told == []  # Too little yet.
    for at, call in ((6, meter.begin), (8, meter.end), (10, meter.step), (14, meter.begin), (20, meter.step)):
        clock.now = 150.0 + at
        call()
    assert told == [50.0, 60.0]  # 5 of 10 s; 6 of 10 so far of one that goes on.
    meter.end()
    clock.now = 175.0
    assert meter.close()
    assert told == [50.0, 60.0, 0.0]


def test_who_makes_no_steps_of_an_optimizer_reports_as_collectives_end() -> None:
    told: list[float] = []
    clock = Clock()
    meter = Meter(told.append, 1.0, clock)
    for _second in range(STEPLESS):
        meter.begin()
        clock.now += 0.25
        meter.end()
        clock.now += 0.75
    meter.begin()
    meter.end()
    assert told == [25.0]


def test_of_a_gpu_the_time_between_events_that_have_passed_counts() -> None:
    told: list[float] = []
    clock = Clock()
    meter = Meter(told.append, 5.0, clock)
    late = Moment(9.5, is_over=False)
    for before, after in (
        (Moment(1.0), Moment(3.0)),
        (Moment(2.0), Moment(4.0)),
        (Moment(6.0), Moment(7.0)),
        (Moment(9.0), late),
    ):
        meter.add_on_gpu(before, after)
    clock.now += 10.0
    meter.step()
    late.is_over = True
    clock.now += 10.0
    meter.step()
    assert told == [40.0, 5.0]


TRAINS = """
import sys, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import torch.distributed._functional_collectives as functional
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _step in range(3):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
dist.barrier()
"""
HELD_UP = (
    TRAINS
    + """
if dist.get_rank():
    time.sleep(2.5)
{call}
time.sleep(2.5)
"""
)
"""The first rank is in a collective for about half of the time that is left, of which a busy machine takes some."""


def run(home: Path, script: str, *, measures: bool = True, fails: int = 0) -> list[list[dict[str, Any]]]:
    """Run it as two ranks; return what each has reported, after looking that they end as they should."""
    (home / "train.py").write_text(script)
    port, ranks = free_port(), []
    for rank in (0, 1):
        place = home / str(rank)
        for name in ("logs", "ranks", "failures"):
            (place / name).mkdir(parents=True)
        env = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        env |= {"MASTER_PORT": str(port), "DTTUI_LOGS": str(place / "logs"), "OMP_NUM_THREADS": "1"}
        env |= {"DTTUI_METRICS": str(place / "metrics.jsonl")}
        env |= {"DTTUI_MEASURE_COMMUNICATION": "1"} if measures else {}
        argv = [sys.executable, str(RUNNER), str(home / "train.py")]
        ranks.append(subprocess.Popen(argv, env={**os.environ, **env}))
    codes = [process.wait(120) for process in ranks]
    errors = [(home / str(rank) / "logs" / f"{rank}.err").read_text() for rank in (0, 1)]
    assert [without_abort(*item) for item in zip(codes, errors, strict=True)] == [fails, 0], errors
    assert all("communication.py" not in text and "rank.py" not in text for text in errors), errors
    found = []
    for rank in (0, 1):
        path = home / str(rank) / "metrics.jsonl"
        found.append([json.loads(line) for line in path.read_text().splitlines()] if path.exists() else [])
    return found


CALLS = {
    "torch.distributed": "dist.all_reduce(torch.ones(4))",
    "in C++": "functional.all_reduce(torch.ones(4), 'sum', dist.group.WORLD).add(1)",
    "the reducer of DDP": "model(torch.ones(2, 8)).sum().backward()",
    "dttui's own": "import dttui_collectives as own\n"
    "own.AllReduceOperator(own.DistributedCommunicator(dist.get_rank(), 2)).all_reduce(torch.ones(4))",
}


@needs_torch
@pytest.mark.torch
@pytest.mark.parametrize("who", CALLS)
def test_whoever_calls_a_collective_who_waits_for_it_has_it_under_way(tmp_path: Path, who: str) -> None:
    waits, comes_late = run(tmp_path, HELD_UP.format(call=CALLS[who]))
    shares = [reports[-1][METRIC] for reports in (waits, comes_late)]
    assert [reports[-1]["rank"] for reports in (waits, comes_late)] == [0, 1]
    assert 20 < shares[0] < 80
    assert shares[1] < shares[0]


@needs_torch
@pytest.mark.torch
def test_nothing_is_measured_where_nobody_asks_for_it(tmp_path: Path) -> None:
    assert run(tmp_path, TRAINS, measures=False) == [[], []]


ALL_BUT_OVER = "for _more in range(20):\n    work = dist.all_reduce(torch.ones(1 << 20), async_op=True)\n"
ENDS = {
    "it exits": (ALL_BUT_OVER, 0),
    "it takes the group down": (ALL_BUT_OVER + "dist.destroy_process_group()", 0),
    "it fails": (
        "if dist.get_rank() == 0:\n    work = dist.all_reduce(torch.ones(4), async_op=True)\n    raise SystemExit(3)\n",
        3,
    ),
}


@needs_torch
@pytest.mark.torch
@pytest.mark.parametrize("how", ENDS)
def test_a_rank_ends_as_it_would_while_collectives_are_under_way(tmp_path: Path, how: str) -> None:
    last, code = ENDS[how]
    run(tmp_path, TRAINS + last, fails=code)
