"""Which checkpoint an attempt goes on from, of those that hosts have told. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from dtagent.protocol.checkpoints import (
    PART,
    CheckpointsOf,
    FoundCheckpoint,
)
from dtagent.protocol.replication import HeldCopy

from dttui.engine.checkpoints.checkpoint_places import CheckpointPlace, PlacedCheckpoint
from dttui.frameworks import traits_of
from dttui.frameworks.traits import Spread
from dttui.jobs.outcome import AttemptOutcome, Stage
from dttui.planning.models import Plan
from dttui.planning.resumption import Resume
from dttui.spec.failure_causes import CauseKind, kind_of

MOST_IN_VAIN = 2
"""So many attempts go on from one checkpoint without reporting a step; the next takes an older one."""
_ACQUITS = (CauseKind.NODE, CauseKind.GPU, CauseKind.COMMUNICATION, CauseKind.SERVICE)
"""Kinds of causes that say nothing against the checkpoint from which the attempt went on."""
_LATE_S, _SLOWEST_S = 60.0, 3600.0
"""Parts of one step are written at most so long after what names all of it, as DeepSpeed's ranks do, and before."""


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


def whole_steps(
    parts: Sequence[Sequence[FoundCheckpoint]],
    named: Collection[int] = (),
    offsets_s: Sequence[float | None] = (),
) -> list[int]:
    """Return the steps of which each host has a part, and one the file that names all, the newest first.

    Those of one step were written together: where one is much older or newer than what names all, another training
    has written over it, or was about to.

    Args:
        parts: what each host has written.
        named: steps of which it is known otherwise that there is that file.
        offsets_s: of each host's clock; `None` where nobody knows it.
    """
    by_step = [{part.step: part for part in reversed(found) if part.step is not None} for found in parts]
    common = set.intersection(*(set(of_host) for of_host in by_step))
    whole = []
    for step in common:
        of_step = [of_host[step] for of_host in by_step]
        clocks_s = offsets_s or [None] * len(of_step)
        written_s = [_moment(part, offset_s) for part, offset_s in zip(of_step, clocks_s, strict=True)]
        end_s = [at for part, at in zip(of_step, written_s, strict=True) if part.form != PART and at is not None]
        is_together = not end_s or all(
            at is None or max(end_s) - _SLOWEST_S <= at <= max(end_s) + _LATE_S for at in written_s
        )
        if is_together and (step in named or any(part.form != PART for part in of_step)):
            whole.append(step)
    return sorted(whole, reverse=True)


def _moment(part: FoundCheckpoint, offset_s: float | None) -> float | None:
    """Return when a part was changed last, by the login node's clock."""
    return None if part.changed_ns is None or offset_s is None else part.changed_ns / 1e9 - offset_s


def written_in(
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


def lost_writers(
    plan: Plan, outcome: AttemptOutcome | None, found: Mapping[str, FoundCheckpoint], answered: Collection[str]
) -> list[str]:
    """Return the nodes of which nobody has the part any more that each of several wrote of an attempt's checkpoints.

    None where each node's are whole: where one alone wrote, or the framework's ranks are replicas of each other. Of
    several that have some each wrote a part, and so did one that is gone; but not where all of them may see the same
    directory, though the job does not say so: one that asks for copies says that they do not.

    Args:
        plan: of the attempt.
        outcome: how it ended; `None` where nobody knows.
        found: node whose checkpoints somebody has → which of them is chosen.
        answered: nodes that say what they have.
    """
    if not found or not set(traits_of(plan.framework).spreads) - {Spread.REPLICAS}:
        return []
    ended = outcome.nodes if outcome is not None else {}
    sizes = {name: node.checkpoint_bytes for name, node in ended.items() if node.checkpoint_bytes is not None}
    files = {(item.path, item.size_bytes, item.time) for item in found.values()}
    if not plan.resumption.copies and len(files) == 1 and (len(found) > 1 or len(set(sizes.values())) == 1):
        return []
    wrote = sizes.keys() | found.keys()
    gone = {node.name for node in plan.nodes} - set(answered)
    lost = wrote | (gone if len(wrote) > 1 else set())
    return [node.name for node in plan.nodes if node.name in lost and node.name not in found]


def newest_of(written: Mapping[int, Sequence[PlacedCheckpoint]]) -> dict[int, PlacedCheckpoint]:
    """Return what is chosen of what the nodes have written, by their rank."""
    complete = {str(rank): [item.found for item in items] for rank, items in written.items() if items}
    chosen = choose(complete)
    return {int(rank): next(item for item in written[int(rank)] if item.found is one) for rank, one in chosen.items()}


def _age(item: PlacedCheckpoint) -> tuple[int, float]:
    return (-1 if item.found.step is None else item.found.step, item.found.time)


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
