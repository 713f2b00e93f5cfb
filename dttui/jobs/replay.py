"""A job's past told again at a chosen speed: the clock of that, and a view that follows it as a live one follows."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby

from dtagent.protocol.events import Event

from dttui.jobs.directory import JobDirectory
from dttui.jobs.following import LEAST_RECALLED, MOST_RECALLED, RECALLED, JobFollower, metric_event, without_reports
from dttui.jobs.log_following import LogLines
from dttui.jobs.past import Moment, Past, PastReading, PastReport, Takes
from dttui.jobs.plan_file import SeenPlan, read_plan_file
from dttui.redaction import Redaction

AT_ONCE_S = 0.1
"""That one look takes at most: after a leap the rest comes with those that follow."""
MOST_LINES = 5000
"""Of a log, that a look brings: the newest."""


class ReplayClock:
    """Tells the time that a replay has come to.

    Args:
        begin: Unix time at which it begins.
        end: at which it stands still.
        speed: seconds told a second; infinite for all at once.
        monotonic: tells seconds.
    """

    def __init__(self, begin: float, end: float, speed: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.begin, self.end, self.speed = begin, max(begin, end), speed
        self.is_paused = False
        self._monotonic = monotonic
        self._told, self._since = begin, monotonic()

    def now(self) -> float:
        """Return the Unix time that is told by now."""
        if self.is_paused:
            return self._told
        passed_s = self._monotonic() - self._since
        passed_s = math.inf if math.isinf(self.speed) else passed_s * self.speed
        return min(self.end, self._told + passed_s)

    def pause(self, *, is_paused: bool) -> None:
        """Stand still, or go on."""
        self.seek(self.now())
        self.is_paused = is_paused

    def set_speed(self, speed: float) -> None:
        """Go on from here at another speed."""
        self.seek(self.now())
        self.speed = speed

    def seek(self, moment: float) -> None:
        """Go on from a Unix time."""
        self._told, self._since = min(max(moment, self.begin), self.end), self._monotonic()

    def wait_s(self, moment: float) -> float:
        """Return how long it takes until a Unix time is told."""
        if math.isinf(self.speed):
            return 0.0
        return max(0.0, moment - self.now()) / self.speed


class PastFollower(JobFollower):
    """Keeps a JobView as it was at the time that a replay has come to: what a live one showed then.

    Args:
        directory: of the job.
        clock: of the replay; without it, one that begins with the job.
        speed: of that clock.
    """

    def __init__(self, directory: JobDirectory, clock: ReplayClock | None = None, speed: float = math.inf) -> None:
        super().__init__(directory)
        self._past = Past(directory)
        self.clock = clock or ReplayClock(self._past.begin, self._past.end, speed)
        self._planned: int | None = None
        """Attempt whose plan is shown."""
        self._newest: dict[str, bytes] = {}
        """Node → its newest reading, which nobody has looked at yet."""
        nodes = len(self._nodes_of(self._past.first_attempt))
        most = min(MOST_RECALLED, max(LEAST_RECALLED, RECALLED // max(1, nodes)))
        self._curve_s = (self._past.end - self._past.begin) / most
        """Between two readings of a host that are drawn, at least."""
        self._drawn_at = self._past.begin

    @property
    def has_told_all(self) -> bool:
        """Whether nothing follows, be the job over or not."""
        return self._past.next_time is None

    def _catch_up(self, with_reports: bool) -> list[Event]:
        new: list[Event] = []
        is_done = False
        while not is_done:
            found = self._poll()
            new += found if with_reports else without_reports(found)
            is_done = (following := self._past.next_time) is None or following > self.clock.now()
        return new

    def _poll(self) -> list[Event]:
        if self._planned is None:
            self._plan_for(self._past.first_attempt)
        new: list[Event] = []
        deadline = time.monotonic() + AT_ONCE_S
        for moment in self._past.until(self.clock.now()):
            if moment.time >= self._drawn_at + self._curve_s:
                self._drawn_at = moment.time
                self._look_at_readings(before=True)
            new += self._told(moment)
            if time.monotonic() > deadline:
                break
        self._look_at_readings()
        return new

    def _told(self, moment: Moment) -> list[Event]:
        what = moment.what
        if isinstance(what, PastReading):
            self._newest[what.node] = what.line
        elif isinstance(what, PastReport):
            self.view.add_metric(what.metric, what.attempt)
            return [metric_event(what.metric, self.view.attempt)]
        elif isinstance(what, Event):
            if what.attempt is not None and what.attempt > (self._planned or 0):
                self._plan_for(what.attempt)
            self.view.apply(what)
            return [what]
        return []

    def _look_at_readings(self, *, before: bool = False) -> None:
        newest, self._newest = self._newest, {}
        for name, line in newest.items():
            if name in self.view.nodes:
                self._read_sample(name, line)
        if newest:
            self.view.see_samples(before=before)

    def _plan_for(self, attempt: int) -> None:
        """Show who takes part in an attempt; where its plan is gone, the newest there is."""
        self._planned = attempt
        plan = self._plan_of(attempt)
        if plan is not None:
            self._take_plan(plan)

    def _nodes_of(self, attempt: int) -> Sequence[object]:
        plan = self._plan_of(attempt)
        return plan.nodes if plan is not None else ()

    def _plan_of(self, attempt: int) -> SeenPlan | None:
        for path in (self.directory.bound_plan(attempt), self.directory.plan):
            with contextlib.suppress(OSError, ValueError):
                return read_plan_file(path)
        return None


class PastLogs:
    """The logs of a node as they were at the time that a replay has come to; it is asked as a `LogFollower` is.

    Args:
        directory: of the job.
        attempt: the number of the attempt.
        node: whose they are.
        clock: of the replay.
        takes: which files are wanted.
        redaction: leaves out what is secret.
    """

    def __init__(
        self, directory: JobDirectory, attempt: int, node: str, clock: ReplayClock, takes: Takes, redaction: Redaction
    ) -> None:
        self.attempt = attempt
        self._clock = clock
        self._past = Past(directory, takes, redaction, (attempt, node))

    def poll(self, nodes: Collection[str]) -> list[LogLines]:
        """Return the lines that came since the last call, of very many the newest, if it is one of these nodes."""
        found = deque[LogLines](maxlen=MOST_LINES)
        deadline = time.monotonic() + AT_ONCE_S
        for moment in self._past.until(self._clock.now()):
            if isinstance(moment.what, LogLines) and moment.what.node in nodes:
                found.append(moment.what)
            if time.monotonic() > deadline:
                break
        return joined_lines(found)


def joined_lines(found: Iterable[LogLines]) -> list[LogLines]:
    """Return lines of one file that follow each other as one part."""
    return [
        LogLines(*place, [line for part in parts for line in part.lines], 0, False)
        for place, parts in groupby(found, key=lambda part: (part.node, part.process, part.stream))
    ]
