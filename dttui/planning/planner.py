"""From a job, the environments and what is known of their hosts to the Plan that runs. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dtagent.protocol.facts import HostFacts

from dttui.frameworks import Framework, get_framework, traits_of
from dttui.frameworks.base import DatasetLocation, JobLayout, LinkTuning, NodeLayout, NodePlace, Rank
from dttui.frameworks.parts.collective_settings import check_collective_settings
from dttui.frameworks.parts.collective_timeout import check_passed_on
from dttui.frameworks.parts.container import beside, check_container, contain
from dttui.frameworks.parts.elastic import elastic_of
from dttui.frameworks.parts.environment import addresses_file
from dttui.frameworks.parts.nccl import check_nccl
from dttui.frameworks.parts.options import read_options
from dttui.frameworks.parts.prefix import leads_elsewhere
from dttui.frameworks.traits import GroupForming
from dttui.i18n import _
from dttui.inventory.models import Inventory
from dttui.planning.aggregate import aggregate
from dttui.planning.axioms import BALANCE, check_axioms, check_types, formalise
from dttui.planning.binding import bind
from dttui.planning.candidates import candidates_of, check_candidates
from dttui.planning.checkpoints import check_checkpoints, resumption_of, with_interval
from dttui.planning.collective_advice import check_buckets, check_collectives, check_topology, tune
from dttui.planning.completeness import check_completeness, check_unused
from dttui.planning.cost.correction import Learned
from dttui.planning.cost.hardware import GpuTable, gpu_table
from dttui.planning.cost.links import Links, slowest_inside
from dttui.planning.costing import Costed, cost, node_link
from dttui.planning.health import check_health, health_of
from dttui.planning.job_sources import Sources, locate_dataset, locate_sources, required_paths, required_room
from dttui.planning.meaning import check_meaning
from dttui.planning.models import DEFAULT_PYTHON, Plan, PlannedCommand, PlannedNode
from dttui.planning.network import check_network, choose_backend, master_address
from dttui.planning.parallelism import check_degrees, check_splitting
from dttui.planning.recovery import policy_of
from dttui.planning.recovery_check import check_recovery
from dttui.planning.roster import Member, computing, make_roster
from dttui.planning.shares import Shares, share_out, tell_shares
from dttui.planning.start_time import start_estimate_s
from dttui.planning.training_length import length_of
from dttui.spec.findings import Finding, Severity, error, errors_first
from dttui.spec.models import Job, Run

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
    measured: Mapping[str, float] | None = None,
    learned: Mapping[str, Learned] | None = None,
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
        measured: node → samples a second of a rank there, where an attempt has told.
        learned: name of a type of GPU → what jobs that are over have shown of hosts that have it.
    """
    roster = make_roster(job, inventory, facts or {})
    members = roster.members
    workers = computing(members)
    backend, findings = choose_backend(job, members)
    dataset, dataset_findings = locate_dataset(job, inventory)
    sources = locate_sources(job.run) if job.run is not None else None
    framework = get_framework(job.framework) if job.framework is not None else None
    layouts = _layouts(job, members, framework)
    required = required_paths(job, dataset, sources)
    nodes = _bare_nodes(job, members, layouts, required, framework)
    table = gpus or gpu_table()
    if costed is None or costed.members != workers:
        costed = Costed(workers, *cost(job, workers, table, links, learned))
    costing, estimate = costed.costing, costed.estimate
    given, job = job, with_interval(job, estimate)
    link = node_link(members, links or {})
    several = [member.name for member in workers if member.slots > 1]
    inside = slowest_inside(several, links or {}, "inside" if backend == "nccl" else "inside-by-gloo")
    tuning = tune(job, workers, link, costing, inside)
    layout, of_framework = _layout(job, framework, layouts, members, backend, dataset, sources, tuning)
    least = _least_nodes(layout)
    shares, of_shares = share_out(
        job, inventory, members, layouts, framework, table, is_elastic=least is not None, measured=measured or {}
    )
    if shares is not None:
        of_shares.append(tell_shares(shares, layouts, costing))
    if framework is not None and layout is not None:
        layout = replace(layout, shares=shares.samples if shares is not None else None)
        nodes = tuple(_with_bundle(node, framework, layout, required) for node in nodes)
        findings += [*check_nccl(layout), *check_passed_on(layout, framework)]
        findings += check_collective_settings(layout, framework)
        findings += check_buckets(layout, framework, workers, link, now)
    share = estimate.communication_share if estimate is not None else None
    of_cost = _check_cost(job, costed, workers, of_framework, now, shares)
    is_balance_told = any(finding.code == BALANCE for finding in of_cost)
    findings = [
        *check_completeness(job),
        *check_recovery(job, inventory, members, framework),
        *check_candidates(job, inventory, members),
        *check_health(job),
        *check_container(job, required, uses_gpus=any(node.cuda_slots for node in nodes)),
        *of_framework,
        *_check_end(nodes),
        *_check_group(job),
        *dataset_findings,
        *roster.findings,
        *(sources.findings if sources is not None else ()),
        *check_degrees(job, roster.world_size),
        *findings,
        *check_network(members, link, share, now),
        *check_splitting(job),
        *check_topology(job, workers),
        *of_shares,
        *of_cost,
        *(check_types(job, workers, table) if not is_balance_told else ()),
        *check_checkpoints(job, len(members)),
        *check_meaning(given),
        *check_unused(given),
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
        by_count=roster.by_count,
        start_estimate_s=start_estimate_s(len(members)),
        findings=errors_first(findings),
        **_of_run(job.run),
        rendezvous_timeout_s=job.communication.rendezvous_timeout_s,
        length=length_of(job),
        min_nodes=least,
        log_cap_bytes=job.monitoring.log_cap,
        metric_patterns=job.monitoring.metric_patterns,
        require_process_group=job.require_process_group,
        recovery=policy_of(job.recovery, inventory, least),
        health=health_of(job),
        candidates=candidates_of(job, inventory, members),
        resumption=resumption_of(job, estimate),
        estimate=estimate,
        rules_of_thumb=costed.rules_of_thumb,
        cost_basis=costing.basis if costing is not None else None,
        formal=formalise(job, members, backend, costing),
    )


