"""Brings the parts of a checkpoint together that each host has written to a disk of its own, or others have copies of.

Ranks that load shards read the file that names all of them, which one host alone has, and some of each other's.
"""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from dtagent.protocol.checkpoints import JOINED, PART, JoinReply, JoinRequest
from dtagent.protocol.probes import PathsReply, PathsRequest
from dtagent.protocol.replication import STORE, CopiesReply, CopiesRequest

from dttui.agent_words import agent_text
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.checkpoints.checkpoint_calls import CALL_S, let_copies_go
from dttui.engine.checkpoints.checkpoint_places import PlacedCheckpoint, places
from dttui.engine.checkpoints.replication.transfer import CopyFailedError, Stores, transfer
from dttui.engine.nodes.node_run import NodeRun
from dttui.errors import HostError
from dttui.i18n import msg
from dttui.planning.models import BoundPlan
from dttui.planning.resumption import Resume, Resumption, store_of
from dttui.spec.findings import warning
from dttui.words import size_text

MOST_TRIED = 2
"""Steps whose parts are brought together, the newest first, until those of one make a whole."""
_OWN = ".parts"
"""Ends the name of what a host gets to join, beside the copies of a job: it goes where nothing comes of it."""

_Reply = TypeVar("_Reply")


async def gather(
    attempt: int,
    bound: BoundPlan,
    wanted: Sequence[Mapping[int, PlacedCheckpoint]],
    nodes: Sequence[NodeRun],
    resumption: Resumption,
    job_id: str,
    log: AttemptLog,
) -> Resume | None:
    """Return the newest checkpoint of which all parts are there, once each host of the attempt has all of it.

    Args:
        attempt: which wrote them.
        bound: what ran in it.
        wanted: of each step, the newest first, node rank that wrote a part → it.
        nodes: of the attempt that is to go on from it.
        resumption: of the plan.
        job_id: of the job.
        log: of the attempt that is to go on from it.
    """
    known = [store_of_parts(attempt, bound, node.name, resumption, job_id) for node in nodes]
    stores = [store for store in known if store is not None]
    if len(stores) < len(nodes) or any(node.client is None for node in nodes):
        return None
    for parts in wanted[:MOST_TRIED]:
        resume = await _Exchange(attempt, nodes, parts, stores, resumption, log).whole()
        if resume is not None:
            return resume
        await _drop_all(nodes, stores)
    return None


def store_of_parts(attempt: int, bound: BoundPlan, name: str, resumption: Resumption, job_id: str) -> str | None:
    """Return where a host gets parts of an attempt's; of one that had no part in it, beside where it keeps copies."""
    place = next(iter(places({attempt: bound}, name, shared=False)), None)
    if place is not None:
        return posixpath.join(place.directory, STORE, job_id + _OWN)
    store = store_of(resumption, job_id, attempt)
    return None if store is None else store + _OWN


def whole_of(store: str, part: PlacedCheckpoint) -> str:
    """Return where the whole will be that is joined of a part and others."""
    return posixpath.join(store, JOINED, posixpath.basename(part.found.path))


async def _drop_all(nodes: Sequence[NodeRun], stores: Iterable[str]) -> None:
    """Let go what is in a store of each node."""
    await asyncio.gather(*(let_copies_go(node, [store]) for node, store in zip(nodes, stores, strict=True)))


async def drop_joined(nodes: Sequence[NodeRun], resume: Resume | None, job_id: str) -> None:
    """Let go what was brought together to go on from; the job has come to its end."""
    mark = f"/{STORE}/{job_id}{_OWN}/"
    if resume is None or mark not in resume.checkpoint:
        return

    paths = (resume.elsewhere.get(node.name, resume.checkpoint) for node in nodes)
    stores = (path.partition(mark)[0] + mark.rstrip("/") for path in paths)
    await _drop_all(nodes, stores)


