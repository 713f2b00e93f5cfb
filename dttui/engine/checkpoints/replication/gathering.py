"""Brings the parts of a checkpoint together that each host has written to a disk of its own, where none was lost.

Ranks that load shards read the file that names all of them, which one host alone has, and some of each other's.
"""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from dtagent.protocol.checkpoints import (
    JOINED,
    PART,
    CheckpointsReply,
    CheckpointsRequest,
    FoundCheckpoint,
    JoinReply,
    JoinRequest,
)
from dtagent.protocol.probes import PathsReply, PathsRequest
from dtagent.protocol.replication import STORE, CopiesReply, CopiesRequest

from dttui.agent_words import agent_text
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.checkpoints.checkpoint_calls import CALL_S, let_copies_go
from dttui.engine.checkpoints.checkpoint_places import places
from dttui.engine.checkpoints.replication.transfer import CopyFailedError, Stores, transfer
from dttui.engine.nodes.node_run import NodeRun
from dttui.errors import HostError
from dttui.i18n import msg
from dttui.planning.models import BoundPlan
from dttui.planning.resumption import Resume, Resumption
from dttui.spec.findings import warning
from dttui.words import size_text

MOST = 8
"""Of each host, so many of the newest parts are told."""
MOST_TRIED = 2
"""Steps whose parts are brought together, the newest first, until those of one make a whole."""

_Reply = TypeVar("_Reply")


async def gather(
    before: Mapping[int, BoundPlan],
    nodes: Sequence[NodeRun],
    unwanted: Collection[str],
    resumption: Resumption,
    job_id: str,
    log: AttemptLog,
) -> Resume | None:
    """Return the newest checkpoint of which each host had a part, once each has all of it.

    Args:
        before: attempt → what ran in it, the newest first.
        nodes: of the attempt that is to go on from it.
        unwanted: paths of checkpoints that are passed over.
        resumption: of the plan.
        job_id: of the job.
        log: of the attempt.
    """
    if resumption.shared or len(nodes) < 2 or any(node.client is None for node in nodes):
        return None
    for attempt, bound in before.items():
        where = [place for node in nodes for place in places({attempt: bound}, node.name, shared=False)]
        if len(where) < len(nodes) or len(bound.plan.nodes) > len(nodes):
            continue  # A host that wrote a part takes no part in this attempt.
        stores = [posixpath.join(place.directory, STORE, job_id) for place in where]
        parts = await asyncio.gather(
            *(_parts(node, place.directory, unwanted) for node, place in zip(nodes, where, strict=True))
        )
        wanted = [found for found in _by_step(parts) if _whole_of(stores[0], found[0]) not in unwanted]
        for of_step in wanted[:MOST_TRIED]:
            resume = await _together(attempt, nodes, of_step, stores, resumption, log)
            if resume is not None:
                return resume
            if not resumption.copies:  # Where copies are kept, these lie beside them.
                await _drop_all(nodes, stores)
    return None


def _by_step(parts: Sequence[Sequence[FoundCheckpoint]]) -> list[list[FoundCheckpoint]]:
    """Return each host's part of every step of which all have one, the newest step first."""
    return [[next(part for part in found if part.step == step) for found in parts] for step in whole_steps(parts)]


def _whole_of(store: str, part: FoundCheckpoint) -> str:
    """Return where the whole will be that is joined of a part and others."""
    return posixpath.join(store, JOINED, posixpath.basename(part.path))


async def _drop_all(nodes: Sequence[NodeRun], stores: Iterable[str]) -> None:
    """Let go what is in a store of each node."""
    await asyncio.gather(*(let_copies_go(node, [store]) for node, store in zip(nodes, stores, strict=True)))


def whole_steps(parts: Sequence[Sequence[FoundCheckpoint]]) -> list[int]:
    """Return the steps of which each host has a part, and one the file that names all, the newest first."""
    common = set.intersection(*({part.step for part in found if part.step is not None} for found in parts))
    named = {part.step for found in parts for part in found if part.form != PART}
    return sorted(common & {step for step in named if step is not None}, reverse=True)


async def drop_joined(nodes: Sequence[NodeRun], resume: Resume | None, job_id: str) -> None:
    """Let go what was brought together to go on from; the job has come to its end."""
    mark = f"/{STORE}/{job_id}/"
    if resume is None or mark not in resume.checkpoint:
        return

    paths = (resume.elsewhere.get(node.name, resume.checkpoint) for node in nodes)
    stores = (path.partition(mark)[0] + mark.rstrip("/") for path in paths)
    await _drop_all(nodes, stores)


