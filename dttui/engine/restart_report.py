"""Tells that a new attempt, or round of one, has come to where the one before failed: why, and what it has cost."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from dtagent.protocol.events import Event, EventKind

from dttui.engine.attempt_log import AttemptLog
from dttui.engine.nodes.node_record import Steps
from dttui.i18n import msg, nmsg
from dttui.jobs.outcome import AttemptOutcome
from dttui.timestamps import elapsed_s

ROUND = "round"
"""In the data of an event: how many times torchrun has started the ranks again within the attempt."""


class RestartReport:
    """Tells it once: at the first step, or where no step is to be expected, when all ranks run.

    Args:
        log: of the attempt.
        before: how the one before ended, with the furthest step of all; `None` of the first attempt.
        cause: code of why it failed.
        told: what another controller has told of the attempt.
    """

    def __init__(
        self, log: AttemptLog, before: AttemptOutcome | None, cause: str | None, told: Iterable[Event] = ()
    ) -> None:
        self._log = log
        self._before = before
        self._cause = cause
        if any(event.kind is EventKind.RESTARTED and ROUND not in event.data for event in told):
            self._before = None

    def on_first_step(self, step: int) -> None:
        """Take in that a rank has reported its first step."""
        before = self._before
        if before is None:
            return
        lost = max(0, before.last_step - step + 1) if before.last_step is not None else None
        seconds = self._seconds()
        if lost is None:
            message = msg("attempt {number} makes steps, {seconds} s after the failure",
                           number=self._log.attempt, seconds=round(seconds))  # fmt: skip
        else:
            message = nmsg(
                "attempt {number} goes on at step {step}, {seconds} s after the failure; {count} step is made again",
                "attempt {number} goes on at step {step}, {seconds} s after the failure; {count} steps are made again",
                lost,
                number=self._log.attempt,
                step=step,
                seconds=round(seconds),
            )
        self._tell(message, lost, seconds)

    def on_running(self) -> None:
        """Take in that all ranks run."""
        if self._before is not None and self._before.last_step is None:
            seconds = self._seconds()
            message = msg("attempt {number} runs, {seconds} s after the failure",
                           number=self._log.attempt, seconds=round(seconds))  # fmt: skip
            self._tell(message, None, seconds)

    def _seconds(self) -> float:
        failed_at = self._before.failed_at if self._before is not None else None
        return elapsed_s(failed_at or time.time())

    def _tell(self, message: str, lost: int | None, seconds: float) -> None:
        self._log.add(EventKind.RESTARTED, message, data=_told(self._cause, lost, seconds))
        self._before = None


class RoundRestartReport:
    """Tells the same of ranks that torchrun starts again by itself, within an elastic attempt; once a round.

    Args:
        log: of the attempt.
        steps: that its ranks report.
        told: what another controller has told of the attempt.
    """

    def __init__(self, log: AttemptLog, steps: Steps, told: Iterable[Event] = ()) -> None:
        self._log = log
        self._steps = steps
        self._told = {event.data.get(ROUND) for event in told if event.kind is EventKind.RESTARTED}
        self._failed_at: float | None = None
        self._cause: str | None = None

    def on_failure(self, cause: str | None, failed_at: float) -> None:
        """Take in that a rank or a node has failed; of several before the next round the earliest counts."""
        if self._failed_at is None or failed_at < self._failed_at:
            self._failed_at, self._cause = failed_at, cause

    def on_round(self, number: int) -> None:
        """Take in that all ranks of a round run, which is the one after so many starts of torchrun's own."""
        failed_at, cause, last = self._failed_at, self._cause, self._steps.last
        self._failed_at = self._cause = None
        if failed_at is None or number in self._told:
            return
        self._told.add(number)

        def made(step: int) -> None:
            lost, seconds = max(0, (last or 0) - step + 1), elapsed_s(failed_at)
            message = nmsg(
                "torchrun goes on at step {step}, {seconds} s after the failure; {count} step is made again",
                "torchrun goes on at step {step}, {seconds} s after the failure; {count} steps are made again",
                lost,
                step=step,
                seconds=round(seconds),
            )
            self._tell(message, number, _told(cause, lost, seconds))

        if last is not None:
            self._steps.on_next = made
            return
        seconds = elapsed_s(failed_at)
        message = msg("torchrun runs all ranks again, {seconds} s after the failure", seconds=round(seconds))
        self._tell(message, number, _told(cause, None, seconds))

    def _tell(self, message: str, number: int, told: dict[str, Any]) -> None:
        self._log.add(EventKind.RESTARTED, message, data={**told, ROUND: number})


def _told(cause: str | None, lost: int | None, seconds: float) -> dict[str, Any]:
    told = {"cause": cause, "lost_steps": lost, "seconds": round(seconds, 1)}
    return {key: value for key, value in told.items() if value is not None}
