"""Which hosts a job's attempt ran on, and what they call it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from dtagent.protocol.attempt_key import AttemptKey

from dttui.errors import UsageError
from dttui.fetching.models import FetchRequest
from dttui.i18n import _
from dttui.inventory.models import Environment, Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.plan_file import SeenPlan, read_plan_file


@dataclass(frozen=True)
class AskedHosts:
    """The hosts of an attempt that a person asks about."""

    attempt: int
    keys: Sequence[tuple[Environment, AttemptKey]]
    """Each with what the attempt is called there."""
    nodes: int
    """How many the attempt has in all."""


def hosts_of(directory: JobDirectory, asked: FetchRequest, inventory: Inventory | None) -> AskedHosts:
    """Return the attempt that is asked for, and its hosts.

    Raises:
        UsageError: there is no such attempt or node, or an environment is not known any more.
    """
    known = _attempts_of(directory)
    attempt = known[-1] if asked.attempt is None else asked.attempt
    if attempt not in known:
        raise UsageError(
            _("job {id} has no attempt {attempt}").format(id=directory.job_id, attempt=attempt),
            _("Its last one is {attempt}.").format(attempt=known[-1]),
        )
    names = [node.name for node in _plan_of(directory, attempt).nodes]
    if missing := [name for name in asked.nodes if name not in names]:
        raise UsageError(
            _("job {id} has no node {node}").format(id=directory.job_id, node=missing[0]),
            _("Its nodes: {names}").format(names=", ".join(names)),
        )
    try:
        launch = directory.read_launch()
    except OSError as error:
        raise UsageError(
            _("{path} cannot be read: {reason}").format(path=directory.launch, reason=error.strerror)
        ) from error
    # An attempt before this job's first is of the job that it goes on from, and called so on the hosts.
    job_id = launch.earlier[attempt] if attempt < len(launch.earlier) else directory.job_id
    hosts = []
    for name in names:
        if not asked.nodes or name in asked.nodes:
            environment = (inventory or launch.inventory).find(name)
            if environment is None:
                raise UsageError(_("there is no environment {name}").format(name=name))
            hosts.append((environment, AttemptKey(job_id, attempt)))
    return AskedHosts(attempt, hosts, len(names))


def all_hosts_of(directory: JobDirectory, inventory: Inventory | None) -> dict[str, tuple[Environment, list[str]]]:
    """Return every host that an attempt ran on → its environment, and what the job is called there.

    Raises:
        UsageError: there is none, or an environment is not known any more.
    """
    found: dict[str, tuple[Environment, list[str]]] = {}
    for attempt in _attempts_of(directory):
        for environment, key in hosts_of(directory, FetchRequest(attempt=attempt), inventory).keys:
            job_ids = found.setdefault(environment.name, (environment, []))[1]
            if key.job_id not in job_ids:
                job_ids.append(key.job_id)
    return found


def _attempts_of(directory: JobDirectory) -> list[int]:
    """Return the attempts that came as far as a start, the newest last. Raises UsageError for none."""
    found = []
    with contextlib.suppress(OSError):
        found = [int(path.name) for path in directory.bound_plan(0).parents[1].iterdir() if path.name.isdecimal()]
    started = sorted(number for number in found if directory.bound_plan(number).exists())
    if not started:
        raise UsageError(
            _("job {id} has started nowhere: no host has anything of it").format(id=directory.job_id),
            _("`dttui status {id}` tells what became of it.").format(id=directory.job_id),
        )
    return started


def _plan_of(directory: JobDirectory, attempt: int) -> SeenPlan:
    path = directory.bound_plan(attempt)
    try:
        return read_plan_file(path)
    except (OSError, ValueError) as error:
        raise UsageError(_("{path} cannot be read: {reason}").format(path=path, reason=str(error))) from error
