"""Which environments may stand for a job's nodes while it waits for its hosts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dttui.i18n import _
from dttui.inventory.models import Environment, Inventory
from dttui.planning.reserves import check_reserves, most_slots
from dttui.planning.roster import Member
from dttui.spec.findings import Finding, warning
from dttui.spec.models import Job
from dttui.spec.problems import PathKey

_KEY = "cluster.candidates"
_PATH: PathKey = ("cluster", "candidates")
MOST_CANDIDATES = 64
"""Of a whole inventory: each is asked every two seconds while the job waits."""


def candidates_of(job: Job, inventory: Inventory, members: Sequence[Member]) -> tuple[str, ...]:
    """Return the names of the environments that do as well as the job's nodes, in order of preference."""
    asked = job.cluster.candidates
    taken = {member.name for member in members}
    if asked == "any":
        taken |= {item.name for spare in job.recovery.spares if (item := inventory.find(spare)) is not None}
        doing = (item for item in inventory.environments if _is_alike(item, members) and not _is_small(item, members))
        found = [item.name for item in doing if item.name not in taken][:MOST_CANDIDATES]
    else:
        found = [item.name for name in asked if (item := inventory.find(name)) is not None]
    return tuple(name for name in dict.fromkeys(found) if name not in taken)


def check_candidates(job: Job, inventory: Inventory, members: Sequence[Member]) -> list[Finding]:
    """Return what is wrong with those that a job names, and what it loses where it begins on them."""
    asked, checkpoint = job.cluster.candidates, job.recovery.checkpoint
    found = [] if asked == "any" else [*_check(asked, inventory, members)]
    if asked and checkpoint is not None and not checkpoint.shared and not checkpoint.copies:
        message = _(
            "checkpoints in {path} lie on the hosts that wrote them: started again, the job may begin on others"
        )
        hint = _("Write shared: true where all hosts see that directory, or leave cluster.candidates out.")
        told = message.format(path=checkpoint.dir)
        found.append(warning("candidates-without-checkpoint", "recovery.checkpoint", told, hint))
    return found


def check_unqueued(job: Job) -> list[Finding]:
    """Say that a job which does not wait begins on the nodes that it names, whoever does as well."""
    if not job.cluster.candidates:
        return []
    message = _("cluster.candidates has no effect on a job that does not wait for its hosts")
    return [warning("candidates-unused", _KEY, message, _("Launch it by dttui apply FILE --queue."), path=_PATH)]


def _is_alike(environment: Environment, members: Sequence[Member]) -> bool:
    """Whether its GPUs are simulated where those of a node are, and real where they are not."""
    return any(environment.simulated == member.environment.simulated for member in members)


def _is_small(environment: Environment, members: Sequence[Member]) -> bool:
    """Whether it has fewer GPUs by the inventory than the widest node uses."""
    gpu = environment.resources.gpu
    return gpu is not None and gpu.count < most_slots(members)


def _check(asked: Sequence[str], inventory: Inventory, members: Sequence[Member]) -> Iterator[Finding]:
    taken = _("{name} is listed already, and cannot be a candidate besides")
    yield from check_reserves("candidate", asked, inventory, members, _PATH, taken)
    for index, name in enumerate(asked):
        environment = inventory.find(name)
        if environment is not None and members and not _is_alike(environment, members):
            message = _("{name} is of another kind: the GPUs of the one are simulated, and those of the other are not")
            yield warning("unlike-candidate", _KEY, message.format(name=environment.name), path=(*_PATH, index))
