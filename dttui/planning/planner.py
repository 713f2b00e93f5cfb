"""From a job, the environments and what is known of their hosts to the Plan that runs. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dtagent.protocol.facts import HostFacts

from dttui.frameworks import Framework, get_framework, traits_of
from dttui.frameworks.base import DatasetLocation, JobLayout, NodeLayout, NodePlace, Rank
from dttui.frameworks.parts.collective_timeout import check_passed_on
from dttui.frameworks.parts.container import check_container, contain
from dttui.frameworks.parts.elastic import elastic_of
from dttui.frameworks.parts.environment import addresses_file
from dttui.frameworks.parts.nccl import check_nccl
from dttui.frameworks.parts.options import read_options
from dttui.frameworks.parts.prefix import leads_elsewhere
from dttui.frameworks.traits import GroupForming
from dttui.i18n import _
from dttui.inventory.models import Inventory
from dttui.planning.aggregate import aggregate
from dttui.planning.axioms import check_axioms, formalise
from dttui.planning.binding import bind
from dttui.planning.checkpoints import check_checkpoints, resumption_of, with_interval
from dttui.planning.collective_advice import check_collectives
from dttui.planning.completeness import check_completeness, check_unused
from dttui.planning.cost.hardware import GpuTable, gpu_table
from dttui.planning.cost.links import Links
from dttui.planning.costing import Costed, cost, node_link
from dttui.planning.job_sources import Sources, locate_dataset, locate_sources, required_paths
from dttui.planning.models import DEFAULT_PYTHON, Plan, PlannedNode
from dttui.planning.network import check_network, choose_backend, master_address
from dttui.planning.parallelism import check_degrees, check_splitting
from dttui.planning.recovery import policy_of
from dttui.planning.recovery_check import check_recovery
from dttui.planning.roster import Member, computing, make_roster
from dttui.planning.start_time import start_estimate_s
from dttui.spec.findings import Finding, Severity, error, errors_first
from dttui.spec.models import Job

__all__ = ["bind", "plan"]

_DEFAULT_PORTS = (29500, 29999)


def plan(
    job: Job,
    inventory: Inventory,
    facts: Mapping[str, HostFacts] | None = None,
    *,
    links: Links | None = None,
    gpus: GpuTable | None = None,
    now: float | None = None,
    costed: Costed | None = None,
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
        costed: what the same job costs, with the same GPUs and links; it counts where it is of the same nodes.
    """
    roster = make_roster(job, inventory, facts or {})
    members = roster.members
    workers = computing(members)
    backend, findings = choose_backend(job, members)
    dataset, dataset_findings = locate_dataset(job, inventory)
    sources = locate_sources(job.run) if job.run is not None else None
    framework = get_framework(job.framework) if job.framework is not None else None
    layouts = _layouts(job, members, framework.rank if framework is not None else Rank.SLOT)
    required = required_paths(job, dataset, sources)
    has_ports = framework is not None and framework.needs_ports
    nodes = tuple(
        _bare_node(job, member, place, required, has_port=has_ports)
        for member, place in zip(members, layouts, strict=True)
    )
    if costed is None or costed.members != workers:
        costed = Costed(workers, *cost(job, workers, gpus or gpu_table(), links))
    costing = costed.costing
    job = with_interval(job, costing.estimate if costing is not None else None)
    layout, of_framework = _layout(job, framework, layouts, members, backend, dataset, sources)
    if framework is not None and layout is not None:
        nodes = tuple(_with_bundle(node, framework, layout, required) for node in nodes)
        findings += [*check_nccl(layout), *check_passed_on(layout, framework)]
    elastic = elastic_of(layout) if layout is not None else None
    told = {finding.message for finding in of_framework}
    share = costing.estimate.communication_share if costing is not None else None
    findings = [
        *check_completeness(job),
        *check_recovery(job, inventory, members, framework),
        *check_container(job, required, uses_gpus=any(node.cuda_slots for node in nodes)),
        *of_framework,
        *_check_end(nodes),
        *_check_group(job),
        *dataset_findings,
        *roster.findings,
        *(sources.findings if sources is not None else ()),
        *check_degrees(job, roster.world_size),
        *findings,
        *check_network(members, node_link(members, links or {}), share, now),
        *check_splitting(job),
        *(finding for finding in costed.findings if finding.message not in told),
        *(check_axioms(costing, workers, now) if costing is not None else ()),
        *(check_collectives(job, costing, len(workers)) if costing is not None else ()),
        *check_checkpoints(job, len(members)),
        *check_unused(job),
    ]
    return Plan(
        job_name=job.name,
        framework=job.framework or "",
        backend=backend,
        world_size=sum(len(node.ranks) for node in layouts),
        master_address=master_address(members),
        port_range=members[0].environment.ports if members else _DEFAULT_PORTS,
        upload=sources.upload if sources is not None else None,
        nodes=nodes,
        aggregate=aggregate(members),
        start_estimate_s=start_estimate_s(len(members)),
        findings=errors_first(findings),
        secrets=job.run.secrets if job.run is not None else (),
        python=job.run.python if job.run is not None else None,
        container=job.run.container if job.run is not None else None,
        own_variables=tuple(job.run.env) if job.run is not None else (),
        rendezvous_timeout_s=job.communication.rendezvous_timeout_s,
        min_nodes=elastic.min_nodes if elastic is not None else None,
        log_cap_bytes=job.monitoring.log_cap,
        require_process_group=job.require_process_group,
        recovery=policy_of(job.recovery, inventory, elastic.min_nodes if elastic is not None else None),
        resumption=resumption_of(job, costing.estimate if costing is not None else None),
        estimate=costing.estimate if costing is not None else None,
        rules_of_thumb=costing.rules_of_thumb if costing is not None else None,
        formal=formalise(job, members, backend, costing),
    )


