"""Horovod: one process a slot, which meet by Gloo at a rendezvous that runs beside the ranks of the master."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from dttui.frameworks.base import Framework, JobLayout, NodeLayout, Rank
from dttui.frameworks.bundle import Hole, PlannedFile, PlannedProcess
from dttui.frameworks.option_costs import OVERLAP, Uncounted
from dttui.frameworks.parts.collective_timeout import timeout_note
from dttui.frameworks.parts.config_file import config_file
from dttui.frameworks.parts.environment import process_environment, rank_environment
from dttui.frameworks.parts.prefix import leads_elsewhere
from dttui.frameworks.parts.run_checks import check_cold_run, check_places
from dttui.frameworks.parts.torchrun import RANK, program
from dttui.frameworks.traits import TOLD, WHOLE_MODEL, GroupForming, ProcessGroup, ScriptImports, SettingReach, Spread
from dttui.i18n import N_, _
from dttui.spec.findings import Finding, error, info, warning
from dttui.spec.models import Job
from dttui.spec.section import Section
from dttui.spec.text import Text

HOSTS_FILE = "horovod_hosts.txt"
"""All nodes and their slots, as `horovodrun -H` takes them, for a person who starts it by hand."""
SERVICE = "service-rendezvous"
_RENDEZVOUS = f"{Hole.PAYLOAD}/horovod_rendezvous.py"
_MPI_LAUNCH = f"{Hole.PAYLOAD}/mpi_launch.py"
_REQUESTS_A_PAIR = 2.5
"""How often the rendezvous is asked, for each rank and each other one; measured."""
_REQUEST_S = 0.25e-3
"""What an answer takes it, one after the other; measured."""
_USUAL_CYCLE_MS = 1.0
"""Horovod's own (horovod/common/operations.cc)."""
_USUAL_LOOK_S = 60
"""How often Horovod looks for ranks that others wait for, and warns of them (horovod/common/stall_inspector.h)."""
_LOOKS = 10
"""How many of them there are at least in the time that a rank may be waited for."""
_LONG_S = 60.0
"""From when on it is told how long it takes."""


_TRACED = Uncounted(N_("what it takes to write that down is not timed"))


class HorovodOptions(Section):
    """What can be told about Horovod; it reads these from its environment (horovod/common/operations.cc)."""

    fusion_threshold: Annotated[int, Field(ge=0, le=1 << 40)] | None = None
    """Bytes of gradients that are reduced together, HOROVOD_FUSION_THRESHOLD; 0 for each by itself.

    `communication.allreduce.buffer_size` says the same; without either as large as the measured link asks for, else
    128 MiB.
    """
    cycle_time_ms: Annotated[float, Field(gt=0, le=60_000)] | None = None
    """How long gradients are gathered before some are reduced, HOROVOD_CYCLE_TIME; 1 by default.

    Where the link was measured, at least what it takes all ranks to agree over it.
    """
    timeline: Text | None = None
    """A file for rank 0 to write what it does to, for chrome://tracing; relative to the working directory."""
    timeline_mark_cycles: bool = False
    """Whether the cycles are marked in it."""
    autotune: bool = False
    """Whether Horovod finds fusion threshold and cycle time itself, in the first minutes."""
    autotune_log: Text | None = None
    """A CSV file for rank 0 to write to what it tried."""


class Horovod(Framework):
    """Starts every rank by the agent of its host: neither horovodrun nor ssh from host to host."""

    name = "horovod"
    label = "Horovod"
    options: type[Section] = HorovodOptions
    requires: Sequence[str] = ("horovod",)
    rank = Rank.SLOT
    needs_ports = False
    verdicts: Sequence[str] = ("horovod",)
    process_group = ProcessGroup(
        GroupForming.EXPECTED,
        call="hvd.init",
        # Each question of a rank is a connection of its own: of more ranks many are between two of them, or waiting.
        seen_at_once=64,
        why_none=N_("The script does not call hvd.init()."),
        why_several=N_("Something has changed the HOROVOD_ variables by which ranks find each other."),
    )
    has_mpi = True
    timeout_call = None
    may_share_unequally = True
    when_split = WHOLE_MODEL
    spreads: Mapping[Spread, int] = {Spread.REPLICAS: 3}
    option_costs: Mapping[str, str | Uncounted] = {
        "fusion_threshold": Uncounted(OVERLAP),
        "cycle_time_ms": Uncounted(OVERLAP),
        "timeline": _TRACED,
        "timeline_mark_cycles": _TRACED,
        "autotune": Uncounted(OVERLAP),
        "autotune_log": _TRACED,
    }
    collective_reach: Mapping[str, SettingReach] = {
        "buffer_size": TOLD,
        "compression.fp16": SettingReach("hvd.DistributedOptimizer(compression=hvd.Compression.fp16)"),
        "compression": SettingReach(reason=N_("Horovod compresses gradients to fp16 alone")),
        "overlap": SettingReach(reason=N_("Horovod reduces while the backward pass goes on by itself")),
        "overlap.false": SettingReach("hvd.DistributedOptimizer(groups=1)"),
    }
    available = True

    @property
    def script_imports(self) -> ScriptImports:
        """What a script written for it imports."""
        return ScriptImports(
            ("horovod", "lightning", "pytorch_lightning"),
            _("every process trains by itself"),
        )

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
        return findings + check_places(job, _PLACE)

    def check_layout(self, layout: JobLayout) -> list[Finding]:
        """Return an error for a master that its client cannot reach, and whether so many ranks take long to meet."""
        if layout.job.communication.protocol == "MPI":
            return []  # mpirun has them meet.
        findings = _check_meeting(layout)
        if layout.job.communication.collective_timeout is not None:
            message = _(
                "Horovod is not told it over Gloo, where it waits without end for a rank that calls no collective, and "
                "for one that it cannot reach as long as communication.rendezvous_timeout, {seconds:g} s"
            )
            hint = _("Write recovery.hang_s and hang_first_s, which notice a job in which nothing goes on.")
            findings.append(timeout_note(message.format(seconds=layout.job.communication.rendezvous_timeout_s), hint))
        if ":" in layout.master_address:
            message = _("Horovod's ranks meet over IPv4, and the master's address is {address}")
            message = message.format(address=layout.master_address)
            hint = _("Give the master an IPv4 address in the inventory: address.")
            findings.append(error("horovod-ipv6", layout.nodes[0].name, message, hint))
        return findings

    def node_files(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedFile, ...]:
        """Return the script's settings, and the hosts."""
        return layout.shared_file(config_file), layout.shared_file(_hosts_file)

    def processes(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedProcess, ...]:
        """Return a process a slot, and on the master the rendezvous, which the ranks wait for; over MPI one mpirun."""
        if layout.job.communication.protocol == "MPI":
            return (_mpirun(layout, node),)
        ranks = tuple(_rank(layout, node, local_rank, rank) for local_rank, rank in enumerate(node.ranks))
        return (*ranks, _rendezvous(layout, node)) if node.node_rank == 0 else ranks


