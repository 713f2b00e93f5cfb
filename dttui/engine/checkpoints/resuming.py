"""What an attempt goes on from: the newest checkpoint of those before it that is complete, asked of the hosts."""

from __future__ import annotations

import asyncio
import itertools
import math
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dtagent.protocol.checkpoints import (
    MAX_DIRECTORIES,
    PART,
    CheckpointsOf,
    FoundCheckpoint,
)
from dtagent.protocol.replication import MAX_STORES, HeldCopy

from dttui.agent_words import agent_text
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.checkpoints.checkpoint_places import CheckpointPlace, PlacedCheckpoint, read_plans, started_at
from dttui.engine.checkpoints.replication.gathering import gather, store_of_parts, whole_of
from dttui.engine.checkpoints.replication.placing import place
from dttui.engine.checkpoints.replication.replicator import stores_of
from dttui.engine.checkpoints.replication.transfer import Stores
from dttui.engine.checkpoints.replication.written_parts import parts_of
from dttui.engine.checkpoints.resume_answers import add_copies, own_answers, tell_passed, without_foreign
from dttui.engine.checkpoints.resume_choice import choose, lost_writers, newest_of, resumed_in_vain, written_in
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.recovered import read_history
from dttui.i18n import msg
from dttui.jobs import JobDirectory
from dttui.jobs.outcome import AttemptOutcome
from dttui.planning.models import BoundPlan
from dttui.planning.resumption import Resume, Resumption
from dttui.spec.findings import warning

