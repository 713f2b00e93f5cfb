"""A job in the terms of seed 001, and whether its four axioms hold, each with its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from dttui.i18n import _
from dttui.planning.cost.collectives import CollectiveChoice
from dttui.planning.cost.estimate import COMMUNICATION, GB
from dttui.planning.cost.hardware import GpuTable, usual_precision
from dttui.planning.cost.layout import faults
from dttui.planning.cost.links import describe_link
from dttui.planning.cost.step_time import step_time
from dttui.planning.costing import Costing
from dttui.planning.formal import CommunicationTerms, Formal, Parallelism, System
from dttui.planning.roster import Member
from dttui.planning.shares import KEY as SHARES_KEY
from dttui.planning.shares import Shares
from dttui.spec.findings import Finding, Severity, warning
from dttui.spec.models import Job
from dttui.spec.problems import format_path
from dttui.words import parameters

BALANCE = "axiom-balance"
"""Code of what is said of GPUs that are not equally fast."""
UNEQUAL = 0.01
"""Share of the GPUs' time that may be lost before their speeds count as unequal."""
UNEVEN = 0.1
"""The same where samples are shared out by speed, of which no rank has a part of one."""


def formalise(job: Job, members: Sequence[Member], backend: str, costing: Costing | None) -> Formal:
    """Return a job in the terms of seed 001."""
    layout = costing.layout if costing is not None else None
    degrees = {"data": layout.data, "tensor": layout.tensor, "pipeline": layout.pipeline} if layout is not None else {}
    declared = job.communication.all_reduce
    topology = declared.algorithm if declared is not None and declared.algorithm is not None else None
    link = costing.hardware.inter.bandwidth if costing is not None else None
    dataset = job.dataset
    return Formal(
        system=System(
            nodes=tuple(member.name for member in members),
            models=(job.model.name or job.name,) if job.model is not None else (job.name,),
            communications=_collectives(costing),
            datasets=(dataset.id,) if dataset is not None and dataset != "none" else (),
        ),
        parallelism=Parallelism(
            type=job.strategy.type,
            strategy=degrees,
            topology=topology or (_chosen(costing, "all_reduce") if costing is not None else None) or "ring",
        ),
        communication=CommunicationTerms(
            pattern="reduce_scatter" if layout is not None and layout.zero_stage >= 2 else "all_reduce",
            protocol=backend,
            bandwidth=link,
        ),
    )


def check_axioms(
    costing: Costing, members: Sequence[Member], now: float | None = None, shares: Shares | None = None
) -> list[Finding]:
    """Return the four axioms as findings with their numbers: a warning where one does not hold.

    None for a single node, nor for a layout that cannot run, whose numbers would mean nothing.

    Args:
        costing: what the job costs.
        members: its nodes.
        now: seconds since the epoch, to say how old a measurement is.
        shares: of a step's samples, where they are not equal.
    """
    hardware = costing.hardware
    if len(members) < 2 or any(faults(costing.layout, costing.shape, hardware.gpus, hardware.gpus_per_node)):
        return []
    return [
        _gradients(costing),
        _parameters(costing),
        _communication(costing, now),
        _balance(costing, members, shares),
    ]


def check_types(job: Job, members: Sequence[Member], table: GpuTable) -> list[Finding]:
    """Tell that GPUs of several types take part, where no axiom says what is lost by that."""
    used = {member.name: member.used_of(member.gpu_types, member.cuda_slots) for member in members}
    counts = Counter(name for types in used.values() for name in types)
    data = job.strategy.data_parallel
    if len(counts) < 2 or (data is not None and not data.has_equal_shares):
        return []
    told = ", ".join(f"{count}×{name}" for name, count in counts.items())
    message = _("GPUs of different types take part ({types}): every step waits for the slowest").format(types=told)
    found = {name: table.find(name) for name in counts}
    known = {name: gpu for name, gpu in found.items() if gpu is not None}
    hint = _("Choose GPUs of one type.")
    if len(known) == len(counts):
        precision = (job.model.precision if job.model is not None else None) or usual_precision(known.values())
        speeds = {name: gpu.peak_flops(precision) for name, gpu in known.items()}
        slowest = min(speeds, key=speeds.__getitem__)
        lost = 1 - speeds[slowest] * counts.total() / sum(speeds[name] * count for name, count in counts.items())
        if lost < UNEQUAL:
            return []
        message += _("; in {precision} {lost} of all their time is lost by that").format(
            precision=precision, lost=f"{lost:.0%}"
        )
        slow = [node for node, types in used.items() if slowest in types]
        hint = _(
            "Choose GPUs of one type, leave out the slowest ({nodes}), or where the script can, share out samples by "
            "speed: {key}: by_speed"
        ).format(nodes=", ".join(slow), key=format_path(SHARES_KEY))
    return [warning("gpu-types-mixed", "cluster.nodes", message, hint)]


