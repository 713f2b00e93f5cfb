"""Whatever job validates has a plan: findings that are errors, or ranks, master and files that agree."""

from __future__ import annotations

import json

import yaml
from hypothesis import given

from dttui.inventory.models import Environment, GpuResources, Inventory, Resources
from dttui.planning.planner import plan
from dttui.spec.models import Job
from tests.job_strategies import jobs


def inventory_of(job: Job) -> Inventory:
    """Environments for all nodes of a job, with one to three GPUs."""
    names = dict.fromkeys(node.id for node in job.cluster.nodes)
    return Inventory(
        environments=tuple(
            Environment(
                name=name,
                host=f"host{index}",
                resources=Resources(gpu=GpuResources(count=1 + index % 3, type="A100", memory=80 * 10**9)),
            )
            for index, name in enumerate(names)
        )
    )


@given(jobs())
def test_any_job_that_validates_has_a_consistent_plan_or_errors(job: Job) -> None:
    made = plan(job, inventory_of(job))
    ranks = len(made.nodes) if job.framework == "tensorflow" else sum(node.slots for node in made.nodes)
    assert made.world_size == ranks
    assert [rank for node in made.nodes for rank in node.ranks] == list(range(made.world_size))
    if made.errors:
        return
    assert made.nodes
    master = job.cluster.master or job.cluster.nodes[0]
    assert made.nodes[0].name == master.id
    assert made.nodes[0].node_rank == 0
    for node in made.nodes:
        assert node.processes
        for file in node.files:
            if file.path.endswith(".json"):
                json.loads(file.text)
            elif file.path.endswith((".yaml", ".yml")):
                yaml.safe_load(file.text)
