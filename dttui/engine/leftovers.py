"""What attempts have left on hosts: what still runs on lost ones is ended, and logs left on any are fetched.

`clean_up_after_job` looks once at the hosts of a job that is over. A controller does it where `dttui attach JOB`
starts one for such a job, or `dttui stop JOB` where that has lost hosts (`cleans_up` in `launch/starting.py`), and
through `completion` up to eight times after its own job's end, as long as hosts are known to keep logs. What is left
to look at is told by the events alone: `jobs/left_to_do.py`. Between the attempts of a job that goes on, `lost_hosts`
ends leftovers host by host, with the same `end_leftovers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import EventKind, NodeStanding
from dtagent.protocol.jobs import NodeState, NodeStatus
from dtagent.protocol.rpc import ErrorCode

from dttui.agent_words import agent_text
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.copies.metric_copy import read_metrics
from dttui.engine.failures import ending, last_words
from dttui.engine.nodes.node_record import Shared
from dttui.engine.nodes.node_run import NodeRun, disk_words
from dttui.engine.nodes.node_warnings import log_rest
from dttui.engine.recovered import RecoveredState
from dttui.engine.watch import STOP_DEADLINE_S
from dttui.errors import AgentError, AgentGoneError, HostError, HostUnreachableError
from dttui.i18n import msg
from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.left_to_do import LOG_REST, lost_in, unfetched_in
from dttui.planning.models import Plan
from dttui.spec.findings import info
from dttui.transport.base import Prompter, Transport

LOOK_DEADLINE_S = 20.0
LOOK_AT_LINK_S = 1.0
"""Between two looks at whether the link is still there, over which logs come."""


async def clean_up_after_job(
    directory: JobDirectory,
    log: EventLog,
    inventory: Inventory,
    transport: Transport,
    prompter: Prompter,
    *,
    forced: asyncio.Event,
) -> None:
    """End what is left on lost nodes of a job that is over, fetch what is left of logs on all, and tell what was found.

    Args:
        directory: of the job.
        log: where it is told.
        inventory: the environments of the job.
        transport: how they are reached.
        prompter: who is asked for what it takes to log in.
        forced: set once there is to be no grace period, and no waiting for logs.
    """
    events = directory.read_events()
    newest = RecoveredState.read(directory, time.time())
    lost = [*lost_in(events).items()]
    looks = []
    # A host that an earlier attempt has lost, and that no later one has used since, still has that one's.
    attempts = dict.fromkeys([*lost, *unfetched_in(events)])
    plans = {number: _plan_of(directory, number, newest) for number in {number for _name, number in attempts}}
    for name, number in attempts:
        plan = plans[number]
        planned = next((node for node in plan.nodes if node.name == name), None)
        environment = inventory.find(name)
        if planned is not None and environment is not None:
            key = AttemptKey(directory.job_id, number)
            shared = Shared.of(plan, log.backlog)
            node = NodeRun(environment, planned, key, directory, transport, prompter, lambda: None, shared)
            node.record.resume(read_metrics(directory, number))
            looks.append((_end_and_fetch if (name, number) in lost else _fetch)(node, log, forced))
    await asyncio.gather(*looks)


def _plan_of(directory: JobDirectory, attempt: int, newest: RecoveredState) -> Plan:
    with contextlib.suppress(OSError, ValueError):
        return directory.read_bound_plan(attempt).plan
    return newest.plan


async def _end_and_fetch(node: NodeRun, log: EventLog, forced: asyncio.Event) -> None:
    attempt_log = AttemptLog(log, node.key.attempt)
    attempt_log.progress(msg("looking at {host} again", host=node.name))
    is_gone = False
    try:
        state, message = await end_leftovers(node, attempt_log, forced)
    except HostError as error:
        state, message = NodeStanding.LOST, msg("looked again: {reason}", reason=error.message)
        is_gone = isinstance(error, AgentGoneError)
    finally:
        await node.close()
    found = {"agent_gone": is_gone} if state is NodeStanding.LOST else last_words(node)
    data = {"state": state.value, **found}
    log.add(EventKind.NODE_STATE, message, attempt=node.key.attempt, node=node.name, data=data)


async def _fetch(node: NodeRun, log: EventLog, forced: asyncio.Event) -> None:
    """Fetch the rest of the logs of a node, and tell whether there is any more of them there."""
    attempt_log = AttemptLog(log, node.key.attempt)
    attempt_log.progress(msg("fetching the rest of the logs of {host}", host=node.name))
    try:
        await node.retry_until_deadline("status", node.key, NodeStatus, LOOK_DEADLINE_S)
        await _drain(node, asyncio.create_task(node.follow()), forced)
    except HostError as error:
        if isinstance(error, AgentError) and error.code == ErrorCode.NO_SUCH_ATTEMPT:
            with contextlib.suppress(OSError):  # That there is no room was told.
                node.record.logs.mark_the_end()
            message = msg("{host} keeps nothing of this job any more", host=node.name)
            attempt_log.tell(info(LOG_REST, node.name, message))
        else:
            attempt_log.progress(msg("the rest was not fetched: {reason}", reason=error.message))
    else:
        message = msg("the rest of the logs of {host} was fetched", host=node.name)
        fetched = info(LOG_REST, node.name, message)
        attempt_log.tell(log_rest(node.key.job_id, node) if node.is_cut_short else fetched)
    finally:
        await node.close()


async def _end_and_drain(node: NodeRun, forced: asyncio.Event, *, force: bool, limit_s: float) -> None:
    """Have a node end its part, and wait for its logs once it has; return where it has not within the limit.

    So it does where the node is told gracefully, and there is to be no grace period any more. Raises HostError.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    ending = asyncio.create_task(node.end(force=force))
    try:
        while not (node.is_over or ending.done() or (forced.is_set() and not force)) and loop.time() < deadline:
            await asyncio.wait({ending}, timeout=min(LOOK_AT_LINK_S, deadline - loop.time()))
        if node.is_over or ending.done():
            await _drain(node, ending, forced)
    finally:
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)


