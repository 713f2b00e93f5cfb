"""One torchrun a node: on static rendezvous, so that the chosen master is rank 0; elastic where a job asks for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dttui.frameworks.base import JobLayout, NodeLayout
from dttui.frameworks.bundle import Hole, PlannedProcess
from dttui.frameworks.parts.elastic import Elastic, elastic_of
from dttui.frameworks.parts.environment import process_environment
from dttui.frameworks.parts.nccl import torch_environment
from dttui.frameworks.parts.run_checks import check_program
from dttui.frameworks.parts.warm_checks import check_forked
from dttui.spec.findings import Finding
from dttui.spec.models import Job, Run

SEALED = "dttui"
"""Rendezvous of the payload's own: c10d that takes nothing from whoever lacks the attempt's key."""
TORCHRUN = f"{Hole.PAYLOAD}/torchrun.py"
RANK = f"{Hole.PAYLOAD}/rank.py"
"""Runs a script or module as one rank, with logs and an end of its own."""


def check_run(job: Job, label: str) -> list[Finding]:
    """Return what in `run` does not go with torchrun, and what is to be said about warm starts."""
    return check_program(job, label) or check_forked(job.run)


def program(run: Run) -> tuple[str, ...]:
    """Return the script or module with its arguments, as an interpreter takes them."""
    target = (run.script,) if run.script is not None else ("-m", run.module or "")
    return (*target, *run.args)


def torchrun(
    layout: JobLayout, node: NodeLayout, *, arguments: Sequence[str] = (), own: Mapping[str, str] | None = None
) -> PlannedProcess:
    """Return the one torchrun of a node.

    Args:
        layout: the job.
        node: the node.
        arguments: what the framework adds after the script's own.
        own: variables of the framework.
    """
    run, elastic = layout.run, elastic_of(layout)
    argv = (
        *run.prefix,
        str(Hole.PYTHON),
        TORCHRUN,
        *(_static(layout, node) if elastic is None else _dynamic(layout, node, elastic)),
        "--",
        RANK,
        *program(run),
        *arguments,
    )
    own = {**torch_environment(layout, node), **(own or {})}
    if elastic is not None:
        # Ours opens the ranks' store, anew in each round; torch's would not always.
        own["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    environment = process_environment(layout, node, own)
    return PlannedProcess(name="launcher", argv=argv, env=environment, cwd=layout.cwd, warm_start=run.warm_start)


def _static(layout: JobLayout, node: NodeLayout) -> tuple[str, ...]:
    return (
        f"--nnodes={len(layout.nodes)}",
        f"--nproc-per-node={node.slots}",
        f"--node-rank={node.node_rank}",
        f"--master-addr={layout.master_address}",
        f"--master-port={Hole.MASTER_PORT}",
        "--max-restarts=0",
        f"--rdzv-conf=timeout={_limit_s(layout)}",
    )


def _dynamic(layout: JobLayout, node: NodeLayout, elastic: Elastic) -> tuple[str, ...]:
    address = layout.master_address
    settings = {
        # Said, since torchrun's guess by host names fails where one has several.
        "is_host": int(node.node_rank == 0),
        "join_timeout": _limit_s(layout),
        "read_timeout": _limit_s(layout),
        "last_call_timeout": elastic.wait_s,
    }
    return (
        f"--nnodes={elastic.min_nodes}:{len(layout.nodes)}",
        f"--nproc-per-node={node.slots}",
        f"--rdzv-backend={SEALED}",
        f"--rdzv-endpoint={f'[{address}]' if ':' in address else address}:{Hole.MASTER_PORT}",
        f"--rdzv-id={Hole.JOB_ID}-{Hole.ATTEMPT}",
        f"--rdzv-conf={','.join(f'{name}={value}' for name, value in settings.items())}",
        f"--local-addr={node.address}",
        f"--max-restarts={elastic.max_restarts}",
    )


def _limit_s(layout: JobLayout) -> int:
    """Return how long torchrun waits at a rendezvous: longer than dttui, which can say who is missing."""
    return math.ceil(2 * layout.job.communication.rendezvous_timeout_s)
