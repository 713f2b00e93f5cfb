"""How a step's samples are shared out among ranks that are not equally fast, and what that saves. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from dttui.frameworks import Framework
from dttui.frameworks.base import NodeLayout, Rank
from dttui.frameworks.parts.batches import shares_by_speed
from dttui.frameworks.parts.config_file import SHARES_KEY
from dttui.frameworks.registry import context_degree
from dttui.i18n import _
from dttui.inventory.models import Inventory
from dttui.planning.cost.assumptions import UnknownAssumptionError
from dttui.planning.cost.hardware import GpuTable, usual_precision
from dttui.planning.costing import Costing, gpu_types
from dttui.planning.parallelism import pipeline_degree
from dttui.planning.roster import Member
from dttui.spec.findings import Finding, Severity, error, info, warning
from dttui.spec.models import Job
from dttui.spec.problems import PathKey, did_you_mean

KEY: PathKey = ("strategy", "data_parallel", "shares")
_SUBJECT = "strategy.data_parallel.shares"
LEAST_SPEED = 1e-9
"""Of the fastest rank's: a slower one gets one sample all the same."""


@dataclass(frozen=True)
class Shares:
    """A step's samples, shared out."""

    samples: tuple[int, ...]
    """Of each rank."""
    speeds: tuple[float, ...]
    """Of each rank's GPU, in any unit."""

    @property
    def step(self) -> float:
        """How long the last rank computes, in samples of a GPU of speed 1."""
        return max(count / speed for count, speed in zip(self.samples, self.speeds, strict=True))

    @property
    def equal_step(self) -> float:
        """The same with equal shares, of which the first have one more where they are not whole."""
        share, more = divmod(sum(self.samples), len(self.samples))
        return max((share + (rank < more)) / speed for rank, speed in enumerate(self.speeds))

    @property
    def lost(self) -> float:
        """Share of the time of all GPUs in which they wait for the last rank."""
        return 1 - sum(self.samples) / (self.step * sum(self.speeds))


def share_out(
    job: Job,
    inventory: Inventory,
    members: Sequence[Member],
    nodes: Sequence[NodeLayout],
    framework: Framework | None,
    table: GpuTable,
    *,
    is_elastic: bool,
    measured: Mapping[str, float],
) -> tuple[Shares | None, list[Finding]]:
    """Return the shares of all ranks, where the job asks for other than equal ones, and what is to be said of them.

    Args:
        job: the job.
        inventory: environments on offer.
        members: its nodes, in order of rank.
        nodes: the same with their ranks.
        framework: that launches it; `None` where none was chosen.
        table: types of GPUs.
        is_elastic: whether it goes on with fewer ranks than it begins with.
        measured: node → samples a second that a rank of it has computed; empty where no attempt has told.
    """
    data = job.strategy.data_parallel
    if data is None or data.has_equal_shares or framework is None or not nodes:
        return None, []
    ranks = sum(len(node.ranks) for node in nodes)
    if refused := _refused(job, framework, ranks, is_elastic=is_elastic):
        return None, refused
    if isinstance(data.shares, dict):
        findings = _check_names(data.shares, job, inventory, members)
        speeds = _given(data.shares, members, nodes)
    elif members and all(member.name in measured for member in members):
        findings = [info("shares-measured", _SUBJECT, _("speeds are those that an attempt before has measured"))]
        speeds = _given({member.name: measured[member.name] for member in members}, members, nodes)
    else:
        try:
            findings, speeds = [], _by_type(job, members, table)
        except UnknownAssumptionError as fault:
            return None, [_unknown(str(fault), members)]
    if any(finding.severity is Severity.ERROR for finding in findings):
        return None, findings
    fastest = max(speeds)  # Of it as parts, which are numbers of a usual size whatever the speeds' unit is.
    speeds = tuple(max(speed / fastest, LEAST_SPEED) for speed in speeds)
    return Shares(shares_by_speed(data.batch_size or 0, speeds), speeds), findings


def tell_shares(shares: Shares, nodes: Sequence[NodeLayout], costing: Costing | None) -> Finding:
    """Return who has how many samples, and what that saves."""
    saved = 1 - shares.step / shares.equal_step
    each = iter(shares.samples)
    told = ", ".join(f"{node.name} {_counts(list(islice(each, len(node.ranks))))}" for node in nodes)
    total = sum(shares.samples)
    if saved <= 0:
        text = _("a step's {total} samples go by speed, which saves nothing here: {shares}")
        return info("shares", _SUBJECT, text.format(total=total, shares=told), path=KEY)
    text = _("a step's {total} samples go by speed: {shares}; computing takes {saved} less time a step")
    message = text.format(total=total, shares=told, saved=f"{saved:.0%}")
    if costing is not None:
        parts = costing.estimate.step_time_s.parts
        equal_s = parts["compute"] + parts["recompute"]
        times = {"before": f"{equal_s:.3g}", "after": f"{equal_s * (1 - saved):.3g}"}
        message += _(", {after} s instead of the {before} s of equal shares").format(**times)
    hint = _(
        "The script has to take its rank's number from {key} in DTTUI_CONFIG and to weight its loss by it, as "
        "examples/gpt does. A rank with more samples needs more memory for them."
    )
    return info("shares", _SUBJECT, message, hint.format(key=SHARES_KEY), path=KEY)


