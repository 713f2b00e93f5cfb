"""Horovod: one process a slot, which meet by Gloo at a rendezvous that runs beside the ranks of the master."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from dttui.frameworks.base import JobLayout, NodeLayout, Rank
from dttui.frameworks.bundle import Hole, PlannedFile, PlannedProcess
from dttui.frameworks.config_file import config_file
from dttui.frameworks.environment import process_environment, rank_environment
from dttui.frameworks.torchrun import RANK, check_cold_run, program
from dttui.i18n import _
from dttui.spec.findings import Finding, error
from dttui.spec.models import Job
from dttui.spec.section import Section
from dttui.spec.text import Text

HOSTS_FILE = "horovod_hosts.txt"
"""All nodes and their slots, as `horovodrun -H` takes them, for a person who starts it by hand."""
SERVICE = "service-rendezvous"
_RENDEZVOUS = f"{Hole.PAYLOAD}/horovod_rendezvous.py"


class HorovodOptions(Section):
    """What can be told about Horovod; it reads these from its environment (horovod/common/operations.cc)."""

    fusion_threshold: Annotated[int, Field(ge=0, le=1 << 40)] | None = None
    """Bytes of gradients that are reduced together, HOROVOD_FUSION_THRESHOLD; 0 for each by itself.

    `communication.allreduce.buffer_size` says the same; 128 MiB where neither does.
    """
    cycle_time_ms: Annotated[float, Field(gt=0, le=60_000)] | None = None
    """How long gradients are gathered before some are reduced, HOROVOD_CYCLE_TIME; 1 by default."""
    timeline: Text | None = None
    """A file for rank 0 to write what it does to, for chrome://tracing; relative to the working directory."""
    timeline_mark_cycles: bool = False
    """Whether the cycles are marked in it."""
    autotune: bool = False
    """Whether Horovod finds fusion threshold and cycle time itself, in the first minutes."""
    autotune_log: Text | None = None
    """A CSV file for rank 0 to write to what it tried."""


class Horovod:
    """Starts every rank by the agent of its host: neither horovodrun nor ssh from host to host."""

    name = "horovod"
    label = "Horovod"
    options: type[Section] = HorovodOptions
    requires: Sequence[str] = ("horovod",)
    rank = Rank.SLOT
    needs_ports = False
    verdicts: Sequence[str] = ()
    available = True

    @property
    def summary(self) -> str:
        """Its kind of parallelism."""
        return _("Uber, all-reduce")

    @property
    def description(self) -> str:
        """What it is for."""
        return _("1 to 10 B parameters: alike under TensorFlow, PyTorch and MXNet.")

    @property
    def features(self) -> Sequence[str]:
        """What it offers."""
        return (
            _("PyTorch, TensorFlow, MXNet"),
            _("ring all-reduce"),
            _("easy to add to a script"),
            _("efficient communication"),
        )

    def check(self, job: Job) -> list[Finding]:
        """Return what in `run`, or of two keys that say the same, does not go with Horovod."""
        findings = check_cold_run(job, self.label)
        threshold = job.framework_options.get("fusion_threshold")
        bucket = job.communication.all_reduce
        if threshold is not None and bucket is not None and bucket.buffer_size not in (None, threshold):
            where = "framework_options.fusion_threshold"
            message = _("this is not what {other} says; give it once").format(
                other="communication.allreduce.buffer_size"
            )
            findings.append(error("framework-option", where, message, path=("framework_options", "fusion_threshold")))
        for name in sorted(_PLACE & job.run.env.keys()) if job.run is not None else ():
            message = _("{name} is set by dttui, for each rank its own").format(name=name)
            findings.append(
                error("run-mismatch", f"run.env.{name}", message, _("Leave it out."), path=("run", "env", name))
            )
        return findings

    def check_layout(self, layout: JobLayout) -> list[Finding]:
        """Return an error for a master that its client cannot reach; any number of ranks on any nodes will do."""
        if ":" not in layout.master_address:
            return []
        message = _("Horovod's ranks meet over IPv4, and the master's address is {address}")
        hint = _("Give the master an IPv4 address in the inventory: address.")
        return [error("horovod-ipv6", layout.nodes[0].name, message.format(address=layout.master_address), hint)]

    def node_files(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedFile, ...]:
        """Return the script's settings, and the hosts."""
        return layout.shared_file(config_file), layout.shared_file(_hosts_file)

    def processes(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedProcess, ...]:
        """Return a process a slot, and on the master the rendezvous, which the ranks wait for."""
        ranks = tuple(_rank(layout, node, local_rank, rank) for local_rank, rank in enumerate(node.ranks))
        return (*ranks, _rendezvous(layout, node)) if node.node_rank == 0 else ranks