async def _drain(node: NodeRun, following: asyncio.Task[None], forced: asyncio.Event) -> None:
    """Wait until all logs of a node that has ended are here. Raises HostError where it falls silent."""
    try:
        silent_from: float | None = None
        while not following.done():
            node.hurries = forced.is_set()
            await asyncio.wait({following}, timeout=LOOK_AT_LINK_S)
            if node.disk_trouble is not None:
                raise HostUnreachableError(node.name, disk_words(node.disk_trouble))
            silent_from = None if node.silent_since is None else silent_from or time.monotonic()
            if silent_from is not None and time.monotonic() - silent_from > LOOK_DEADLINE_S:
                message = msg("no word from {host} for {seconds:.0f} s", host=node.name, seconds=LOOK_DEADLINE_S)
                raise HostUnreachableError(node.name, message)
        following.result()
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def end_leftovers(node: NodeRun, log: AttemptLog, forced: asyncio.Event) -> tuple[NodeStanding, str]:
    """Return the node's state afterwards, and what was found; tell where not all of its logs is here."""
    try:
        before = await node.retry_until_deadline("status", node.key, NodeStatus, LOOK_DEADLINE_S)
    except AgentError as error:
        if error.code != ErrorCode.NO_SUCH_ATTEMPT:
            raise
        await node.stop(force=True)  # Of what has no records any more, it is its processes that tell.
        if node.status is None or node.status.state is NodeState.DISCARDED:
            with contextlib.suppress(OSError):  # That there is no room was told.
                node.record.logs.mark_the_end()
            return NodeStanding.ENDED, msg("looked again: nothing of this job is there")
        before = node.status
    try:
        if not forced.is_set():
            await _end_and_drain(node, forced, force=False, limit_s=STOP_DEADLINE_S)
        if not node.is_over:
            await _end_and_drain(node, forced, force=True, limit_s=LOOK_DEADLINE_S)
    except HostError as error:
        if not node.is_clean:
            raise
        log.tell(log_rest(node.key.job_id, node, msg("the rest was not fetched: {reason}", reason=error.message)))
    if node.is_cut_short:
        log.tell(log_rest(node.key.job_id, node))
    status = node.status or before
    if not status.state.is_final:
        return NodeStanding.LOST, msg("it has not ended; what runs there is unknown")
    if not node.is_clean:
        why = agent_text(status.reason, status.reason_notice)
        return NodeStanding.LOST, why or msg("it has not ended; what runs there is unknown")
    if before.state.is_final:
        return NodeStanding.STOPPED, msg("looked again: it had ended ({how})", how=ending(status) or status.state.value)
    return NodeStanding.STOPPED, msg(
        "looked again: it was still there, and was ended ({how})", how=ending(status, node.told_to_end_at)
    )
