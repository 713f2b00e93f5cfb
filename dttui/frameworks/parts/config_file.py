"""The JSON file that carries everything meant for the training script: `DTTUI_CONFIG`."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from dttui.frameworks.base import JobLayout, LinkTuning
from dttui.frameworks.bundle import PlannedFile
from dttui.frameworks.parts.elastic import elastic_of
from dttui.frameworks.parts.environment import CONFIG_FILE
from dttui.spec.models import DataParallel, Logging

SHARES_KEY = "shares"
"""Under which a script finds how many samples of a step each rank has."""


def config_file(layout: JobLayout) -> PlannedFile:
    """Return the file, the same on every node. Every key is always there; what the job does not say is null.

    `training`, `distributed` and `resources` are the blocks of the seed DSL's own config file (its section 6.2), with
    the world size counted in processes, and beside it how long a rank waits for others and how gradients are reduced.
    """
    job = layout.job
    data = job.strategy.data_parallel or DataParallel()
    dataset = layout.dataset
    checkpoint = job.recovery.checkpoint
    training = {"batch_size": data.batch_size, "num_workers": data.num_workers}
    document = {
        "name": job.name,
        "version": job.version,
        "framework": job.framework,
        "backend": layout.backend,
        "world_size": layout.world_size,
        "node_count": len(layout.nodes),
        **training,
        SHARES_KEY: layout.shares,
        "data_sharding": _plain(data.data_sharding),
        "dataset": {"id": dataset.id, "version": dataset.version, "path": dataset.path} if dataset else None,
        "strategy": _plain(job.strategy),
        "model": _plain(job.model),
        "communication": _plain(job.communication),
        "topology": _plain(job.cluster.topology),
        "storage": _plain(job.resources.storage),
        "logging": (job.monitoring.logging or Logging()).model_dump(mode="json"),
        "metrics": list(job.monitoring.metric_names),
        "visualization": _plain(job.monitoring.visualization),
        "checkpoint": {
            "interval_s": checkpoint.interval_s if checkpoint is not None else None,
            "keep": checkpoint.keep if checkpoint is not None else None,
        },
        "settings": job.settings,
        "framework_options": layout.options.model_dump(mode="json"),
        "training": training,
        "distributed": {
            "backend": layout.backend,
            "world_size": layout.world_size,
            "node_count": len(layout.nodes),
            "timeout_s": job.communication.collective_timeout_s,
            "bucket_bytes": layout.bucket_bytes,
            "compression": job.communication.compression,
            "overlap": job.communication.overlap,
            "ranks_per_node": _ranks_per_node(layout),
            "links": _links(layout.tuning),
        },
        "resources": {"gpu_count": sum(node.slots for node in layout.nodes if node.cuda_slots or node.simulated)},
    }
    return PlannedFile(path=CONFIG_FILE, text=json.dumps(document, ensure_ascii=False, indent=2) + "\n")


def _ranks_per_node(layout: JobLayout) -> list[int] | None:
    """Return them in the order of ranks; of a job that goes on with fewer nodes, where no order makes a difference."""
    counts = [len(node.ranks) for node in layout.nodes if node.ranks]
    return counts if elastic_of(layout) is None or len(set(counts)) == 1 else None


def _links(tuning: LinkTuning) -> dict[str, Any] | None:
    if tuning.between is None:
        return None
    inside = tuning.inside._asdict() if tuning.inside is not None else None
    return {"between": tuning.between._asdict(), "inside": inside}


def _plain(section: BaseModel | None) -> dict[str, Any] | None:
    return None if section is None else section.model_dump(mode="json", exclude_none=True)
