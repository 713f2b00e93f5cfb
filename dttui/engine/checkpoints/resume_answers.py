"""What hosts say of the checkpoints that attempts have left there, and what of that counts as an attempt's own."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dtagent.protocol.checkpoints import (
    MAX_COMPLETE,
    MAX_DIRECTORIES,
    PART,
    CheckpointsOf,
    CheckpointsReply,
    CheckpointsRequest,
    FoundCheckpoint,
    PassedCheckpoint,
)
from dtagent.protocol.replication import CopiesReply, CopiesRequest, HeldCopy
from dtagent.protocol.rpc import ErrorCode

from dttui.agent_words import agent_text
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.checkpoints.checkpoint_calls import CALL_S
from dttui.engine.checkpoints.checkpoint_places import CheckpointPlace, places
from dttui.engine.nodes.node_run import NodeRun
from dttui.errors import AgentError, HostError
from dttui.i18n import msg
from dttui.planning.models import BoundPlan
from dttui.planning.resumption import Resumption
from dttui.spec.findings import info, warning

SEARCH_S = 30.0
VERIFY_S = 10.0
"""How long the newest may be read for before it is gone on from: a changed one may load without a word."""
MOST = 8
"""Of each directory, so many of the newest are told at first. Where hosts write a part each, the newest that all have
counts: where one has written on while another was halted, they are asked for all."""
EARLY_S = 600.0
"""What was changed so long before an attempt began is not its own; a file server's clock may be off by less."""


async def own_answers(
    nodes: Sequence[NodeRun],
    before: Mapping[int, BoundPlan],
    unwanted: Sequence[str],
    resumption: Resumption,
    log: AttemptLog,
    copies: Iterable[HeldCopy] = (),
) -> dict[str, dict[CheckpointPlace, CheckpointsOf]]:
    """Return what each node that answers has itself, by where it looked.

    Args:
        nodes: that are asked.
        before: attempt → what ran in it.
        unwanted: paths that are passed over.
        resumption: of the plan.
        log: what nodes do not say is told there.
        copies: what nodes keep of others: of a step that one has so, the others' are wanted however old.
    """
    where = {node.name: places(before, node.name, shared=resumption.shared) for node in nodes}
    asked = [node for node in nodes if where[node.name]]
    # Where all see the same, one reads it.
    verify_s = {node.name: VERIFY_S if not resumption.shared or node is asked[0] else 0.0 for node in asked}

    async def ask(most: int) -> dict[str, dict[CheckpointPlace, CheckpointsOf]]:
        replies = await asyncio.gather(
            *(_ask(node, where[node.name], unwanted, log, most, verify_s[node.name]) for node in asked)
        )
        return {
            node.name: dict(zip(where[node.name], reply.directories, strict=False))
            for node, reply in zip(asked, replies, strict=True)
            if reply is not None
        }

    answers = await ask(MOST)
    if not resumption.shared:
        return await ask(MAX_COMPLETE) if _may_lack_common(answers, copies) else answers
    passed = {item.path for found in answers.get(asked[0].name, {}).values() for item in found.passed} if asked else ()
    return {
        name: {
            where: replace(told, complete=[item for item in told.complete if item.path not in passed])
            for where, told in by_place.items()
        }
        for name, by_place in answers.items()
    }


def _may_lack_common(
    answers: Mapping[str, Mapping[CheckpointPlace, CheckpointsOf]], copies: Iterable[HeldCopy]
) -> bool:
    """Whether hosts may all have a checkpoint, or a part of one, that not all have told: one has more than it has told.

    Of an attempt's complete ones and of its parts alike.
    """
    steps: dict[tuple[int, bool], list[list[int | None]]] = {}
    of_others: dict[tuple[int, bool, int], list[int | None]] = {}
    for copy in copies:
        of_others.setdefault((copy.attempt, copy.form == PART, copy.node_rank), []).append(copy.step)
    for by_place in answers.values():
        for place, found in by_place.items():
            for is_part, items in ((False, found.complete), (True, found.parts)):
                if items or not is_part:
                    steps.setdefault((place.attempt, is_part), []).append([item.step for item in items])
    for (attempt, is_part, _rank), told in of_others.items():
        steps.setdefault((attempt, is_part), []).append(told)
    return any(
        max(map(len, told)) >= MOST and (len(told) < len(answers) or not set(told[0]).intersection(*told[1:]))
        for told in steps.values()
    )


