"""Whether a node has room for the job now: what its GPUs do, looked at again where a job has only just ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from dtagent.protocol.facts import HostFacts
from dtagent.protocol.telemetry import HostSample

from dttui.errors import AgentError
from dttui.i18n import _
from dttui.inventory.models import Inventory
from dttui.jobs.board import Board, Judgement
from dttui.jobs.checks import CheckStatus
from dttui.planning.models import Plan, PlannedNode
from dttui.preflight.occupation import check_room, count_free
from dttui.rpc.client import AgentClient

SAMPLE_WAIT_S = 5.0
GPU_WAIT_S = 8.0
"""How long the first reading of the GPUs may take."""
ROOM_WAIT_S = 3.5
"""How long GPUs that are taken are looked at again before the job is refused."""


async def read_sample(client: AgentClient, facts: HostFacts, after: int | None) -> HostSample:
    """Return what a host does now.

    Args:
        client: its agent.
        facts: of the host.
        after: number of a reading that is not wanted again, nor any before it.

    Raises:
        HostError: it does not say.
    """
    deadline = time.monotonic() + GPU_WAIT_S
    while True:
        samples = await client.telemetry(after, SAMPLE_WAIT_S)
        sample = samples[-1].sample if samples else None
        is_late = time.monotonic() > deadline
        # A daemon that is only just starting has not heard from the GPUs' driver yet.
        if sample is not None and (sample.gpus or not facts.gpus or is_late):
            return sample
        if is_late:
            raise AgentError(client.name, _("{host}: the agent does not read its host").format(host=client.name))
        after = sample.seq if sample is not None else after


def judge_gpus(plan: Plan, inventory: Inventory, planned: PlannedNode, sample: HostSample) -> Judgement:
    """Say how many of a node's GPUs are free, and who holds those that the job would need."""
    environment = inventory.find(planned.name)
    declared = environment.resources.gpu if environment is not None else None
    slots = declared.count if planned.simulated and declared is not None else 0
    found = tuple(check_room(plan, inventory, {planned.name: sample}))
    free, every = count_free(sample, slots, planned.gpu_ids)
    if not every:
        return Judgement(_("no GPUs"), found, CheckStatus.NONE if not found else CheckStatus.OK)
    return Judgement(_("{free} of {all} free").format(free=free, all=every), found)


async def wait_for_room(board: Board, read_again: Callable[[str], Awaitable[None]]) -> None:
    """Have hosts read again whose GPUs are taken: a job that has only just ended may be in the first reading still."""
    deadline = time.monotonic() + ROOM_WAIT_S
    while time.monotonic() < deadline:
        taken = [finding.subject for finding in board.errors if finding.code == "gpus-taken"]
        if not taken:
            return
        await asyncio.gather(*map(read_again, taken), return_exceptions=True)
