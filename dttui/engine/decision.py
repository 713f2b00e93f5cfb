"""What follows an attempt: the end of the job, or another one, of whom, and how soon. Pure."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dtagent.protocol.events import JobState

from dttui.i18n import Message, msg, nmsg
from dttui.jobs.outcome import AttemptOutcome, Stage
from dttui.planning.recovery import RecoveryPolicy
from dttui.spec.failure_causes import HARDWARE, LAUNCH, STRAGGLER, CauseKind, kind_of
from dttui.spec.models import RecoveryAction

FIRST_DELAY_S = 1.0
"""From a failure to the next attempt, after one that has made no new step; after one that has, it begins at once."""
NODE_DELAY_S = 30.0
"""From a failure to the next attempt where a host has to come back; it is not waited for longer than that takes."""
MOST_DELAY_S = 600.0
MOST_DOUBLINGS = 10
"""Of the first delay, which is longer than the longest then."""
SET_ASIDE_AFTER = 2
"""Attempts that failed at a node, after which it is done without if that can be."""
_BLAMES_THE_NODE = (CauseKind.NODE, CauseKind.SIGNAL, CauseKind.GPU)


@dataclass(frozen=True)
class End:
    """The job is over, as its last attempt is."""

    why: Message | None = None
    """Why no other attempt follows, where that is worth telling."""


@dataclass(frozen=True)
class Restart:
    """Another attempt, with a preflight of its own."""

    delay_s: float = 0.0
    """How long to wait before it, but for chance."""
    changes: Mapping[str, str | None] = field(default_factory=dict)
    """Node that takes no part any more → the environment that takes its place, `None` where nobody does."""
    awaited: tuple[str, ...] = ()
    """Nodes that are not known to be clean, and that it needs: once they are, it may begin."""
    set_aside: tuple[str, ...] = ()
    """Nodes that take no part any more since attempts failed there again and again."""
    suspects: tuple[str, ...] = ()
    """Such that cannot be done without."""


Decision = End | Restart


def decide(outcome: AttemptOutcome, policy: RecoveryPolicy, history: Sequence[AttemptOutcome]) -> Decision:
    """Return what follows an attempt.

    Args:
        outcome: how it ended.
        policy: what the job allows.
        history: how the attempts before it ended, the first one first.
    """
    if outcome.state is not JobState.FAILED or not policy.may_restart:
        return End()
    if not history and outcome.stage is Stage.PREFLIGHT and outcome.cause != LAUNCH:
        return End()  # What a person launched and nothing has begun of is theirs to put right.
    if not is_retried(outcome, policy):
        return End(msg("it is not tried again for this cause: {cause}", cause=outcome.why or "unknown"))
    attempts = [*history, outcome]
    spares = (*policy.usable_spares, *policy.unfit)
    used = restarts_in_vain(attempts, spares)
    if used >= policy.max_restarts:
        return End(
            nmsg(
                "{count} new attempt has made no new step, and max_restarts allows no more",
                "{count} new attempts have made no new step, and max_restarts allows no more",
                used,
            )
        )
    changes, suspects = _line_up(attempts, policy)
    awaited = tuple(name for name in outcome.gone if name not in changes)
    first_s = FIRST_DELAY_S if used or outcome.last_step is None else 0.0
    refused = _refused_spares(attempts, policy)
    if awaited or any(name in refused for name in changes.values()):
        first_s = NODE_DELAY_S
    found = _failed_again(attempts)
    return Restart(
        delay_s=min(first_s * 2.0 ** min(used + _refusals_before(attempts, spares), MOST_DOUBLINGS), MOST_DELAY_S),
        changes=changes,
        awaited=awaited,
        set_aside=tuple(name for name in changes if name in found and name not in refused),
        suspects=suspects,
    )


def is_retried(outcome: AttemptOutcome, policy: RecoveryPolicy) -> bool:
    """Whether another attempt may come further, by why this one failed: as the job says, else by the kind of cause.

    One that could not read its checkpoint is followed by one that goes on from an older one.
    """
    kind = kind_of(outcome.why)
    told = {kind.value, *outcome.exit_statuses, *([outcome.why] if outcome.why is not None else [])}
    if told & set(policy.no_retry_on):
        return False
    return bool(told & set(policy.retry_on)) or kind.is_retried or outcome.could_not_resume


def untried_spares(policy: RecoveryPolicy, had: Collection[str]) -> list[str]:
    """Return the spares that take a place before all others, in order.

    Args:
        policy: what the job allows.
        had: nodes that an attempt has had.
    """
    return [name for name in policy.usable_spares if name not in had]


def restarts_in_vain(attempts: Sequence[AttemptOutcome], spares: Sequence[str] = ()) -> int:
    """Return how many of the last attempts in a row were new ones that made no step that none before had made.

    Args:
        attempts: the first one first.
        spares: that were to take a node's place. An attempt that only refused some of them for the first time does not
            count while there is another that none has had: it says nothing of the job.
    """
    furthest, used = -1, -1  # The first is no restart.
    for attempt, says_nothing in zip(attempts, _say_nothing(attempts, spares), strict=True):
        if says_nothing:
            continue
        reached = attempt.last_step if attempt.last_step is not None else -1
        used = 0 if reached > furthest else used + 1
        furthest = max(furthest, reached)
    return max(used, 0)


def _say_nothing(attempts: Sequence[AttemptOutcome], spares: Sequence[str]) -> list[bool]:
    """Return of each attempt whether it only refused spares, for the first time, while there was one none has had."""
    fresh, unrefused, found = set(spares), set(spares), []
    for attempt in attempts:
        fresh -= attempt.nodes.keys()
        gone = set(attempt.gone)
        found.append(attempt.stage is Stage.PREFLIGHT and bool(gone) and gone <= unrefused and bool(fresh))
        unrefused -= gone
    return found


def _refusals_before(attempts: Sequence[AttemptOutcome], spares: Sequence[str]) -> int:
    """Return how many attempts in a row before the last have said as little as that: in an outage it is all of them."""
    *before, last = _say_nothing(attempts, spares)
    return len([*itertools.takewhile(bool, reversed(before))]) if last else 0


def _refused_spares(attempts: Sequence[AttemptOutcome], policy: RecoveryPolicy) -> list[str]:
    """Return the spares on which nothing could be started when they were tried last, the longest ago first."""
    last = {name: (index, node.is_refused) for index, item in enumerate(attempts) for name, node in item.nodes.items()}
    refused = [name for name in policy.usable_spares if name in last and last[name][1]]
    return sorted(refused, key=lambda name: last[name][0])


def _line_up(
    attempts: Sequence[AttemptOutcome], policy: RecoveryPolicy
) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Return who is replaced or done without, and who ought to be and cannot.

    A spare that no attempt has had comes first. One that was refused is tried again only for a node that is not to be
    had either, where the job cannot do without that.
    """
    outcome = attempts[-1]
    gone = outcome.gone
    if len(gone) == len(outcome.nodes) > 1:
        return {}, ()  # None of them answers: it is rather this machine that is cut off.
    again = [name for name in _failed_again(attempts) if name in outcome.nodes]
    unwanted = _unwanted(outcome, again)
    changes: dict[str, str | None] = {}
    known = {name for attempt in attempts for name in attempt.nodes}
    changes.update(zip(unwanted, untried_spares(policy, known), strict=False))
    left = [name for name in unwanted if name not in changes]
    changes.update(dict.fromkeys(left[: _dispensable(outcome, policy)], None))
    needed = [name for name in gone if name not in changes]
    refused = (spare for spare in _refused_spares(attempts, policy) if spare not in outcome.nodes)
    changes.update(zip(needed, refused, strict=False))
    return changes, tuple(name for name in again if name not in changes)