def _check_meeting(layout: JobLayout) -> list[Finding]:
    """Say where the rendezvous, which each rank asks about each other one, takes long to answer all of them."""
    requests = _REQUESTS_A_PAIR * layout.world_size**2
    seconds, limit_s = requests * _REQUEST_S, layout.job.communication.rendezvous_timeout_s
    if seconds <= min(_LONG_S, limit_s):
        return []
    message = _("{ranks} ranks ask Horovod's rendezvous about {requests} times for each other: about {seconds} s")
    message = message.format(ranks=layout.world_size, requests=f"{requests:,.0f}", seconds=round(seconds))
    if seconds <= limit_s:
        return [info("horovod-meeting", "framework", message)]
    hint = _("Raise communication.rendezvous_timeout, which is {limit:g} s, or choose pytorch-ddp.")
    return [warning("horovod-meeting", "framework", message, hint.format(limit=limit_s))]


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


def _mpirun(layout: JobLayout, node: NodeLayout) -> PlannedProcess:
    own = {
        "GROUP_RANK": str(node.node_rank),
        "PYTHONFAULTHANDLER": "1",
        "HOROVOD_CONTROLLER": "mpi",
        "HOROVOD_CPU_OPERATIONS": "mpi",
        **_collective_limits(layout.job.communication.collective_timeout_s),
        **_settings(layout),
    }
    return PlannedProcess(
        name="launcher",
        argv=(*layout.run.prefix, str(Hole.PYTHON), _MPI_LAUNCH, str(node.slots), RANK, *program(layout.run)),
        env=process_environment(layout, node, own),
        cwd=layout.cwd,
    )


def _rendezvous(layout: JobLayout, node: NodeLayout) -> PlannedProcess:
    argv = (
        *(layout.run.prefix if leads_elsewhere(layout.run.prefix) else ()),
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
        "HOROVOD_GLOO_RENDEZVOUS_ADDR",
        "HOROVOD_GLOO_RENDEZVOUS_PORT",
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
    options = layout.options_as(HorovodOptions)
    threshold, cycle_ms = options.fusion_threshold, options.cycle_time_ms
    asked, tunes = layout.job.communication.all_reduce, options.autotune or "HOROVOD_AUTOTUNE" in layout.run.env
    if threshold is None:
        by_link = None if tunes else layout.tuning.bucket_bytes
        threshold = (asked.buffer_size if asked is not None else None) or by_link
    agreement_ms = 1e3 * layout.tuning.agreement_s
    if cycle_ms is None and not tunes and agreement_ms > _USUAL_CYCLE_MS:
        cycle_ms = round(agreement_ms, 1)  # A shorter one would end before all ranks agree what is ready.
    told = {
        "HOROVOD_FUSION_THRESHOLD": threshold,
        "HOROVOD_CYCLE_TIME": cycle_ms,
        "HOROVOD_TIMELINE": options.timeline,
        "HOROVOD_TIMELINE_MARK_CYCLES": 1 if options.timeline_mark_cycles else None,
        "HOROVOD_AUTOTUNE": 1 if options.autotune else None,
        "HOROVOD_AUTOTUNE_LOG": options.autotune_log,
    }
    return {name: f"{value}" for name, value in told.items() if value is not None}


def _collective_limits(limit_s: float | None) -> dict[str, str]:
    """Return what has Horovod end where a rank calls no collective for so long.

    Only over MPI: the GlooController of 0.28.1 leaves its list of ranks empty (gloo_controller.cc has `reserve` where
    mpi_controller.cc makes one), so that the StallInspector misses none of them.
    """
    if limit_s is None:
        return {}
    # A collective that it remembers is first found late, and the limit counts from then on: up to three looks more.
    look_s = min(_USUAL_LOOK_S, max(1, int(limit_s / _LOOKS)))
    return {
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(math.ceil(limit_s)),
        "HOROVOD_STALL_CHECK_TIME_SECONDS": str(look_s),
    }


def _hosts_file(layout: JobLayout) -> PlannedFile:
    """Return the hosts as horovodrun wants them."""
    hosts = ",".join(f"{host}:{count}" for host, count in layout.slots_by_address().items())
    return PlannedFile(path=HOSTS_FILE, text=f"{hosts}\n")