def _collectives(costing: Costing | None) -> tuple[str, ...]:
    if costing is None:
        return ("all_reduce",)
    layout = costing.layout
    used = {
        "all_reduce": layout.tensor > 1 or (layout.data > 1 and layout.zero_stage < 2),
        "reduce_scatter": layout.data > 1 and layout.zero_stage >= 2,
        "all_gather": layout.data > 1 and layout.zero_stage >= 1,
        "send_recv": layout.pipeline > 1,
        "broadcast": layout.data > 1,
    }
    return tuple(name for name, is_used in used.items() if is_used)


def _choice(costing: Costing, collective: str) -> CollectiveChoice | None:
    return next((item for item in costing.estimate.collectives if item.collective == collective), None)


def _chosen(costing: Costing, collective: str) -> str | None:
    choice = _choice(costing, collective)
    return choice.algorithm if choice is not None else None


def _gradients(costing: Costing) -> Finding:
    layout, reduce = costing.layout, _choice(costing, "all_reduce")
    if reduce is None:
        return _axiom("axiom-gradients", _("gradients are synchronised: there is one replica"), "", holds=True)
    seconds = costing.estimate.step_time_s.parts["data_parallel"]
    text = _("gradients are synchronised: {size} GB a rank over {ranks} replicas by {algorithm}, {seconds} s a step")
    message = text.format(
        size=f"{reduce.size_bytes / GB:.3g}",
        ranks=layout.data,
        algorithm=reduce.algorithm,
        seconds=f"{seconds:.3g}",
    )
    return _axiom("axiom-gradients", message, "", holds=True)


def _parameters(costing: Costing) -> Finding:
    layout = costing.layout
    text = _(
        "parameters are consistent: {replicas} replicas of {count} parameters begin equal and apply equal gradients"
    )
    if layout.data == 1:
        text = _("parameters are consistent: there is one replica")
    elif layout.zero_stage >= 1:
        text = _(
            "parameters are consistent: {replicas} ranks each update their share of {count} and gather the others'"
        )
    message = text.format(replicas=layout.data, count=parameters(costing.shape.parameters, 3))
    return _axiom("axiom-parameters", message, "", holds=True)


def _communication(costing: Costing, now: float | None) -> Finding:
    """Communication cost against computing benefit: the time that all these ranks save over the fewest that can."""
    layout, parts = costing.layout, costing.estimate.step_time_s.parts
    spent = sum(parts[name] for name in COMMUNICATION)
    replica = layout.tensor * layout.pipeline
    alone = replace(layout, data=1, zero_stage=0)
    single = step_time(costing.shape, alone, replace(costing.hardware, gpus=replica)).parts
    computing = parts["compute"] + parts["recompute"]
    saved = single["compute"] + single["recompute"] - computing
    holds = spent <= saved or layout.data == 1
    share = costing.estimate.communication_share
    text = _("communication costs {spent} s a step, {share} of it; {ranks} replicas save {saved} s of computing")
    message = text.format(spent=f"{spent:.3g}", share=f"{share:.0%}", ranks=layout.data, saved=f"{saved:.3g}")
    if costing.link is not None:
        message += f" ({describe_link(costing.link, now)})"
    hint = "" if holds else _("Take fewer nodes, one zone, or a larger batch a step.")
    return _axiom("axiom-communication", message, hint, holds=holds)


def _balance(costing: Costing, members: Sequence[Member], shares: Shares | None) -> Finding:
    """Every rank does its share of the work and waits for the last: how much of all GPUs' time is lost by that."""
    speeds = [gpu.peak_flops(costing.layout.precision) for gpu in costing.types]
    lost = shares.lost if shares is not None else 1 - min(speeds) * len(speeds) / sum(speeds)
    counts = " + ".join(
        f"{number} × {slots}" if number > 1 else str(slots)
        for slots, number in Counter(member.slots for member in members).items()
    )
    kinds = ", ".join(dict.fromkeys(gpu.name for gpu in costing.types))
    holds = lost < (UNEQUAL if shares is None else UNEVEN)
    text = _("load is balanced: {counts} GPUs a node, {kinds}; {lost} of the time is lost by waiting")
    if not holds:
        text = _("load is not balanced: {counts} GPUs a node, {kinds}; {lost} of the time is lost by waiting")
    hint = ""
    if not holds and shares is not None:
        hint = _("Take a larger batch a step: samples are shared out whole.")
    elif not holds:
        ranks = iter(speeds)
        slow = [member.name for member in members if min(islice(ranks, member.slots)) == min(speeds)]
        hint = _(
            "Choose GPUs of one type, leave out the slowest ({nodes}), or where the script can, share out samples by "
            "speed: {key}: by_speed"
        ).format(nodes=", ".join(slow), key=format_path(SHARES_KEY))
    message = text.format(counts=counts, kinds=kinds, lost=f"{lost:.0%}")
    return _axiom(BALANCE, message, hint, holds=holds)


def _axiom(code: str, message: str, hint: str, *, holds: bool) -> Finding:
    severity = Severity.INFO if holds else Severity.WARNING
    return Finding(code=code, severity=severity, subject="strategy", message=message, hint=hint)