def _unwanted(outcome: AttemptOutcome, again: Sequence[str]) -> list[str]:
    """Return the nodes that another attempt rather does without, whoever has to be replaced first.

    Args:
        outcome: of the attempt before.
        again: those of its nodes at which more than one attempt has failed.
    """
    first = outcome.first_failure
    broken = [first.node] if first is not None and outcome.why in HARDWARE and not first.is_shared else []
    slow = outcome.blamed if outcome.why == STRAGGLER else ()
    unwanted = list(dict.fromkeys([*outcome.gone, *slow, *broken, *again]))
    if len(unwanted) == len(outcome.nodes):
        unwanted = list(dict.fromkeys([*outcome.gone, *slow]))  # For the slow one's sake the attempt was ended.
    return unwanted


def _dispensable(outcome: AttemptOutcome, policy: RecoveryPolicy) -> int:
    """Return how many nodes fewer than before the job may go on with."""
    least = policy.min_nodes
    if least is None:
        least = 1 if policy.action is RecoveryAction.CONTINUE else len(outcome.nodes)
    return max(0, len(outcome.nodes) - least)


def _failed_again(attempts: Sequence[AttemptOutcome]) -> tuple[str, ...]:
    """Return the nodes at which as many attempts failed as nobody takes for chance."""
    blamed: Counter[str] = Counter()
    for attempt in attempts:
        first = attempt.first_failure
        found = set(attempt.gone) if len(attempt.gone) < len(attempt.nodes) else set()
        if first is not None and not first.is_shared and kind_of(attempt.why) in _BLAMES_THE_NODE:
            found.add(first.node)
        blamed.update(found | set(attempt.blamed))
    return tuple(name for name, count in blamed.items() if count >= SET_ASIDE_AFTER)
