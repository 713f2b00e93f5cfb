"""A preflight by itself: of a job that is not being launched, over connections of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from dtagent.protocol.facts import HostFacts

from dttui.fleet.known_hardware import known_hardware
from dttui.inventory.models import Inventory
from dttui.jobs.board import Board, Changed
from dttui.launch.local_plan import make_local_plan
from dttui.planning.cost.links import MeasuredLink
from dttui.planning.lineup import Lineup
from dttui.planning.models import Finding, Plan
from dttui.planning.submission import Submission
from dttui.preflight.nodes import CheckedHost
from dttui.preflight.preflight import Preflight, Replan
from dttui.preflight.spares import SpareChecks
from dttui.transport.base import Prompter, Transport


async def check(
    submission: Submission,
    plan: Plan,
    transport: Transport,
    prompter: Prompter,
    *,
    measures_bandwidth: bool = False,
    begin: Callable[[Board], None] | None = None,
    on_change: Changed | None = None,
) -> Board:
    """Check the hosts of a job and the network between them, and its spares; start nothing.

    Args:
        submission: the job, and the codes of errors that are to be ignored.
        plan: of it, without errors.
        transport: how hosts are reached.
        prompter: who is asked for what it takes to log in.
        measures_bandwidth: of each node to the next.
        begin: given the board before anything is on it.
        on_change: told of every change of it.
    """
    hardware = known_hardware(submission.inventory.environments, lenient=True)

    def replan_for(lineup: Lineup) -> Replan:
        def replan(known: Inventory, facts: dict[str, HostFacts], links: Sequence[MeasuredLink]) -> Plan:
            changed = replace(submission, inventory=known, job=lineup.apply(submission.job, known))
            return make_local_plan(changed, facts, hardware.with_links(links))

        return replan

    ignored = frozenset(submission.ignored)
    nodes = [
        CheckedHost(environment, planned, transport, prompter)
        for planned in plan.nodes
        if (environment := submission.inventory.find(planned.name)) is not None
    ]
    run = Preflight(
        nodes,
        plan,
        submission.inventory,
        replan_for(Lineup()),
        ignored=ignored,
        measures_bandwidth=measures_bandwidth,
        is_thorough=True,
        on_change=on_change,
    )
    if begin is not None:
        begin(run.board)
    found: list[Finding] = []
    spares = SpareChecks(plan, submission.inventory, replan_for, transport, prompter, ignored)
    checking = asyncio.create_task(spares.run(run, found.append))
    try:
        board = await run.run()
        await checking
        board.say([*board.others, *found])
        return board
    finally:
        checking.cancel()
        await asyncio.gather(checking, return_exceptions=True)
        for node in nodes:
            await node.close()
