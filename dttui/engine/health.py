"""Whether hosts are well by the job's own command: what agents say of it becomes events, and may end an attempt."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dtagent.protocol.events import Event, EventKind
from dtagent.protocol.health import Health

from dttui.engine.attempt_log import AttemptLog
from dttui.engine.nodes.node_run import NodeRun
from dttui.i18n import Message, msg
from dttui.planning.health import HealthPolicy
from dttui.sanitize import shortened
from dttui.spec.findings import Severity
from dttui.timestamps import elapsed_s

MOST_CHARACTERS = 200
"""Of what the command printed, that a message holds."""


@dataclass(frozen=True)
class Unhealthy:
    """That a host is not well, for which the attempt is to end."""

    node: str
    message: Message
    hint: Message


class HealthWatch:
    """Tells once of each time a host is unhealthy, and that it is healthy again.

    What was said of it before all ranks ran is told once they do. Of a host that is silent nothing is known anew.

    Args:
        policy: what the job asks for; `None` for nothing.
        log: of the attempt.
        told: what another controller has told of the attempt.
    """

    def __init__(self, policy: HealthPolicy | None, log: AttemptLog, told: Iterable[Event] = ()) -> None:
        self._policy = policy
        self._log = log
        self._told: dict[str, float] = {}
        """Node that was told to be unhealthy → since when, Unix time here."""
        for event in told:
            if event.kind is EventKind.HEALTH and event.node is not None:
                # One for which the attempt was to be ended, and was not, is found out anew.
                if event.data.get("severity") == Severity.WARNING.value:
                    since = event.data.get("since")
                    self._told[event.node] = float(since) if isinstance(since, (int, float)) else event.time
                else:
                    self._told.pop(event.node, None)

    def look(self, nodes: Sequence[NodeRun], *, is_running: bool) -> Unhealthy | None:
        """Tell what is new; return the first host for which the attempt is to end, where that was found out now.

        Args:
            nodes: those that take part.
            is_running: whether all ranks run, and none is told to end.
        """
        policy, ended = self._policy, None
        if policy is None or not is_running:
            return None
        for node in nodes:
            health = node.status.health if node.status is not None else None
            if health is None or node.is_over or node.silent_since is not None:
                continue
            if health.is_healthy:
                self._take_back(node)
            elif node.name not in self._told:
                found = self._tell(node, health, policy)
                ended = ended or (found if policy.restarts else None)
        return ended

    def _tell(self, node: NodeRun, health: Health, policy: HealthPolicy) -> Unhealthy:
        since = self._told[node.name] = node.here(health.since)
        what = said_of(health, policy)
        message = msg("{host} is unhealthy: {what}", host=node.name, what=what)
        hint = msg("Run it there by hand: {command}", command=policy.name)
        severity = Severity.ERROR if policy.restarts else Severity.WARNING
        data = {
            "severity": severity.value,
            "since": since,
            "seconds": round(elapsed_s(since, time.time()), 1),
            "what": what,
            "exit_code": health.exit_code,
            "signal": health.signal,
            "timed_out": health.timed_out,
            "error": shortened(health.error, MOST_CHARACTERS),
            "line": shortened(health.line, MOST_CHARACTERS),
            "hint": hint,
            "restarts": policy.restarts,
        }
        self._log.tell_health(node.name, message, data)
        return Unhealthy(node.name, message, hint)

    def _take_back(self, node: NodeRun) -> None:
        since = self._told.pop(node.name, None)
        if since is not None:
            seconds = elapsed_s(since, time.time())
            message = msg("{host} is healthy again, after {seconds:.0f} s", host=node.name, seconds=seconds)
            data = {"severity": Severity.INFO.value, "seconds": round(seconds, 1)}
            self._log.tell_health(node.name, message, data)


def said_of(health: Health, policy: HealthPolicy) -> Message:
    """Return in words how the command failed."""
    if health.error:
        return msg("{command} could not be started: {reason}",
                   command=policy.name, reason=shortened(health.error, MOST_CHARACTERS))  # fmt: skip
    if health.timed_out:
        what = msg("{command} took longer than {seconds:g} s", command=policy.name, seconds=policy.timeout_s)
    elif health.signal is not None:
        what = msg("{command} was ended by signal {signal}", command=policy.name, signal=health.signal)
    else:
        what = msg("{command} exited with {code}", command=policy.name, code=health.exit_code)
    line = shortened(health.line, MOST_CHARACTERS)
    return msg("{what}: {line}", what=what, line=line) if line else what
