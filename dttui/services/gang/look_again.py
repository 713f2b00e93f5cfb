"""Looking again at hosts that could not be reached when their job ended, and ending what is left there."""

from __future__ import annotations

import asyncio
import time

from dtagent.protocol.events import EventKind, NodeStanding
from dtagent.protocol.jobs import AttemptKey, NodeStatus
from dtagent.protocol.rpc import ErrorCode

from dttui.errors import AgentError, HostError
from dttui.i18n import told
from dttui.inventory.models import Inventory
from dttui.services.event_log import EventLog
from dttui.services.gang.lost_nodes import lost_nodes
from dttui.services.gang.metric_copy import read_metrics
from dttui.services.gang.node_run import NodeRun
from dttui.services.gang.outcome import ending, last_words
from dttui.services.gang.takeover import Remains
from dttui.services.gang.watch import STOP_DEADLINE_S
from dttui.services.jobs import JobDirectory
from dttui.transport.base import Prompter, Transport

LOOK_DEADLINE_S = 20.0


async def look_again(
    directory: JobDirectory,
    log: EventLog,
    inventory: Inventory,
    transport: Transport,
    prompter: Prompter,
    *,
    forced: asyncio.Event,
) -> None:
    """End what is left on the lost nodes of a job that is over, and tell what was found there.

    Args:
        directory: of the job.
        log: where it is told.
        inventory: the environments of the job.
        transport: how they are reached.
        prompter: who is asked for what it takes to log in.
        forced: set once there is to be no grace period.
    """
    remains = Remains.read(directory, time.time())
    lost = lost_nodes(remains.events)
    so_far = read_metrics(directory, remains.attempt)
    looks = []
    for planned in remains.plan.nodes:
        environment = inventory.find(planned.name)
        if planned.name in lost and environment is not None:
            key = AttemptKey(directory.job_id, remains.attempt)
            node = NodeRun(environment, planned, key, directory, transport, prompter, lambda: None)
            node.resume(so_far)
            looks.append(_look(node, log, forced))
    await asyncio.gather(*looks)


async def _look(node: NodeRun, log: EventLog, forced: asyncio.Event) -> None:
    log.add(EventKind.PROGRESS, told("looking at {host} again", host=node.name), attempt=node.key.attempt)
    try:
        state, message = await _end(node, forced)
    except asyncio.TimeoutError:
        state, message = NodeStanding.LOST, told("it has not ended; what runs there is unknown")
    except HostError as error:
        state, message = NodeStanding.LOST, told("looked again: {reason}", reason=error.message)
    finally:
        await node.close()
    data = {"state": state.value, **(last_words(node) if state is not NodeStanding.LOST else {})}
    log.add(EventKind.NODE_STATE, message, attempt=node.key.attempt, node=node.name, data=data)


async def _end(node: NodeRun, forced: asyncio.Event) -> tuple[NodeStanding, str]:
    """Return the node's state afterwards, and what was found."""
    try:
        before = await node.insist("status", node.key, NodeStatus, LOOK_DEADLINE_S)
    except AgentError as error:
        if error.code != ErrorCode.NO_SUCH_ATTEMPT:
            raise
        return NodeStanding.ENDED, told("looked again: nothing of this job is there")
    graceful = asyncio.create_task(node.end(force=forced.is_set()))
    hurry = asyncio.create_task(forced.wait())
    try:
        await asyncio.wait({graceful, hurry}, timeout=STOP_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
        if not graceful.done():
            graceful.cancel()
            await asyncio.gather(graceful, return_exceptions=True)
            await asyncio.wait_for(node.end(force=True), LOOK_DEADLINE_S)
        else:
            graceful.result()
    finally:
        hurry.cancel()
    status = node.status or before
    if not node.is_clean:
        return NodeStanding.LOST, status.reason or told("it has not ended; what runs there is unknown")
    if before.state.is_final:
        return NodeStanding.STOPPED, told(
            "looked again: it had ended ({how})", how=ending(status) or status.state.value
        )
    return NodeStanding.STOPPED, told("looked again: it was still there, and was ended ({how})", how=ending(status))
