"""What follows an attempt: the end of the job, or another one, of whom, and how soon. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dtagent.protocol.events import JobState

from dttui.errors import ExitCode
from dttui.i18n import Message, msg, nmsg
from dttui.jobs.outcome import AttemptOutcome, Stage
from dttui.planning.recovery import RecoveryPolicy
from dttui.spec.failure_causes import HARDWARE, CauseKind, kind_of
from dttui.spec.models import RecoveryAction

FIRST_DELAY_S = 1.0
"""From a failure to the next attempt, after one that has made no new step; after one that has, it begins at once."""
NODE_DELAY_S = 30.0
"""From a failure to the next attempt where a host has to come back; it is not waited for longer than that takes."""
MOST_DELAY_S = 600.0
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
    if not history and outcome.stage is Stage.PREFLIGHT and outcome.exit_code != ExitCode.LAUNCH:
        return End()  # What a person launched and nothing has begun of is theirs to put right.
    if not is_retried(outcome, policy):
        return End(msg("it is not tried again for this cause: {cause}", cause=outcome.why or "unknown"))
    attempts = [*history, outcome]
    used = restarts_in_vain(attempts)
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
    if awaited:
        first_s = NODE_DELAY_S
    found = _failed_again(attempts)
    return Restart(
        delay_s=min(first_s * 2.0**used, MOST_DELAY_S),
        changes=changes,
        awaited=awaited,
        set_aside=tuple(name for name in changes if name in found),
        suspects=suspects,
    )


def is_retried(outcome: AttemptOutcome, policy: RecoveryPolicy) -> bool:
    """Whether another attempt may come further, by why this one failed: as the job says, else by the kind of cause."""
    kind = kind_of(outcome.why)
    told = {kind.value, *outcome.exit_statuses, *([outcome.why] if outcome.why is not None else [])}
    if told & set(policy.no_retry_on):
        return False
    return bool(told & set(policy.retry_on)) or kind.is_retried


def restarts_in_vain(attempts: Sequence[AttemptOutcome]) -> int:
    """Return how many of the last attempts in a row were new ones that made no step that none before had made."""
    furthest, used = -1, -1  # The first is no restart.
    for attempt in attempts:
        reached = attempt.last_step if attempt.last_step is not None else -1
        used = 0 if reached > furthest else used + 1
        furthest = max(furthest, reached)
    return max(used, 0)


def _line_up(
    attempts: Sequence[AttemptOutcome], policy: RecoveryPolicy
) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Return who is replaced or done without, and who ought to be and cannot."""
    outcome = attempts[-1]
    gone = outcome.gone
    if len(gone) == len(outcome.nodes) > 1:
        return {}, ()  # None of them answers: it is rather this machine that is cut off.
    first = outcome.first_failure
    broken = [first.node] if first is not None and outcome.why in HARDWARE and not first.is_shared else []
    again = [name for name in _failed_again(attempts) if name in outcome.nodes]
    unwanted = list(dict.fromkeys([*gone, *broken, *again]))
    if len(unwanted) == len(outcome.nodes):
        unwanted = list(gone)
    changes: dict[str, str | None] = {}
    if policy.action is RecoveryAction.REPLACE:
        known = {name for attempt in attempts for name in attempt.nodes}
        free = [spare for spare in policy.spares if spare not in known]
        changes.update(zip(unwanted, free, strict=False))
    left = [name for name in unwanted if name not in changes]
    least = policy.min_nodes
    if least is None and policy.action is RecoveryAction.CONTINUE:
        least = 1
    without = left[: max(0, len(outcome.nodes) - least)] if least is not None else []
    changes.update(dict.fromkeys(without, None))
    return changes, tuple(name for name in again if name not in changes)


def _failed_again(attempts: Sequence[AttemptOutcome]) -> tuple[str, ...]:
    """Return the nodes at which as many attempts failed as nobody takes for chance."""
    blamed: Counter[str] = Counter()
    for attempt in attempts:
        first = attempt.first_failure
        found = set(attempt.gone) if len(attempt.gone) < len(attempt.nodes) else set()
        if first is not None and not first.is_shared and kind_of(attempt.why) in _BLAMES_THE_NODE:
            found.add(first.node)
        blamed.update(found)
    return tuple(name for name, count in blamed.items() if count >= SET_ASIDE_AFTER)
