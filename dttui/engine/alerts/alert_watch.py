"""`monitoring.alerts`: matches what a job's ranks print and report, what its hosts do and what happens to it.

Tells each alert as an event, and never the same over and over. Knows nothing of connections and of files.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dtagent.protocol.events import REPORTED, Event, EventKind, Metric, NodeStanding
from dtagent.protocol.metric_fields import alerts_of, figure_text
from dtagent.protocol.telemetry import GpuSample, HostSample

from dttui.engine.alerts.log_patterns import LogPatterns
from dttui.i18n import msg
from dttui.jobs.event_log import message_of
from dttui.redaction import redact
from dttui.spec.conditions import (
    MetricCondition,
    StateCondition,
    parse_metric,
    parse_pattern,
    parse_state,
)
from dttui.spec.durations import parse_duration
from dttui.spec.findings import Severity
from dttui.spec.models import Alert

REARM_S = 30.0
"""A condition must have been false for so long before it is told again: it may sway about its threshold."""
BURST = 5
"""Events of one alert within its `every`, of all ranks, GPUs and hosts; the others are counted."""
MAX_GAP_S = 60.0
"""Without a reading for so long, nobody knows whether the condition held meanwhile."""
MAX_SUBJECTS = 20_000
"""Ranks, GPUs and hosts of an alert that are remembered; ranks are what scripts say they are."""
MAX_EXCERPT = 200
"""Characters of a line that an event holds."""

_GPU_READINGS, _HOST_READINGS = alerts_of(GpuSample), alerts_of(HostSample)


@dataclass
class _Held:
    """A condition of one rank, GPU or host."""

    since: float | None = None
    """From when on it has held without a break."""
    seen_at: float = 0.0
    false_since: float | None = None
    is_raised: bool = False


@dataclass
class _Rule:
    """One alert of the job, and what it has done so far."""

    alert: Alert
    every_s: float
    metric: MetricCondition | None
    state: StateCondition | None
    held: dict[object, _Held] = field(default_factory=dict)
    told_at: dict[object, float] = field(default_factory=dict)
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=BURST))
    suppressed: int = 0
    """How often it would have been told since it was."""

    @property
    def title(self) -> str:
        """Its name, or what it waits for."""
        return self.alert.name or self.alert.log or self.alert.metric or self.alert.state or ""

    def may_tell(self, subject: object, now: float) -> bool:
        """Whether it is told of a subject now; takes note of it."""
        last = self.told_at.get(subject)
        is_quiet = last is not None and now - last < self.every_s
        is_burst = len(self.recent) == BURST and now - self.recent[0] < self.every_s
        if is_quiet or is_burst or len(self.told_at) > MAX_SUBJECTS:
            self.suppressed += 1
            return False
        self.told_at[subject] = now
        self.recent.append(now)
        return True


class AlertWatch:
    """The alerts of one job. All calls come from the main thread, where its event loop runs.

    Args:
        alerts: of the job.
        add: writes an event, as EventLog.add does.
        secrets: values that no event may hold.
    """

    def __init__(
        self, alerts: Sequence[Alert] = (), add: Callable[..., object] | None = None, secrets: Iterable[str] = ()
    ) -> None:
        self._attempt: int | None = None
        """What the events belong to."""
        self._restart: Callable[[str], None] | None = None
        """Ends it, with the reason, for an alert that is to do so."""
        self._add = add
        self._secrets = tuple(secrets)
        self._rules = [
            _Rule(
                alert,
                parse_duration(alert.every),
                parse_metric(alert.metric) if alert.metric is not None else None,
                parse_state(alert.state) if alert.state is not None else None,
            )
            for alert in alerts
        ]
        self._patterns = LogPatterns([parse_pattern(item.log) if item.log is not None else None for item in alerts])
        self._warned: set[object] = set()
        self._node_states: dict[str, str] = {}
        self._gpu_ids: dict[str, Sequence[int]] = {}
        """Node → GPUs that the job has there; others are somebody else's."""
        readings = (*_HOST_READINGS, *_GPU_READINGS)
        self.watches_samples = any(rule.metric is not None and rule.metric.metric in readings for rule in self._rules)
        """Whether any of them is about what hosts read."""
        self._timers: dict[str, list[asyncio.TimerHandle]] = {}
        """Of the states of each node that have to last."""
        self._stalls: list[asyncio.TimerHandle] = []
        """Of steps that have to come before they are over."""
        self._silent: set[str] = set()
        """Nodes of which nobody knows whether they make steps."""
        self._steps: dict[int, int] = {}
        """Rank → the step that it has reported last; nothing is stalled before there is one."""

    def begin(self, attempt: int, restart: Callable[[str], None] | None) -> None:
        """Belong to an attempt from now on. What ended the one before may be told of this one at once.

        Args:
            attempt: its number.
            restart: ends it, with the reason; `None` where no other one would follow.
        """
        if self._attempt is not None:
            self._silent.clear()
        self._attempt, self._restart = attempt, restart
        self._steps.clear()
        self._expect_no_step()
        for rule in self._rules:
            if rule.alert.action == "restart":
                rule.held.clear()
                rule.told_at.clear()
                rule.recent.clear()

    def see_log(self, node: str, stream: str, data: bytes) -> None:
        """Take new bytes of a stream, `3.out` or `launcher.err`, in order."""
        rank_name = stream.partition(".")[0]
        rank = int(rank_name) if rank_name.isdigit() else None
        for index, line, start in self._patterns.feed(node, stream, data):
            rule = self._rules[index]
            where = msg("rank {rank} on {host}", rank=rank, host=node)
            if rank is None:
                where = msg("the launcher on {host}", host=node)
            if rule.may_tell((node, rank), time.monotonic()):
                begin = max(0, start - MAX_EXCERPT // 4)
                text = redact(line, self._secrets)
                excerpt = text[begin : begin + MAX_EXCERPT] if text == line else text[:MAX_EXCERPT]
                message = msg("{alert}: {where} printed: {line}", alert=rule.title, where=where, line=excerpt)
                self._tell(rule, message, node, rank, line=excerpt, stream=stream)
        self._warn_of_limits()

    def see_metric(self, node: str, metric: Metric) -> None:
        """Take one report of a rank."""
        if metric.step is not None:
            self.see_step(metric.rank, metric.step)
        now = time.monotonic()
        for rule in self._rules:
            condition = rule.metric
            if condition is None or condition.metric in _GPU_READINGS or condition.metric in _HOST_READINGS:
                continue
            name = condition.metric
            value: float | None = metric.step if name == "step" else metric.extra.get(name)
            if name in REPORTED:
                value = metric.value(REPORTED[name])
            self._judge(rule, metric.rank, value, now, node, rank=metric.rank, step=metric.step)

    def see_step(self, rank: int, step: int) -> None:
        """Take a step that a rank has reported: from then on another one is waited for, of whichever rank.

        It need not be further: some scripts count anew in each epoch, or go back to an earlier state.
        """
        if self._steps.get(rank) != step and (rank in self._steps or len(self._steps) < MAX_SUBJECTS):
            self._steps[rank] = step
            self._expect_step()

    def see_sample(self, node: str, sample: HostSample, clock_offset_s: float = 0.0) -> None:
        """Take one reading of a host, whose clock is ahead of ours by `clock_offset_s`."""
        at = sample.time - clock_offset_s
        for rule in self._rules:
            name = rule.metric.metric if rule.metric is not None else ""
            if name in _HOST_READINGS:
                part, reading = _HOST_READINGS[name]
                value = reading.compared(sample, part)
                self._judge(rule, node, value, at, node, max_gap_s=MAX_GAP_S)
            for gpu in sample.gpus if name in _GPU_READINGS else ():
                if gpu.index in self._gpu_ids.get(node, ()):
                    part, reading = _GPU_READINGS[name]
                    value = reading.compared(gpu, part)
                    self._judge(rule, (node, gpu.index), value, at, node, max_gap_s=MAX_GAP_S, gpu=gpu.index)

    def see_event(self, event: Event) -> None:
        """Take what has just happened to the job."""
        if event.kind is EventKind.JOB_STATE:
            self._see_state("job", str(event.data.get("state", "")).lower(), event)
        elif event.kind is EventKind.RANK_FAILED:
            self._see_state("rank", "failed", event)
        elif event.kind is EventKind.NODE_STATE and event.node is not None:
            before = self._node_states.get(event.node)
            self.recall(event)
            state = self._node_states[event.node]
            if state != before:
                self._forget_timers(event.node)
                self._see_state("node", state, event)
                (self._expect_step if state == NodeStanding.RUNNING else self._expect_no_step)()

    def recall(self, event: Event) -> None:
        """Take what happened before, when another controller told of it."""
        if event.kind is EventKind.NODE_STATE and event.node is not None:
            state = self._node_states[event.node] = str(event.data.get("state", ""))
            (self._silent.add if state in _SILENT else self._silent.discard)(event.node)
            self._gpu_ids[event.node] = event.data.get("gpu_ids", self._gpu_ids.get(event.node, ()))

    def close(self) -> None:
        """Wait for nothing more."""
        self._expect_no_step()
        for node in list(self._timers):
            self._forget_timers(node)

    def _expect_no_step(self) -> None:
        for timer in self._stalls:
            timer.cancel()
        self._stalls = []

    def _expect_step(self) -> None:
        """Wait for a step from now on, where there was one and all nodes are heard of."""
        self._expect_no_step()
        wanted = [rule for rule in self._rules if rule.state is not None and rule.state.subject == "steps"]
        if wanted and self._steps and not self._silent:
            loop = asyncio.get_running_loop()
            self._stalls = [
                loop.call_later(rule.state.for_s, self._tell_stalled, rule) for rule in wanted if rule.state is not None
            ]

    def _tell_stalled(self, rule: _Rule) -> None:
        if rule.state is not None and rule.may_tell("steps", time.monotonic()):
            seconds, step = rule.state.for_s, max(self._steps.values())
            message = msg("{alert}: no step for {seconds:.0f} s, since step {step}",
                          alert=rule.title, seconds=seconds, step=step)  # fmt: skip
            self._tell(rule, message, None, None, step=step)

    def _forget_timers(self, node: str) -> None:
        for timer in self._timers.pop(node, ()):
            timer.cancel()

    def _see_state(self, subject: str, state: str, event: Event) -> None:
        for rule in self._rules:
            wanted = rule.state
            if wanted is None or (wanted.subject, wanted.state) != (subject, state):
                continue
            if wanted.for_s and event.node is not None:
                timer = asyncio.get_running_loop().call_later(wanted.for_s, self._tell_state, rule, event)
                self._timers.setdefault(event.node, []).append(timer)
            else:
                self._tell_state(rule, event)

    def _tell_state(self, rule: _Rule, event: Event) -> None:
        if rule.alert.action == "restart" and event.attempt != self._attempt:
            return  # What had to last was of an attempt that is over.
        if rule.may_tell((event.node, event.rank), time.monotonic()):
            happened = message_of(event) or str(event.data.get("state", ""))
            message = msg("{alert}: {message}", alert=rule.title, message=happened)
            self._tell(rule, message, event.node, event.rank, cause=event.seq)

    def _judge(
        self,
        rule: _Rule,
        subject: object,
        value: float | None,
        at: float,
        node: str,
        *,
        max_gap_s: float | None = None,
        rank: int | None = None,
        gpu: int | None = None,
        step: int | None = None,
    ) -> None:
        """Take one value of what a rule watches; `None` where the source had none."""
        condition = rule.metric
        if condition is None or value is None or (subject not in rule.held and len(rule.held) >= MAX_SUBJECTS):
            return
        held = rule.held.setdefault(subject, _Held())
        if max_gap_s is not None and not held.seen_at <= at <= held.seen_at + max_gap_s:  # Its clock may be set back.
            held.since = held.false_since = None
        held.seen_at = at
        if not condition.holds(value):
            held.since = None
            held.false_since = at if held.false_since is None else held.false_since
            held.is_raised = held.is_raised and at - held.false_since < REARM_S
            return
        held.false_since = None
        held.since = at if held.since is None else held.since
        if held.is_raised or at - held.since < condition.for_s:
            return
        held.is_raised = True
        if rule.may_tell(subject, time.monotonic()):
            where = msg("rank {rank} on {host}", rank=rank, host=node)
            if gpu is not None:
                where = msg("GPU {gpu} on {host}", gpu=gpu, host=node)
            elif rank is None:
                where = msg("host {host}", host=node)
            number = figure_text(value, condition.unit)
            message = msg("{alert}: {value}, {where}", alert=rule.title, value=number, where=where)
            self._tell(rule, message, node, rank, metric=condition.metric, value=value,
                       threshold=condition.threshold, gpu=gpu, step=step)  # fmt: skip

    def _tell(self, rule: _Rule, message: str, node: str | None, rank: int | None, **data: Any) -> None:
        known = {name: value for name, value in data.items() if value is not None}
        if rule.suppressed:
            known["suppressed"] = rule.suppressed
            rule.suppressed = 0
        if self._add is not None:
            is_calm = rule.state is not None and rule.state.state not in _ALARMING
            severity = Severity.INFO if is_calm else Severity.WARNING
            body = {"alert": rule.title, "severity": severity.value, **known}
            self._add(EventKind.ALERT, message, attempt=self._attempt, node=node, rank=rank, data=body)
        if rule.alert.action == "restart" and self._restart is not None:
            self._restart(message)

    def _warn_of_limits(self) -> None:
        """Say once of each expression that it is too slow, and once that there is more output than can be looked at."""
        found = {
            index: ("alert-too-slow", msg("{alert}: the expression takes too long and is looked for no more",
                                           alert=self._rules[index].title))
            for index in self._patterns.too_slow
        }  # fmt: skip
        if self._patterns.skipped_bytes:
            found[-1] = (
                "alert-output-skipped",
                msg("the ranks print more than alerts can be looked for in; some lines are left out"),
            )
        for index, (code, message) in found.items():
            if index not in self._warned and self._add is not None:
                self._warned.add(index)
                data = {"code": code, "severity": "warning", "subject": "monitoring.alerts", "hint": ""}
                self._add(EventKind.FINDING, message, attempt=self._attempt, data=data)


_SILENT = frozenset({NodeStanding.UNKNOWN.value, NodeStanding.AGENT_GONE.value})
_ALARMING = frozenset({"failed", "cancelled", "lost", "unknown", "unkillable", "stalled"})
"""States of jobs, nodes, ranks and steps that nobody hopes for."""
