"""Which algorithm, buffer and bucket a job's collectives had best use: as findings, and as what frameworks are told."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

from dttui.frameworks.base import Framework, JobLayout, LinkFigures, LinkTuning
from dttui.frameworks.traits import BY_THE_SCRIPT
from dttui.i18n import _, sentences
from dttui.planning.cost.collectives import CollectiveChoice, all_reduce_s, bucket_of, rule_text, window_bytes
from dttui.planning.cost.links import NodeLink, describe_link
from dttui.planning.cost_text import choice_text, seconds, short
from dttui.planning.costing import Costing, crossed, known_network
from dttui.planning.roster import Member
from dttui.spec.findings import Finding, info
from dttui.spec.models import Job

_MIB = 1 << 20


def tune(
    job: Job, members: Sequence[Member], link: NodeLink | None, costing: Costing | None, inside: NodeLink | None
) -> LinkTuning:
    """Return what the network between a job's nodes asks for; nothing where it is taken by default, or there is none.

    Args:
        job: the job.
        members: its nodes that train.
        link: the slowest between them.
        costing: what the job costs; without it neither the gradients nor the backward pass are known.
        inside: the slowest inside of one of them, where that was measured.
    """
    network = known_network(job, members, link) if len(members) > 1 else None
    if network is None or not network.latency_s:  # Of a declared one 0 says that nobody knows it.
        return LinkTuning()
    ranks = sum(member.slots for member in members)
    choices = costing.estimate.collectives if costing is not None else ()
    of_model = next((item.bucket_bytes for item in choices if item.collective == "all_reduce"), None)
    return LinkTuning(
        bucket_bytes=of_model if costing is not None else bucket_of(None, ranks, network),
        window_bytes=window_bytes(network),
        # Up a tree and down again, with as good as nothing to carry.
        agreement_s=2 * ceil(log2(ranks)) * network.latency_s,
        between=LinkFigures(network.latency_s, network.bandwidth),
        inside=LinkFigures(inside.latency_s, inside.bandwidth) if inside is not None else None,
    )


def check_buckets(
    layout: JobLayout, framework: Framework, members: Sequence[Member], link: NodeLink | None, now: float | None
) -> list[Finding]:
    """Return the size of buckets that the network asks for, and why, where the framework has any.

    Args:
        layout: what the framework is told.
        framework: of the job.
        members: its nodes that train.
        link: the slowest between them.
        now: seconds since the epoch, to say how old a measurement is.
    """
    size, reach = layout.tuning.bucket_bytes, framework.collective_reach.get("buffer_size")
    network = known_network(layout.job, members, link)
    reach = reach or (BY_THE_SCRIPT if framework.uses_torch else None)
    is_one = layout.job.communication.overlap is False and reach == BY_THE_SCRIPT  # Bucket, of all gradients.
    if size is None or network is None or reach is None or reach.reason or is_one:
        return []
    ranks = sum(member.slots for member in members)
    message = _(
        "{size} MiB of gradients had best be reduced at once, as an all-reduce of nothing takes {latency} over {ranks} "
        "ranks, by the network that is {known}"
    )
    known = describe_link(link, now) if link is not None and link.measured_at is not None else _("declared")
    told = message.format(
        size=short(size / _MIB),
        latency=seconds(all_reduce_s(0, ranks, network)),
        ranks=ranks,
        known=known,
    )
    asked = layout.job.communication.all_reduce
    if asked is not None and asked.buffer_size is not None:
        hint = _("The job says {declared}.").format(declared=f"{short(asked.buffer_size / _MIB)} MiB")
    elif reach.call:
        hint = _("The script finds it in the file of DTTUI_CONFIG, as distributed.bucket_bytes, for {call}.")
        hint = hint.format(call=reach.call)
    else:
        hint = _(
            "Where the framework has buckets it is told so; communication.allreduce.buffer_size says another size."
        )
    return [info("bucket-size", "communication.allreduce.buffer_size", told, hint)]


def check_collectives(job: Job, costing: Costing, nodes: int) -> list[Finding]:
    """Return advice for all-reduce and broadcast of a job of several nodes, beside what the job itself says."""
    if nodes < 2:
        return []
    reduce, elsewhere = job.communication.all_reduce, job.communication.collective_ops
    broadcast = job.communication.broadcast or (elsewhere.broadcast if elsewhere is not None else None)
    declared = {
        "all_reduce": reduce.algorithm if reduce is not None else None,
        "broadcast": broadcast.algorithm if broadcast is not None else None,
    }
    return [_advice(choice, declared[choice.collective], nodes) for choice in costing.estimate.collectives]


def _advice(choice: CollectiveChoice, declared: str | None, nodes: int) -> Finding:
    rule = rule_text(choice, nodes)
    hints = [rule] if rule is not None else []
    if declared is not None and declared != choice.algorithm:
        hints.append(_("The job says {declared}.").format(declared=declared))
    return info(f"advice-{choice.collective.replace('_', '-')}", "communication", choice_text(choice), sentences(hints))


def check_topology(job: Job, members: Sequence[Member]) -> list[Finding]:
    """Say what follows from groups of nodes that the job declares, or that nothing does."""
    topology = job.cluster.topology
    if topology is None or not (topology.groups or topology.between_groups):
        return []
    between = topology.between_groups.model_dump(exclude_none=True) if topology.between_groups is not None else {}
    said = [*(["groups"] if topology.groups else []), *(f"between_groups.{name}" for name in between)]
    keys = ", ".join(f"cluster.topology.{name}" for name in said)
    if crossed(job, members) is not None and between:
        message = _("{keys}: the estimate, and sizes that follow from the network, count with what is between groups")
    else:
        message = _(
            "{keys}: nothing follows from that, as it takes groups, nodes of two of them, and what the network carries "
            "between groups"
        )
    return [info("topology", "cluster.topology", message.format(keys=keys))]
