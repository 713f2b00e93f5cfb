"""What an alert waits for, as people write it: `gpu.utilization < 5 for 10m`, `node unknown for 2m`. Pure."""

from __future__ import annotations

import functools
import math
import operator
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from dtagent.protocol.events import REPORTED, JobState, Metric, NodeStanding
from dtagent.protocol.metric_fields import alerts_of, metrics_of

from dttui.i18n import _
from dttui.spec.durations import parse_duration
from dttui.spec.problems import did_you_mean, shown, with_hint

MAX_PATTERN_LENGTH = 500
"""Characters of a regular expression."""
_REPORTED_METRICS = {name: metrics_of(Metric)[field].unit.symbol for name, field in REPORTED.items()}
"""Of each rank, by whatever a report may call it; there may be others."""
STATES = {
    "job": tuple(state.value.lower() for state in JobState if state not in (JobState.PENDING, JobState.UNKNOWN)),
    "node": tuple(
        state.value
        for state in (
            NodeStanding.UNKNOWN,
            NodeStanding.AGENT_GONE,
            NodeStanding.LOST,
            NodeStanding.FAILED,
            NodeStanding.UNKILLABLE,
            NodeStanding.STOPPED,
            NodeStanding.ENDED,
            NodeStanding.RUNNING,
        )
    ),
    "rank": ("failed",),
    "steps": ("stalled",),
}
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_METRIC = re.compile(
    r"\s*([A-Za-z_][\w./-]{0,80})\s*(>=|<=|==|!=|>|<)\s*([-+]?[0-9.]{1,20}(?:[eE][-+]?[0-9]{1,3})?)\s*"
)
_STATE = re.compile(r"\s*([A-Za-z]+)\s+([A-Za-z]+)\s*")
_FOR = re.compile(r"\bfor\b(.*)$", re.DOTALL)


@dataclass(frozen=True)
class MetricCondition:
    """A number that is beyond a threshold, for so long without a break."""

    metric: str
    """`gpu.…` and `host.…` are readings of hosts; anything else is what ranks report."""
    comparison: str
    threshold: float
    for_s: float = 0.0

    def holds(self, value: float) -> bool:
        """Whether it is so."""
        return _OPERATORS[self.comparison](value, self.threshold)

    @property
    def unit(self) -> str:
        """Of the number."""
        return (_measured_metrics() | _REPORTED_METRICS).get(self.metric, "")


@dataclass(frozen=True)
class StateCondition:
    """A job, a node, a rank or the training's steps that are in a state, for so long."""

    subject: str
    state: str
    for_s: float = 0.0


@functools.cache
def _measured_metrics() -> dict[str, str]:
    """Return what each GPU that the job uses is measured by, and each host, with the unit that the number is in."""
    from dtagent.protocol.telemetry import GpuSample, HostSample  # Their modules take long, and few jobs have alerts.

    found = [*alerts_of(GpuSample).items(), *alerts_of(HostSample).items()]
    return {name: metric.alert_unit for name, (_field, metric) in found}


def measured_names() -> tuple[str, ...]:
    """Return the metrics that hosts are measured by, such as `gpu.utilization`."""
    return tuple(_measured_metrics())


def is_measured(name: str) -> bool:
    """Whether a metric is one that hosts are measured by."""
    return name.startswith(("gpu.", "host.")) and name in _measured_metrics()


def reported_names() -> tuple[str, ...]:
    """Return what dttui itself reads of scripts and trainers, by whatever a report may call it."""
    return tuple(_REPORTED_METRICS)


def parse_metric(text: str) -> MetricCondition:
    """Read `NAME > NUMBER [for DURATION]`. Raises ValueError with what was expected."""
    head, for_s = _split(text)
    match = _METRIC.fullmatch(head)
    example = _("write it as in {example}").format(example="gpu.utilization < 5 for 10m")
    if match is None:
        raise ValueError(with_hint(_("expected a condition, found {value}").format(value=shown(text)), example))
    name, comparison, number = match.groups()
    known = _measured_metrics()
    if name.startswith(("gpu.", "host.")) and name not in known:
        message = _("there is no {name}; there are: {names}").format(name=name, names=", ".join(known))
        raise ValueError(with_hint(message, did_you_mean(name, known)))
    try:
        threshold = float(number)
    except ValueError:
        threshold = math.nan
    if not math.isfinite(threshold):
        raise ValueError(with_hint(_("{value} is no number").format(value=shown(number)), example))
    return MetricCondition(name, comparison, threshold, for_s)


def parse_state(text: str) -> StateCondition:
    """Read `node unknown [for DURATION]`, `steps stalled for DURATION`, `rank failed`, `job failed`.

    Raises ValueError with what was expected.
    """
    head, for_s = _split(text)
    match = _STATE.fullmatch(head)
    if match is None:
        example = _("write it as in {example}").format(example="node unknown for 2m")
        raise ValueError(with_hint(_("expected a state, found {value}").format(value=shown(text)), example))
    subject, state = match[1].lower(), match[2].lower()
    if subject not in STATES:
        message = _("there is no {name}; there are: {names}").format(name=subject, names=", ".join(STATES))
        raise ValueError(with_hint(message, did_you_mean(subject, STATES)))
    if state not in STATES[subject]:
        message = _('a {subject} is never "{state}"; it is one of: {names}')
        told = message.format(subject=subject, state=state, names=", ".join(STATES[subject]))
        raise ValueError(with_hint(told, did_you_mean(state, STATES[subject])))
    if subject == "steps" and not for_s:
        example = _("write it as in {example}").format(example="steps stalled for 10m")
        raise ValueError(with_hint(_("steps are stalled for a time, which is missing"), example))
    if for_s and subject not in ("node", "steps"):
        raise ValueError(_("only a state of a node can last: leave {words} out").format(words='"for"'))
    return StateCondition(subject, state, for_s)


def parse_pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression. Raises ValueError where it is none, is too long or matches every line."""
    if len(text) > MAX_PATTERN_LENGTH:
        raise ValueError(_("is longer than {count} characters").format(count=MAX_PATTERN_LENGTH))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(
            _("{pattern} is no regular expression: {reason}").format(pattern=shown(text), reason=error)
        ) from error
    if pattern.search("") is not None:
        raise ValueError(_("{pattern} matches every line, an empty one too").format(pattern=shown(text)))
    return pattern


def parse_metric_pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression that finds a number. Raises ValueError as `parse_pattern`, and without a group."""
    pattern = parse_pattern(text)
    if pattern.groups != 1 and "value" not in pattern.groupindex:
        raise ValueError(
            with_hint(
                _("{pattern} needs one group, which is the number").format(pattern=shown(text)),
                _("write it as in {example}").format(example=r"return of ([-+.\deE]+)"),
            )
        )
    return pattern


def _split(text: str) -> tuple[str, float]:
    """Return what comes before `for`, and the seconds after it."""
    match = _FOR.search(text)
    return (text, 0.0) if match is None else (text[: match.start()], parse_duration(match[1]))
