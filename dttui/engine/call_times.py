"""Asks the hosts of an attempt when its ranks called their collectives: how late each is follows from that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dtagent.protocol.stacks import CallTimesReply, StacksRequest

from dttui.diagnosis.lateness import Lateness, lateness
from dttui.engine.nodes.node_run import NodeRun

ASK_DEADLINE_S = 20.0
FEWEST_CALLS = 24
"""Of a rank, that are looked at: the newest ones, and where there were more since the last question, all of those."""


async def lateness_of(nodes: Sequence[NodeRun], since: float) -> dict[int, Lateness]:
    """Return for each rank how much others wait for it since a Unix time, in the process group where that is most."""
    asked = (
        node.answer_within("call_times", StacksRequest(node.key), CallTimesReply, ASK_DEADLINE_S) for node in nodes
    )
    answers = await asyncio.gather(*asked)
    groups: dict[str, dict[int, dict[int, float]]] = {}
    for node, answer in zip(nodes, answers, strict=True):
        told = [item for item in answer.ranks if item.rank in node.ranks] if answer is not None else []
        for item in told:
            for group in item.groups:
                calls = [(number, node.here(at)) for number, at in zip(group.numbers, group.times, strict=False)]
                newest = [call for call in calls if call[1] >= since]
                own = newest if len(newest) >= FEWEST_CALLS else calls[-FEWEST_CALLS:]
                groups.setdefault(group.group, {})[item.rank] = dict(own)
    return await asyncio.to_thread(_most_of, groups)  # Of a thousand ranks it takes a second.


def _most_of(groups: dict[str, dict[int, dict[int, float]]]) -> dict[int, Lateness]:
    found: dict[int, Lateness] = {}
    for times in groups.values():
        for rank, late in lateness(times).items():
            if rank not in found or late.share > found[rank].share:
                found[rank] = late
    return found
