"""`dttui agents remove`: takes the agent off hosts, so that nothing of ours is left there but what is said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import NodeState, NodeStatus, StopRequest
from pydantic import BaseModel, ConfigDict

from dttui.errors import AgentError, HostError, RefusedError
from dttui.fleet.deployment.deploy import decode
from dttui.fleet.deployment.each_host import Visit, on_each
from dttui.fleet.deployment.outcomes import AgentRemoval, AttemptSeen
from dttui.fleet.deployment.remote_program import Program, ask_host
from dttui.fleet.deployment.status import inspect
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.rpc.client import AgentClient
from dttui.sanitize import clean
from dttui.transport.base import Prompter, Transport

STOP_DEADLINE_S = 60.0
"""How long jobs have to end: their grace period, and then the kill."""
POLL_S = 0.2


class _Removed(BaseModel):
    model_config = ConfigDict(frozen=True)

    removed: bool
    kept: list[str]
    jobs: int


async def remove_all(
    environments: Sequence[Environment],
    transport: Transport,
    prompter: Prompter,
    *,
    force: bool = False,
    jobs: bool = False,
    checkpoints: bool = False,
    dry_run: bool = False,
    on_progress: Callable[[str, str], None] = lambda host, message: None,
    on_done: Callable[[str, AgentRemoval | HostError], None] = lambda host, result: None,
) -> list[AgentRemoval | HostError]:
    """Remove the agent from hosts, many at a time; return what became of each, in their order.

    A host where a job runs answers with RefusedError, and stays as it is.

    Args:
        environments: the hosts.
        transport: how to reach them.
        prompter: asked for passwords and new host keys while connecting.
        force: stop the jobs that run there first.
        jobs: remove what jobs left too: logs, work directories, records.
        checkpoints: with `jobs`, also the checkpoints below them.
        dry_run: stop and remove nothing, and return what that would have come to.
        on_progress: told a host's name and what is being done there.
        on_done: told a host's name and what came of it, as soon as that is known.
    """

    async def act(visit: Visit) -> AgentRemoval:
        seen = await inspect(visit)
        busy = [item for item in seen.attempts if item.is_busy]
        names = tuple(sorted({clean(item.job) for item in busy}))
        if busy and not force:
            message = _("{host}: jobs run there: {jobs}").format(host=visit.host, jobs=", ".join(names))
            raise RefusedError(visit.host, message, _("Stop them first, or let --force stop them."))
        if dry_run:
            has_agent = seen.probe.current is not None or seen.daemon is not None
            return AgentRemoval(visit.host, has_agent, names, len(seen.attempts) if jobs else 0, ())
        if busy:
            visit.say(_("stopping {jobs}").format(jobs=", ".join(names)))
            await _stop(visit, busy)
        visit.say(_("removing the agent"))
        root = visit.connection.environment.agent_root
        request = {"action": "remove", "root": root, "jobs": jobs, "checkpoints": checkpoints}
        answer = await ask_host(visit.connection, request, program=Program.AGENTS)
        done = decode(visit.host, _Removed, answer.result)
        return AgentRemoval(visit.host, done.removed, names, done.jobs, tuple(map(clean, done.kept)))

    return await on_each(environments, transport, prompter, act, on_progress=on_progress, on_done=on_done)


async def _stop(visit: Visit, attempts: Sequence[AttemptSeen]) -> None:
    """Stop attempts and wait until every process of theirs is gone. Raises HostError."""
    client = await AgentClient.over(visit.connection)
    try:
        await asyncio.gather(*(_stop_one(client, AttemptKey(item.job, item.attempt)) for item in attempts))
    finally:
        await client.leave()


async def _stop_one(client: AgentClient, key: AttemptKey) -> None:
    status = await client.call("stop", StopRequest(key), NodeStatus)
    deadline = asyncio.get_running_loop().time() + STOP_DEADLINE_S
    while not status.state.is_final and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(POLL_S)
        status = await client.call("status", key, NodeStatus)
    if status.state.is_final and status.state is not NodeState.UNKILLABLE:
        return
    left = ", ".join(f"{item.pid} ({clean(item.command)})" for item in status.leftovers) or clean(key.job_id)
    raise AgentError(
        client.name,
        _("{host}: these processes cannot be ended: {left}").format(host=client.name, left=left),
        _("The agent stays, to watch them. Ask an administrator to restart the host."),
    )