def _refused(job: Job, framework: Framework, ranks: int, *, is_elastic: bool) -> list[Finding]:
    """Return why samples cannot be shared out unequally; empty where they can."""
    strategy = job.strategy
    total = strategy.data_parallel.batch_size if strategy.data_parallel is not None else None
    splits = max(strategy.tensor_parallel_size or 1, pipeline_degree(strategy) or 1, context_degree(job)) > 1
    path, hint = KEY, _("Leave {key} out, or choose another framework.").format(key="shares")
    if not framework.may_share_unequally or framework.rank is not Rank.SLOT:
        message = _("{framework} gives every rank as many samples: they cannot be shared out by speed")
        message = message.format(framework=framework.label)
    elif splits:
        message = _("samples are shared out by speed among replicas of one rank each, and the job splits the model")
        hint = _("Leave {key} out, or set the other degrees to 1.").format(key="shares")
    elif is_elastic:
        message = _("which ranks an elastic job has is not known: samples cannot be shared out among them by speed")
        hint = _("Leave {key} out, or let another attempt begin instead: recovery.on_node_failure: restart").format(
            key="shares"
        )
    elif total is None:
        message = _("how many samples a step has is not said: they cannot be shared out by speed")
        hint = _("Write strategy.data_parallel.batch_size.")
    elif total < ranks:
        message = _("{total} samples a step are too few for {ranks} ranks").format(total=total, ranks=ranks)
        path, hint = ("strategy", "data_parallel", "batch_size"), _("Take a larger batch a step, or fewer ranks.")
    else:
        return []
    return [error("shares", _SUBJECT, message, hint, path=path)]


def _unknown(reason: str, members: Sequence[Member]) -> Finding:
    text = _("{reason}: samples are shared out equally until an attempt has measured how fast its ranks are")
    hint = _("Write speeds instead of by_speed: {example}").format(example=f"shares: {{{members[-1].node.id}: 0.5}}")
    return warning("shares-unknown", _SUBJECT, text.format(reason=reason), hint, path=KEY)


def _check_names(
    given: Mapping[str, float], job: Job, inventory: Inventory, members: Sequence[Member]
) -> list[Finding]:
    """Name the nodes that have a speed and do not take part."""
    names = {name for member in members for name in (member.node.id, member.name, member.environment.id)}
    findings = []
    for name in given:
        if name in names or name in job.recovery.spares:
            continue
        path: PathKey = (*KEY, name)
        if inventory.find(name) is None:
            message = _('{key} names "{name}", which the inventory does not have').format(key=_SUBJECT, name=name)
            hint = did_you_mean(name, [member.node.id for member in members]) or _("Name a node by its id.")
            findings.append(error("shares-unknown-node", _SUBJECT, message, hint, path=path))
        else:
            # It took part before another took its place, or will.
            message = _("{name} has a speed and takes no part in the job").format(name=name)
            findings.append(info("shares-of-nobody", _SUBJECT, message, path=path))
    return findings


def _given(given: Mapping[str, float], members: Sequence[Member], nodes: Sequence[NodeLayout]) -> tuple[float, ...]:
    speeds: list[float] = []
    for member, node in zip(members, nodes, strict=True):
        named = (name for name in (member.node.id, member.name, member.environment.id) if name in given)
        name = next(named, None)
        speeds += [given[name] if name is not None else 1.0] * len(node.ranks)
    return tuple(speeds)


def _by_type(job: Job, members: Sequence[Member], table: GpuTable) -> tuple[float, ...]:
    """Return how fast each rank's GPU is, FLOP/s at its peak. Raises UnknownAssumptionError."""
    simulated = [member.name for member in members if member.environment.simulated]
    if simulated:
        raise UnknownAssumptionError(_("the GPUs of {node} are simulated").format(node=simulated[0]))
    types = gpu_types(members, table)
    precision = job.model.precision if job.model is not None else None
    precision = precision or usual_precision({id(gpu): gpu for gpu in types}.values())
    return tuple(gpu.peak_flops(precision) for gpu in types)


def _counts(samples: Sequence[int]) -> str:
    """Return `6`, or `2 × 4` for two ranks of four, joined by +."""
    runs = ((len([*same]), count) for count, same in groupby(samples))
    return " + ".join(f"{number} × {count}" if number > 1 else str(count) for number, count in runs)
