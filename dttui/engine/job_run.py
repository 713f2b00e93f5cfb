"""Runs a job's attempts, one after another, until it is decided that the job is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dtagent.protocol.events import EventKind, JobState

from dttui.engine.attempt import Attempt
from dttui.engine.context import JobContext
from dttui.engine.decision import Decision, End, RecoveryPolicy
from dttui.engine.recovered import RecoveredState
from dttui.i18n import msg
from dttui.jobs.aftermath import OUTCOME
from dttui.jobs.outcome import AttemptOutcome

Decide = Callable[[AttemptOutcome, RecoveryPolicy, Sequence[AttemptOutcome]], Decision]


class JobRun:
    """Runs a job, from wherever it stands.

    Args:
        job: to run.
        recovered: where its newest attempt stands.
        history: how those before it ended.
        policy: what the job allows where an attempt fails.
        decide: what follows an attempt.
    """

    def __init__(
        self,
        job: JobContext,
        recovered: RecoveredState,
        history: Sequence[AttemptOutcome],
        policy: RecoveryPolicy,
        decide: Decide,
    ) -> None:
        self._job = job
        self._history = list(history)
        self._policy = policy
        self._decide = decide
        self._attempt = Attempt(job, recovered)
        self._number = recovered.attempt
        self._plan = recovered.plan
        self._is_stopping = False

    def request_stop(self, *, force: bool) -> None:
        """Stop the job: gracefully, or at once."""
        self._is_stopping = True
        self._attempt.request_stop(force=force)

    def retry_now(self) -> None:
        """Try at once to reach the hosts that are silent: somebody came who may answer for us."""
        self._attempt.retry_now()

    async def run(self) -> AttemptOutcome:
        """Run attempts until one is the last; return how that one ended."""
        while True:
            outcome = await self._attempt.run()
            if self._is_stopping or isinstance(self._decide(outcome, self._policy, self._history), End):
                return outcome
            self._history.append(outcome)
            # One record for the end of this attempt and the promise of the next: there is nothing between the two.
            kept = outcome.model_dump(mode="json", exclude_defaults=True)
            message = msg("{why}; starting again", why=outcome.message)
            data = {"state": JobState.RESTARTING.value, OUTCOME: kept}
            self._job.log.add(EventKind.JOB_STATE, message, attempt=self._number, data=data)
            self._number += 1
            self._attempt = Attempt(self._job, RecoveredState.new(self._plan, self._number))
