"""Runs the job's own command that says whether it goes well on this host: one at a time, and nothing of it stays.

It runs in a session of its own. What belongs to a run is told by descent and by a mark in its environment, so that what
it forks away is ended with it. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dtagent.protocol.health import Health, HealthCheck
from dtagent.supervision.family import Family, kill_all
from dtagent.system import processes
from dtagent.system.processes import ProcessId

MARK = "DTTUI_HEALTH_CHECK"
"""Variable by which the processes of a run are known."""
LOOK_S = 0.25
"""Between two looks at a run: what it has printed is taken then."""
KILL_LOOK_S = 0.1
CLOSE_S = 2.0
"""For a run to be gone at the end of an attempt, which then ends what is left with everything else."""
PIPE_BYTES = 64 * 1024
"""Taken at each look; what prints more in that time waits."""
KEPT_BYTES = 4096
"""Of the end of what a run printed."""
LINE_CHARACTERS = 300
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class CheckResult:
    """How one run ended."""

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    error: str = ""
    line: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it says that all is well."""
        return self.exit_code == 0 and not self.timed_out and not self.error


class HealthTally:
    """What the runs of a command come to, as Docker and Kubernetes count them: some failures in a row, one success.

    Args:
        check: how many failures count, and from when on.
        began_at: seconds by any clock, from which on the start period counts.
    """

    def __init__(self, check: HealthCheck, began_at: float) -> None:
        self._check = check
        self._counts_from = began_at + check.start_period_s
        self._has_succeeded = False
        self._row = 0
        self._row_since = 0.0
        self.health: Health | None = None

    def take(self, result: CheckResult, now: float, moment: float) -> bool:
        """Take in the end of a run; return whether `health` is another one now.

        Args:
            result: how it ended.
            now: by the clock of `began_at`.
            moment: Unix time.
        """
        before = self.health
        if result.is_good:
            self._has_succeeded, self._row = True, 0
            if before is None or not before.is_healthy:
                self.health = _health(result, True, moment)
            return self.health != before
        if not self._has_succeeded and now < self._counts_from:
            return False
        self._row += 1
        if self._row == 1:
            self._row_since = moment
        if self._row < self._check.failures:
            return False
        told = _health(result, False, self._row_since)
        # Another line of the same failure is no news: it may hold the time.
        if before is None or replace(told, line="") != replace(before, line=""):
            self.health = told
        return self.health != before


def _health(result: CheckResult, is_healthy: bool, since: float) -> Health:
    return Health(is_healthy, since, result.exit_code, result.signal, result.timed_out, result.error, result.line)


@dataclass
class _Run:
    """A command under way, or what is left of it."""

    child: subprocess.Popen[bytes]
    family: Family
    output: int
    deadline: float
    tail: bytes = b""
    status: int | None = None
    """What it exited with, less than nothing for a signal, once it has."""
    told_at: float | None = None
    """When it was last counted as one that took too long, by the monotonic clock."""


