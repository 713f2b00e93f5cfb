"""Asks the hosts of an attempt that has ended what it has written there, and tells it. Nothing of it ends a job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

from dtagent.protocol.events import EventKind
from dtagent.protocol.saved import MAX_PLACES, SavedReply, SavedRequest

from dttui.engine.attempt_log import AttemptLog
from dttui.engine.nodes.node_run import NodeRun
from dttui.i18n import nmsg
from dttui.jobs.saved_text import IS_KEPT, PLACES, SavedFiles
from dttui.words import size_text

LOOK_S = 8.0
HURRIED_LOOK_S = 2.0
"""Where the stop was forced, or another attempt may wait for the end of this one."""
SPARE_S = 2.0
"""For the way there and back."""


async def tell_saved(log: AttemptLog, nodes: Sequence[NodeRun], *, hurries: bool = False) -> None:
    """Tell what each host has; one that does not answer in time, or whose agent cannot look, says nothing."""
    over = [node for node in nodes if node.status is not None and node.is_over and not node.is_lost]
    await asyncio.gather(*(_tell(log, node, hurries=hurries or node.hurries) for node in over))


async def _tell(log: AttemptLog, node: NodeRun, *, hurries: bool) -> None:
    seconds = HURRIED_LOOK_S if hurries else LOOK_S
    reply = await node.answer_within("saved", SavedRequest(node.key, seconds), SavedReply, seconds + SPARE_S)
    if reply is None or not reply.places:
        return
    saved = [
        SavedFiles(
            place.path,
            place.kind.value,
            max(0, place.count),
            max(0, place.size_bytes),
            node.here(place.newest),
            is_whole=place.is_whole and reply.is_whole,
            goes_at=None if place.goes_at is None else node.here(place.goes_at),
        )
        for place in reply.places[:MAX_PLACES]
    ]
    count = sum(item.count for item in saved)
    message = nmsg(
        "{host}: {count} file was saved, {size}",
        "{host}: {count} files were saved, {size}",
        count,
        host=node.name,
        size=size_text(sum(item.size_bytes for item in saved)),
    )
    own = ("node", "attempt", IS_KEPT)
    places = [{key: value for key, value in asdict(item).items() if key not in own} for item in saved]
    log.add(EventKind.SAVED, message, node=node.name, data={PLACES: places, IS_KEPT: reply.is_kept})
