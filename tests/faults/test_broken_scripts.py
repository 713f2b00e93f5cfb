"""Scripts that are broken in every way that people break them: what is told of each is right, and nothing is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conversation import processes_with
from tests.faults.broken_scripts import LIGHT, TOGETHER, TORCH, Broken
from tests.integration.headless import dttui_here, result_of, write_job
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents

pytestmark = pytest.mark.timeout(300)
DEADLINE_S = 120.0
ROOM = {"nlp-research-lab": 8, "llm-training-env": 4, "pytorch-dev-env": 2}
"""Hosts of the embedded cluster, and ranks of each."""
MOST = sum(ROOM.values())
LOADED = """
import os, pathlib, time, torch
PATH = f"{os.getcwd()}/{os.environ['RANK']}.pt"
"""
TOGETHER_ON = {"llm-training-env": 1, "pytorch-dev-env": 1}


def told_of(ways: Sequence[Broken], tmp_path: Path, first: str = "") -> list[dict[str, Any]]:
    """Run a job of which each rank fails in a way of its own, all at once; return what is told of each."""
    (tmp_path / "w").mkdir()
    (tmp_path / "here").mkdir()
    # Who is stopped as another one fails would not come to its own end, and so all begin at once.
    wait = f"touch {tmp_path}/here/$RANK; until [ $(ls {tmp_path}/here | wc -l) = {len(ways)} ]; do sleep 0.05; done"
    for rank, way in enumerate(ways):
        waiting = f"os.system({wait!r})\n" if first else ""
        (tmp_path / f"w/{rank}.py").write_text(first + waiting + way.text)
    command = ["sh", "-c", f"trap '' TERM; {'true' if first else wait}; exec {sys.executable} $RANK.py"]
    nodes, left = {}, len(ways)
    for name, room in ROOM.items():
        if left > 0:
            nodes[name] = min(room, left)
            left -= room
    run = {"command": command, "workdir": "w"}
    failed_within(DEADLINE_S, write_job(tmp_path, nodes, framework="command", run=run))
    found = result_of(dttui_here("diagnose", "last", "--output", "json"))
    failures = {
        item["rank"]: item["cause"]
        for item in ({**found["first_failure"], "cause": found["cause"]}, *found["failed_after"])
    }
    assert processes_with(f"DTTUI_JOB_ID={found['job_id']}") == []
    return [failures[rank] for rank in range(len(ways))]


def failed_within(deadline_s: float, job: Path) -> None:
    """Launch a job, which fails in time."""
    began = time.monotonic()
    done = dttui_here("--demo", "--apply", job)
    assert done.returncode == 100, done.stderr
    assert time.monotonic() - began < deadline_s


def assert_right(ways: Sequence[Broken], told: Sequence[dict[str, Any]]) -> None:
    wrong = [
        (way.name, cause["code"], cause["words"])
        for way, cause in zip(ways, told, strict=True)
        if cause["code"] not in way.cause.split() or way.told not in cause["words"]
    ]
    assert wrong == []


@pytest.mark.parametrize("first", range(0, len(LIGHT), MOST))
def test_what_breaks_a_script_is_told_for_what_it_is(first: int, tmp_path: Path) -> None:
    """Of each of them, though others fail at the same moment; over within 120 s."""
    ways = LIGHT[first : first + MOST]
    assert_right(ways, told_of(ways, tmp_path))


@pytest.mark.torch
def test_what_torch_refuses_is_told_for_what_it_is(tmp_path: Path) -> None:
    """By its line and its words, or by what it means; over within 120 s."""
    assert_right(TORCH, told_of(TORCH, tmp_path, LOADED))


@pytest.mark.torch
@pytest.mark.parametrize("way", TOGETHER, ids=lambda way: way.name.replace(" ", "-"))
def test_ranks_that_do_not_go_together_are_told_so(way: Broken, tmp_path: Path) -> None:
    """By gloo's, NCCL's or DDP's own words, or by who waited for whom; over within 120 s."""
    (tmp_path / "w").mkdir()
    (tmp_path / "w/train.py").write_text(way.text)
    run = {"script": "train.py", "workdir": "w"}
    failed_within(DEADLINE_S, write_job(tmp_path, TOGETHER_ON, framework="pytorch-ddp", run=run))
    found = result_of(dttui_here("diagnose", "last", "--output", "json"))
    assert found["cause"]["code"] in way.cause.split(), found["cause"]
    assert way.told in found["cause"]["words"] + " ".join(found["cause"]["advice"])
