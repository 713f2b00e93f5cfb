"""Watching one attempt from its start to its end: what the nodes say is told, and the first failure ends them all."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterable, Sequence

from dtagent.protocol.events import EventKind, JobState, NodeStanding
from dtagent.protocol.jobs import NodeState, NodeStatus

from dttui.errors import CancelledError, HostError, JobFailedError
from dttui.i18n import ntold, told
from dttui.planning.models import BoundPlan, Severity
from dttui.sanitize import clean
from dttui.services.alerts.metric_watch import alert_message
from dttui.services.gang.attempt_log import AttemptLog
from dttui.services.gang.node_run import NodeRun
from dttui.services.gang.outcome import FoundFailure, ending, last_words, rank_failures, stopped_on_request
from dttui.services.gang.rendezvous import RendezvousBoard
from dttui.services.gang.start import GRACE_S
from dttui.services.jobs import JobDirectory
from dttui.spec.findings import warning

STOP_DEADLINE_S = GRACE_S + 30.0
"""How long the nodes have to end once told to; whoever cannot be reached by then is lost."""
FORCED_STOP_DEADLINE_S = 8.0


class GangWatch:
    """Follows the nodes of an attempt that was started.

    Args:
        directory: of the job.
        log: of the attempt.
        nodes: in order of rank.
        changed: set whenever there may be something new about a node.
        secrets: values that no event may hold.
    """

    def __init__(
        self,
        directory: JobDirectory,
        log: AttemptLog,
        nodes: Sequence[NodeRun],
        changed: asyncio.Event,
        secrets: Iterable[str],
    ) -> None:
        self._directory = directory
        self._log = log
        self._nodes = nodes
        self._changed = changed
        self._secrets = tuple(secrets)
        self._state = JobState.LAUNCHING
        self._is_stopping = False
        self._force = False
        self._cancelled = False
        self._late: str | None = None
        """Who did not join in time, once that ends the attempt."""
        self._stops: dict[str, str] = {}
        """Node → what it was last told: `stop` or `kill`."""
        self._broken: dict[str, str] = {}
        """Node → why it could no longer be followed."""
        self._warned: set[tuple[str, str]] = set()
        """Node and what its agent warned of."""
        self._silent: set[str] = set()
        """Nodes that were told to be silent, and not yet to be back."""

    def request_stop(self, *, force: bool) -> None:
        """Stop the job: gracefully, or at once."""
        self._force = self._force or force
        self._is_stopping = True
        for node in self._nodes:
            node.hurries = self._force
        self._changed.set()

    async def run(self, bound: BoundPlan) -> None:
        """Follow the nodes to their end.

        Raises:
            JobFailedError: it failed, or what became of a part of it is not known.
            CancelledError: it was stopped on request.
        """
        size = bound.plan.world_size
        self._enter(JobState.RENDEZVOUS, ntold("waiting for {count} rank", "waiting for {count} ranks", size))
        limit_s = bound.plan.rendezvous_timeout_s
        board = RendezvousBoard(self._nodes, self._directory, self._log, bound.bindings.master_port, limit_s)
        followers = [asyncio.create_task(node.follow()) for node in self._nodes]
        samplers = [asyncio.create_task(node.record_samples()) for node in self._nodes]
        for follower in followers:
            follower.add_done_callback(lambda _task: self._changed.set())
        stop_deadline: float | None = None
        try:
            while not all(follower.done() for follower in followers):
                await self._wait_for_change(stop_deadline, board.wait_s if self._is_waiting else None)
                await self._give_up_broken(followers)
                self.report()
                if self._state is JobState.RENDEZVOUS and all(node.has_all_ranks for node in self._nodes):
                    self._enter(JobState.RUNNING, ntold("the rank runs", "all {count} ranks run", size))
                if self._is_waiting and self._late is None:
                    self._late = await board.look()
                broken = (
                    self._late is not None
                    or any(node.has_failed or node.is_lost for node in self._nodes)
                    or bool(self._broken)
                )
                if broken or self._is_stopping:
                    grace_s = FORCED_STOP_DEADLINE_S if self._force else STOP_DEADLINE_S
                    now = asyncio.get_running_loop().time
                    stop_deadline = min(stop_deadline or math.inf, now() + grace_s)
                    await self._stop_all()
                    if now() > stop_deadline:
                        self._give_up_silent()
        finally:
            for task in (*followers, *samplers):
                task.cancel()
            await asyncio.gather(*followers, *samplers, return_exceptions=True)
        self.report()
        self._conclude()

    @property
    def _is_waiting(self) -> bool:
        return self._state is JobState.RENDEZVOUS

    def _enter(self, state: JobState, message: str) -> None:
        self._state = state
        self._log.enter(state, message)

    async def _wait_for_change(self, stop_deadline: float | None, wait_s: float | None) -> None:
        timeout = wait_s if stop_deadline is None else max(0.1, stop_deadline - asyncio.get_running_loop().time())
        try:
            await asyncio.wait_for(self._changed.wait(), timeout)
        except asyncio.TimeoutError:
            return
        self._changed.clear()

    async def _stop_all(self) -> None:
        failed = next((node.name for node in self._nodes if node.has_failed or node.is_lost), None)
        if self._state is not JobState.STOPPING:
            why = told("a failure on {host} ends all", host=failed) if failed else told("stopping on request")
            self._enter(JobState.STOPPING, self._late or why)
            self._cancelled = failed is None and self._late is None
        word = "kill" if self._force else "stop"
        # Also called after each change: a host that was silent hears of the stop when it is back.
        targets = [
            node
            for node in self._nodes
            if not node.is_over and node.silent_since is None and self._stops.get(node.name) != word
        ]
        results = await asyncio.gather(*(node.stop(force=self._force) for node in targets), return_exceptions=True)
        self._stops.update({node.name: word for node, item in zip(targets, results, strict=True) if item is None})

    def _give_up_silent(self) -> None:
        for node in self._nodes:
            if not node.is_over:
                node.is_lost = True
                node.retry_now()  # It notices at once that it is given up.
                self._log.note(node.name, NodeStanding.LOST, told("could not be reached; what runs there is unknown"))

    async def _give_up_broken(self, followers: list[asyncio.Task[None]]) -> None:
        """Give up nodes whose logs and status can no longer be followed; what runs there is still told to end."""
        for node, follower in zip(self._nodes, followers, strict=True):
            error = follower.exception() if follower.done() and not follower.cancelled() else None
            if error is None or node.is_over:
                continue
            with contextlib.suppress(HostError):
                await node.stop(force=True)
            if not node.is_over:
                node.is_lost = True
            reason = error.message if isinstance(error, HostError) else f"{type(error).__name__}: {error}"
            self._broken[node.name] = reason
            self._log.note(node.name, NodeStanding.LOST, reason)

    def report(self) -> None:
        """Say what is new about each node."""
        for node in self._nodes:
            if node.is_lost:
                continue
            if node.silent_since is not None:
                seconds = node.silent_since - node.heard_at
                message = told("no word from {host} for {seconds:.0f} s", host=node.name, seconds=seconds)
                if node.needs_person:
                    message = told(
                        "{why}. `dttui attach {job}` lets you answer, and brings the keys of your ssh-agent",
                        why=node.needs_person,
                        job=self._directory.job_id,
                    )
                self._silent.add(node.name)
                self._log.note(node.name, NodeStanding.UNKNOWN, message, heard_at=node.heard_at)
            elif node.status is not None:
                if node.name in self._silent:
                    self._silent.discard(node.name)
                    self._log.progress(told("{host} is back", host=node.name))
                self._log.note(node.name, _standing(node.status), ending(node.status), **last_words(node))
            if node.disk_trouble:
                message = told("what comes from {host} cannot be kept here: {reason}; it is fetched again",
                               host=node.name, reason=node.disk_trouble)  # fmt: skip
                self._log.tell(warning("copy-behind", node.name, message))
            self._report_metrics(node)
            self._report_warnings(node)

    def _report_metrics(self, node: NodeRun) -> None:
        """Tell of alarming reports, and of those that nobody can plot: at the first, and all of them at the end."""
        alerts, node.alerts = node.alerts, []
        for alert in alerts:
            data = {**alert.data, "severity": Severity.WARNING.value}
            message = alert_message(node.name, alert)
            self._log.add(EventKind.METRIC_ALERT, message, node=node.name, rank=alert.rank, data=data)
        metrics = node.metrics
        found = {}
        if node.trainer.skipped_bytes:
            found["metrics-skipped"] = told(
                "{host} printed more than could be searched for metrics; some may be missing", host=node.name
            )
        if metrics.unreadable and (node.is_over or not self._log.has_told("metrics-unreadable", node.name)):
            found["metrics-unreadable"] = ntold(
                "{count} line of metrics of {host} could not be read: {line}",
                "{count} lines of metrics of {host} could not be read; the first: {line}",
                metrics.unreadable,
                host=node.name,
                line=metrics.first_unreadable,
            )
        for code, message in found.items():
            self._log.tell(warning(code, node.name, message))

    def _report_warnings(self, node: NodeRun) -> None:
        """Pass on what the agent says of its own records, once each."""
        for text in node.status.warnings if node.status is not None else ():
            if (node.name, text) not in self._warned:
                self._warned.add((node.name, text))
                message = told("{host}: {message}", host=node.name, message=clean(text))
                self._log.tell(warning("agent-records", node.name, message))

    def _conclude(self) -> None:
        """Raise what says how the attempt ended; return when every rank of every node ended well."""
        failures = rank_failures(self._directory, self._nodes, self._secrets)
        lost = [node.name for node in self._nodes if node.is_lost]
        uncleared = [item for item in failures if item.data.get("uncleared")]
        if self._cancelled and not lost and not uncleared:
            raise CancelledError(stopped_on_request(self._nodes))
        for failure in failures:
            self._tell_failure(failure)
        if self._late is not None:
            raise JobFailedError(self._late, told("Its launcher says more: dttui logs --stderr"))
        if self._broken:
            name, reason = next(iter(self._broken.items()))
            raise JobFailedError(told("{host} could not be followed: {reason}", host=name, reason=reason))
        if lost and self._cancelled:
            raise JobFailedError(
                told("stopped on request, but {hosts} could not be reached", hosts=", ".join(lost)),
                told("What runs there is unknown; look at the host when it is back."),
            )
        if uncleared or failures:
            raise JobFailedError((uncleared or failures)[0].message)
        if lost:
            raise JobFailedError(
                told("{hosts} could not be reached", hosts=", ".join(lost)),
                told("What runs there is unknown; look at the host when it is back."),
            )
        unwell = next((node for node in self._nodes if not node.has_succeeded), None)
        if unwell is not None:
            raise JobFailedError(told("{host} did not end well", host=unwell.name))

    def _tell_failure(self, failure: FoundFailure) -> None:
        fields = {"node": failure.node, "rank": failure.rank, "data": failure.data}
        self._log.add(EventKind.RANK_FAILED, failure.message, **fields)


def _standing(status: NodeStatus) -> NodeStanding:
    """Return what a person is told of a node: of the ends, whether it was a failure or our own stop."""
    if status.state is NodeState.ENDED and status.reason == "stopped":
        return NodeStanding.STOPPED
    if status.state is NodeState.ENDED and any(item.exit_code != 0 for item in status.exits):
        return NodeStanding.FAILED
    return NodeStanding(status.state.value)
