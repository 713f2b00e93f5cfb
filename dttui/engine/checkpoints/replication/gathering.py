"""Brings the parts of a checkpoint together that each host has written to a disk of its own, or others have copies of.

Ranks that load shards read the file that names all of them, which one host alone has, and some of each other's.
"""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
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
from dtagent.protocol.replication import STORE, CopiesReply, CopiesRequest, HeldCopy

from dttui.agent_words import agent_text
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.checkpoints.checkpoint_calls import CALL_S, let_copies_go
from dttui.engine.checkpoints.checkpoint_places import PlacedCheckpoint, places
from dttui.engine.checkpoints.replication.transfer import CopyFailedError, Stores, transfer
from dttui.engine.checkpoints.resume_choice import whole_steps
from dttui.engine.nodes.node_run import NodeRun
from dttui.errors import HostError
from dttui.i18n import msg
from dttui.planning.models import BoundPlan, PlannedNode
from dttui.planning.resumption import Resume, Resumption, store_of
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
    copies: Mapping[str, Sequence[HeldCopy]] = MappingProxyType({}),
) -> Resume | None:
    """Return the newest checkpoint of which each host had a part, once each host of the attempt has all of it.

    Args:
        before: attempt → what ran in it, the newest first.
        nodes: of the attempt that is to go on from it.
        unwanted: paths of checkpoints that are passed over.
        resumption: of the plan.
        job_id: of the job.
        log: of the attempt.
        copies: node → what it keeps of others, also of a host that was lost.
    """
    if resumption.shared or any(node.client is None for node in nodes):
        return None
    names = {node.name for node in nodes}
    for attempt, bound in before.items():
        writers = bound.plan.nodes
        if len(writers) < 2 or not all(
            writer.name in names or any(_copies_of(attempt, writer, copies)) for writer in writers
        ):
            continue  # A host that wrote a part takes no part in this attempt, and nobody has a copy of it.
        stores = [_store(attempt, bound, node.name, resumption, job_id) for node in nodes]
        known = [store for store in stores if store is not None]
        if len(known) < len(nodes):
            continue
        parts = await asyncio.gather(*(_located(attempt, bound, writer, nodes, unwanted, copies) for writer in writers))
        ranks = [writer.node_rank for writer in writers]
        wanted = [found for found in _by_step(parts) if _whole_of(known[0], found[0].found) not in unwanted]
        for of_step in wanted[:MOST_TRIED]:
            resume = await _together(attempt, nodes, dict(zip(ranks, of_step, strict=True)), known, resumption, log)
            if resume is not None:
                return resume
            if not resumption.copies:  # Where copies are kept, these lie beside them.
                await _drop_all(nodes, known)
    return None


def _store(attempt: int, bound: BoundPlan, name: str, resumption: Resumption, job_id: str) -> str | None:
    """Return where a host keeps parts of an attempt's; of one that had no part in it, where it keeps copies."""
    place = next(iter(places({attempt: bound}, name, shared=False)), None)
    if place is not None:
        return posixpath.join(place.directory, STORE, job_id)
    return store_of(resumption, job_id, attempt)


def _copies_of(
    attempt: int, writer: PlannedNode, copies: Mapping[str, Sequence[HeldCopy]]
) -> Iterator[tuple[str, HeldCopy]]:
    """Yield who has a copy of which part that a node has written in an attempt."""
    for name, held in copies.items():
        for copy in held:
            if (copy.attempt, copy.node_rank, copy.form) == (attempt, writer.node_rank, PART):
                yield name, copy


async def _located(
    attempt: int,
    bound: BoundPlan,
    writer: PlannedNode,
    nodes: Sequence[NodeRun],
    unwanted: Collection[str],
    copies: Mapping[str, Sequence[HeldCopy]],
) -> dict[int, PlacedCheckpoint]:
    """Return the parts that a node has written in an attempt, by step, and who has each: itself first."""
    found: dict[int, PlacedCheckpoint] = {}
    node = next((node for node in nodes if node.name == writer.name), None)
    if node is not None:
        (place,) = places({attempt: bound}, writer.name, shared=False)
        for part in await _parts(node, place.directory, unwanted):
            if part.step is not None:
                found[part.step] = PlacedCheckpoint(part, False, {node.name: part.path})
    for name, copy in _copies_of(attempt, writer, copies):
        if copy.step is not None and copy.source not in unwanted:
            part = FoundCheckpoint(copy.source, PART, copy.step, copy.size_bytes, copy.time)
            found.setdefault(copy.step, PlacedCheckpoint(part, False)).holders.setdefault(name, copy.path)
    return found


