"""What an attempt goes on from: the newest checkpoint of those before it that is complete, asked of the hosts."""

from __future__ import annotations

import asyncio
import posixpath
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from dtagent.protocol.checkpoints import (
    MAX_DIRECTORIES,
    MAX_SEARCH_S,
    PART,
    CheckpointsOf,
    CheckpointsReply,
    CheckpointsRequest,
    FoundCheckpoint,
    PassedCheckpoint,
)
from dtagent.protocol.replication import MAX_STORES, CopiesReply, CopiesRequest, HeldCopy
from dtagent.protocol.rpc import ErrorCode

from dttui.agent_words import agent_text
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.checkpoints.checkpoint_places import CheckpointPlace, places, read_plans, started_at
from dttui.engine.checkpoints.replication.gathering import gather
from dttui.engine.checkpoints.replication.placing import PlacedCheckpoint, place
from dttui.engine.checkpoints.replication.replicator import stores_of
from dttui.engine.checkpoints.replication.transfer import Stores
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.recovered import read_history
from dttui.errors import AgentError, HostError
from dttui.i18n import msg
from dttui.jobs import JobDirectory
from dttui.jobs.outcome import AttemptOutcome, Stage
from dttui.planning.models import BoundPlan
from dttui.planning.resumption import Resume, Resumption
from dttui.spec.failure_causes import CauseKind, kind_of
from dttui.spec.findings import info, warning

SEARCH_S = 30.0
_AT_ONCE = min(MAX_DIRECTORIES, MAX_STORES - 1)
"""Attempts that hosts are asked about in one call, the newest first: nearly always these have one."""
VERIFY_S = 10.0
"""How long the newest may be read for before it is gone on from: a changed one may load without a word."""
MOST = 8
"""Of each directory, so many of the newest are told: where hosts write a part each, the newest that all have counts."""
EARLY_S = 600.0
"""What was changed so long before an attempt began is not its own; a file server's clock may be off by less."""
MOST_IN_VAIN = 2
"""So many attempts go on from one checkpoint without reporting a step; the next takes an older one."""
_ACQUITS = (CauseKind.NODE, CauseKind.GPU, CauseKind.COMMUNICATION, CauseKind.SERVICE)
"""Kinds of causes that say nothing against the checkpoint from which the attempt went on."""


async def find_resume(
    directory: JobDirectory,
    log: AttemptLog,
    nodes: Sequence[NodeRun],
    resumption: Resumption,
    earlier: Sequence[str] = (),
) -> Resume | None:
    """Ask the hosts for the newest complete checkpoint of the attempts before this one.

    A later attempt's count before an earlier one's: of that something may still be running on a host that was lost.

    Args:
        directory: of the job.
        log: of the attempt that is to go on from it.
        nodes: of that attempt; those without a link are passed over.
        resumption: of the plan: whether all hosts see the same directories, or which keep copies.
        earlier: job of each attempt before this job's first, of which this job has the plans.
    """
    history = await asyncio.to_thread(read_history, directory)
    begun = await asyncio.to_thread(started_at, directory)
    stores = stores_of(resumption, directory.job_id, log.attempt, earlier)
    resumed: dict[int, Resume | None] = {}
    copies: dict[str, list[HeldCopy]] = {node.name: [] for node in nodes}
    newest_plans: dict[int, BoundPlan] = {}
    unwanted: list[str] = []
    for newest in range(log.attempt - 1, -1, -_AT_ONCE):
        numbers = range(newest, max(-1, newest - _AT_ONCE), -1)
        before = await asyncio.to_thread(read_plans, directory, numbers)
        resumed |= {number: plan.bindings.resume for number, plan in before.items() if number >= len(earlier)}
        newest_plans = newest_plans or before
        unwanted = resumed_in_vain(resumed, history)
        answers = _without_foreign(await _answers(nodes, before, unwanted, resumption, log), begun, nodes)
        if stores is None:
            found = _own(before, answers, log)
        else:
            first = log.attempt - 1 - newest
            asked = [*([] if first else [stores.own]), *stores.older[first : first + len(numbers)]]
            await _add_copies(copies, nodes, asked)
            found = await _placed(before, answers, copies, unwanted, nodes, stores, resumption, log)
        _tell_passed(answers, found.attempt if found is not None else 0, log)
        if found is not None:
            return found
    joined = await gather(newest_plans, nodes, unwanted, resumption, directory.job_id, log)
    return joined if joined is None else _said(joined, "torch-dcp", log)


