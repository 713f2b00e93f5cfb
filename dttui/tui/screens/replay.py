"""A job's past on the run screen, told again at a chosen speed: no host or controller is asked, nothing stopped."""

from __future__ import annotations

import math
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from dttui.app import App, JobFollower
from dttui.i18n import _
from dttui.jobs import JobDirectory, PastFollower, PastLogs
from dttui.tui import symbols
from dttui.tui.attachments import Attachments
from dttui.tui.commands import N_
from dttui.tui.log_feed import Takes
from dttui.tui.screens.job_logs import JobLogs
from dttui.tui.screens.run import RunScreen
from dttui.tui.widgets.prose import Prose

FASTER = 2.0
LEAST_SPEED, USUAL_SPEED, MOST_SPEED = 0.125, 10.0, 65536.0
LEAP = 0.05
"""Of the whole, that a key leaps over."""

_NOT_OFFERED = ("stop", "stacks", "restart", "shell", "pop_screen")


class ReplayScreen(RunScreen):
    """Shows at each moment what a screen showed that was there then."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "pause", N_("pause"), id="replay.pause", tooltip=N_("Stand still, or go on")),
        Binding("plus", "faster", N_("faster"), id="replay.faster", tooltip=N_("Tell it twice as fast")),
        Binding("minus", "slower", N_("slower"), id="replay.slower", tooltip=N_("Tell it half as fast")),
        Binding("b", "leap(-1)", N_("rewind"), id="replay.back", tooltip=N_("Leap back by a twentieth of it")),
        Binding("f", "leap(1)", N_("forward"), id="replay.forward", tooltip=N_("Leap ahead by a twentieth of it")),
        Binding("escape", "leave", N_("leave"), id="replay.leave", tooltip=N_("Leave the replay")),
    ]

    def __init__(self, directory: JobDirectory, face: App, attachments: Attachments, *, speed: float) -> None:
        """Begin with the job's first event, at so many times the speed at which it ran."""
        self._past = PastFollower(directory, speed=speed)
        self._told_by = self._past.clock
        self.directory = directory
        super().__init__(directory, face, attachments, just_launched=False)

    def _make_follower(self) -> JobFollower:
        return self._past

    def fill(self) -> None:
        """Read it once more up to the moment that is shown."""
        self._past = PastFollower(self.directory, self._told_by)
        super().fill()

    def _now(self) -> float:
        return self._told_by.now()

    @property
    def _has_told_all(self) -> bool:
        return self._past.has_told_all

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer nothing that does something to the job; it is left by a key of its own."""
        return action not in _NOT_OFFERED and super().check_action(action, parameters)

    def action_leave(self) -> None:
        """Go back to where it was asked for; leave the app, where nothing else was shown."""
        if len(self.app.screen_stack) > 2:  # The first one is Textual's own, and always empty.
            self.app.pop_screen()
        else:
            self.app.call_later(self.app.run_action, "app.leave")

    def action_pause(self) -> None:
        """Stand still, or go on."""
        self._told_by.pause(is_paused=not self._told_by.is_paused)
        self.poll()

    def action_faster(self) -> None:
        """Go on twice as fast."""
        if not math.isinf(self._told_by.speed):
            self._told_by.set_speed(min(MOST_SPEED, self._told_by.speed * FASTER))

    def action_slower(self) -> None:
        """Go on half as fast."""
        speed = self._told_by.speed
        self._told_by.set_speed(USUAL_SPEED if math.isinf(speed) else max(LEAST_SPEED, speed / FASTER))

    def action_leap(self, direction: int) -> None:
        """Go on from a later or an earlier moment; what was before an earlier one is read once more."""
        clock = self._told_by
        wanted = clock.now() + direction * LEAP * (clock.end - clock.begin)
        if direction < 0 and math.isinf(clock.speed):  # Or it would be at its end again at once.
            clock.set_speed(USUAL_SPEED)
        clock.seek(wanted)
        if direction < 0:
            self._past = self.follower = PastFollower(self.directory, clock)
            self._forget_the_end()
            self.query_one(JobLogs).reopen()
        self._timer.resume()
        self._plot_timer.resume()
        self.poll()

    def _forget_the_end(self) -> None:
        """Show nothing of what comes later."""
        if self._opened_why:
            self.action_tab("loss")
        self._opened_why = False
        for selector in ("#run-places", "#why-places", "#run-why"):
            self.query_one(selector, Prose).show(Content(""))

    def _listen(self) -> None:  # type: ignore[override]  # nobody asks anything, and nobody is asked
        """There is no controller to be there for."""

    def _past_logs(self, attempt: int, node: str, takes: Takes) -> PastLogs:
        return PastLogs(self.directory, attempt, node, self._told_by, takes, self.view.redaction())

    def _show_why(self) -> None:
        """Tell why it failed once it has: what is found of a job that runs, asks for one that does."""
        if self.view.state.is_final:
            super()._show_why()

    def _status(self) -> Content:
        clock = self._told_by
        mark = "■" if self._past.has_told_all else "⏸" if clock.is_paused else "▶"
        speed = _("at once") if math.isinf(clock.speed) else f"{clock.speed:g}×"
        told = _("replay {speed}, {time}").format(speed=speed, time=symbols.time_of_day(clock.now()))
        return Content.assemble((f"{mark} {told}  ", "bold"), super()._status())
