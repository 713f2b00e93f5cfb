"""Which algorithm and buffer a job's collectives had best use, as findings with the seconds of each."""

from __future__ import annotations

from dttui.i18n import _, joined
from dttui.planning.cost.collectives import CollectiveChoice, rule_text, timed_text
from dttui.planning.costing import Costing
from dttui.spec.findings import Finding, info
from dttui.spec.models import Job

_MIB = 2**20


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
    name = {"all_reduce": _("all-reduce"), "broadcast": _("broadcast")}[choice.collective]
    text = _("{collective} of {size} over {ranks} ranks: {algorithm} with buffers of {buffer} MiB; {timed}")
    message = text.format(
        collective=name,
        size=f"{choice.size_bytes / 1e9:.3g} GB" if choice.size_bytes >= 1e9 else f"{choice.size_bytes / 1e6:.3g} MB",
        ranks=choice.ranks,
        algorithm=choice.algorithm,
        buffer=choice.buffer_bytes // _MIB,
        timed=timed_text(choice, _seconds),
    )
    rule = rule_text(choice, nodes)
    hints = [rule] if rule is not None else []
    if declared is not None and declared != choice.algorithm:
        hints.append(_("The job says {declared}.").format(declared=declared))
    return info(f"advice-{choice.collective.replace('_', '-')}", "communication", message, joined(" ", hints))


def _seconds(value: float) -> str:
    if value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"