async def _answers(
    nodes: Sequence[NodeRun],
    before: Mapping[int, BoundPlan],
    unwanted: Sequence[str],
    resumption: Resumption,
    log: AttemptLog,
) -> dict[str, dict[CheckpointPlace, CheckpointsOf]]:
    """Return what each node that answers has itself, by where it looked."""
    where = {node.name: places(before, node.name, shared=resumption.shared) for node in nodes}
    asked = [node for node in nodes if where[node.name] and node.client is not None]
    # Where all see the same, one reads it.
    verified = [node for node in asked if not resumption.shared or node is asked[0]]
    replies = await asyncio.gather(
        *(_ask(node, where[node.name], unwanted, log, VERIFY_S if node in verified else 0.0) for node in asked)
    )
    answers = {
        node.name: dict(zip(where[node.name], reply.directories, strict=False))
        for node, reply in zip(asked, replies, strict=True)
        if reply is not None
    }
    if not resumption.shared:
        return answers
    passed = {item.path for found in answers.get(asked[0].name, {}).values() for item in found.passed} if asked else ()
    return {
        name: {
            where: replace(told, complete=[item for item in told.complete if item.path not in passed])
            for where, told in by_place.items()
        }
        for name, by_place in answers.items()
    }


def _without_foreign(
    answers: Mapping[str, Mapping[CheckpointPlace, CheckpointsOf]], begun: Mapping[int, float], nodes: Sequence[NodeRun]
) -> dict[str, dict[CheckpointPlace, CheckpointsOf]]:
    """Pass over what lay in `attempt-N` before that attempt of this job began: a job before used the same directory.

    What lies in the directory itself counts for the first attempt: whoever put it there may mean it.
    """
    why = msg("it was there before the attempt began")
    offsets_s = {node.name: node.clock_offset_s for node in nodes}

    def sorted_out(found: CheckpointsOf, since: float) -> CheckpointsOf:
        old = [item for item in found.complete if item.changed_ns is not None and item.changed_ns / 1e9 < since]
        passed = [PassedCheckpoint(item.path, why) for item in old]
        complete = [item for item in found.complete if item not in old]
        return replace(found, complete=complete, passed=[*found.passed, *passed])

    return {
        name: {
            place: sorted_out(found, begun[place.attempt] + offsets_s[name] - EARLY_S)
            if place.attempt and place.attempt in begun
            else found
            for place, found in by_place.items()
        }
        for name, by_place in answers.items()
    }


def _tell_passed(answers: Mapping[str, Mapping[CheckpointPlace, CheckpointsOf]], since: int, log: AttemptLog) -> None:
    """Tell what is newer in the attempts since one than what is complete, and why it is not gone on from."""
    told: set[str] = set()
    for name, by_place in answers.items():
        for item in (item for where, found in by_place.items() if where.attempt >= since for item in found.passed):
            if item.path not in told:
                told.add(item.path)
                reason = agent_text(item.why, item.why_notice)
                message = msg("{checkpoint} of {host} is passed over: {reason}",
                               checkpoint=item.path, host=name, reason=reason)  # fmt: skip
                log.tell(info("checkpoint-passed", item.path, message))