def _least_nodes(layout: JobLayout | None) -> int | None:
    """Return with how few nodes an elastic job goes on; `None` where it needs all of them."""
    elastic = elastic_of(layout) if layout is not None else None
    return elastic.min_nodes if elastic is not None else None


def _of_run(run: Run | None) -> dict[str, Any]:
    """Return what a plan has of `run` as it stands there."""
    if run is None:
        return {}
    return {
        "secrets": run.secrets,
        "python": run.python,
        "container": run.container,
        "own_variables": tuple(run.env),
    }


def _check_cost(
    job: Job,
    costed: Costed,
    workers: tuple[Member, ...],
    of_framework: Iterable[Finding],
    now: float | None,
    shares: Shares | None,
) -> list[Finding]:
    """Return what there is to say of what the job costs, but for numbers that its framework has refused already."""
    refused = {(finding.code, finding.where) for finding in of_framework}
    findings = [finding for finding in costed.findings if (finding.code, finding.where) not in refused]
    if costed.costing is not None:
        findings += check_axioms(costed.costing, workers, now, shares)
        findings += check_collectives(job, costed.costing, len(workers))
    return findings


def _layout(
    job: Job,
    framework: Framework | None,
    nodes: tuple[NodeLayout, ...],
    members: tuple[Member, ...],
    backend: str,
    dataset: DatasetLocation | None,
    sources: Sources | None,
    tuning: LinkTuning,
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
        tuning=tuning,
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
    starts_own_ranks = job.run is not None and job.run.per == "node"
    if job.require_process_group is not True or not unseen or starts_own_ranks:
        return []
    message = _("the framework {name} does not let dttui see whether ranks form a process group").format(
        name=job.framework
    )
    hint = _("Leave require_process_group out, or choose a framework that runs a script of torch.")
    return [error("process-group", "require_process_group", message, hint)]


def _has_errors(findings: Iterable[Finding]) -> bool:
    return any(finding.severity is Severity.ERROR for finding in findings)


def _layouts(job: Job, members: tuple[Member, ...], framework: Framework | None) -> tuple[NodeLayout, ...]:
    """Give each node its ranks: contiguous, in order of node rank."""
    rank = framework.rank if framework is not None else Rank.SLOT
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
                gpu_ids=member.gpu_ids,
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


def _names_by_number(member: Member) -> tuple[str, ...]:
    """Return the names of a host's GPUs, empty at the number of one that is not known."""
    known = dict(zip(member.gpu_numbers, member.gpu_names, strict=False))
    return tuple(known.get(index, "") for index in range(max(known, default=-1) + 1))


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


def _bare_nodes(
    job: Job,
    members: tuple[Member, ...],
    layouts: tuple[NodeLayout, ...],
    required: tuple[str, ...],
    framework: Framework | None,
) -> tuple[PlannedNode, ...]:
    """Return the nodes as any framework has them, without what runs there."""
    has_ports = framework is not None and framework.needs_ports
    return tuple(
        _bare_node(job, member, place, required, has_port=has_ports)
        for member, place in zip(members, layouts, strict=True)
    )


def _bare_node(
    job: Job, member: Member, place: NodeLayout, required: tuple[str, ...], *, has_port: bool
) -> PlannedNode:
    return PlannedNode(
        **place.model_dump(include=set(NodePlace.model_fields)),
        python=_python(job, member),
        prefix=_prefix(job),
        zone=member.environment.zone,
        required_paths=required,
        required_room=required_room(job),
        port_range=member.environment.ports if has_port else None,
        gpu_names=() if place.simulated else _names_by_number(member),
    )


def _with_bundle(node: PlannedNode, framework: Framework, layout: JobLayout, paths: tuple[str, ...]) -> PlannedNode:
    place = layout.nodes[node.node_rank]
    processes = tuple(contain(process, layout, place, paths) for process in framework.processes(layout, place))
    addresses = addresses_file(layout)
    files = (*framework.node_files(layout, place), *([addresses] if addresses is not None else []))
    asked = layout.job.monitoring.health
    health = None
    if asked is not None and processes:
        argv = beside(processes[0], (*node.prefix, *asked.command), layout, place)
        health = PlannedCommand(argv=argv, cwd=processes[0].cwd)
    return node.model_copy(update={"files": files, "processes": processes, "health": health})
