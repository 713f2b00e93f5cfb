"""A preflight by itself: of a job that is not being launched, over connections of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dttui.fleet.known_hardware import known_hardware
from dttui.jobs.board import Board, Changed
from dttui.launch.submit import make_local_plan
from dttui.planning.models import Plan
from dttui.planning.submission import Submission
from dttui.preflight.nodes import CheckedHost
from dttui.preflight.preflight import Preflight
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
    """Check the hosts of a job and the network between them; start nothing.

    Args:
        submission: the job, and the codes of errors that are to be ignored.
        plan: of it, without errors.
        transport: how hosts are reached.
        prompter: who is asked for what it takes to log in.
        measures_bandwidth: of each node to the next.
        begin: given the board before anything is on it.
        on_change: told of every change of it.
    """
    hardware = known_hardware(lenient=True)
    nodes = [
        CheckedHost(environment, planned, transport, prompter)
        for planned in plan.nodes
        if (environment := submission.inventory.find(planned.name)) is not None
    ]
    run = Preflight(
        nodes,
        plan,
        submission.inventory,
        lambda known, facts, links: make_local_plan(
            replace(submission, inventory=known), facts, hardware.with_links(links)
        ),
        ignored=frozenset(submission.ignored),
        measures_bandwidth=measures_bandwidth,
        is_thorough=True,
        on_change=on_change,
    )
    if begin is not None:
        begin(run.board)
    try:
        return await run.run()
    finally:
        for node in nodes:
            await node.close()
