"""Environments that a job names beside its nodes, to take the place of one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from dttui.i18n import _
from dttui.inventory.models import Inventory
from dttui.planning.roster import Member
from dttui.spec.findings import Finding, error, warning
from dttui.spec.problems import PathKey, did_you_mean


def most_slots(members: Sequence[Member]) -> int:
    """Return how many the widest node uses."""
    return max((member.slots for member in members), default=0)


def check_reserves(
    kind: Literal["spare", "candidate"],
    asked: Sequence[str],
    inventory: Inventory,
    members: Sequence[Member],
    path: PathKey,
    taken_already: str,
) -> Iterator[Finding]:
    """Yield what is wrong with them: not there, taken already, or with fewer GPUs than the widest node uses.

    Args:
        kind: what they are to the job.
        asked: names or ids.
        inventory: environments on offer.
        members: the job's nodes, in order of rank.
        path: of the key that lists them.
        taken_already: what is said of one that is; `{name}` stands for it.
    """
    taken, most = {member.name for member in members}, most_slots(members)
    for index, name in enumerate(asked):
        here: PathKey = (*path, index)
        environment = inventory.find(name)
        if environment is None:
            names = [key for item in inventory.environments for key in (item.name, item.id) if key is not None]
            message = _("there is no environment {name}").format(name=name)
            yield error(f"unknown-{kind}", name, message, did_you_mean(name, names), path=here)
            continue
        if environment.name in taken:
            message = taken_already.format(name=environment.name)
            yield error("same-environment", name, message, _("Name each environment once."), path=here)
        taken.add(environment.name)
        gpu = environment.resources.gpu
        if gpu is not None and gpu.count < most:
            message = _("{name} has {count} GPUs, and a node of the job uses {most}: it can take no such node's place")
            told = message.format(name=environment.name, count=gpu.count, most=most)
            yield warning(f"small-{kind}", name, told, path=here)
