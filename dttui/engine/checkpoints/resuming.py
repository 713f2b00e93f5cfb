"""What an attempt goes on from: the newest checkpoint of those before it that is complete, asked of the hosts."""

from __future__ import annotations

import asyncio
import itertools
import posixpath
from collections.abc import Collection, Mapping, Sequence

from dtagent.protocol.checkpoints import (
    MAX_DIRECTORIES,
    CheckpointsOf,
    FoundCheckpoint,
)
from dtagent.protocol.replication import MAX_STORES, HeldCopy

from dttui.agent_words import agent_text
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.checkpoints.checkpoint_places import CheckpointPlace, read_plans, started_at
from dttui.engine.checkpoints.replication.gathering import gather
from dttui.engine.checkpoints.replication.placing import place
from dttui.engine.checkpoints.replication.replicator import stores_of
from dttui.engine.checkpoints.replication.transfer import Stores
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
    newest_plans: dict[int, BoundPlan] = {}
    unwanted: list[str] = []
    for newest in range(log.attempt - 1, -1, -_AT_ONCE):
        numbers = range(newest, max(-1, newest - _AT_ONCE), -1)
        before = await asyncio.to_thread(read_plans, directory, numbers)
        resumed |= {number: plan.bindings.resume for number, plan in before.items() if number >= len(earlier)}
        newest_plans = newest_plans or before
        unwanted = resumed_in_vain(resumed, history)
        if stores is not None:
            first = log.attempt - 1 - newest
            asked = [*([] if first else [stores.own]), *stores.older[first : first + len(numbers)]]
            await add_copies(copies, nodes, asked, log)
        held = itertools.chain.from_iterable(copies.values())
        answers = without_foreign(await own_answers(nodes, before, unwanted, resumption, log, held), begun, nodes)
        if stores is None:
            found = _own(before, answers, history, resumption, log)
        else:
            found = await _placed(before, answers, copies, unwanted, nodes, stores, resumption, history, log)
        tell_passed(answers, found.attempt if found is not None else 0, log)
        if found is not None:
            return found
    joined = await gather(newest_plans, nodes, unwanted, resumption, directory.job_id, log, copies)
    return joined if joined is None else _said(joined, "torch-dcp", log)


async def _placed(
    before: Mapping[int, BoundPlan],
    answers: Mapping[str, Mapping[CheckpointPlace, CheckpointsOf]],
    copies: Mapping[str, Sequence[HeldCopy]],
    unwanted: Collection[str],
    nodes: Sequence[NodeRun],
    stores: Stores,
    resumption: Resumption,
    history: Sequence[AttemptOutcome],
    log: AttemptLog,
) -> Resume | None:
    """Return the newest of some attempts that can be had where it is needed, where hosts keep copies."""
    for attempt, bound in before.items():
        ranks = {node.name: node.node_rank for node in bound.plan.nodes}
        written = written_in(attempt, ranks, answers, copies, unwanted)
        while written and (picked := newest_of(written)):
            chosen = {name: picked[rank].found for name, rank in ranks.items() if rank in picked}
            if _lacks_parts(attempt, bound, history, chosen, answers, log):
                break
            resume = await place(attempt, picked, nodes, stores, resumption, log)
            if isinstance(resume, Resume):
                return _said(resume, picked[min(picked)].found.form, log)
            written[resume].remove(picked[resume])
    return None


def _own(
    before: Mapping[int, BoundPlan],
    answers: Mapping[str, Mapping[CheckpointPlace, CheckpointsOf]],
    history: Sequence[AttemptOutcome],
    resumption: Resumption,
    log: AttemptLog,
) -> Resume | None:
    """Return the newest of some attempts, where each host has what it has."""
    for attempt, bound in before.items():
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
        if chosen and (resumption.shared or not _lacks_parts(attempt, bound, history, chosen, answers, log)):
            return _resume_and_tell(attempt, chosen, searched, log)
    return None


def _lacks_parts(
    attempt: int,
    bound: BoundPlan,
    history: Sequence[AttemptOutcome],
    chosen: Mapping[str, FoundCheckpoint],
    answered: Collection[str],
    log: AttemptLog,
) -> bool:
    """Tell, and return, whether a host that wrote a part of an attempt's checkpoints is gone with it."""
    outcome = next((item for item in history if item.attempt == attempt), None)
    lost = lost_writers(bound.plan, outcome, chosen, answered)
    for name in lost:
        message = msg(
            "{host} wrote a part of each checkpoint of attempt {attempt}, which nobody else has",
            host=name,
            attempt=attempt,
        )
        log.tell(warning("checkpoint-part-lost", name, message))
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
