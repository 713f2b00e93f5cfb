"""Plans of jobs in containers, with and without what is known at their start."""

from __future__ import annotations

from typing import Any

from dttui.inventory import Inventory
from dttui.inventory.models import GpuResources, Resources
from dttui.planning.models import Bindings, NodeBinding, Plan, PlannedProcess
from dttui.planning.planner import bind, plan
from dttui.planning.resumption import Resume
from dttui.spec.container import Container
from dttui.spec.models import Node, Run
from tests.unit.seed_cluster import SEED, environment, make_job

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
SIMULATED = Inventory(environments=(environment("a", resources=Resources(gpu=GpuResources(count=2, simulated=True))),))


def container(engine: str = "docker", **fields: Any) -> Container:
    return Container.model_validate({"engine": engine, "image": "torch:2", **fields})


def planned(*nodes: str | Node, inventory: Inventory = SEED, run: dict[str, Any] | None = None, **fields: Any) -> Plan:
    options = {"container": container(), "script": "train.py", **(run or {})}
    return plan(make_job(*nodes, run=Run(**options), **fields), inventory)


def process_of(made: Plan, node: int = 0) -> PlannedProcess:
    assert made.errors == ()
    return made.nodes[node].processes[0]


def bound(made: Plan, resume: Resume | None = None, **fields: Any) -> Plan:
    """Bind its second attempt to GPUs 2, 3, … of each host."""
    known = {
        "directory": "/var/job",
        "payload": "/var/job/payload",
        "python": "/usr/bin/python3",
        "interface": "eth0",
        "user_ids": "1000:100",
        **fields,
    }
    nodes = {node.name: NodeBinding(gpu_ids=tuple(range(2, 2 + node.cuda_slots)), **known) for node in made.nodes}
    return bind(made, Bindings(job_id="j", attempt=1, master_port=29500, nodes=nodes, resume=resume)).plan