def _rank(layout: JobLayout, node: NodeLayout, local_rank: int, rank: int) -> PlannedProcess:
    own = {
        **rank_environment(layout, node, local_rank, rank),
        **_place(layout, node, local_rank, rank),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": layout.master_address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(Hole.MASTER_PORT),
        "HOROVOD_GLOO_IFACE": node.interface or str(Hole.INTERFACE),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(math.ceil(layout.job.communication.rendezvous_timeout_s)),
        **_settings(layout),
    }
    return PlannedProcess(
        name=str(rank),
        argv=(*layout.run.prefix, str(Hole.PYTHON), _RENDEZVOUS, "await", str(Hole.PYTHON), RANK, *program(layout.run)),
        env=process_environment(layout, node, own),
        cwd=layout.cwd,
        rank=rank,
    )


def _rendezvous(layout: JobLayout, node: NodeLayout) -> PlannedProcess:
    argv = (
        str(Hole.PYTHON),
        _RENDEZVOUS,
        "serve",
        layout.master_address,
        str(Hole.MASTER_PORT),
        str(layout.world_size),
    )
    env = process_environment(layout, node)
    return PlannedProcess(name=SERVICE, argv=argv, env=env, cwd=layout.cwd, is_service=True)


_PLACE = frozenset(
    {
        "HOROVOD_HOSTNAME",
        "HOROVOD_RANK",
        "HOROVOD_SIZE",
        "HOROVOD_LOCAL_RANK",
        "HOROVOD_LOCAL_SIZE",
        "HOROVOD_CROSS_RANK",
        "HOROVOD_CROSS_SIZE",
    }
)


def _place(layout: JobLayout, node: NodeLayout, local_rank: int, rank: int) -> dict[str, str]:
    """Return where a rank stands among all, those of its node, and those of its local rank on all nodes."""
    having = _nodes_having(tuple(item.slots for item in layout.nodes))[local_rank]
    return {
        # Part of a path that its client asks for, and apart where nodes share a machine: not the host's own name.
        "HOROVOD_HOSTNAME": f"node{node.node_rank}",
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(layout.world_size),
        "HOROVOD_LOCAL_RANK": str(local_rank),
        "HOROVOD_LOCAL_SIZE": str(node.slots),
        "HOROVOD_CROSS_RANK": str(bisect_left(having, node.node_rank)),
        "HOROVOD_CROSS_SIZE": str(len(having)),
    }


@lru_cache(maxsize=16)
def _nodes_having(slots: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return for each local rank the nodes that have it, by their node ranks."""
    return tuple(
        tuple(node_rank for node_rank, count in enumerate(slots) if count > local_rank)
        for local_rank in range(max(slots))
    )


def _settings(layout: JobLayout) -> dict[str, str]:
    options = layout.options if isinstance(layout.options, HorovodOptions) else HorovodOptions()
    bucket = layout.job.communication.all_reduce
    threshold = options.fusion_threshold if options.fusion_threshold is not None else bucket and bucket.buffer_size
    told = {
        "HOROVOD_FUSION_THRESHOLD": threshold,
        "HOROVOD_CYCLE_TIME": options.cycle_time_ms,
        "HOROVOD_TIMELINE": options.timeline,
        "HOROVOD_TIMELINE_MARK_CYCLES": 1 if options.timeline_mark_cycles else None,
        "HOROVOD_AUTOTUNE": 1 if options.autotune else None,
        "HOROVOD_AUTOTUNE_LOG": options.autotune_log,
    }
    return {name: f"{value}" for name, value in told.items() if value is not None}


def _hosts_file(layout: JobLayout) -> PlannedFile:
    """Return the hosts: an address once, also where nodes share a machine, as horovodrun wants it."""
    slots: dict[str, int] = {}
    for node in layout.nodes:
        slots[node.address] = slots.get(node.address, 0) + node.slots
    return PlannedFile(path=HOSTS_FILE, text=",".join(f"{host}:{count}" for host, count in slots.items()) + "\n")
