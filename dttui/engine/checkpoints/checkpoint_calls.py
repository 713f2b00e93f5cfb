"""Asks a host about checkpoints while an attempt runs; one that is silent is not waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from dtagent.protocol.checkpoints import MAX_SEARCH_S
from dtagent.protocol.replication import MAX_STORES, CopiesReply, CopiesRequest

from dttui.engine.nodes.node_run import NodeRun
from dttui.errors import HostError

CALL_S = MAX_SEARCH_S + 15.0
_Reply = TypeVar("_Reply")


async def ask(node: NodeRun, method: str, request: object, reply: type[_Reply]) -> _Reply | None:
    """Return what a host answers; `None` where it does not, or its agent is too old."""
    try:
        if node.client is None or node.silent_since is not None:
            return None
        return await node.client.call(method, request, reply, CALL_S)
    except HostError:
        return None  # Who watches the hosts tells.


async def let_copies_go(node: NodeRun, stores: Sequence[str]) -> HostError | None:
    """Have all copies in some directories removed, over as many links as that takes; return why they are not."""
    try:
        for first in range(0, len(stores), MAX_STORES):
            request = CopiesRequest(list(stores[first : first + MAX_STORES]), drop=True)
            await node.retry_until_deadline("copies", request, CopiesReply, CALL_S)
    except HostError as error:
        return error
    return None