class HealthRunner:
    """Runs the command of an attempt, beside everything else that its supervisor does.

    Args:
        check: what to run.
        family: the attempt's, of which each run is a part.
        environment: of the attempt's first process.
        may_begin: whether all ranks of the host run; asked until they do.
        tell: takes what is known, after each run.
    """

    def __init__(
        self,
        check: HealthCheck,
        family: Family,
        environment: Mapping[str, str],
        may_begin: Callable[[], bool],
        tell: Callable[[Health], None],
    ) -> None:
        self._check = check
        self._family = family
        self._environment = {**environment, MARK: "1"}
        self._may_begin = may_begin
        self._tell = tell
        self._tally: HealthTally | None = None
        self._run: _Run | None = None
        self._next = 0.0
        self._looked_at = 0.0

    def wait_s(self) -> float:
        """Return after how many seconds to look again."""
        if self._run is not None:
            is_ending = self._run.status is not None or self._run.told_at is not None
            return max(0.0, self._looked_at + (KILL_LOOK_S if is_ending else LOOK_S) - time.monotonic())
        return max(0.0, self._next - time.monotonic()) if self._tally is not None else self._check.every_s

    def look(self) -> None:
        """Do what is due: begin a run, take what it prints, kill one that takes too long, count one that has ended."""
        now = time.monotonic()
        if self._tally is None:
            if not self._may_begin():
                return
            self._tally, self._next = HealthTally(self._check, now), now + self._check.every_s
        run = self._run
        if run is None:
            if now >= self._next:
                self._begin(now)
            return
        if run.status is None and run.told_at is None and now < self._looked_at + LOOK_S:
            return
        self._looked_at = now
        _read(run)
        # One that waits for a file system that does not answer cannot be ended: it counts again, as another would.
        due = run.told_at + self._check.every_s if run.told_at is not None else run.deadline
        if now >= due and (run.status is None or run.told_at is not None):
            run.told_at = now
            self._take(CheckResult(timed_out=True, line=_last_line(run.tail)))
        if (run.status is not None or run.told_at is not None) and self._is_gone(run):
            self._finish(run)

    def reaped(self, pid: int, code: int) -> None:
        """Take in that a child of the supervisor's has ended, whichever; `code` is less than nothing for a signal."""
        if self._run is not None and self._run.child.pid == pid:
            self._run.status = self._run.child.returncode = code

    def close(self, reap: Callable[[], None]) -> None:
        """End a run, and begin none any more: what it says now is said of an attempt that ends."""
        run, self._run, self._next = self._run, None, float("inf")
        if run is None:
            return
        with contextlib.suppress(OSError):  # The attempt's own end looks again, and longer.
            kill_all(run.family, CLOSE_S, on_wait=reap)
        if run.child.returncode is None:
            run.child.returncode = -signal.SIGKILL  # Somebody else has waited for it, or does.
        os.close(run.output)

    def _begin(self, now: float) -> None:
        try:
            output, write = os.pipe2(os.O_CLOEXEC)
        except OSError as error:
            self._take(CheckResult(error=str(error.strerror)))
            return
        try:
            os.set_blocking(output, False)
            child = subprocess.Popen(
                self._check.argv,
                cwd=self._check.cwd,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                start_new_session=True,
                preexec_fn=self._family.cgroup.enter if self._family.cgroup else None,
            )
        except (OSError, ValueError) as error:
            os.close(output)
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._take(CheckResult(error=f"{self._check.argv[0]}: {reason}"))
            return
        finally:
            os.close(write)
        itself = processes.identify(child.pid)
        own = replace(
            self._family,
            supervisor=None,
            members=(itself,) if itself is not None else (),
            cgroup=None,
            keepers=(),
            mark=f"{MARK}=1",
        )
        self._run = _Run(child, own, output, now + self._check.timeout_s)
        self._looked_at = now

    def _is_gone(self, run: _Run) -> bool:
        """Kill what is left of a run; return whether nothing was. Until then no other one begins."""
        try:
            left: list[ProcessId] = run.family.scan()
        except OSError:
            return False  # A look that failed says nothing.
        for process in left:
            processes.send(process, signal.SIGKILL)
        return not left and run.status is not None

    def _finish(self, run: _Run) -> None:
        _read(run)
        os.close(run.output)
        self._run = None
        if run.told_at is not None:
            return  # It is counted.
        status = run.status if run.status is not None else 0
        result = CheckResult(line=_last_line(run.tail))
        self._take(replace(result, signal=-status) if status < 0 else replace(result, exit_code=status))

    def _take(self, result: CheckResult) -> None:
        now = time.monotonic()
        self._next = now + self._check.every_s
        if self._tally is None:
            return
        self._tally.take(result, now, time.time())
        if self._tally.health is not None:
            self._tell(self._tally.health)


def _read(run: _Run) -> None:
    """Take what a run has printed since, and keep the end of it."""
    with contextlib.suppress(OSError):  # There is nothing, for now.
        run.tail = (run.tail + os.read(run.output, PIPE_BYTES))[-KEPT_BYTES:]


def _last_line(data: bytes) -> str:
    text = data.decode(errors="replace").replace("\r", "\n")
    lines = (_CONTROL.sub("", line).strip() for line in reversed(text.split("\n")))
    return next((line for line in lines if line), "")[:LINE_CHARACTERS]
