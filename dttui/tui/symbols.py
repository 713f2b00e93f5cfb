"""States, times and sizes as a person reads them; a state is a symbol and a word, so that colour is never alone."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from dtagent.protocol.events import JobState, NodeStanding

from dttui.i18n import _, told_now
from dttui.sanitize import clean
from dttui.spec import Severity
from dttui.tui.remedy_keys import with_keys
from dttui.words import age as age
from dttui.words import clock as clock
from dttui.words import duration as duration
from dttui.words import node_state_name
from dttui.words import state_name as state_name

_NO_BREAK = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class StateWord:
    """How a state is shown."""

    symbol: str
    word: str
    colour: str
    """Name of a theme variable, without `$`."""

    def __str__(self) -> str:
        return f"{self.symbol} {self.word}"

    @property
    def unbroken(self) -> str:
        """Symbol and word, which no line break parts."""
        return f"{self.symbol}{_NO_BREAK}{self.word}"


def job_state(state: JobState) -> StateWord:
    """Return how a job's state is shown."""
    symbol, word, colour = {
        JobState.PENDING: ("◌", _("pending"), "state-waiting"),
        JobState.PREFLIGHT: ("◌", _("checking"), "state-starting"),
        JobState.LAUNCHING: ("◔", _("launching"), "state-starting"),
        JobState.RENDEZVOUS: ("◑", _("ranks gathering"), "state-starting"),
        JobState.RUNNING: ("●", _("running"), "state-running"),
        JobState.RESTARTING: ("↻", _("restarting"), "state-starting"),
        JobState.STOPPING: ("◑", _("stopping"), "state-stopping"),
        JobState.SUCCEEDED: ("✓", _("succeeded"), "state-succeeded"),
        JobState.FAILED: ("✗", _("failed"), "state-failed"),
        JobState.CANCELLED: ("■", _("cancelled"), "state-cancelled"),
        JobState.UNKNOWN: ("?", _("unknown"), "state-unknown"),
    }[state]
    return StateWord(symbol, word, colour)


def node_state(state: NodeStanding) -> StateWord:
    """Return how the state of a node of a job is shown."""
    symbol, colour = {
        NodeStanding.WAITING: ("◌", "state-waiting"),
        NodeStanding.CONNECTED: ("◔", "state-starting"),
        NodeStanding.PREPARED: ("◑", "state-starting"),
        NodeStanding.RUNNING: ("●", "state-running"),
        NodeStanding.STOPPING: ("◑", "state-stopping"),
        NodeStanding.STOPPED: ("■", "state-cancelled"),
        NodeStanding.ENDED: ("✓", "state-succeeded"),
        NodeStanding.DISCARDED: ("■", "state-cancelled"),
        NodeStanding.UNKILLABLE: ("✗", "state-failed"),
        NodeStanding.LOST: ("✗", "state-failed"),
        NodeStanding.FAILED: ("✗", "state-failed"),
        NodeStanding.AGENT_GONE: ("?", "state-unknown"),
        NodeStanding.UNKNOWN: ("?", "state-unknown"),
    }[state]
    return StateWord(symbol, node_state_name(state), colour)


def severity(value: Severity) -> StateWord:
    """Return how the severity of a finding is shown."""
    symbol, word, colour = {
        Severity.INFO: ("i", _("note"), "finding-info"),
        Severity.WARNING: ("⚠", _("warning"), "finding-warning"),
        Severity.ERROR: ("✗", _("error"), "finding-error"),
    }[value]
    return StateWord(symbol, word, colour)


def hint(text: str) -> str:
    """Return what to do, by keys where there are any, after an arrow that no line break parts from it."""
    return f"  →{_NO_BREAK}{clean(with_keys(told_now(text)))}" if text else ""


def time_of_day(unix_time: float) -> str:
    """Return a moment of today's clock: `14:05:09`."""
    return time.strftime("%H:%M:%S", time.localtime(unix_time))


def clock_time(unix_time: float) -> str:
    """Return a moment of the day without seconds: `14:05`."""
    return time.strftime("%H:%M", time.localtime(unix_time))


def date_and_time(unix_time: float) -> str:
    """Return a moment with its date: `11-21 14:05`."""
    return time.strftime("%m-%d %H:%M", time.localtime(unix_time))


def mebibytes(size_mib: int) -> str:
    """Return MiB in a few cells, as GB or MB like all other memory: `71G`, `1.4G`, `812M`."""
    value = size_mib * 2**20 / 1e9
    if value < 1:
        return f"{value * 1000:.0f}M"
    return f"{value:.1f}G" if value < 10 else f"{value:.0f}G"


def number(value: float) -> str:
    """Return a measured value such as a loss: four significant digits."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:.3e}"
