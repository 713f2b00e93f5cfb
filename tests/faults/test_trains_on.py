"""Trainings of torch alone that lose a rank and then their master's host, and are started again after each."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.frameworks.launching import example, slots
from tests.integration.gangs import ONE, THREE, TWO
from tests.integration.restarted_jobs import (
    KEPT_EVERY,
    continues_after_a_lost_host,
    trains_on_after_a_lost_rank_and_a_lost_master,
    trains_on_from_parts_on_own_disks,
)
from tests.integration.test_gpt_example import TINY
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents

STEPS = 120
STATE = f"**/step-{STEPS:08}/*.pt"

NO_TORCH = "torch is not installed: pip install .[torch]"
pytestmark = [pytest.mark.torch, pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason=NO_TORCH)]


def test_fsdp_trains_on_from_its_sharded_checkpoint(tmp_path: Path) -> None:
    """Over within 300 s."""
    job = example("pytorch-fsdp")
    job["cluster"] = slots({ONE: 1, TWO: 1})
    job["settings"] |= {"steps": STEPS, "checkpoint_every": KEPT_EVERY}
    losses = trains_on_after_a_lost_rank_and_a_lost_master(
        tmp_path, "pytorch-fsdp", job, Path(sys.executable), STEPS, state=STATE
    )
    assert losses[STEPS] < losses[1] - 1.5


def test_fsdp_trains_on_from_the_parts_that_each_host_has_on_its_own_disk(tmp_path: Path) -> None:
    """Over within 200 s, where no host is lost."""
    job = example("pytorch-fsdp")
    job["cluster"] = slots({ONE: 1, TWO: 1})
    job["settings"] |= {"steps": STEPS, "checkpoint_every": KEPT_EVERY}
    losses, places = trains_on_from_parts_on_own_disks(tmp_path, "pytorch-fsdp", job, Path(sys.executable), STEPS)
    assert [part.name for place in places for part in place.glob("rank-*")] == ["rank-0.pt", "rank-1.pt"]
    assert losses[STEPS] < losses[1] - 1.5


@pytest.mark.parametrize("lost", [ONE, pytest.param(TWO, marks=pytest.mark.thorough)], ids=["its master's", "another"])
def test_fsdp_continues_without_a_host_with_the_losses_of_a_whole_run(lost: str, tmp_path: Path) -> None:
    """Over within 300 s: what three ranks have kept is shared out anew among two."""
    job = example("pytorch-fsdp")
    job["cluster"] = slots({ONE: 1, TWO: 1, THREE: 1})
    job["settings"] |= {"steps": STEPS, "checkpoint_every": KEPT_EVERY}
    job["communication"] = {"collective_timeout": "10s"}
    found, expected = continues_after_a_lost_host(tmp_path, "pytorch-fsdp", job, Path(sys.executable), STEPS, lost)
    assert found == pytest.approx(expected, abs=0.01)  # The same batches, added up in another order.
    assert found[STEPS] < found[1] - 1.5


def test_ddp_trains_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Over within 300 s."""
    job = example("gpt")
    job["cluster"] = slots({ONE: 1, TWO: 1})
    args = ["--steps", str(STEPS), "--checkpoint-every", str(KEPT_EVERY), "--resume", *TINY]
    job["run"]["args"] = args
    losses = trains_on_after_a_lost_rank_and_a_lost_master(
        tmp_path, "gpt", job, Path(sys.executable), STEPS, state=STATE
    )
    assert losses[STEPS] < losses[1]


@pytest.mark.parametrize("lost", [ONE, pytest.param(TWO, marks=pytest.mark.thorough)], ids=["its master's", "another"])
def test_ddp_continues_without_a_host_with_the_losses_of_a_whole_run(lost: str, tmp_path: Path) -> None:
    """Over within 300 s: the batch of three ranks is shared out anew among two."""
    job = example("gpt")
    job["cluster"] = slots({ONE: 1, TWO: 1, THREE: 1})
    args = ["--steps", str(STEPS), "--checkpoint-every", str(KEPT_EVERY), "--resume", *TINY]
    job["run"]["args"] = args
    job["communication"] = {"collective_timeout": "10s"}
    found, expected = continues_after_a_lost_host(tmp_path, "gpt", job, Path(sys.executable), STEPS, lost)
    assert found == pytest.approx(expected, abs=0.01)  # The same batches, added up in another order.
    assert found[STEPS] < found[1]
