"""Runs a job's attempts, one after another, until it is decided that the job is over."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dtagent.protocol.events import EventKind, JobState

from dttui.engine.attempt import Attempt
from dttui.engine.context import JobContext
from dttui.engine.decision import Decision, End, Restart, untried_spares
from dttui.engine.lost_hosts import LostHosts
from dttui.engine.pause import Pause
from dttui.engine.recovered import PROMISE, Promise, RecoveredState, read_unfenced
from dttui.engine.restart_news import restart_message, tell_of_nodes
from dttui.engine.turn import Turn
from dttui.errors import DttuiError, LaunchError
from dttui.files import write_atomic
from dttui.i18n import msg
from dttui.jobs.aftermath import OUTCOME
from dttui.jobs.exit_codes import outcome_data
from dttui.jobs.outcome import AttemptOutcome, Stage, cause_of, failed
from dttui.planning.lineup import Lineup
from dttui.planning.models import Plan
from dttui.planning.recovery import RecoveryPolicy
from dttui.spec.findings import Finding, warning
from dttui.words import listed

Decide = Callable[[AttemptOutcome, RecoveryPolicy, Sequence[AttemptOutcome]], Decision]
JITTER = 0.25
"""By what part of it a delay may be shorter or longer, so that jobs that failed together do not begin together."""
FENCE_S = 8.0
"""What it takes a host to end its ranks once it has been without a word for long enough."""
MOST_NAMES = 4


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
        self._next = recovered
        self._attempt: Attempt | None = None
        self._lost_hosts = LostHosts(job)
        self._stopping = asyncio.Event()
        self._pause = Pause(job, self._lost_hosts, self._stopping, self._tell)
        self._turn = Turn(job, self._plan_for, self._tell, self._stopping)
        self._force = False

    def request_stop(self, *, force: bool) -> None:
        """Stop the job: gracefully, or at once."""
        self._force = self._force or force
        self._stopping.set()
        if self._attempt is not None:
            self._attempt.request_stop(force=force)

    def retry_now(self) -> None:
        """Try at once to reach the hosts that are silent: somebody came who may answer for us."""
        self._pause.wake()
        self._lost_hosts.retry_now()
        self._turn.retry_now()
        if self._attempt is not None:
            self._attempt.retry_now()

    async def stacks(self, ranks: list[int] | None) -> list[Any] | None:
        """Return where ranks of the attempt that runs stand, as plain data; `None` where none does."""
        return await self._attempt.stacks(ranks) if self._attempt is not None else None

    async def run(self) -> AttemptOutcome:
        """Run attempts until one is the last; return how that one ended."""
        first = self._next
        if first.may_lack_plan:
            plan = await asyncio.to_thread(self._plan_for, first.promise.lineup)
            self._next = replace(first, plan=plan)
        for number, name in read_unfenced(self._job.directory, self._history):
            self._lost_hosts.add(number, name, self._plan_of(number))
        try:
            while True:
                try:
                    if not await self._come():
                        return self._stopped_before()
                except LaunchError as error:  # No host can be waited for that does not let anybody.
                    return failed(error.message, error.hint, cause_of(error))
                self._attempt = attempt = self._begin(self._next)
                outcome = await attempt.run()
                if await self._lost_its_turn(outcome, attempt.plan):
                    self._attempt = None
                    continue
                await self._turn.leave()
                decided = await self._follow_up(outcome, attempt)
                if isinstance(decided, End):
                    return self._ended(outcome, decided)
                self._history.append(outcome)
                self._attempt = None
        finally:
            await self._turn.leave()
            await self._lost_hosts.close()

    async def _come(self) -> bool:
        """Wait until the next attempt may begin; return whether it may: no stop was asked for."""
        if not await self._pause.over(self._next):
            return False
        if not self._awaits_turn or not self._next.is_new:
            return True
        following = await self._turn.come(self._next)
        self._next = following or self._next
        return following is not None

    async def _lost_its_turn(self, outcome: AttemptOutcome, plan: Plan) -> bool:
        """Tell whether somebody got the GPUs after the turn had come: where nothing of the job runs, it waits again."""
        has_begun = outcome.stage is Stage.RUN or outcome.state is not JobState.FAILED
        if not self._awaits_turn or has_begun or self._stopping.is_set():
            return False
        if outcome.stage is Stage.PREFLIGHT:
            return await self._turn.may_come_again(outcome, self._proven)
        if not await self._turn.was_lost(outcome, plan):
            return False
        await self._promise(outcome, Restart(), plan)
        return True

    @property
    def _proven(self) -> set[str]:
        """Hosts that have passed the checks of an attempt."""
        return {name for item in self._history if item.stage is not Stage.PREFLIGHT for name in item.nodes}

    @property
    def _awaits_turn(self) -> bool:
        """Whether the job waits for its hosts: until it has run once."""
        return self._job.is_queued and not any(item.stage is Stage.RUN for item in self._history)

    async def _follow_up(self, outcome: AttemptOutcome, ended: Attempt) -> Decision:
        """Decide what follows an attempt, and set out for it.

        Of the places that hosts keep for the job for seconds, none is given up before it is known who takes part.
        """
        decided = End() if self._stopping.is_set() else self._decide(outcome, self._policy, self._history)
        kept = self._kept_places(outcome, ended)
        if isinstance(decided, Restart):
            self._turn.keep(ended.plan, outcome.attempt + 1, kept)
            decided = await self._promise(outcome, decided, ended.plan)
        given_up = kept & decided.changes.keys() if isinstance(decided, Restart) else kept
        await self._turn.give_up(ended.plan, outcome.attempt, given_up)
        return decided

    def _kept_places(self, outcome: AttemptOutcome, ended: Attempt) -> set[str]:
        """Return the hosts that keep a place for the job whose attempt has failed, since others wait there."""
        bad_end = outcome.stage is Stage.RUN and outcome.state is not JobState.SUCCEEDED
        if self._job.asked_at is None or not bad_end or not self._policy.may_restart:
            return set()
        reached = {name for name, node in outcome.nodes.items() if not node.is_silent}
        return {node.name for node in ended.nodes if node.record.has_waiters and node.name in reached}

    def _begin(self, recovered: RecoveredState) -> Attempt:
        job = self._job.of_lineup(recovered.promise.lineup)
        before = self._history[-1] if self._history else None
        furthest = max((item.last_step for item in self._history if item.last_step is not None), default=None)
        reached = before.model_copy(update={"last_step": furthest}) if before is not None else None
        had = {name for item in self._history for name in item.nodes} | {node.name for node in recovered.plan.nodes}
        attempt = Attempt(
            job,
            recovered,
            unfenced=lambda: self._lost_hosts.open,
            before=reached,
            proven=self._proven,
            candidates=self._turn.others,
            next_spare=lambda: next(iter(untried_spares(self._policy, had)), None),
        )
        if self._stopping.is_set():
            attempt.request_stop(force=self._force)
        return attempt

    async def _promise(self, outcome: AttemptOutcome, restart: Restart, plan: Plan) -> Decision:
        """Tell that another attempt follows, and set out for it; return the end where it cannot be planned."""
        number, ended = outcome.attempt + 1, plan
        lineup = self._next.promise.lineup.changed(restart.changes, ended)
        if restart.changes:
            try:
                plan = await asyncio.to_thread(self._plan_for, lineup)
            except DttuiError as error:
                return End(msg("another attempt cannot be planned: {reason}", reason=error.message))
            if plan.errors:
                if unfit := {item.subject: item for item in plan.errors if item.subject in restart.changes.values()}:
                    again = self._decide_without(unfit, outcome)
                    return await self._promise(outcome, again, ended) if isinstance(again, Restart) else again
                return End(msg("another attempt cannot be planned: {reason}", reason=plan.errors[0].message))
        tell_of_nodes(self._job, outcome, restart)
        delay_s = restart.delay_s * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  no secret
        now = self._job.log.clock.now()
        not_before = max(now + delay_s, self._fenced_at(outcome))
        delay_s = not_before - now
        promise = Promise(
            not_before=not_before, delay_s=delay_s, awaited=restart.awaited, lineup=lineup, cause=outcome.why
        )
        # One record for the end of this attempt and the promise of the next: there is nothing between the two.
        data = {
            "state": JobState.RESTARTING.value,
            "cause": outcome.why,
            "until": not_before,
            PROMISE: promise.model_dump(mode="json", exclude_defaults=True),
            OUTCOME: outcome_data(outcome),
        }
        message = restart_message(outcome, restart, not_before, delay_s)
        self._job.log.add(EventKind.JOB_STATE, message, attempt=outcome.attempt, data=data)
        if restart.changes:
            with contextlib.suppress(OSError):  # For who follows the job; the attempt itself writes it again.
                write_atomic(self._job.directory.plan, plan.model_dump_json(indent=2))
        for name in outcome.left_behind:
            self._lost_hosts.add(outcome.attempt, name, ended)
        self._next = RecoveredState.new(plan, number, promise)
        return restart

    def _decide_without(self, unfit: Mapping[str, Finding], outcome: AttemptOutcome) -> Decision:
        """Return what follows where spares are of no use for the job as it is planned; each is named with why."""
        for name, finding in unfit.items():
            message = msg("{spare} cannot take a place in the job: {reason}", spare=name, reason=finding.message)
            self._tell(warning("spare-unfit", name, message, finding.hint))
        self._policy = self._policy.model_copy(update={"unfit": (*self._policy.unfit, *unfit)})
        return self._decide(outcome, self._policy, self._history)

    def _fenced_at(self, outcome: AttemptOutcome) -> float:
        """Return when the hosts that are silent have ended their ranks by themselves; 0 where none does."""
        limit_s = self._policy.self_fence_s
        heard = [node.heard_at for node in outcome.nodes.values() if node.is_silent and node.heard_at is not None]
        return max(heard) + limit_s + FENCE_S if heard and limit_s is not None else 0.0

    def _tell(self, finding: Finding) -> None:
        """Tell of something between two attempts, as often as it is so."""
        self._job.log.add(EventKind.FINDING, finding.message, data=finding.event_data)

    def _stopped_before(self) -> AttemptOutcome:
        """Return the outcome of a job that was stopped between two attempts."""
        last = self._history[-1] if self._history else failed("")  # Of another version, nothing of it is known.
        message = msg("stopped on request before another attempt began; the one before: {why}", why=last.message)
        if self._job.is_queued and not self._history:
            message = msg("stopped on request while it waited for its hosts; nothing was started")
        stopped = {
            "state": JobState.CANCELLED,
            "message": message,
            "hint": "",
            "first_failure": None,
            "cause": None,
        }
        return self._ended(last.model_copy(update=stopped), End())

    def _ended(self, outcome: AttemptOutcome, end: End) -> AttemptOutcome:
        """Return the outcome of the job: that of its last attempt, with why it was the last and what is left."""
        message = outcome.message
        if end.why is not None:
            message = msg("{what}; {why}", what=message, why=end.why)
        hosts = [name for name in self._lost_hosts.open if name not in outcome.nodes]
        if hosts:
            left = msg("what an earlier attempt has left on {hosts} is not known", hosts=listed(hosts, MOST_NAMES))
            message = msg("{what}; {why}", what=message, why=left) if message else left
        return outcome.model_copy(update={"message": message})

    def _plan_for(self, lineup: Lineup) -> Plan:
        """Plan the job with who takes part now, as far as that goes without asking the hosts. Raises DttuiError."""
        return self._job.of_lineup(lineup).replan(self._job.inventory, {}, ())

    def _plan_of(self, attempt: int) -> Plan:
        """Return the plan of an attempt that was begun; where that is gone, the newest there is."""
        with contextlib.suppress(OSError, ValueError):
            return self._job.directory.read_bound_plan(attempt).plan
        return self._next.plan
