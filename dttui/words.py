"""The names of states and measures in the person's language: words alone, without symbol or colour."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from dtagent.protocol.events import JobState, Metric, NodeStanding
from dtagent.protocol.metric_fields import Declared, metrics_of

from dttui.i18n import N_, _, in_a_row
from dttui.sanitize import clean

_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 86400
_LOG_HEAD = re.compile(r"^\[[DIWEF]\d{4} [^\]]*\] (?:\[c10d\] )?")


def listed(names: Sequence[str], most: int) -> str:
    """Return names in a row, of many the first and how many more there are."""
    shown = in_a_row(names[:most])
    if len(names) <= most:
        return shown
    return _("{names} and {count} more").format(names=shown, count=len(names) - most)


def gpu_numbers(numbers: Sequence[int]) -> str:
    """Return the numbers of GPUs in their order, three and more in a row by the first and the last: `0–3,6,7`."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and number == rows[-1][-1] + 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    return ",".join(f"{row[0]}–{row[-1]}" if len(row) > 2 else ",".join(map(str, row)) for row in rows)


def parameters(count: float, digits: int = 4) -> str:
    """Return a number of parameters, or of tokens, as people call them: `7B`, `1.3B`, `125M`."""
    for scale, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= scale:
            return f"{count / scale:.{digits}g}{letter}"
    return f"{count:.0f}"


def moment(unix_time: float) -> str:
    """Return a time of today by its minute, `14:05`, and of another day with its date, `11-21 14:05`.

    Of a clock elsewhere it is known to a second at best: 14:05 is not told as 14:04.
    """
    when = time.localtime(unix_time + 1.0)
    is_today = when[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if is_today else "%m-%d %H:%M", when)


