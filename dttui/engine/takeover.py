"""Going on with a job whose controller died, from its directory and what its hosts say. Nothing is ever started."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dtagent.protocol.events import Event, EventKind, JobState, NodeStanding
from dtagent.protocol.jobs import AttemptKey, EndReason, NodeState
from dtagent.protocol.rpc import ErrorCode

from dttui.engine.alerts.matching import AlertWatch
from dttui.engine.attempt import make_nodes
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.copies.metric_copy import read_metrics
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.outcome import FoundFailure
from dttui.engine.start import GangStart
from dttui.engine.watch import GangWatch
from dttui.errors import AgentError, CancelledError, HostError, LaunchError
from dttui.i18n import N_, msg, nmsg
from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.view import NODE_OUT
from dttui.planning.models import BoundPlan, Plan
from dttui.transport.base import Prompter, Transport
from dttui.transport.deadline import within

ASK_DEADLINE_S = 60.0
"""Where it is not known whether all hosts were started: how long the others have once one has answered."""
CATCH_UP_DEADLINE_S = 10.0
_HALF_STARTED = N_("the controller died while the hosts were being started")
_SILENT = (NodeStanding.UNKNOWN, NodeStanding.AGENT_GONE)
_BEFORE_ANY_HOST = (JobState.PENDING, JobState.PREFLIGHT)
_BEFORE_ALL_RUN = (*_BEFORE_ANY_HOST, JobState.LAUNCHING, JobState.UNKNOWN)


@dataclass(frozen=True)
class RecoveredState:
    """What a controller that died has left in the job's directory."""

    events: tuple[Event, ...]
    """Of the newest attempt, and those of none."""
    attempt: int
    plan: Plan
    bound: BoundPlan | None
    """The plan of the attempt; before it is written nothing is started."""
    seen_at: float
    """Unix time of that controller's last sign of life."""

    @classmethod
    def read(cls, directory: JobDirectory, seen_at: float) -> RecoveredState:
        """Read them. Raises OSError or ValueError where there is not even a plan."""
        events = directory.read_events()
        told_of = [event.attempt for event in events if event.attempt is not None]
        folders = [int(path.name) for path in (directory.path / "attempts").glob("*") if path.name.isdigit()]
        attempt = max(told_of + folders, default=0)
        own = tuple(event for event in events if event.attempt in (attempt, None))
        with contextlib.suppress(FileNotFoundError):
            bound = BoundPlan.model_validate_json(directory.bound_plan(attempt).read_bytes())
            return cls(own, attempt, bound.plan, bound, seen_at)
        return cls(own, attempt, Plan.model_validate_json(directory.plan.read_bytes()), None, seen_at)

    @property
    def states(self) -> list[JobState]:
        """The states the attempt went through; one of another version may be anything but the first two."""
        return [JobState(event.data.get("state")) for event in self.events if event.kind is EventKind.JOB_STATE]

    @property
    def touched_hosts(self) -> bool:
        """Whether the controller had come as far as preparing hosts."""
        return any(state not in _BEFORE_ANY_HOST for state in self.states)

    @property
    def started_all(self) -> bool:
        """Whether every host had been started, as far as the controller knew."""
        return any(state not in _BEFORE_ALL_RUN for state in self.states)

    def resume(self, nodes: Sequence[NodeRun], directory: JobDirectory) -> None:
        """Let nodes go on where the controller left them: nothing of what it wrote is fetched or told again."""
        so_far = read_metrics(directory, self.attempt)
        offsets = {
            event.node: float(event.data["clock_offset_s"]) for event in self.events if "clock_offset_s" in event.data
        }
        for node in nodes:
            node.record.resume(so_far)
            node.clock_offset_s = offsets.get(node.name, 0.0)
            for place, metric in so_far.metrics:
                if place.node == node.name and node.shared.has_rank(metric.rank):
                    node.shared.watch.feed(metric)  # So that it knows what is usual; what it finds was told.


