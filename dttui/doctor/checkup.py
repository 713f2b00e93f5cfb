"""One check-up: the login node at once, all hosts at once, then what is between them. Changes nothing anywhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dttui.doctor.between import judge_drift, judge_reachability
from dttui.doctor.examination import Examined, examine_all
from dttui.doctor.hosts import judge_host, judge_unreached, unasked
from dttui.doctor.login_node import judge_known_hosts, judge_login_node
from dttui.doctor.models import Checkup, Site, Trouble
from dttui.doctor.reachability import Reachability, try_all
from dttui.errors import HostError, OutOfTimeError, UsageError
from dttui.fleet.waiting import OnWait
from dttui.i18n import _
from dttui.inventory.models import Environment, Inventory
from dttui.launch.local_plan import make_local_plan
from dttui.planning.models import Plan
from dttui.planning.submission import Submission
from dttui.spec.entry_points import COMMAND
from dttui.spec.findings import warning
from dttui.spec.models import Cluster, Job, Node, Run
from dttui.time_limits import left_for_work_s
from dttui.transport.base import Prompter
from dttui.transport.deadline import within
from dttui.transport.routes import Transports

CLEARING_S = 3.0
"""What it takes to end listeners, and daemons that were started for them."""
LOGIN_S = 30.0
"""For the login node: a home on a network disk may hang."""


async def check_up(
    environments: Sequence[Environment],
    routes: Transports,
    prompter: Prompter,
    *,
    unread: UsageError | None = None,
    options: Sequence[str] = (),
    on_wait: OnWait | None = None,
) -> Checkup:
    """Look at everything; return what is wrong.

    Args:
        environments: the hosts.
        routes: how they are reached.
        prompter: asked for what it takes to log in.
        unread: why the inventory cannot be read, where it cannot.
        options: what dttui was called with, for the commands that are advised.
        on_wait: told meanwhile who is waited for.
    """
    began = time.monotonic()
    here = asyncio.create_task(_login_node(environments, unread, options))
    try:
        answers = await examine_all(environments, routes, prompter, on_wait)
        told = [item for item in answers if isinstance(item, Examined)]
        failed = {
            environment.name: item
            for environment, item in zip(environments, answers, strict=True)
            if isinstance(item, HostError)
        }
        found = [judge_unreached(failure, name, options) for name, failure in failed.items()]
        found += await _judge_hosts(told, options)
        found += judge_drift(told, options)
        tried = await _try_all([item for item in told if item.can_serve], routes, prompter)
        found += judge_reachability(tried, told, options)
        not_asked = _not_asked(told, tried.silent)
        found += _tell_not_asked(not_asked, found)
        login = await here
    finally:
        here.cancel()
        await asyncio.gather(here, return_exceptions=True)
    return Checkup(
        tuple(environment.name for environment in environments),
        (*login, *judge_known_hosts(routes.warnings), *found),
        not_asked,
        frozenset(failed),
        any(isinstance(item, OutOfTimeError) for item in (*failed.values(), *tried.silent.values())),
        time.monotonic() - began,
    )


async def _judge_hosts(told: Sequence[Examined], options: Sequence[str]) -> list[Trouble]:
    """Return what is wrong with each host by itself, as one of a job on all of them."""
    if not told:
        return []
    plan = await asyncio.to_thread(_plan, [item.environment for item in told])
    nodes = {node.name: node for node in plan.nodes}
    offsets = [item.offset_s for item in told]
    found: list[Trouble] = []
    for item in told:
        found += judge_host(item, nodes.get(item.name), plan.world_size, offsets, options)
    return found


async def _try_all(hosts: Sequence[Examined], routes: Transports, prompter: Prompter) -> Reachability:
    """Let hosts try each other, where there are several, as long as there is time for that."""
    if len(hosts) < 2:
        return Reachability()
    left_s = left_for_work_s()
    try:
        return await within(try_all(hosts, routes, prompter), None if left_s is None else max(0.0, left_s - CLEARING_S))
    except asyncio.TimeoutError:
        message = _("the time for all hosts was up")
        return Reachability(silent={host.name: OutOfTimeError(host.name, message) for host in hosts})


async def _login_node(
    environments: Sequence[Environment], unread: UsageError | None, options: Sequence[str]
) -> list[Trouble]:
    try:
        return await within(asyncio.to_thread(lambda: list(judge_login_node(environments, unread, options))), LOGIN_S)
    except asyncio.TimeoutError:
        message = _("the login node could not be looked at within {seconds:g} s: a disk or an ssh-agent hangs")
        return [Trouble(Site.LOGIN, warning("unchecked", "login", message.format(seconds=LOGIN_S)))]


def _not_asked(told: Sequence[Examined], silent: Mapping[str, HostError]) -> dict[str, tuple[str, ...]]:
    """Return of each host of which not everything is known what could not be asked there."""
    words = {item.name: unasked(item) for item in told}
    for name, failure in silent.items():
        words[name] = (*words[name], _("the network to others: {reason}").format(reason=failure.message))
    return {name: what for name, what in words.items() if what}


def _tell_not_asked(not_asked: Mapping[str, Sequence[str]], found: Sequence[Trouble]) -> list[Trouble]:
    """Return warnings of what could not be asked, but for hosts of which was found why, and what to do about it."""
    explained = {item.finding.subject for item in found if item.commands and item.finding.code.startswith("agent-")}
    message = _("{host}: not asked: {what}")
    return [
        Trouble(Site.HOST, warning("unchecked", name, message.format(host=name, what="; ".join(words))))
        for name, words in not_asked.items()
        if name not in explained
    ]


def _plan(environments: Sequence[Environment]) -> Plan:
    """Return the plan of a job on all hosts, for what of a check depends on how many GPUs a job uses there."""
    job = Job(
        name="doctor",
        framework=COMMAND,
        run=Run(command=("true",)),
        dataset="none",
        cluster=Cluster(nodes=tuple(Node(id=environment.name) for environment in environments)),
    )
    return make_local_plan(Submission(job, Inventory(environments=tuple(environments)), Path()))