_AT_ONCE = min(MAX_DIRECTORIES, MAX_STORES - 1)
"""Attempts that hosts are asked about in one call, the newest first: nearly always these have one."""


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
        nodes: of that attempt; what one has that cannot be reached is passed over, and told.
        resumption: of the plan: whether all hosts see the same directories, or which keep copies.
        earlier: job of each attempt before this job's first, of which this job has the plans.
    """
    history = await asyncio.to_thread(read_history, directory)
    begun = await asyncio.to_thread(started_at, directory)
    stores = stores_of(resumption, directory.job_id, log.attempt, earlier)
    resumed: dict[int, Resume | None] = {}
    copies: dict[str, list[HeldCopy]] = {node.name: [] for node in nodes}
    unwanted: list[str] = []
    for newest in range(log.attempt - 1, -1, -_AT_ONCE):
        numbers = range(newest, max(-1, newest - _AT_ONCE), -1)
        before = await asyncio.to_thread(read_plans, directory, numbers)
        resumed |= {number: plan.bindings.resume for number, plan in before.items() if number >= len(earlier)}
        unwanted = resumed_in_vain(resumed, history)
        if stores is not None:
            first = log.attempt - 1 - newest
            asked = [*([] if first else [stores.own]), *stores.older[first : first + len(numbers)]]
            await add_copies(copies, nodes, asked, log)
        held = itertools.chain.from_iterable(copies.values())
        answers = without_foreign(await own_answers(nodes, before, unwanted, resumption, log, held), begun, nodes)
        there = _There(directory.job_id, nodes, answers, copies, unwanted, stores, resumption, history, log)
        for attempt, bound in before.items():
            found = await _of_attempt(attempt, bound, there)
            if found is not None:
                tell_passed(answers, found.attempt, log)
                return found
        tell_passed(answers, 0, log)
    return None


@dataclass(frozen=True)
class _There:
    """What the hosts have of some attempts of a job, for one that is to go on from it."""

    job_id: str
    nodes: Sequence[NodeRun]
    answers: Mapping[str, Mapping[CheckpointPlace, CheckpointsOf]]
    copies: Mapping[str, Sequence[HeldCopy]]
    unwanted: Collection[str]
    stores: Stores | None
    resumption: Resumption
    history: Sequence[AttemptOutcome]
    log: AttemptLog

    def of(self, attempt: int) -> Iterator[tuple[str, CheckpointPlace, CheckpointsOf]]:
        """Yield what each node has that an attempt has written, and where."""
        for name, by_place in self.answers.items():
            yield from ((name, place, found) for place, found in by_place.items() if place.attempt == attempt)


async def _of_attempt(attempt: int, bound: BoundPlan, there: _There) -> Resume | None:
    """Return what can be gone on from of an attempt.

    Parts that make a whole count before a complete one where they are newer, and else where that cannot be had.
    """
    parts = _parts(attempt, bound, there)
    newer = _newer_than_complete(attempt, parts, there)
    joined = await _joined(attempt, bound, newer, there)
    if joined is not None:
        return joined
    own = _own(attempt, bound, there) if there.stores is None else await _placed(attempt, bound, there.stores, there)
    return own or await _joined(attempt, bound, parts[len(newer) :], there)


def _parts(attempt: int, bound: BoundPlan, there: _There) -> list[dict[int, PlacedCheckpoint]]:
    """Return what `parts_of` does, where each host has a disk of its own, but for wholes that came to nothing."""
    if there.resumption.shared:
        return []
    found = parts_of(attempt, bound, there.nodes, there.answers, there.copies, there.unwanted)
    store = store_of_parts(attempt, bound, there.nodes[0].name, there.resumption, there.job_id)
    return [parts for parts in found if store is None or whole_of(store, parts[min(parts)]) not in there.unwanted]


def _newer_than_complete(
    attempt: int, parts: Sequence[Mapping[int, PlacedCheckpoint]], there: _There
) -> Sequence[Mapping[int, PlacedCheckpoint]]:
    """Return the steps of which parts are newer than all that somebody has of an attempt that is complete by itself."""
    steps = [item.step for _name, _place, found in there.of(attempt) for item in found.complete]
    held = itertools.chain.from_iterable(there.copies.values())
    steps += [copy.step for copy in held if copy.attempt == attempt and copy.form != PART]
    newest = max((math.inf if step is None else step for step in steps), default=-1)
    return [of_step for of_step in parts if (of_step[min(of_step)].found.step or 0) > newest]


async def _joined(
    attempt: int, bound: BoundPlan, parts: Sequence[Mapping[int, PlacedCheckpoint]], there: _There
) -> Resume | None:
    found = await gather(attempt, bound, parts, there.nodes, there.resumption, there.job_id, there.log)
    return None if found is None else _said(found, PART, there.log)


async def _placed(attempt: int, bound: BoundPlan, stores: Stores, there: _There) -> Resume | None:
    """Return the newest of an attempt that can be had where it is needed, where hosts keep copies."""
    ranks = {node.name: node.node_rank for node in bound.plan.nodes}
    written = written_in(attempt, ranks, there.answers, there.copies, there.unwanted)
    while written and (picked := newest_of(written)):
        chosen = {name: picked[rank].found for name, rank in ranks.items() if rank in picked}
        if _lacks_parts(attempt, bound, chosen, there):
            break
        resume = await place(attempt, picked, there.nodes, stores, there.resumption, there.log)
        if isinstance(resume, Resume):
            return _said(resume, picked[min(picked)].found.form, there.log)
        written[resume].remove(picked[resume])
    return None


def _own(attempt: int, bound: BoundPlan, there: _There) -> Resume | None:
    """Return the newest of an attempt, where each host has what it has."""
    complete: dict[str, list[FoundCheckpoint]] = {}
    searched: dict[str, str] = {}
    for name, where, found in there.of(attempt):
        searched[name] = where.directory
        if found.complete:
            complete[name] = found.complete
        elif found.detail:
            message = msg("{host}: {reason}", host=name, reason=agent_text(found.detail, found.detail_notice))
            there.log.tell(warning("checkpoints-unseen", name, message))
    chosen = choose(complete)
    if chosen and (there.resumption.shared or not _lacks_parts(attempt, bound, chosen, there)):
        return _resume_and_tell(attempt, chosen, searched, there.log)
    return None


def _lacks_parts(attempt: int, bound: BoundPlan, chosen: Mapping[str, FoundCheckpoint], there: _There) -> bool:
    """Tell, and return, whether a host that wrote a part of an attempt's checkpoints is gone with it."""
    outcome = next((item for item in there.history if item.attempt == attempt), None)
    lost = lost_writers(bound.plan, outcome, chosen, there.answers)
    for name in lost:
        message = msg(
            "{host} wrote a part of each checkpoint of attempt {attempt}, which nobody else has",
            host=name,
            attempt=attempt,
        )
        there.log.tell(warning("checkpoint-part-lost", name, message))
    return bool(lost)


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