async def _placed(
    before: Mapping[int, BoundPlan],
    answers: Mapping[str, Mapping[CheckpointPlace, CheckpointsOf]],
    copies: Mapping[str, Sequence[HeldCopy]],
    unwanted: Collection[str],
    nodes: Sequence[NodeRun],
    stores: Stores,
    resumption: Resumption,
    log: AttemptLog,
) -> Resume | None:
    """Return the newest of some attempts that can be had where it is needed, where hosts keep copies."""
    for attempt, bound in before.items():
        ranks = {node.name: node.node_rank for node in bound.plan.nodes}
        written = _written(attempt, ranks, answers, copies, unwanted)
        while written and (picked := _newest(written)):
            resume = await place(attempt, picked, nodes, stores, resumption, log)
            if isinstance(resume, Resume):
                return _said(resume, picked[min(picked)].found.form, log)
            written[resume].remove(picked[resume])
    return None


def _own(
    before: Iterable[int], answers: Mapping[str, Mapping[CheckpointPlace, CheckpointsOf]], log: AttemptLog
) -> Resume | None:
    """Return the newest of some attempts, where each host has what it has."""
    for attempt in before:
        complete: dict[str, list[FoundCheckpoint]] = {}
        searched: dict[str, str] = {}
        for name, by_place in answers.items():
            for where, found in by_place.items():
                if where.attempt != attempt:
                    continue
                searched[name] = where.directory
                if found.complete:
                    complete[name] = found.complete
                elif found.detail:
                    message = msg("{host}: {reason}", host=name, reason=agent_text(found.detail, found.detail_notice))
                    log.tell(warning("checkpoints-unseen", name, message))
        chosen = choose(complete)
        if chosen:
            return _resume_and_tell(attempt, chosen, searched, log)
    return None


def choose(complete: Mapping[str, Sequence[FoundCheckpoint]]) -> dict[str, FoundCheckpoint]:
    """Return the newest that each node has which has any: where each writes a part, the newest step that all have.

    Args:
        complete: node → what it has, the newest first.
    """
    if not complete:
        return {}
    steps = [[item.step for item in found] for found in complete.values()]
    common = [step for step in steps[0] if step is not None and all(step in others for others in steps)]
    if common:
        newest = max(common)
        return {name: next(item for item in found if item.step == newest) for name, found in complete.items()}
    if len(complete) == 1 or all(step is None for told in steps for step in told):
        return {name: found[0] for name, found in complete.items()}
    return {}


def _resume_and_tell(
    attempt: int, chosen: Mapping[str, FoundCheckpoint], searched: Mapping[str, str], log: AttemptLog
) -> Resume:
    name, first = next(iter(chosen.items()))
    is_itself = first.path == searched[name]
    resume = Resume(
        checkpoint=first.path,
        directory=first.path if is_itself else posixpath.dirname(first.path),
        step=first.step,
        attempt=attempt,
        elsewhere={other: item.path for other, item in chosen.items() if item.path != first.path},
    )
    return _said(resume, first.form, log)


def _said(resume: Resume, form: str, log: AttemptLog) -> Resume:
    message = msg("going on from {checkpoint}", checkpoint=resume.checkpoint)
    if resume.step is not None:
        message = msg("going on from step {step}: {checkpoint}", step=resume.step, checkpoint=resume.checkpoint)
    log.progress(message, resume_from=resume.checkpoint, step=resume.step, form=form)
    return resume


async def _add_copies(copies: dict[str, list[HeldCopy]], nodes: Sequence[NodeRun], stores: Sequence[str]) -> None:
    """Add the copies that each node keeps in some directories; one whose agent knows of none has none."""

    async def ask(node: NodeRun) -> list[HeldCopy]:
        try:
            if node.client is None:
                return []
            return (await node.client.call("copies", CopiesRequest(list(stores)), CopiesReply, SEARCH_S)).held
        except HostError:
            return []

    for node, held in zip(nodes, await asyncio.gather(*map(ask, nodes)), strict=True):
        copies[node.name] += held