def without_foreign(
    answers: Mapping[str, Mapping[CheckpointPlace, CheckpointsOf]], begun: Mapping[int, float], nodes: Sequence[NodeRun]
) -> dict[str, dict[CheckpointPlace, CheckpointsOf]]:
    """Pass over what lay in `attempt-N` before that attempt of this job began: a job before used the same directory.

    What lies in the directory itself counts for the first attempt: whoever put it there may mean it.
    """
    why = msg("it was there before the attempt began")
    offsets_s = {node.name: node.clock_offset_s for node in nodes}

    def sorted_out(found: CheckpointsOf, since: float) -> CheckpointsOf:
        def is_old(item: FoundCheckpoint) -> bool:
            return item.changed_ns is not None and item.changed_ns / 1e9 < since

        passed = [PassedCheckpoint(item.path, why) for item in found.complete if is_old(item)]
        complete = [item for item in found.complete if not is_old(item)]
        parts = [item for item in found.parts if not is_old(item)]
        return replace(found, complete=complete, passed=[*found.passed, *passed], parts=parts)

    return {
        name: {
            place: sorted_out(found, begun[place.attempt] + offsets_s[name] - EARLY_S)
            if place.attempt and place.attempt in begun
            else found
            for place, found in by_place.items()
        }
        for name, by_place in answers.items()
    }


def tell_passed(answers: Mapping[str, Mapping[CheckpointPlace, CheckpointsOf]], since: int, log: AttemptLog) -> None:
    """Tell what is newer in the attempts since one than what is complete, and why it is not gone on from."""
    told: set[str] = set()
    for name, by_place in answers.items():
        for item in (item for where, found in by_place.items() if where.attempt >= since for item in found.passed):
            if item.path not in told:
                told.add(item.path)
                _tell_of(item, name, log)


def _tell_of(item: PassedCheckpoint, host: str, log: AttemptLog) -> None:
    reason = agent_text(item.why, item.why_notice)
    message = msg("{checkpoint} of {host} is passed over: {reason}", checkpoint=item.path, host=host, reason=reason)
    log.tell(info("checkpoint-passed", item.path, message))


async def add_copies(
    copies: dict[str, list[HeldCopy]], nodes: Sequence[NodeRun], stores: Sequence[str], log: AttemptLog
) -> None:
    """Add the copies that each node keeps in some directories; one whose agent knows of none has none."""

    async def ask(node: NodeRun) -> list[HeldCopy]:
        try:
            reply = await node.retry_until_deadline("copies", CopiesRequest(list(stores)), CopiesReply, CALL_S)
        except HostError as error:
            if not _is_too_old(error):
                _tell_unseen(node, error, log)
            return []
        return await _intact(node, reply.held, log)

    for node, held in zip(nodes, await asyncio.gather(*map(ask, nodes)), strict=True):
        copies[node.name] += held


async def _intact(node: NodeRun, held: Sequence[HeldCopy], log: AttemptLog) -> list[HeldCopy]:
    """Return the copies without those of which the checksums do not hold, and tell of these.

    What is on the disk of another host may have changed there, or before it was copied.
    """
    newest = [posixpath.dirname(copy.path) for copy in held if copy.form != PART][:MAX_DIRECTORIES]
    request = CheckpointsRequest(newest, [], MOST, SEARCH_S, VERIFY_S)
    if not newest:
        return list(held)
    try:
        reply = await node.retry_until_deadline("checkpoints", request, CheckpointsReply, CALL_S)
    except HostError:
        return list(held)
    passed = {item.path: item for found in reply.directories for item in found.passed}
    for copy in held:
        if copy.path in passed:
            _tell_of(passed[copy.path], node.name, log)
    return [copy for copy in held if copy.path not in passed]


async def _ask(
    node: NodeRun,
    places: Sequence[CheckpointPlace],
    unwanted: Sequence[str],
    log: AttemptLog,
    most: int,
    verify_s: float,
) -> CheckpointsReply | None:
    directories = [place.directory for place in places]
    request = CheckpointsRequest(directories, list(unwanted), most, SEARCH_S, verify_s, parts=True)
    try:
        return await node.retry_until_deadline("checkpoints", request, CheckpointsReply, CALL_S)
    except HostError as error:
        _tell_unseen(node, error, log)
    return None


def _tell_unseen(node: NodeRun, error: HostError, log: AttemptLog) -> None:
    """Tell that a host does not say what it has: an attempt may then go on from an older one than there is."""
    reason, hint = error.message, error.hint
    if _is_too_old(error):
        reason = msg("its agent is too old to look for checkpoints")
        hint = msg("Upgrade the agent: dttui agents deploy {host}", host=node.name)
    log.tell(warning("checkpoints-unseen", node.name, msg("{host}: {reason}", host=node.name, reason=reason), hint))


def _is_too_old(error: HostError) -> bool:
    return isinstance(error, AgentError) and error.code == ErrorCode.UNKNOWN_METHOD