async def _parts(node: NodeRun, directory: str, unwanted: Collection[str]) -> list[FoundCheckpoint]:
    request = CheckpointsRequest([directory], list(unwanted), MOST, parts=True)
    reply = await _ask(node, "checkpoints", request, CheckpointsReply)
    return reply.directories[0].parts if reply is not None and reply.directories else []


async def _together(
    attempt: int,
    nodes: Sequence[NodeRun],
    parts: Sequence[FoundCheckpoint],
    stores: Sequence[str],
    resumption: Resumption,
    log: AttemptLog,
) -> Resume | None:
    """Have each host send its part to each other, and join what it has; tell why where that cannot be."""
    count, began = len(nodes), time.monotonic()
    have = [[part.path] for part in parts]

    async def send(source: int, target: int) -> None:
        written = attempt, nodes[source].planned.node_rank
        part = replace(parts[source], form=PART)
        to = Stores(stores[target], [])
        reply = await transfer(nodes[source], nodes[target], part, written, to, resumption, is_awaited=True)
        have[target].append(reply.path)

    try:
        ranks = [node.planned.node_rank for node in nodes]
        await asyncio.gather(
            *(_check_room(node, store, parts, ranks) for node, store in zip(nodes, stores, strict=True))
        )
        for distance in range(1, count):  # So that each host sends one and takes one at a time.
            sending = (send(index, (index + distance) % count) for index in range(count))
            # Each is waited for: one that went on would take of the network what ranks need then.
            for failed in await asyncio.gather(*sending, return_exceptions=True):
                if failed is not None:
                    raise failed
    except CopyFailedError as error:
        message = msg("the parts of step {step} are not brought together: {reason}",
                       step=parts[0].step, reason=error.why)  # fmt: skip
        log.tell(warning("checkpoint-not-copied", parts[0].path, message))
        return None
    requests = [JoinRequest(store, paths) for store, paths in zip(stores, have, strict=True)]
    replies = await asyncio.gather(
        *(_ask(node, "join_checkpoint", request, JoinReply) for node, request in zip(nodes, requests, strict=True))
    )
    paths = [reply.path if reply is not None else "" for reply in replies]
    for node, reply in zip(nodes, replies, strict=True):
        if reply is not None and reply.detail:
            reason = agent_text(reply.detail, reply.detail_notice)
            log.tell(
                warning("checkpoint-not-copied", node.name, msg("{host}: {reason}", host=node.name, reason=reason))
            )
    if not all(paths):
        return None
    message = msg(
        "the parts of step {step} are brought together on each host: {size} in {seconds} s",
        step=parts[0].step,
        size=size_text(sum(part.size_bytes for part in parts)),
        seconds=round(time.monotonic() - began),
    )
    log.progress(message, step=parts[0].step)
    return Resume(
        checkpoint=paths[0],
        directory=posixpath.dirname(paths[0]),
        step=parts[0].step,
        attempt=attempt,
        elsewhere={node.name: path for node, path in zip(nodes, paths, strict=True) if path != paths[0]},
    )


async def _check_room(node: NodeRun, store: str, parts: Sequence[FoundCheckpoint], ranks: Sequence[int]) -> None:
    """Look whether the parts have room that a host does not have yet. Raises CopyFailedError where they do not."""
    directory = store.partition(f"/{STORE}/")[0]
    copies = await _ask(node, "copies", CopiesRequest([store]), CopiesReply)
    there = {(item.node_rank, item.source, item.step) for item in copies.held} if copies is not None else set()
    wanted = sum(
        part.size_bytes
        for rank, part in zip(ranks, parts, strict=True)
        if rank != node.planned.node_rank and (rank, part.path, part.step) not in there
    )
    reply = await _ask(node, "paths", PathsRequest([directory]), PathsReply)
    free_mib = reply.paths[0].free_mib if reply is not None and reply.paths else None
    if free_mib is not None and wanted > free_mib << 20:
        raise CopyFailedError(
            msg(
                "{host}: the parts of the others take {wanted}, and {path} has {free}",
                host=node.name,
                wanted=size_text(wanted),
                path=directory,
                free=size_text(free_mib << 20),
            )
        )


async def _ask(node: NodeRun, method: str, request: object, reply: type[_Reply]) -> _Reply | None:
    try:
        return await node.retry_until_deadline(method, request, reply, CALL_S)
    except HostError:
        return None  # Who watches the hosts tells; an agent of before brings nothing together.
