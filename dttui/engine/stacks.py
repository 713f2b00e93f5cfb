"""Asks all hosts of an attempt where its ranks stand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from dtagent.protocol import rpc
from dtagent.protocol.stacks import RankStacks, StacksReply, StacksRequest

from dttui.diagnosis.stack_report import NodeStacks
from dttui.engine.nodes.node_run import NodeRun
from dttui.errors import HostError
from dttui.i18n import _
from dttui.redaction import Redaction
from dttui.transport.deadline import within

DEADLINE_S = 40.0
"""Of a host that does not answer sooner it is said that it does not."""


async def ask_stacks(
    nodes: Sequence[NodeRun], ranks: Sequence[int] | None, redaction: Redaction, deadline_s: float = DEADLINE_S
) -> tuple[NodeStacks, ...]:
    """Return where the ranks of each node stand, or why that is not known."""
    asked = [node for node in nodes if ranks is None or set(node.ranks) & set(ranks)]
    return tuple(await asyncio.gather(*(_ask(node, ranks, redaction, deadline_s) for node in asked)))


async def _ask(node: NodeRun, ranks: Sequence[int] | None, redaction: Redaction, deadline_s: float) -> NodeStacks:
    wanted = sorted(set(node.ranks) & set(ranks)) if ranks is not None else None
    request = StacksRequest(node.key, wanted)

    async def ask() -> StacksReply:
        return await (await node.connect()).call("stacks", request, StacksReply, deadline_s)

    try:
        reply = await within(ask(), deadline_s)
    except asyncio.TimeoutError:
        message = _("{host}: no answer within {seconds:g} s").format(host=node.name, seconds=deadline_s)
        return NodeStacks(node.name, error=message)
    except HostError as error:
        return NodeStacks(node.name, error=error.message)
    known = {rank.rank: rank for rank in reply.ranks if rank.rank in node.ranks}
    # A rank that its host says nothing of has not come so far as to have a process.
    found = [known.get(rank, RankStacks(rank, None)) for rank in wanted or node.ranks]
    return NodeStacks(node.name, tuple(_without_secrets(rank, redaction) for rank in found))


def _without_secrets(rank: RankStacks, redaction: Redaction) -> RankStacks:
    told = rpc.to_wire(rank)
    return NodeStacks.rank_of(_hidden(told, redaction))


def _hidden(value: Any, redaction: Redaction) -> Any:
    if isinstance(value, str):
        return redaction.text(value)
    if isinstance(value, dict):
        return {key: _hidden(item, redaction) for key, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item, redaction) for item in value]
    return value
