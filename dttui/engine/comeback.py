"""Tells that a new attempt has come to where the one before failed: why that was, what it has cost."""

from __future__ import annotations

import time
from collections.abc import Iterable

from dtagent.protocol.events import Event, EventKind

from dttui.engine.attempt_log import AttemptLog
from dttui.i18n import msg, nmsg
from dttui.jobs.outcome import AttemptOutcome
from dttui.timestamps import elapsed_s


class Comeback:
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
        if any(event.kind is EventKind.RESTARTED for event in told):
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
        told = {"cause": self._cause, "lost_steps": lost, "seconds": round(seconds, 1)}
        data = {key: value for key, value in told.items() if value is not None}
        self._log.add(EventKind.RESTARTED, message, data=data)
        self._before = None