def _written(
    attempt: int,
    ranks: Mapping[str, int],
    answers: Mapping[str, Mapping[CheckpointPlace, CheckpointsOf]],
    copies: Mapping[str, Sequence[HeldCopy]],
    unwanted: Collection[str],
) -> dict[int, list[PlacedCheckpoint]]:
    """Return what each node has written in an attempt and where it lies now, the newest first.

    Args:
        attempt: which.
        ranks: node that took part in it → its rank.
        answers: node → what it has itself, by where it looked.
        copies: node → what it keeps of others.
        unwanted: paths that are passed over.
    """
    found: dict[int, dict[tuple[str, float], PlacedCheckpoint]] = {}
    for name, by_place in answers.items():
        for where, told in by_place.items():
            if where.attempt == attempt and name in ranks:
                for item in told.complete:
                    candidate = PlacedCheckpoint(item, item.path == where.directory, {name: item.path})
                    found.setdefault(ranks[name], {})[item.path, item.time] = candidate
    for name, held in copies.items():
        for copy in held:
            if copy.attempt != attempt or copy.form == PART or copy.path in unwanted or copy.source in unwanted:
                continue
            of_rank = found.setdefault(copy.node_rank, {})
            same = of_rank.get((copy.source, copy.time))
            if same is None:
                item = FoundCheckpoint(copy.source, copy.form, copy.step, copy.size_bytes, copy.time)
                same = of_rank[copy.source, copy.time] = PlacedCheckpoint(item, False)
            same.holders.setdefault(name, copy.path)
    return {rank: sorted(items.values(), key=_age, reverse=True) for rank, items in found.items()}


def _newest(written: Mapping[int, Sequence[PlacedCheckpoint]]) -> dict[int, PlacedCheckpoint]:
    complete = {str(rank): [item.found for item in items] for rank, items in written.items() if items}
    chosen = choose(complete)
    return {int(rank): next(item for item in written[int(rank)] if item.found is one) for rank, one in chosen.items()}


def _age(item: PlacedCheckpoint) -> tuple[int, float]:
    return (-1 if item.found.step is None else item.found.step, item.found.time)


async def _ask(
    node: NodeRun, places: Sequence[CheckpointPlace], unwanted: Sequence[str], log: AttemptLog, verify_s: float
) -> CheckpointsReply | None:
    request = CheckpointsRequest([place.directory for place in places], list(unwanted), MOST, SEARCH_S, verify_s)
    try:
        if node.client is None:
            return None
        return await node.client.call("checkpoints", request, CheckpointsReply, MAX_SEARCH_S + 15.0)
    except AgentError as error:
        reason = error.message
        hint = error.hint
        if error.code == ErrorCode.UNKNOWN_METHOD:
            reason = msg("its agent is too old to look for checkpoints")
            hint = msg("Upgrade the agent: dttui agents deploy {host}", host=node.name)
        log.tell(warning("checkpoints-unseen", node.name, msg("{host}: {reason}", host=node.name, reason=reason), hint))
    except HostError:
        pass  # Who watches the hosts tells.
    return None


def resumed_in_vain(resumed: Mapping[int, Resume | None], history: Sequence[AttemptOutcome]) -> list[str]:
    """Return the checkpoints from which attempts went on again and again without a step, as if these were to blame.

    One that the script could not read is among them at once.

    They are not where the attempt never ran, where a host, a GPU or the network failed, or where the script reports no
    steps at all: a checkpoint may be the only one, and without it training would begin anew.

    Args:
        resumed: attempt → what it went on from.
        history: how attempts ended.
    """
    unread = {outcome.attempt for outcome in history if outcome.could_not_resume}
    makes_steps = any(outcome.first_step is not None for outcome in history)
    blaming = unread | {
        outcome.attempt
        for outcome in history
        if outcome.first_step is None
        and makes_steps
        and outcome.stage is Stage.RUN
        and kind_of(outcome.why) not in _ACQUITS
        and not outcome.gone  # Whatever the ranks elsewhere said first.
    }
    against: Counter[str] = Counter()
    for number, resume in sorted(resumed.items()):
        if number in blaming and resume is not None:
            weight = MOST_IN_VAIN if number in unread else 1
            against.update({path: weight for path in (resume.checkpoint, *resume.elsewhere.values())})
    return [path for path, count in against.items() if count >= MOST_IN_VAIN]
