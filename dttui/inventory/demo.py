"""The embedded cluster: three environments on this machine, in two zones, with simulated GPUs and real jobs."""

from __future__ import annotations

from pathlib import Path

from dttui.inventory.models import (
    CpuResources,
    Dataset,
    DatasetVersion,
    Environment,
    GpuResources,
    Inventory,
    Resources,
)

CORPUS = Path("gpt", "corpus.txt")
"""The text that ships with the examples, relative to their directory."""

_GB = 1000**3


def demo_inventory(root: Path, examples: Path, python: str) -> Inventory:
    """Return the inventory of the embedded cluster.

    Args:
        root: parent of the state directories of its agents.
        examples: directory of the examples; the dataset `tiny-corpus` is a file of it.
        python: interpreter of the jobs.
    """

    def environment(name: str, kind: str, zone: str, image: str, gpus: int, cores: int, memory_gb: int) -> Environment:
        return Environment(
            name=name,
            host="localhost",
            kind=kind,
            zone=zone,
            image=image,
            address="127.0.0.1",
            python=python,
            resources=Resources(
                gpu=GpuResources(count=gpus, type="A100", memory=80 * _GB, simulated=True),
                cpu=CpuResources(cores=cores, memory=memory_gb * _GB),
            ),
            local=True,
            agent_root=str(root / name),
        )

    corpus = Dataset(id="tiny-corpus", versions=(DatasetVersion(id="v1", path=str(examples / CORPUS)),))
    return Inventory(
        environments=(
            environment("pytorch-dev-env", "jupyter", "beijing-a", "pytorch", 2, 16, 128),
            environment("llm-training-env", "custom", "beijing-a", "transformers", 4, 32, 256),
            environment("nlp-research-lab", "custom", "shenzhen-c", "transformers", 8, 64, 512),
        ),
        datasets=(corpus,),
    )
