"""Brings the checkpoint that an attempt goes on from to the nodes that need it, from whoever has it or a copy of it.

A node needs what the node of its rank has written in the attempt before: where a spare took a lost node's place, or
ranks moved up, that lies elsewhere.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dttui.engine.attempt_log import AttemptLog
from dttui.engine.checkpoints.checkpoint_places import PlacedCheckpoint
from dttui.engine.checkpoints.replication.transfer import CopyFailedError, Stores, transfer
from dttui.engine.nodes.node_run import NodeRun
from dttui.i18n import msg
from dttui.planning.resumption import Resume, Resumption
from dttui.spec.findings import warning
from dttui.words import size_text


@dataclass(frozen=True)
class Placed:
    """A checkpoint where it is needed."""

    node: str
    path: str


async def place(
    attempt: int,
    chosen: Mapping[int, PlacedCheckpoint],
    nodes: Sequence[NodeRun],
    stores: Stores,
    resumption: Resumption,
    log: AttemptLog,
) -> Resume | int:
    """Have each where it is needed; return what ranks are told, or the node rank whose checkpoint cannot be had.

    Args:
        attempt: which wrote them.
        chosen: node rank that wrote one → it.
        nodes: of the attempt that goes on from them, in order of rank.
        stores: where hosts keep copies.
        resumption: of the plan.
        log: of that attempt.
    """
    placed = {}
    for rank, candidate in sorted(chosen.items()):
        target = nodes[rank] if rank < len(nodes) else nodes[0]
        path = candidate.holders.get(target.name)
        if path is None:
            path = await _bring(candidate, (attempt, rank), target, nodes, stores, resumption, log)
        if path is None:
            return rank
        placed[target.name] = path, candidate
    name, (first, candidate) = next(iter(placed.items()))
    if len(chosen) == 1:  # Whoever has a copy of all there is may load that as well.
        known = {node.name for node in nodes} - set(placed)
        placed |= {other: (path, candidate) for other, path in candidate.holders.items() if other in known}
    is_itself = candidate.is_directory_itself
    return Resume(
        checkpoint=first,
        directory=first if is_itself else posixpath.dirname(first),
        step=candidate.found.step,
        attempt=attempt,
        elsewhere={other: path for other, (path, _candidate) in placed.items() if path != first and other != name},
    )


async def _bring(
    candidate: PlacedCheckpoint,
    written: tuple[int, int],
    target: NodeRun,
    nodes: Sequence[NodeRun],
    stores: Stores,
    resumption: Resumption,
    log: AttemptLog,
) -> str | None:
    """Return the path of a copy at a node that has just got it; `None` where it cannot be had of any."""
    for node in nodes:
        path = candidate.holders.get(node.name)
        if path is None:
            continue
        there = replace(candidate.found, path=path)
        try:
            reply = await transfer(node, target, there, written, stores, resumption, is_awaited=True)
        except CopyFailedError as error:
            message = msg(
                "{checkpoint} of {host} is not copied to {target}: {reason}",
                checkpoint=path,
                host=node.name,
                target=target.name,
                reason=error.why,
            )
            log.tell(warning("checkpoint-not-copied", target.name, message))
            continue
        message = msg(
            "{checkpoint} of {host} is copied to {target}: {size} in {seconds} s",
            checkpoint=path,
            host=node.name,
            target=target.name,
            size=size_text(reply.size_bytes),
            seconds=round(reply.seconds),
        )
        log.progress(message, copied=path, step=candidate.found.step, source=node.name, target=target.name)
        return reply.path
    return None
