"""Runs a job's attempts, one after another, until it is decided that the job is over."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dtagent.protocol.events import EventKind, JobState

from dttui.engine.attempt import Attempt
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.context import JobContext
from dttui.engine.decision import Decision, End, Restart
from dttui.engine.fence import Fence
from dttui.engine.recovered import PROMISE, Promise, RecoveredState, read_unfenced
from dttui.errors import DttuiError, ExitCode
from dttui.files import write_atomic
from dttui.i18n import Message, msg
from dttui.jobs.aftermath import OUTCOME
from dttui.jobs.event_log import SECRETS_AWAITED
from dttui.jobs.outcome import AttemptOutcome, failed
from dttui.planning.lineup import Lineup
from dttui.planning.models import Plan
from dttui.planning.recovery import RecoveryPolicy
from dttui.spec.findings import Finding, info, warning
from dttui.timestamps import elapsed_s
from dttui.words import listed

Decide = Callable[[AttemptOutcome, RecoveryPolicy, Sequence[AttemptOutcome]], Decision]
JITTER = 0.25
"""By what part of it a delay may be shorter or longer, so that jobs that failed together do not begin together."""
FENCE_S = 8.0
"""What it takes a host to end its ranks once it has been without a word for long enough."""
WORTH_TELLING_S = 0.5
"""A delay of which it is told until when."""
MOST_NAMES = 4
SECRETS_S = 5.0
"""How often it is looked whether secrets have come to lie beside the job file."""


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
        self._fence = Fence(job)
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._force = False

    def request_stop(self, *, force: bool) -> None:
        """Stop the job: gracefully, or at once."""
        self._force = self._force or force
        self._stopping.set()
        if self._attempt is not None:
            self._attempt.request_stop(force=force)

    def retry_now(self) -> None:
        """Try at once to reach the hosts that are silent: somebody came who may answer for us."""
        self._woken.set()
        self._fence.retry_now()
        if self._attempt is not None:
            self._attempt.retry_now()

    async def stacks(self, ranks: list[int] | None) -> list[Any] | None:
        """Return where ranks of the attempt that runs stand, as plain data; `None` where none does."""
        return await self._attempt.stacks(ranks) if self._attempt is not None else None

    async def run(self) -> AttemptOutcome:
        """Run attempts until one is the last; return how that one ended."""
        first = self._next
        if first.is_new and first.promise.lineup.seats:  # Whoever promised it may have died before he wrote the plan.
            plan = await asyncio.to_thread(self._plan_for, first.promise.lineup)
            self._next = replace(first, plan=plan)
        for number, name in read_unfenced(self._job.directory, self._history):
            self._fence.add(number, name, self._plan_of(number))
        try:
            while True:
                if not await self._wait(self._next):
                    return self._stopped_before()
                self._attempt = attempt = self._begin(self._next)
                outcome = await attempt.run()
                decided = End() if self._stopping.is_set() else self._decide(outcome, self._policy, self._history)
                if isinstance(decided, Restart):
                    decided = await self._promise(outcome, decided, attempt.plan)
                if isinstance(decided, End):
                    return self._ended(outcome, decided)
                self._history.append(outcome)
                self._attempt = None
        finally:
            await self._fence.close()

    def _begin(self, recovered: RecoveredState) -> Attempt:
        job = self._job.of_lineup(recovered.promise.lineup)
        before = self._history[-1] if self._history else None
        furthest = max((item.last_step for item in self._history if item.last_step is not None), default=None)
        reached = before.model_copy(update={"last_step": furthest}) if before is not None else None
        attempt = Attempt(job, recovered, unfenced=self._fence.open, before=reached)
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
                return End(msg("another attempt cannot be planned: {reason}", reason=plan.errors[0].message))
        self._tell_of_nodes(outcome, restart)
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
            OUTCOME: outcome.model_dump(mode="json", exclude_defaults=True),
        }
        message = _restart_message(outcome, restart, not_before, delay_s)
        self._job.log.add(EventKind.JOB_STATE, message, attempt=outcome.attempt, data=data)
        if restart.changes:
            with contextlib.suppress(OSError):  # For who follows the job; the attempt itself writes it again.
                write_atomic(self._job.directory.plan, plan.model_dump_json(indent=2))
        for name in outcome.left_behind:
            self._fence.add(outcome.attempt, name, ended)
        self._next = RecoveredState.new(plan, number, promise)
        return restart

    def _fenced_at(self, outcome: AttemptOutcome) -> float:
        """Return when the hosts that are silent have ended their ranks by themselves; 0 where none does."""
        limit_s = self._policy.self_fence_s
        heard = [node.heard_at for node in outcome.nodes.values() if node.is_silent and node.heard_at is not None]
        return max(heard) + limit_s + FENCE_S if heard and limit_s is not None else 0.0

    def _tell_of_nodes(self, outcome: AttemptOutcome, restart: Restart) -> None:
        """Tell of nodes that take no part any more, and of those that had better not."""
        log = AttemptLog(self._job.log, outcome.attempt)
        log.resume(self._job.log.every())
        for name, replacement in restart.changes.items():
            if name in restart.set_aside:
                message = msg("{host} is set aside: attempts have failed there again and again", host=name)
                log.tell(warning("set-aside", name, message, msg("Look at what the events tell of it.")))
            said = msg("the job goes on without {host}", host=name)
            if replacement is not None:
                said = msg("{spare} takes the place of {host}", spare=replacement, host=name)
            log.tell(info("replaced", name, said))
            if name in outcome.left_behind:
                message = msg("what runs on {host} is not known: the job goes on without waiting for it", host=name)
                hint = msg("What is left there ends as soon as the host answers.")
                log.tell(warning("unfenced", name, message, hint))
        for name in restart.suspects:
            message = msg("attempts have failed on {host} again and again, and nothing can take its place", host=name)
            hint = msg("Name spares under recovery.spares, with on_node_failure: replace, or write recovery.min_nodes.")
            log.tell(warning("suspect", name, message, hint))

    async def _wait_for_secrets(self) -> bool:
        """Wait until all secrets are known without which no rank is to begin; return whether they are: no stop came."""
        told = False
        while missing := await asyncio.to_thread(self._job.missing_secrets):
            if not told:
                told = True
                message = msg(
                    "waiting for the values of {names}, which another attempt needs", names=", ".join(missing)
                )
                hint = msg("Export them and call `dttui attach`, or write them to secrets.env beside the job file.")
                self._tell(warning(SECRETS_AWAITED, "run.secrets", message, hint))
            self._woken.clear()
            waiting = [asyncio.create_task(event.wait()) for event in (self._stopping, self._woken)]
            try:
                await asyncio.wait(waiting, timeout=SECRETS_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
            if self._stopping.is_set():
                return False
        if told:
            self._tell(info(SECRETS_AWAITED, "run.secrets", msg("all secrets are known again")))
        return True

    def _tell(self, finding: Finding) -> None:
        """Tell of something between two attempts, as often as it is so."""
        data = {
            "code": finding.code,
            "severity": finding.severity.value,
            "subject": finding.subject,
            "hint": finding.hint,
        }
        self._job.log.add(EventKind.FINDING, finding.message, data=data)

    async def _wait(self, following: RecoveredState) -> bool:
        """Wait until an attempt may begin that was promised; return whether it may: it was not stopped."""
        promise = following.promise
        if following.is_new and following.attempt > 0 and not await self._wait_for_secrets():
            return False
        if not following.is_new or following.has_begun or following.attempt == 0:
            return True
        left_s = min(elapsed_s(time.time(), promise.not_before), promise.delay_s)
        deadline = asyncio.get_running_loop().time() + left_s
        needed = set(promise.awaited)
        if not needed <= set(self._fence.open):
            needed = set()  # Of a host that was out of reach, and where nothing is left, nobody tells when it is back.
        while not self._stopping.is_set():
            rest_s = deadline - asyncio.get_running_loop().time()
            if rest_s <= 0 or (needed and not needed & set(self._fence.open)):
                return True
            self._fence.changed.clear()
            waiting = [asyncio.create_task(event.wait()) for event in (self._stopping, self._fence.changed)]
            try:
                await asyncio.wait(waiting, timeout=rest_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
        return False

    def _stopped_before(self) -> AttemptOutcome:
        """Return the outcome of a job that was stopped between two attempts."""
        last = self._history[-1] if self._history else failed("")  # Of another version, nothing of it is known.
        message = msg("stopped on request before another attempt began; the one before: {why}", why=last.message)
        stopped = {
            "state": JobState.CANCELLED,
            "exit_code": int(ExitCode.CANCELLED),
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
        hosts = [name for name in self._fence.open if name not in outcome.nodes]
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


def _restart_message(outcome: AttemptOutcome, restart: Restart, not_before: float, delay_s: float) -> Message:
    """Return in words why and when another attempt begins."""
    at = time.strftime("%H:%M:%S", time.localtime(not_before))
    why = outcome.message
    if restart.awaited:
        hosts = listed(list(restart.awaited), MOST_NAMES)
        return msg("{why}; starting again at {time}, or as soon as {hosts} is clear", why=why, time=at, hosts=hosts)
    if delay_s < WORTH_TELLING_S:
        return msg("{why}; starting again", why=why)
    return msg("{why}; starting again at {time}", why=why, time=at)
