"""Asks a host about checkpoints while an attempt runs; one that is silent is not waited for."""

from __future__ import annotations

from typing import TypeVar

from dtagent.protocol.checkpoints import MAX_SEARCH_S

from dttui.engine.nodes.node_run import NodeRun
from dttui.errors import HostError

_Reply = TypeVar("_Reply")


async def ask(node: NodeRun, method: str, request: object, reply: type[_Reply]) -> _Reply | None:
    """Return what a host answers; `None` where it does not, or its agent is too old."""
    try:
        if node.client is None or node.silent_since is not None:
            return None
        return await node.client.call(method, request, reply, MAX_SEARCH_S + 15.0)
    except HostError:
        return None  # Who watches the hosts tells.