def _by_step(parts: Sequence[Mapping[int, PlacedCheckpoint]]) -> list[list[PlacedCheckpoint]]:
    """Return each host's part of every step of which there are all, the newest step first."""
    # What was copied is of a whole: nothing is before the file is there that names all of it.
    copied = {
        step
        for of_writer in parts
        for step, part in of_writer.items()
        if part.found.path not in part.holders.values() or len(part.holders) > 1
    }
    told = [[part.found for part in of_writer.values()] for of_writer in parts]
    return [[of_writer[step] for of_writer in parts] for step in whole_steps(told, copied)]


def _whole_of(store: str, part: FoundCheckpoint) -> str:
    """Return where the whole will be that is joined of a part and others."""
    return posixpath.join(store, JOINED, posixpath.basename(part.path))


async def _drop_all(nodes: Sequence[NodeRun], stores: Iterable[str]) -> None:
    """Let go what is in a store of each node."""
    await asyncio.gather(*(let_copies_go(node, [store]) for node, store in zip(nodes, stores, strict=True)))


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
    parts: Mapping[int, PlacedCheckpoint],
    stores: Sequence[str],
    resumption: Resumption,
    log: AttemptLog,
) -> Resume | None:
    """Have each host get the parts that it lacks from who has them, and join what it has; tell why that cannot be.

    Args:
        attempt: which wrote them.
        nodes: that are to have all of it.
        parts: node rank of the node that wrote one → it.
        stores: where each of `nodes` keeps what it gets.
        resumption: of the plan.
        log: where it is told.
    """
    count, began = len(nodes), time.monotonic()
    names = [node.name for node in nodes]
    first = next(iter(parts.values())).found
    have = [{rank: part.holders[name] for rank, part in parts.items() if name in part.holders} for name in names]
    givers = {rank: names.index(next(iter(part.holders))) for rank, part in parts.items()}

    async def send(source: int, target: int) -> None:
        to = Stores(stores[target], [])
        for rank, part in parts.items():
            if givers[rank] == source and rank not in have[target]:
                given = replace(part.found, path=have[source][rank], form=PART)
                written = attempt, rank
                reply = await transfer(nodes[source], nodes[target], given, written, to, resumption, is_awaited=True)
                have[target][rank] = reply.path

    try:
        await asyncio.gather(*(_check_room(node, store, parts) for node, store in zip(nodes, stores, strict=True)))
        for distance in range(1, count):  # So that each host sends to one and takes of one at a time.
            sending = (send(index, (index + distance) % count) for index in range(count))
            # Each is waited for: one that went on would take of the network what ranks need then.
            for failed in await asyncio.gather(*sending, return_exceptions=True):
                if failed is not None:
                    raise failed
    except CopyFailedError as error:
        message = msg("the parts of step {step} are not brought together: {reason}",
                       step=first.step, reason=error.why)  # fmt: skip
        log.tell(warning("checkpoint-not-copied", first.path, message))
        return None
    requests = [JoinRequest(store, list(paths.values())) for store, paths in zip(stores, have, strict=True)]
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
        step=first.step,
        size=size_text(sum(part.found.size_bytes for part in parts.values())),
        seconds=round(time.monotonic() - began),
    )
    log.progress(message, step=first.step)
    return Resume(
        checkpoint=paths[0],
        directory=posixpath.dirname(paths[0]),
        step=first.step,
        attempt=attempt,
        elsewhere={node.name: path for node, path in zip(nodes, paths, strict=True) if path != paths[0]},
    )


async def _check_room(node: NodeRun, store: str, parts: Mapping[int, PlacedCheckpoint]) -> None:
    """Look whether the parts have room that a host does not have yet. Raises CopyFailedError where they do not."""
    directory = store.partition(f"/{STORE}/")[0]
    copies = await _ask(node, "copies", CopiesRequest([store]), CopiesReply)
    there = {(item.node_rank, item.source, item.step) for item in copies.held} if copies is not None else set()
    wanted = sum(
        part.found.size_bytes
        for rank, part in parts.items()
        if node.name not in part.holders and (rank, part.found.path, part.found.step) not in there
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
