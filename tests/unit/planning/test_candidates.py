"""Which environments may stand for a job's nodes, and what a plan says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dttui.inventory.models import GpuResources, Inventory, Resources
from dttui.launch.local_plan import make_local_plan
from dttui.planning.planner import plan
from dttui.planning.submission import Submission
from dttui.spec.models import Cluster, Job, Node, Recovery, Run
from tests.unit.seed_cluster import environment, make_job

SIMULATED = Resources(gpu=GpuResources(count=4, simulated=True))
INVENTORY = Inventory(
    environments=(
        environment("a", gpus=4, address="10.0.0.1"),
        environment("narrow", gpus=2, address="10.0.0.2"),
        environment("pretended", address="10.0.0.3", resources=SIMULATED),
        environment("as-wide", gpus=4, address="10.0.0.4"),
        environment("unknown", address="10.0.0.5"),
    )
)


def job(candidates: Any, checkpoint: dict[str, Any] | None = None) -> Job:
    recovery = Recovery.model_validate({"checkpoint": checkpoint}) if checkpoint is not None else Recovery()
    cluster = Cluster(nodes=(Node(id="a"),), candidates=candidates)
    return make_job(cluster=cluster, recovery=recovery, run=Run(script="/srv/train.py"))


def codes(candidates: Any, checkpoint: dict[str, Any] | None = None) -> set[str]:
    return {item.code for item in plan(job(candidates, checkpoint), INVENTORY).findings if "candidate" in item.code}


def test_any_takes_only_what_is_of_the_nodes_kind_and_as_wide_as_far_as_is_known() -> None:
    assert plan(job("any"), INVENTORY).candidates == ("as-wide", "unknown")
    assert codes("any") == set()


def test_one_of_another_kind_is_told_and_taken_where_a_job_names_it() -> None:
    made = plan(job(("pretended", "as-wide")), INVENTORY)
    assert made.candidates == ("pretended", "as-wide")
    (told,) = [item for item in made.findings if item.code == "unlike-candidate"]
    assert (told.path, told.message.split()[0]) == (("cluster", "candidates", 0), "pretended")


@pytest.mark.parametrize(
    ("checkpoint", "is_told"),
    [
        ({"dir": "/ckpt"}, True),
        ({"dir": "/ckpt", "shared": True}, False),
        ({"dir": "/ckpt", "copies": 1}, False),
        (None, False),
    ],
)
def test_checkpoints_that_other_hosts_do_not_see_are_told(checkpoint: dict[str, Any] | None, is_told: bool) -> None:
    assert ("candidates-without-checkpoint" in codes("any", checkpoint)) is is_told
    assert "candidates-without-checkpoint" not in codes((), checkpoint)


def test_a_job_that_does_not_wait_is_told_that_no_other_host_takes_part(tmp_path: Path) -> None:
    def is_told(candidates: Any, *, is_queued: bool) -> bool:
        found = make_local_plan(Submission(job(candidates), INVENTORY, tmp_path, is_queued=is_queued)).findings
        return "candidates-unused" in {item.code for item in found}

    assert is_told("any", is_queued=False)
    assert not is_told("any", is_queued=True)
    assert not is_told((), is_queued=False)
