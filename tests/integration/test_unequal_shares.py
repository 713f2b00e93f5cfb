"""Samples shared out by speed: one rank, one that is four times as slow, and two, in a real gloo training."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dttui.jobs import JobDirectory
from tests.frameworks.launching import Ended, apply, example, slots
from tests.integration.gangs import ONE, THREE, TWO
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents

pytestmark = pytest.mark.torch
SLOW = Path(__file__).with_name("slow_rank.py")
SECONDS = "0.02,0.08,0.02,0.02"
STEPS, BATCH = 12, 26
QUIET = 0.25
"""Where among the steps there is one that no other process has held up, though many were."""


def trained(directory: Path, shares: Any, recovery: dict[str, Any] | None = None, **env: str) -> Ended:
    job = example("gpt")
    job["cluster"] = slots({ONE: 1, TWO: 1, THREE: 2})
    job["strategy"]["data_parallel"] |= {"batch_size": BATCH, **({"shares": shares} if shares is not None else {})}
    tiny = ["--layers", "1", "--width", "32", "--heads", "2", "--block-size", "32", "--log-every", "1"]
    job["run"] |= {"script": "slow_rank.py", "args": ["--steps", str(STEPS), *tiny]}
    if recovery is not None:
        job["recovery"] = recovery
    ended = apply(directory, "gpt", job, Path(sys.executable), env={"SECONDS_A_SAMPLE": SECONDS, **env}, more=[SLOW])
    assert ended.result["world_size"] == 4
    return ended


def step_s(ended: Ended, attempt: int = 0, part: float = 0.5) -> float:
    """Return the seconds of a step in the middle of all but the first, put in order, or elsewhere among them."""
    seconds: list[float] = [
        32 * BATCH / line["tokens_per_s"]
        for line in ended.metrics
        if line["rank"] == 0 and line["step"] > 1 and line["source"][0] == attempt
    ]
    assert len(seconds) >= 3
    return sorted(seconds)[int(part * len(seconds))]


def shares_of(ended: Ended, attempt: int) -> list[int] | None:
    """Return what the script was handed."""
    plan = json.loads(JobDirectory(ended.directory).bound_plan(attempt).read_text())
    text = json.dumps(plan)
    at = text.index('\\"shares\\": ') + len('\\"shares\\": ')
    found: list[int] | None = json.JSONDecoder().raw_decode(text[at:].replace("\\n", " "))[0]
    return found


def test_shares_by_speed_save_the_time_in_which_others_wait_and_train_the_same(tmp_path: Path) -> None:
    equal = trained(tmp_path / "equal", None)
    shared = trained(tmp_path / "shared", {TWO: 0.25})
    print(f"a step: {step_s(equal):.3f} s with equal shares, {step_s(shared):.3f} s by speed")
    # 7 of the slow rank's samples take 0.56 s; 8 of the others' take 0.16 s, and so do its own 2.
    assert step_s(equal) > 0.56
    assert step_s(shared, part=QUIET) < 0.6 * step_s(equal)
    assert (shares_of(equal, 0), shares_of(shared, 0)) == (None, [8, 2, 8, 8])
    assert equal.losses().keys() == shared.losses().keys() == set(range(1, STEPS + 1))
    assert shared.losses() == pytest.approx(equal.losses(), abs=2e-4)


def test_what_an_attempt_has_measured_shares_out_the_samples_of_the_next(tmp_path: Path) -> None:
    recovery = {"on_node_failure": "restart", "retry_on": ["signal"]}
    ended = trained(tmp_path, "by_speed", recovery, DIES_AFTER="6")
    first, second = step_s(ended), step_s(ended, 1)
    print(f"a step: {first:.3f} s before anything was measured, {second:.3f} s after")
    assert shares_of(ended, 0) is None
    fast, slow, *others = shares_of(ended, 1) or []
    assert (fast + slow + sum(others), slow < min(fast, *others) / 2) == (BATCH, True)
    assert step_s(ended, 1, QUIET) < 0.6 * first
