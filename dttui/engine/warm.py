"""Asks a host, during the preflight, for a process that keeps torch imported; a launch never depends on it."""

from __future__ import annotations

from dtagent.protocol.rpc import ErrorCode
from dtagent.protocol.warm_start import WarmReply, WarmRequest, WarmState

from dttui.agent_words import agent_text
from dttui.errors import AgentError, HostError
from dttui.frameworks.bundle import holes_in
from dttui.i18n import msg
from dttui.planning.models import PlannedNode
from dttui.rpc.client import AgentClient

TIMEOUT_S = 10.0


async def ask_warm(client: AgentClient, planned: PlannedNode) -> str:
    """Ask for it; return why there will be none, as a message, or nothing."""
    process = next((item for item in planned.processes if item.warm_start), None)
    if process is None:
        return ""
    env = {name: value for name, value in process.env.items() if not (name.startswith("DTTUI_") or holes_in(value))}
    try:
        reply = await client.call("warm", WarmRequest(planned.python, env), WarmReply, TIMEOUT_S)
    except AgentError as error:
        if error.code == ErrorCode.UNKNOWN_METHOD:
            return msg("{host}: no warm start: its agent is too old", host=client.name)
        return msg("{host}: no warm start: {reason}", host=client.name, reason=error.message)
    except HostError:
        return ""  # The preflight tells.
    if reply.state is WarmState.FAILED:
        reason = agent_text(reply.reason, reply.reason_notice)
        return msg("{host}: no warm start: {reason}", host=client.name, reason=reason)
    return ""
