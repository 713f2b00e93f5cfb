"""What follows an attempt: the end of the job, or another one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dtagent.protocol.events import JobState

from dttui.jobs.outcome import AttemptOutcome


@dataclass(frozen=True)
class RecoveryPolicy:
    """What a job allows where an attempt fails."""

    max_restarts: int = 0
    """Attempts after the first."""


NO_RESTARTS = RecoveryPolicy()


@dataclass(frozen=True)
class End:
    """The job is over, as its last attempt is."""


@dataclass(frozen=True)
class Restart:
    """Another attempt of the same plan, with a preflight of its own."""


Decision = End | Restart


def decide(outcome: AttemptOutcome, policy: RecoveryPolicy, history: Sequence[AttemptOutcome]) -> Decision:
    """Return what follows an attempt.

    Args:
        outcome: how it ended.
        policy: what the job allows.
        history: how the attempts before it ended, the first one first.
    """
    # Where something may still run, another attempt would write to the same files.
    may_follow = outcome.state is JobState.FAILED and not outcome.left_behind
    return Restart() if may_follow and len(history) < policy.max_restarts else End()
