"""The seed documents' own example, 2 + 4 + 8 A100 in three zones, and short ways to make jobs and facts."""

from __future__ import annotations

from typing import Any

from dtagent.protocol.facts import GpuFacts, HostFacts

from dttui.inventory.models import (
    CpuResources,
    Dataset,
    DatasetVersion,
    Environment,
    GpuResources,
    Inventory,
    Resources,
)
from dttui.spec.models import Cluster, Job, Node, Run

GB = 1000**3
MIB = 1024**2


def environment(name: str, gpus: int | None = None, **fields: Any) -> Environment:
    """An environment with so many declared A100s."""
    gpu = GpuResources(count=gpus, type="A100", memory=80 * GB) if gpus is not None else None
    return Environment(**{"name": name, "host": f"{name}.example.org", "resources": Resources(gpu=gpu), **fields})


def seed_environment(
    name: str, key: str, zone: str, gpus: int, cores: int, memory_gb: int, address: str
) -> Environment:
    resources = Resources(
        gpu=GpuResources(count=gpus, type="A100", memory=80 * GB),
        cpu=CpuResources(cores=cores, memory=memory_gb * GB),
    )
    return environment(name, id=key, zone=zone, resources=resources, address=address)


SEED = Inventory(
    environments=(
        seed_environment("pytorch-dev-env", "env-001", "beijing-a", 2, 16, 128, "192.168.1.10"),
        seed_environment("llm-training-env", "env-003", "shenzhen-c", 4, 32, 256, "192.168.2.20"),
        seed_environment("nlp-research-lab", "env-005", "shanghai-a", 8, 64, 512, "192.168.3.30"),
    ),
    datasets=(
        Dataset(
            id="imagenet",
            versions=(DatasetVersion(id="v1", path="/data/v1"), DatasetVersion(id="v2", path="/data/v2")),
        ),
    ),
)


def make_job(*nodes: str | Node, **fields: Any) -> Job:
    """A job that lacks nothing, with the nodes and fields given."""
    listed = tuple(node if isinstance(node, Node) else Node(id=node) for node in nodes)
    whole = {
        "name": "gpt-small",
        "framework": "pytorch-ddp",
        "run": Run(script="train.py", args=("--steps", "3")),
        "dataset": "none",
        "cluster": Cluster(nodes=listed),
    }
    return Job(**{**whole, **fields})


def host_facts(gpus: int = 0, gpu: str = "NVIDIA A100-SXM4-80GB", **fields: Any) -> HostFacts:
    """Facts of a host with so many GPUs."""
    whole = {
        "hostname": "gpu1",
        "user": "li",
        "os": "Debian 12",
        "kernel": "6.1",
        "architecture": "x86_64",
        "boot_id": "0",
        "booted_at": 0.0,
        "cpu_model": "EPYC",
        "cpu_count": 96,
        "memory_total_mib": 1_000_000,
        "gpus": [GpuFacts(index, gpu, None, 81_920) for index in range(gpus)],
    }
    return HostFacts(**{**whole, **fields})