def duration(seconds: float) -> str:
    """Return a span in its two largest units: `5d 3h`, `12h 4m`, `41s`."""
    whole = max(0, int(seconds))
    if whole < _MINUTE_S:
        return _("{seconds}s").format(seconds=whole)
    if whole < _HOUR_S:
        return _("{minutes}m {seconds}s").format(minutes=whole // _MINUTE_S, seconds=whole % _MINUTE_S)
    if whole < _DAY_S:
        return _("{hours}h {minutes}m").format(hours=whole // _HOUR_S, minutes=whole % _HOUR_S // _MINUTE_S)
    return _("{days}d {hours}h").format(days=whole // _DAY_S, hours=whole % _DAY_S // _HOUR_S)


def clock(seconds: float) -> str:
    """Return a span as a stopwatch has it: `00:12:41`."""
    whole = max(0, int(seconds))
    return f"{whole // _HOUR_S:02d}:{whole % _HOUR_S // _MINUTE_S:02d}:{whole % _MINUTE_S:02d}"


def age(seconds: float) -> str:
    """Return a span in its one largest unit: `3m`."""
    whole = max(0, int(seconds))
    if whole < _MINUTE_S:
        return _("{seconds}s").format(seconds=whole)
    if whole < _HOUR_S:
        return _("{minutes}m").format(minutes=whole // _MINUTE_S)
    if whole < _DAY_S:
        return _("{hours}h").format(hours=whole // _HOUR_S)
    return _("{days}d").format(days=whole // _DAY_S)


def without_log_head(text: str) -> str:
    """Return what torch said without the time and source before it, which would take the room of the words."""
    return _LOG_HEAD.sub("", text)


def short_of_threads() -> str:
    """Return what is said where no thread and no process can be started."""
    return _("this machine starts no more threads or processes for you")


def more_threads() -> str:
    """Return what to do then."""
    return _("End processes of yours here, or raise what `ulimit -u` shows, and try again.")


def size_text(size_bytes: int) -> str:
    """Return a size on a disk for a person to read: `1.2 GB`, `340 MB`, `52 kB`."""
    for unit, name in ((10**9, "GB"), (10**6, "MB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.3g} {name}" if size_bytes < 1000 * unit else f"{size_bytes / unit:,.0f} {name}"
    return f"{size_bytes / 1000:.0f} kB" if size_bytes >= 1000 else f"{size_bytes} B"


def gigabytes(size_bytes: int) -> str:
    """Return a size in GB (10⁹), the one unit of all memory that is shown: an A100 80GB, which is a name, has 86."""
    value = size_bytes / 1e9
    return f"{value:.0f} GB" if value >= 10 or value == int(value) else f"{value:.1f} GB"


_KINDS = {
    "custom": N_("custom"),
    "container": N_("container"),
    "notebook": N_("notebook"),
    "vm": N_("virtual machine"),
    "bare-metal": N_("bare metal"),
}
"""Tags of environments that are words, and no names."""


def kind_name(kind: str) -> str:
    """Return what the tag of an environment is called; one that is a name stays what it is."""
    return _(_KINDS[kind.casefold()]) if kind.casefold() in _KINDS else kind


def rank_names(ranks: Sequence[tuple[int | None, str]], most: int) -> str:
    """Return ranks, each with its node, in a row."""
    return listed([_("rank {rank} on {host}").format(rank=rank, host=node) for rank, node in ranks], most)


def process_name(name: str) -> str:
    """Return what a process of a node is called: a rank or a service by its own name."""
    return _("launcher") if name == "launcher" else name


def state_name(state: JobState) -> str:
    """Return the name of a job's state as a headline has it."""
    return {
        JobState.PENDING: _("PENDING"),
        JobState.PREFLIGHT: _("PREFLIGHT"),
        JobState.LAUNCHING: _("LAUNCHING"),
        JobState.RENDEZVOUS: _("RENDEZVOUS"),
        JobState.RUNNING: _("RUNNING"),
        JobState.RESTARTING: _("RESTARTING"),
        JobState.STOPPING: _("STOPPING"),
        JobState.SUCCEEDED: _("SUCCEEDED"),
        JobState.FAILED: _("FAILED"),
        JobState.CANCELLED: _("CANCELLED"),
        JobState.UNKNOWN: _("UNKNOWN"),
    }[state]


def node_state_name(state: NodeStanding) -> str:
    """Return the name of the state of a node of a job."""
    return {
        NodeStanding.WAITING: _("waiting"),
        NodeStanding.CONNECTED: _("connected"),
        NodeStanding.PREPARED: _("prepared"),
        NodeStanding.RUNNING: _("running"),
        NodeStanding.STOPPING: _("stopping"),
        NodeStanding.STOPPED: _("stopped"),
        NodeStanding.ENDED: _("ended"),
        NodeStanding.DISCARDED: _("discarded"),
        NodeStanding.UNKILLABLE: _("unkillable"),
        NodeStanding.LOST: _("lost"),
        NodeStanding.AGENT_GONE: _("agent gone"),
        NodeStanding.FAILED: _("failed"),
        NodeStanding.UNKNOWN: _("unknown"),
    }[state]


def told_state(said: object) -> str:
    """Return the name of a job's state as an event says it; of one that only another version knows, its own word."""
    known = said in [state.value for state in JobState]
    return state_name(JobState(said)) if known else clean(str(said))


def told_node_state(said: object) -> str:
    """Return the name of the state of a node of a job as an event says it; of an unknown one its own word."""
    known = said in [state.value for state in NodeStanding]
    return node_state_name(NodeStanding(said)) if known else clean(str(said))


def agent_outcome_name(outcome: str) -> str:
    """Return the name of what became of a host's agent, or of the state it is in."""
    return {
        "installed": _("installed"),
        "upgraded": _("upgraded"),
        "downgraded": _("downgraded"),
        "repaired": _("repaired"),
        "up-to-date": _("up to date"),
        "outdated": _("outdated"),
        "broken": _("broken"),
        "none": _("no agent"),
        "embedded": _("embedded"),
        "removed": _("removed"),
        "refused": _("refused"),
        "unreachable": _("unreachable"),
        "failed": _("failed"),
        "unfinished": _("not finished"),
    }.get(outcome, outcome)


def measure_name(name: str, declared: Declared | None = None) -> str:
    """Return what a person calls a metric; what it goes by itself where it has no other name.

    Args:
        name: its field; or what the script calls one of its own.
        declared: what is declared of it; without that it is what ranks report.
    """
    if name == "step":
        return _("step")
    declared = declared or metrics_of(Metric).get(name)
    if declared is None:
        return name
    return _(declared.label) if declared.label is not None else declared.alert or name
