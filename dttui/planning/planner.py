"""From a job, the environments and what is known of their hosts to the Plan that runs. Pure: no I/O, no clock."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from dtagent.protocol.telemetry import HostFacts

from dttui.frameworks import Framework, get_framework
from dttui.frameworks.base import DatasetLocation, JobLayout, NodeLayout
from dttui.inventory.models import Inventory
from dttui.planning.aggregate import aggregate
from dttui.planning.axioms import check_axioms, formalise
from dttui.planning.binding import bind
from dttui.planning.collective_advice import check_collectives
from dttui.planning.completeness import check_completeness, check_unused
from dttui.planning.cost.hardware import GpuTable, gpu_table
from dttui.planning.cost.links import Links
from dttui.planning.costing import cost, node_link
from dttui.planning.estimate import start_estimate_s
from dttui.planning.models import Plan, PlannedNode
from dttui.planning.network import check_network, choose_backend, master_address
from dttui.planning.parallelism import check_degrees, check_splitting
from dttui.planning.roster import Member, Roster, make_roster
from dttui.planning.sources import Sources, locate_dataset, locate_sources, storage_paths
from dttui.spec.findings import Severity, errors_first
from dttui.spec.models import Job

__all__ = ["bind", "plan"]

DEFAULT_PYTHON = "python3"
_DEFAULT_PORTS = (29500, 29999)


def plan(
    job: Job,
    inventory: Inventory,
    facts: Mapping[str, HostFacts] | None = None,
    *,
    links: Links | None = None,
    gpus: GpuTable | None = None,
    now: float | None = None,
) -> Plan:
    """Return what will run, and everything there is to say about it, the errors first.

    A plan with errors is as complete as it can be, for a preview; it must not be launched.

    Args:
        job: the job.
        inventory: environments and datasets on offer.
        facts: what the agents said of their hosts, by environment name; the inventory's word counts for the others.
        links: what was measured between zones and hosts.
        gpus: types of GPUs, where a person has more than dttui knows.
        now: seconds since the epoch, to say how old a measurement is.
    """
    roster = make_roster(job, inventory, facts or {})
    members = roster.members
    backend, findings = choose_backend(job, members)
    dataset, dataset_findings = locate_dataset(job, inventory)
    sources = locate_sources(job.run) if job.run is not None else None
    costing, of_cost = cost(job, members, gpus or gpu_table(), links)
    share = costing.estimate.communication_share if costing is not None else None
    findings = [
        *check_completeness(job),
        *dataset_findings,
        *roster.findings,
        *(sources.findings if sources is not None else ()),
        *check_degrees(job, roster.world_size),
        *findings,
        *check_network(members, node_link(members, links or {}), share, now),
        *check_splitting(job),
        *of_cost,
        *(check_axioms(costing, members, now) if costing is not None else ()),
        *(check_collectives(job, costing, len(members)) if costing is not None else ()),
        *check_unused(job),
    ]
    return Plan(
        job_name=job.name,
        framework=job.framework or "",
        backend=backend,
        world_size=roster.world_size,
        master_address=master_address(members),
        port_range=members[0].environment.ports if members else _DEFAULT_PORTS,
        upload=sources.upload if sources is not None else None,
        nodes=_nodes(job, roster, backend, dataset, sources),
        aggregate=aggregate(member.choice for member in members),
        start_estimate_s=start_estimate_s(len(members)),
        findings=errors_first(findings),
        secrets=job.run.secrets if job.run is not None else (),
        python=job.run.python if job.run is not None else None,
        rendezvous_timeout_s=job.communication.rendezvous_timeout_s,
        log_cap_bytes=job.monitoring.log_cap,
        estimate=costing.estimate if costing is not None else None,
        rules_of_thumb=costing.rules_of_thumb if costing is not None else None,
        formal=formalise(job, members, backend, costing),
    )


def _nodes(
    job: Job, roster: Roster, backend: str, dataset: DatasetLocation | None, sources: Sources | None
) -> tuple[PlannedNode, ...]:
    layouts = _layouts(job, roster.members)
    required = storage_paths(job)
    if dataset is not None and posixpath.isabs(dataset.path):
        required = (dataset.path, *required)
    if sources is not None:
        required = (*sources.required_paths, *required)
    nodes = tuple(
        _bare_node(job, member, layout, required) for member, layout in zip(roster.members, layouts, strict=True)
    )
    framework = get_framework(job.framework) if job.framework is not None else None
    if framework is None or job.run is None or sources is None:
        return nodes
    if any(finding.severity is Severity.ERROR for finding in framework.check(job)):
        return nodes
    layout = JobLayout(
        job=job,
        run=job.run,
        backend=backend,
        master_address=master_address(roster.members),
        world_size=roster.world_size,
        nodes=layouts,
        cwd=sources.cwd,
        dataset=dataset,
    )
    return tuple(_with_bundle(node, framework, layout) for node in nodes)


def _layouts(job: Job, members: tuple[Member, ...]) -> tuple[NodeLayout, ...]:
    """Give each node its ranks: contiguous, in order of node rank."""
    layouts: list[NodeLayout] = []
    first = 0
    default = job.resources.network.interface if job.resources.network is not None else None
    for node_rank, member in enumerate(members):
        network = member.node.network
        layouts.append(
            NodeLayout(
                name=member.name,
                node_rank=node_rank,
                address=member.address,
                slots=member.slots,
                cuda_slots=member.cuda_slots,
                simulated=member.environment.simulated,
                ranks=tuple(range(first, first + member.slots)),
                interface=(network.interface if network is not None else None) or default,
            )
        )
        first += member.slots
    return tuple(layouts)


def _bare_node(job: Job, member: Member, layout: NodeLayout, required: tuple[str, ...]) -> PlannedNode:
    own = job.run.python if job.run is not None else None
    return PlannedNode(
        name=layout.name,
        node_rank=layout.node_rank,
        address=layout.address,
        python=own or member.environment.python or DEFAULT_PYTHON,
        slots=layout.slots,
        cuda_slots=layout.cuda_slots,
        simulated=layout.simulated,
        ranks=layout.ranks,
        zone=member.environment.zone,
        required_paths=tuple(dict.fromkeys(required)),
    )


def _with_bundle(node: PlannedNode, framework: Framework, layout: JobLayout) -> PlannedNode:
    place = layout.nodes[node.node_rank]
    return node.model_copy(
        update={"files": framework.node_files(layout, place), "processes": framework.processes(layout, place)}
    )
