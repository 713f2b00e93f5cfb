"""Whether hosts have room for a job now, and who is in the way. Pure: facts and samples in, findings out."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dtagent.protocol.telemetry import GpuSample, HostSample

from dttui.agent_words import agent_text
from dttui.fleet.occupants import occupant_text, occupants_of, on_gpu
from dttui.i18n import _, joined, ngettext
from dttui.inventory.models import Inventory
from dttui.planning.models import Finding, Plan, PlannedNode
from dttui.spec.findings import error, warning
from dttui.words import gpu_numbers, listed

BUSY_CPU_PERCENT = 80.0
"""Above it, and with a load of more than one a CPU, a host counts as busy."""
MERELY_BUSY = "host-busy"
"""Code of a warning that others use a host, which has room all the same."""
MAX_NAMES = 8
"""Holders that a finding names; the others are counted."""


def check_room(plan: Plan, inventory: Inventory, samples: Mapping[str, HostSample]) -> list[Finding]:
    """Return an error for each node with fewer free GPUs than the job uses there, a warning where it is merely busy.

    Of simulated GPUs every rank of another job of dttui takes one, or all of its node's. A host without a reading, or
    whose driver does not say who uses its GPUs, is not complained of.
    """
    found = []
    for node in plan.nodes:
        sample = samples.get(node.name)
        environment = inventory.find(node.name)
        declared = environment.resources.gpu if environment is not None else None
        if sample is not None:
            slots = declared.count if node.simulated and declared is not None else 0
            found.append(_too_few(node, sample, slots) or _busy(node, sample))
    return [finding for finding in found if finding is not None]


def count_free(sample: HostSample, slots: int, ids: Collection[int] = ()) -> tuple[int, int]:
    """Return how many GPUs are free, and of how many.

    Args:
        sample: what the host does.
        slots: number of simulated GPUs; 0 where they are not.
        ids: of which GPUs, by their numbers; none for all.
    """
    if slots:
        told = {hold.job: hold.simulated for hold in sample.holds or () if hold.simulated}
        taken = sum(told.values())
        taken += sum(
            max(1, sum(rank.simulated_gpus or 1 for rank in ranks))
            for job, ranks in sample.ranks.items()
            if job not in told
        )
        return max(0, slots - taken), slots
    asked = _asked(sample, ids)
    return sum(not _holders(gpu, sample) for gpu in asked), len(asked)


def _asked(sample: HostSample, ids: Collection[int]) -> list[GpuSample]:
    """Return the GPUs that are named; all where none is."""
    return [gpu for gpu in sample.gpus if not ids or gpu.index in ids]


def _too_few(node: PlannedNode, sample: HostSample, slots: int) -> Finding | None:
    """Compare what is free with what the job uses; `slots` is the number of simulated GPUs."""
    free, _every = count_free(sample, slots, node.gpu_ids)
    if slots:
        who = [occupant_text(occupant) for occupant in occupants_of(sample) if occupant.is_own or occupant.simulated]
        wanted = node.slots
    else:
        held: dict[str, list[str]] = {}
        for gpu in _asked(sample, node.gpu_ids):
            if names := _holders(gpu, sample):
                held.setdefault(joined(", ", names), []).append(str(gpu.index))
        who = [_("GPU {index}: {who}").format(index=", ".join(gpus), who=names) for names, gpus in held.items()]
        wanted = node.cuda_slots
    if free >= wanted or not who:
        return None
    if node.gpu_ids:
        message = _("{node}: the job wants GPU {ids} there, and not all are free: {who}")
        message = message.format(node=node.name, ids=gpu_numbers(node.gpu_ids), who=listed(who, MAX_NAMES))
        hint = _("Wait until they are free, choose other GPUs there, or any by their number alone.")
        return error("gpus-taken", node.name, message, hint)
    message = ngettext(
        "{node} has {free} free GPU and the job uses {wanted} there: {who}",
        "{node} has {free} free GPUs and the job uses {wanted} there: {who}",
        free,
    ).format(node=node.name, free=free, wanted=wanted, who=listed(who, MAX_NAMES))
    hint = _("Wait until they are free, use fewer GPUs there, or choose another environment.")
    return error("gpus-taken", node.name, message, hint)


def _busy(node: PlannedNode, sample: HostSample) -> Finding | None:
    reasons = [occupant_text(occupant) for occupant in occupants_of(sample) if occupant.job is not None]
    for gpu in sample.gpus:
        reasons += [name for name in _holders(gpu, sample) if name not in reasons]
    cpus = sample.cpu_count
    if cpus and (sample.cpu_percent or 0.0) > BUSY_CPU_PERCENT and (sample.load1 or 0.0) > cpus:
        told = _("CPU {percent:.0f}%, load {load:.1f} on {cpus} CPUs")
        reasons.append(told.format(percent=sample.cpu_percent, load=sample.load1, cpus=cpus))
    if not reasons:
        return None
    message = _("{node}: in use: {reason}").format(node=node.name, reason=listed(reasons, MAX_NAMES))
    return warning(MERELY_BUSY, node.name, message, _("The job shares the host, and may be slower."))


def _holders(gpu: GpuSample, sample: HostSample) -> list[str]:
    """Name what keeps a GPU from being used: jobs of dttui, other processes with user and pid, its own error."""
    jobs = {rank.pid: job for job, ranks in sample.ranks.items() for rank in ranks}
    names = [agent_text(gpu.error, gpu.error_notice)] if gpu.error else []
    holders = on_gpu(sample, gpu.index)
    names += [occupant_text(occupant) for occupant in holders]
    known = {occupant.job for occupant in holders}
    users = {occupant.user for occupant in holders}
    for process in gpu.processes or ():
        if process.pid in jobs:
            names += [_("job {id}").format(id=jobs[process.pid])] if jobs[process.pid] not in known else []
        elif process.user not in users:
            names.append(_("{user} (pid {pid})").format(user=process.user or "?", pid=process.pid))
    return list(dict.fromkeys(names))