class TakeOver:
    """One attempt, from wherever its controller left it.

    Args:
        directory: of the job.
        log: where it is told.
        recovered: what the controller left.
        inventory: the environments of the job.
        transport: how they are reached.
        prompter: who is asked for what it takes to log in.
        alerts: hear of what is new.
        secrets: values that no event may hold.
    """

    def __init__(
        self,
        directory: JobDirectory,
        log: EventLog,
        recovered: RecoveredState,
        inventory: Inventory,
        transport: Transport,
        prompter: Prompter,
        alerts: AlertWatch,
        secrets: dict[str, str],
    ) -> None:
        self._recovered = recovered
        self._changed = asyncio.Event()
        alerts.attempt = recovered.attempt
        key = AttemptKey(directory.job_id, recovered.attempt)
        self._log = AttemptLog(log, recovered.attempt)
        self._log.resume(recovered.events)
        self._nodes = make_nodes(
            recovered.plan, inventory, key, directory, transport, prompter, self._changed.set, alerts, log
        )
        recovered.resume(self._nodes, directory)
        self._start = GangStart(directory, self._log, self._nodes, recovered.plan, Path(), {})
        self._watch = ResumedWatch(directory, self._log, self._nodes, self._changed, secrets.values())
        self._watch.resume(recovered.events)
        self._is_stopping = False

    def request_stop(self, *, force: bool) -> None:
        """Stop the job: gracefully, or at once."""
        self._is_stopping = True
        self._watch.request_stop(force=force)

    def retry_now(self) -> None:
        """Try at once to reach the hosts that are silent: somebody came who may answer for us."""
        for node in self._nodes:
            node.retry_now()

    async def run(self) -> str:
        """Find out how far the attempt came, and follow it to its end or clear what was never a whole gang.

        Returns:
            What there is to say of a good end, empty where that is nothing.

        Raises:
            LaunchError: not all of it had been started; what had been is cleared.
            JobFailedError: it ran and failed.
            CancelledError: it was stopped on request.
        """
        try:
            if not self._recovered.touched_hosts:
                raise LaunchError(msg("the controller died before the start"))
            message = nmsg(
                "the controller had died; asking {count} host",
                "the controller had died; asking {count} hosts",
                len(self._nodes),
            )
            self._log.enter(JobState.UNKNOWN, message, since=self._recovered.seen_at)
            if self._recovered.bound is None:
                raise LaunchError(await self._start.roll_back(msg("the controller died before the start")))
            if not self._recovered.started_all and (reason := await self._why_not_all_started()):
                if self._is_stopping:
                    raise CancelledError(await self._start.roll_back(msg("stopped on request before the job ran")))
                raise LaunchError(await self._start.roll_back(reason))
            try:
                return await self._watch.run(self._recovered.bound)
            finally:
                await asyncio.gather(*(_catch_up(node) for node in self._nodes))
        finally:
            await asyncio.gather(*(node.close() for node in self._nodes))

    async def _why_not_all_started(self) -> str:
        """Ask every host; return why the gang is not whole, empty where it is.

        It is not where one was not started, cannot tell, or is not heard of long after the others.
        """
        loop = asyncio.get_running_loop()
        asking = [asyncio.create_task(_why_not_started(node)) for node in self._nodes]
        for task in asking:
            task.add_done_callback(lambda _task: self._changed.set())
        deadline: float | None = None
        try:
            while not all(task.done() for task in asking):
                with contextlib.suppress(asyncio.TimeoutError):
                    wait_s = None if deadline is None else max(0.1, deadline - loop.time())
                    await within(self._changed.wait(), wait_s)
                self._changed.clear()
                self._watch.report()
                known = [task.result() for task in asking if task.done()]
                if self._is_stopping or any(known):
                    return next(filter(None, known), msg(_HALF_STARTED))
                if any(node.needs_person for node in self._nodes):
                    deadline = None  # It is us who cannot get in; that says nothing of the host.
                elif known:
                    deadline = deadline or loop.time() + ASK_DEADLINE_S
                if deadline is not None and loop.time() > deadline:
                    return msg(_HALF_STARTED)
            return next(filter(None, (task.result() for task in asking)), "")
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)


class ResumedWatch(GangWatch):
    """Watches an attempt that another controller has watched before, and tells only what that one has not."""

    _awaited = ""
    """What to tell of the rendezvous once every host has answered."""
    _failures_told: frozenset[tuple[str | None, int | None]] = frozenset()

    def resume(self, events: Sequence[Event]) -> None:
        """Take in what was told before."""
        self._failures_told = frozenset(
            (event.node, event.rank) for event in events if event.kind is EventKind.RANK_FAILED
        )
        states = {event.node: event.data.get("state") for event in events if event.kind is EventKind.NODE_STATE}
        self._silent = {name for name, state in states.items() if name is not None and state in _SILENT}

    def _enter(self, state: JobState, message: str) -> None:
        if state is JobState.RENDEZVOUS:  # The watch begins with it; the hosts have still to say what is true.
            self._state, self._awaited = state, message
        elif state is not JobState.RUNNING or not all(node.is_over for node in self._nodes):
            self._awaited = ""
            super()._enter(state, message)

    def report(self) -> None:
        """Say what is new about each node, and that ranks are waited for once it is known that they are."""
        super().report()
        heard = all(node.status is not None and node.silent_since is None for node in self._nodes)
        if self._awaited and heard and not all(node.is_over or node.has_all_ranks for node in self._nodes):
            message, self._awaited = self._awaited, ""
            super()._enter(JobState.RENDEZVOUS, message)

    def _conclude(self) -> None:
        """As ever; a stop that the earlier controller asked for may be over before this one looks."""
        self._cancelled = self._cancelled or self._was_stopped
        super()._conclude()

    @property
    def _was_stopped(self) -> bool:
        """Whether what has ended did so by a stop that was asked for before; who was out then says nothing of that."""
        members = [node for node in self._nodes if not self._log.has_told(NODE_OUT, node.name)]
        reasons = {node.status.end_reason for node in members if node.status is not None}
        return self._is_stopping and EndReason.STOPPED in reasons and EndReason.PROCESS_FAILED not in reasons

    def _is_broken(self) -> bool:
        return not self._was_stopped and super()._is_broken()

    def _tell_failure(self, failure: FoundFailure) -> None:
        if (failure.node, failure.rank) not in self._failures_told:
            super()._tell_failure(failure)


async def _why_not_started(node: NodeRun) -> str:
    """Return why a node's part is not known to have been started; empty where it was."""
    try:
        status = await node.await_status()
    except AgentError as error:
        return msg(_HALF_STARTED) if error.code == ErrorCode.NO_SUCH_ATTEMPT else error.message
    return msg(_HALF_STARTED) if status.state in (NodeState.PREPARED, NodeState.DISCARDED) else ""


async def _catch_up(node: NodeRun) -> None:
    if node.client is not None:
        ends = [item.ended_at for item in node.status.exits] if node.status is not None else []
        with contextlib.suppress(HostError, asyncio.TimeoutError):
            await within(node.catch_up_samples(max(ends, default=time.time())), CATCH_UP_DEADLINE_S)