def _layout(
    job: Job,
    framework: Framework | None,
    nodes: tuple[NodeLayout, ...],
    members: tuple[Member, ...],
    backend: str,
    dataset: DatasetLocation | None,
    sources: Sources | None,
) -> tuple[JobLayout | None, list[Finding]]:
    """Return what the framework makes the bundles of, and what it says to that; `None` where it cannot make them."""
    if framework is None:
        return None, []
    given = read_options(job, framework)[0]
    # A framework without options says of the nodes what it would say without those that are wrong.
    options = framework.options() if given is None and not framework.options.model_fields else given
    if options is None or job.run is None or sources is None or not nodes or _has_errors(framework.check(job)):
        return None, []
    layout = JobLayout(
        job=job,
        run=job.run,
        backend=backend,
        master_address=master_address(members),
        world_size=sum(len(node.ranks) for node in nodes),
        nodes=nodes,
        cwd=sources.cwd,
        dataset=dataset,
        options=options,
    )
    findings = framework.check_layout(layout)
    return (None if given is None or _has_errors(findings) else layout), findings


def _check_end(nodes: tuple[PlannedNode, ...]) -> list[Finding]:
    """Refuse what would run for ever: services are ended once the others have ended, and here are no others."""
    if not nodes or not all(node.serves_only for node in nodes):
        return []
    message = _("every process of the job only serves others: nothing here ever ends")
    hint = _("Choose another framework, or have those mend it who made it.")
    return [error("nothing-ends", "framework", message, hint)]


def _check_group(job: Job) -> list[Finding]:
    """Refuse to require what nobody could see."""
    unseen = traits_of(job.framework).process_group.forming is GroupForming.UNSEEN
    if job.require_process_group is not True or not unseen:
        return []
    message = _("the framework {name} does not let dttui see whether ranks form a process group").format(
        name=job.framework
    )
    hint = _("Leave require_process_group out, or choose a framework that runs a script of torch.")
    return [error("process-group", "require_process_group", message, hint)]


def _has_errors(findings: Iterable[Finding]) -> bool:
    return any(finding.severity is Severity.ERROR for finding in findings)


def _layouts(job: Job, members: tuple[Member, ...], rank: Rank) -> tuple[NodeLayout, ...]:
    """Give each node its ranks: contiguous, in order of node rank."""
    layouts: list[NodeLayout] = []
    first = 0
    default = job.resources.network.interface if job.resources.network is not None else None
    for node_rank, member in enumerate(members):
        network = member.node.network
        count = member.slots if rank is Rank.SLOT else 1
        facts = member.facts
        layouts.append(
            NodeLayout(
                name=member.name,
                node_rank=node_rank,
                address=member.address,
                slots=member.slots,
                cuda_slots=member.cuda_slots,
                simulated=member.environment.simulated,
                ranks=tuple(range(first, first + count)),
                interface=(network.interface if network is not None else None) or default,
                role=member.node.role,
                rdma=tuple(facts.rdma) if facts is not None and facts.rdma is not None else None,
                torch=_torch(job, facts, _python(job, member)),
            )
        )
        first += count
    return tuple(layouts)


def _python(job: Job, member: Member) -> str:
    # With a container run.python is an interpreter of the image, and what the host has is not asked to run the job.
    own = job.run.python if job.run is not None and job.run.container is None else None
    return own or member.environment.python or DEFAULT_PYTHON


def _torch(job: Job, facts: HostFacts | None, python: str) -> str | None:
    if facts is None or (job.run is not None and job.run.container is not None):
        return None
    told = (item for item in facts.pythons if item.path == python and tuple(item.prefix or ()) == _prefix(job))
    return next((item.packages.get("torch") for item in told), None)


def _prefix(job: Job) -> tuple[str, ...]:
    """Return the words behind which the host's interpreter does not count; with a container all are inside of it."""
    run = job.run
    return run.prefix if run is not None and run.container is None and leads_elsewhere(run.prefix) else ()


def _bare_node(
    job: Job, member: Member, place: NodeLayout, required: tuple[str, ...], *, has_port: bool
) -> PlannedNode:
    return PlannedNode(
        **place.model_dump(include=set(NodePlace.model_fields)),
        python=_python(job, member),
        prefix=_prefix(job),
        zone=member.environment.zone,
        required_paths=required,
        port_range=member.environment.ports if has_port else None,
    )


def _with_bundle(node: PlannedNode, framework: Framework, layout: JobLayout, paths: tuple[str, ...]) -> PlannedNode:
    place = layout.nodes[node.node_rank]
    processes = tuple(contain(process, layout, place, paths) for process in framework.processes(layout, place))
    addresses = addresses_file(layout)
    files = (*framework.node_files(layout, place), *([addresses] if addresses is not None else []))
    return node.model_copy(update={"files": files, "processes": processes})