class _Exchange:
    """Has each of some nodes get the parts of a step that it lacks, and join them.

    Args:
        attempt: which wrote them.
        nodes: that are to have all of them.
        parts: node rank of the node that wrote one → it.
        stores: where each of `nodes` keeps what it gets.
        resumption: of the plan.
        log: where it is told.
    """

    def __init__(
        self,
        attempt: int,
        nodes: Sequence[NodeRun],
        parts: Mapping[int, PlacedCheckpoint],
        stores: Sequence[str],
        resumption: Resumption,
        log: AttemptLog,
    ) -> None:
        self._attempt = attempt
        self._nodes = nodes
        self._parts = parts
        self._stores = stores
        self._resumption = resumption
        self._log = log
        self._index = {node.name: index for index, node in enumerate(nodes)}
        self._have = [
            {rank: part.holders[node.name] for rank, part in parts.items() if node.name in part.holders}
            for node in nodes
        ]

    async def whole(self) -> Resume | None:
        """Return what is whole on each node then; tell why that cannot be."""
        began = time.monotonic()
        first = self._parts[min(self._parts)].found
        try:
            rooms = (self._check_room(node, store) for node, store in zip(self._nodes, self._stores, strict=True))
            await asyncio.gather(*rooms)
            await self._send_to_all()
        except CopyFailedError as error:
            message = msg("the parts of step {step} are not brought together: {reason}",
                           step=first.step, reason=error.why)  # fmt: skip
            self._log.tell(warning("checkpoint-not-copied", first.path, message))
            return None
        paths = await self._join()
        if not all(paths):
            return None
        message = msg(
            "the parts of step {step} are brought together on each host: {size} in {seconds} s",
            step=first.step,
            size=size_text(sum(part.found.size_bytes for part in self._parts.values())),
            seconds=round(time.monotonic() - began),
        )
        self._log.progress(message, step=first.step)
        return Resume(
            checkpoint=paths[0],
            directory=posixpath.dirname(paths[0]),
            step=first.step,
            attempt=self._attempt,
            elsewhere={node.name: path for node, path in zip(self._nodes, paths, strict=True) if path != paths[0]},
        )

    async def _join(self) -> list[str]:
        """Return where each node has the whole, empty where it has none; tell why."""
        own = {part.found.path for part in self._parts.values()}
        have = [sorted(have.values(), key=lambda path: path not in own) for have in self._have]  # Its own part first.
        requests = [JoinRequest(store, paths) for store, paths in zip(self._stores, have, strict=True)]
        asked = zip(self._nodes, requests, strict=True)
        replies = await asyncio.gather(*(_ask(node, "join_checkpoint", request, JoinReply) for node, request in asked))
        for node, reply in zip(self._nodes, replies, strict=True):
            if reply is None or reply.detail:
                silent = msg("it does not answer, or its agent is too old to bring parts of a checkpoint together")
                reason = silent if reply is None else agent_text(reply.detail, reply.detail_notice)
                message = msg("{host}: {reason}", host=node.name, reason=reason)
                self._log.tell(warning("checkpoint-not-copied", node.name, message))
        return [reply.path if reply is not None else "" for reply in replies]

    async def _send_to_all(self) -> None:
        """Have all sent, each host sending to one and taking of one at a time. Raises CopyFailedError."""
        count = len(self._nodes)
        for distance in range(1, count):
            await asyncio.gather(*(self._send_all(index, (index + distance) % count) for index in range(count)))
        # Each is waited for: one that went on would take of the network what ranks need then.
        for failed in await asyncio.gather(*map(self._send_rest, range(count)), return_exceptions=True):
            if failed is not None:
                raise failed

    async def _send_all(self, source: int, target: int) -> None:
        """Send what a node is the first to have."""
        for rank, part in self._parts.items():
            if rank not in self._have[target] and self._index[next(iter(part.holders))] == source:
                with contextlib.suppress(CopyFailedError):
                    await self._send(rank, source, target)

    async def _send_rest(self, target: int) -> None:
        """Have what has not come sent by whoever has it, one after another; raise why the last could not."""
        for rank in self._parts.keys() - self._have[target].keys():
            why = CopyFailedError("")
            for name in self._parts[rank].holders:
                try:
                    await self._send(rank, self._index[name], target)
                    break
                except CopyFailedError as error:
                    why = error
            else:
                raise why

    async def _send(self, rank: int, source: int, target: int) -> None:
        part = self._parts[rank]
        path = part.holders[self._nodes[source].name]
        changed_ns = part.found.changed_ns if path == part.found.path else None
        given = replace(part.found, path=path, form=PART, changed_ns=changed_ns)
        to = Stores(self._stores[target], [])
        pair = self._nodes[source], self._nodes[target]
        reply = await transfer(*pair, given, (self._attempt, rank), to, self._resumption, is_awaited=True)
        self._have[target][rank] = reply.path

    async def _check_room(self, node: NodeRun, store: str) -> None:
        """Look whether the parts have room that a host does not have yet. Raises CopyFailedError where they do not."""
        directory = store.partition(f"/{STORE}/")[0]
        copies = await _ask(node, "copies", CopiesRequest([store]), CopiesReply)
        there = {(item.node_rank, item.source, item.step) for item in copies.held} if copies is not None else set()
        wanted = sum(
            part.found.size_bytes
            for rank, part in self._parts.items()
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
