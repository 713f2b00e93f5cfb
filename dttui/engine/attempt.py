"""One attempt of a job across all its nodes: all of them start or none, and the first failure ends them all."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dtagent.protocol import rpc
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import EventKind, JobState, NodeStanding
from dtagent.protocol.jobs import NodeState
from dtagent.protocol.rpc import ErrorCode

from dttui.diagnosis.stack_report import to_data
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.checkpoints.checkpoint_watch import CheckpointWatch
from dttui.engine.checkpoints.replication.gathering import drop_joined
from dttui.engine.checkpoints.replication.replicator import Replicator
from dttui.engine.checkpoints.resuming import find_resume
from dttui.engine.conclusion import node_outcome
from dttui.engine.context import JobContext
from dttui.engine.measurement import compare_with_estimate
from dttui.engine.nodes.node_record import Shared, Steps
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.recovered import RecoveredState, read_history
from dttui.engine.refused_nodes import NodeRefusal, refused_nodes
from dttui.engine.restart_report import RestartReport
from dttui.engine.saved_news import tell_saved
from dttui.engine.stacks import ask_stacks
from dttui.engine.start import GangStart, not_written
from dttui.engine.warm import ask_warm
from dttui.engine.watch import GangWatch
from dttui.engine.witness import Witness
from dttui.errors import (
    AgentError,
    CancelledError,
    DttuiError,
    HostError,
    HostUnreachableError,
    LaunchError,
    PreflightError,
)
from dttui.files import write_atomic
from dttui.i18n import N_, _, msg, nmsg
from dttui.jobs.checks import Cell, Check, cells_to_data
from dttui.jobs.outcome import UNREACHABLE, AttemptOutcome, NodeEnd, NodeOutcome, Stage, cause_of
from dttui.planning.models import BoundPlan, Plan
from dttui.planning.resumption import Resume
from dttui.preflight.agent_age import requires_group
from dttui.preflight.preflight import Preflight
from dttui.preflight.spares import SpareChecks
from dttui.spec.failure_causes import ALERT
from dttui.transport.base import Nobody
from dttui.transport.deadline import within
from dttui.words import listed

Result = TypeVar("Result")
LEAST_LOG_SHARE = 0.03
"""Of a core, what the logs of one of many nodes may take."""
ASK_DEADLINE_S = 60.0
"""Where it is not known whether all hosts were started: how long the others have once one has answered."""
CATCH_UP_DEADLINE_S = 10.0
MOST_NAMES = 4
_HALF_STARTED = N_("the controller died while the hosts were being started")


class Attempt:
    """Runs one attempt, from wherever it stands: to be started, or as a controller that died has left it.

    Args:
        job: whose attempt it is.
        recovered: what is recorded of it; nothing of a new one.
        unfenced: returns the hosts on which something of an earlier attempt may still run.
        before: how the attempt before ended, with the furthest step of all; `None` of the first.
        proven: hosts that have passed the preflight of one before.
        candidates: hosts that only do as well as those that the job names: before any has passed it, what is wrong
            between two nodes is their fault.
        next_spare: returns who would take a slow node's place, `None` where nobody would.
    """

    def __init__(
        self,
        job: JobContext,
        recovered: RecoveredState,
        *,
        unfenced: Callable[[], Collection[str]] = tuple,
        before: AttemptOutcome | None = None,
        proven: Collection[str] = (),
        candidates: Collection[str] = (),
        next_spare: Callable[[], str | None] | None = None,
    ) -> None:
        self._job = job
        self._proven = proven
        self._candidates = candidates
        self._unfenced = unfenced
        self._refused: dict[str, NodeRefusal] = {}
        """Node on which nothing can be started → why."""
        self._recovered = recovered
        self.plan = recovered.plan
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._steps = Steps()
        self.nodes = make_nodes(job, recovered.plan, recovered.attempt, self._changed.set, self._steps)
        self._events = AttemptLog(job.log, recovered.attempt)
        self._events.resume(recovered.events)
        self._beside: list[asyncio.Task[None]] = []
        """What is done beside the checks and the start, which wait for none of it."""
        self._preflight: Preflight | None = None
        self._stage = Stage.PREFLIGHT
        self.watch = GangWatch(
            job.directory, self._events, self.nodes, self._changed, job.secrets.values(), recovered.events
        )
        restart = functools.partial(self.watch.end_for, ALERT) if recovered.plan.recovery.may_restart else None
        job.alerts.begin(recovered.attempt, restart)
        restarted = RestartReport(self._events, before, recovered.promise.cause, recovered.events)
        self._steps.on_first = restarted.on_first_step
        self.watch.on_running = restarted.on_running
        self.watch.redaction = job.log.redaction
        self.watch.witness = _witness(job, recovered.plan)
        self.watch.next_spare = next_spare or self.watch.next_spare
        self._begin, self._catch_up = self._launch, _nothing
        if not recovered.is_new:
            recovered.resume(self.nodes, job.directory)
            self._begin, self._catch_up = self._find, self._fetch_samples

    def request_stop(self, *, force: bool) -> None:
        """Stop the job: gracefully, or at once."""
        self._stopping.set()
        self.watch.request_stop(force=force)

    def retry_now(self) -> None:
        """Try at once to reach the hosts that are silent: somebody came who may answer for us."""
        for node in self.nodes:
            node.retry_now()

    async def stacks(self, ranks: Sequence[int] | None) -> list[Any]:
        """Return where its ranks stand, as plain data that fits in a frame."""
        found = await ask_stacks(self.nodes, ranks, self._job.log.redaction)
        told = to_data(found)
        return told if len(rpc.encode_value(told)) < rpc.MAX_FRAME_BYTES // 2 else to_data(found, is_short=True)

    async def run(self) -> AttemptOutcome:
        """Run the attempt to its end; return how it ended, whatever that is."""
        outcome = await self._run()
        first = outcome.first_failure
        steps = {"first_step": self._steps.first, "last_step": self._steps.last}
        failed_at = (first.time if first is not None else None) or time.time()
        return outcome.model_copy(update={**steps, **({} if outcome.succeeded else {"failed_at": failed_at})})

    async def _run(self) -> AttemptOutcome:
        try:
            bound = await self._begin()
            self._stage = Stage.RUN
            try:
                return await self._watch(bound)
            finally:
                await self._catch_up()
        except DttuiError as error:
            return self._ended_early(error)
        finally:
            for task in self._beside:
                task.cancel()
            await asyncio.gather(*self._beside, return_exceptions=True)
            await asyncio.gather(*(node.close() for node in self.nodes))

    async def _watch(self, bound: BoundPlan) -> AttemptOutcome:
        """Follow the nodes to their end, and have checkpoints copied and old ones removed meanwhile."""
        job = self._job
        replicator = Replicator(job.directory, self._events, self.nodes, bound, job.earlier)
        checkpoints = CheckpointWatch(
            job.directory, self._events, self.nodes, bound, self._unfenced, first=len(job.earlier)
        )
        beside = [asyncio.create_task(replicator.run()), asyncio.create_task(checkpoints.run())]
        try:
            outcome = await self.watch.run(bound)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        if outcome.succeeded:
            await replicator.drop()
            await drop_joined(self.nodes, bound.bindings.resume, job.directory.job_id)
        await tell_saved(self._events, self.nodes, hurries=not outcome.succeeded)
        peaks = {node.name: node.record.gpu_peaks_mib for node in self.nodes}
        sizes = checkpoints.sizes
        nodes = {
            name: node.model_copy(update={"checkpoint_bytes": sizes.get(name)}) for name, node in outcome.nodes.items()
        }
        held = [
            exit_.peak_memory_mib
            for node in self.nodes
            for exit_ in (node.status.exits if node.status is not None else ())
            if exit_.peak_memory_mib is not None
        ]
        resume, figures = bound.bindings.resume, compare_with_estimate(bound, self._steps.speed, peaks, held)
        return outcome.model_copy(
            update={
                "figures": figures,
                "nodes": nodes,
                "resumed_from": resume.checkpoint if resume is not None else None,
            }
        )

    def _ended_early(self, error: DttuiError) -> AttemptOutcome:
        """Return the outcome of an attempt that never ran on all its nodes."""
        is_stop = isinstance(error, CancelledError)
        return AttemptOutcome(
            attempt=self._recovered.attempt,
            state=JobState.CANCELLED if is_stop else JobState.FAILED,
            stage=self._stage,
            message=error.message,
            hint=error.hint,
            nodes={node.name: self._outcome_of(node) for node in self.nodes},
            cause=None if is_stop else cause_of(error),
        )

    def _outcome_of(self, node: NodeRun) -> NodeOutcome:
        outcome = node_outcome(node)
        refusal = self._refused.get(node.name)
        if refusal is None or outcome.end is not NodeEnd.UNTOUCHED:
            return outcome
        return outcome.model_copy(update={"why": refusal.why, "reason": refusal.reason})

    async def _launch(self) -> BoundPlan:
        """Check the hosts, and start on all of them.

        Raises:
            HostError: a host could not be reached; nothing was started.
            PreflightError: a check failed; nothing was started.
            LaunchError: the start failed and was rolled back.
            CancelledError: it was stopped on request.
        """
        if missing := [name for name in self.plan.secrets if name not in self._job.secrets]:
            hint = msg("Export them before `dttui attach`, or keep them in secrets.env beside the job file.")
            raise LaunchError(msg("the values of {names} are not known here any more", names=", ".join(missing)), hint)
        unfenced = self._unfenced()
        for node in self.nodes:
            if node.name in unfenced:
                self._refused[node.name] = NodeRefusal(UNREACHABLE)
        if self._refused:
            hosts = listed(list(self._refused), MOST_NAMES)
            message = msg("what an earlier attempt has left on {hosts} is not known", hosts=hosts)
            raise HostUnreachableError(next(iter(self._refused)), message)
        count = len(self.nodes)
        self._events.enter(JobState.PREFLIGHT, nmsg("checking {count} host", "checking {count} hosts", count))
        tried_port = await self.unless_stopped(self._check_hosts())
        resume = await self.unless_stopped(self._resume()) if self._recovered.attempt else None
        self._stage = Stage.LAUNCH
        self._events.enter(JobState.LAUNCHING, nmsg("preparing {count} host", "preparing {count} hosts", count))
        start = self._start(self.plan, tried_port, resume)
        try:
            return await start.run(self.unless_stopped)
        except DttuiError:
            raise
        except Exception:  # A defect of ours must not leave processes behind on the hosts.
            await start.roll_back()
            raise

    async def _find(self) -> BoundPlan:
        """Find out how far an earlier controller came; clear what was never a whole gang.

        Raises:
            LaunchError: not all of it had been started; what had been is cleared.
            CancelledError: so it was, and a stop was asked for.
        """
        recovered = self._recovered
        if not recovered.touched_hosts:
            raise LaunchError(msg("the controller died before the start"))
        self._stage = Stage.LAUNCH
        message = nmsg(
            "the controller had died; asking {count} host",
            "the controller had died; asking {count} hosts",
            len(self.nodes),
        )
        self._events.enter(JobState.UNKNOWN, message, since=recovered.seen_at)
        start = self._start(recovered.plan)
        if recovered.bound is None:
            raise LaunchError(await start.roll_back(msg("the controller died before the start")))
        if not recovered.started_all and (reason := await self._why_not_all_started()):
            if self._stopping.is_set():
                raise CancelledError(await start.roll_back(msg("stopped on request before the job ran")))
            raise LaunchError(await start.roll_back(reason))
        return recovered.bound

    async def _resume(self) -> Resume | None:
        """Return what it goes on from: what those before it have written.

        Raises:
            PreflightError: the job is there to go on from another, and there is nothing of that to go on from.
        """
        job, attempt = self._job, self._recovered.attempt
        found = await find_resume(job.directory, self._events, self.nodes, self.plan.resumption, job.earlier)
        if found is None and attempt == len(job.earlier):
            before = job.earlier[-1]
            message = msg("no host has a complete checkpoint of {job} to go on from", job=before)
            raise PreflightError(message, msg("From its beginning: dttui again {job}", job=before))
        return found

    def _start(self, plan: Plan, tried_port: int | None = None, resume: Resume | None = None) -> GangStart:
        job = self._job
        secrets, use = dict(job.secrets), job.host_use()
        return GangStart(job.directory, self._events, self.nodes, plan, job.base, secrets, tried_port, resume, use)

    async def _check_hosts(self) -> int | None:
        """Check the hosts; return the port on which they saw the master, where one was tried."""
        preflight = self._preflight = Preflight(
            self.nodes,
            self.plan,
            self._job.inventory,
            self._job.replan,
            ignored=self._job.ignored,
            checkpoint_bytes=measured_sizes(await asyncio.to_thread(read_history, self._job.directory)),
            on_change=self._show_checks,
            on_reached=self._warm_up,
        )
        self._check_spares(preflight)
        board = await preflight.run()
        for name, failure in board.unreachable.items():
            self._events.note(name, NodeStanding.FAILED, failure.message)
        named = [name for name in board.names if name not in self._candidates]
        self._refused.update(refused_nodes(board, self._proven or named))
        for finding in board.findings:
            self._events.tell(finding)
        board.raise_errors()
        self.plan = board.plan or self.plan
        try:
            write_atomic(self._job.directory.plan, self.plan.model_dump_json(indent=2))
        except OSError as error:
            raise not_written(self._job.directory.plan, error) from error
        for node, planned in zip(self.nodes, self.plan.nodes, strict=True):
            node.planned = planned
            node.shared.world_size = self.plan.world_size
        return preflight.master_port

    def _show_checks(self, name: str, cells: Mapping[Check, Cell]) -> None:
        node = self._named(name)
        if Check.CLOCK in cells and node.client is not None:  # Of a host out of reach the clock is told as unknown.
            self._events.note(node.name, NodeStanding.CONNECTED, msg("reached"), clock_offset_s=node.clock_offset_s)
        data: dict[str, Any] = {"cells": cells_to_data(cells)}
        if Check.SOFTWARE in cells and self._preflight is not None:
            data["versions"] = self._preflight.versions(name)
        self._events.add(EventKind.PREFLIGHT, "", node=name, data=data)

    def _check_spares(self, preflight: Preflight) -> None:
        """Look whether those that are to take a lost node's place could, before the job's first start."""
        job = self._job
        if job.replan_for is not None and not self._proven:
            # Nobody is asked for one that is perhaps never needed.
            lineup = self._recovered.promise.lineup
            checks = SpareChecks(self.plan, job.inventory, job.replan_for, job.transport, Nobody(), job.ignored, lineup)
            self._beside.append(asyncio.create_task(checks.run(preflight, self._events.tell)))

    def _warm_up(self, name: str) -> None:
        """Ask a host that was reached for a warm start, beside the checks."""
        self._beside.append(asyncio.create_task(self._warm(self._named(name))))

    async def _warm(self, node: NodeRun) -> None:
        if node.client is not None and (message := await ask_warm(node.client, node.planned)):
            self._events.progress(message)

    def _named(self, name: str) -> NodeRun:
        return next(node for node in self.nodes if node.name == name)

    async def unless_stopped(self, work: Awaitable[Result]) -> Result:
        """Await the work, or give it up when a stop is asked for meanwhile."""
        task = asyncio.ensure_future(work)
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise CancelledError(msg("stopped on request before the job ran"))
        finally:
            stop.cancel()

    async def _why_not_all_started(self) -> str:
        """Ask every host; return why the gang is not whole, empty where it is.

        It is not where one was not started, cannot tell, or is not heard of long after the others.
        """
        loop = asyncio.get_running_loop()
        asking = [asyncio.create_task(_why_not_started(node)) for node in self.nodes]
        for task in asking:
            task.add_done_callback(lambda _task: self._changed.set())
        deadline: float | None = None
        try:
            while not all(task.done() for task in asking):
                with contextlib.suppress(asyncio.TimeoutError):
                    wait_s = None if deadline is None else max(0.1, deadline - loop.time())
                    await within(self._changed.wait(), wait_s)
                self._changed.clear()
                self.watch.report()
                known = [task.result() for task in asking if task.done()]
                if self._stopping.is_set() or any(known):
                    return next(filter(None, known), msg(_HALF_STARTED))
                if any(node.needs_person for node in self.nodes):
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

    async def _fetch_samples(self) -> None:
        """Fetch the telemetry of the time in which no controller was there."""
        await asyncio.gather(*(_fetch_samples_of(node) for node in self.nodes))


def make_nodes(
    job: JobContext, plan: Plan, attempt: int, on_change: Callable[[], None], steps: Steps | None = None
) -> list[NodeRun]:
    """Return the nodes of an attempt, in order of rank. Raises LaunchError where the inventory lacks one."""
    nodes = []
    key = AttemptKey(job.directory.job_id, attempt)
    shared = replace(
        Shared.of(plan, job.log.backlog),
        alerts=job.alerts,
        redaction=job.log.redaction,
        steps=steps or Steps(),
        heartbeat_s=plan.recovery.heartbeat_s,
        fences_itself=plan.recovery.self_fence_s is not None,
    )
    shared.requires_group = requires_group(plan)
    shared.log_share = max(LEAST_LOG_SHARE, shared.log_share / max(1, len(plan.nodes)))
    for planned in plan.nodes:
        environment = job.inventory.find(planned.name)
        if environment is None:
            raise LaunchError(_("there is no environment {name}").format(name=planned.name))
        node = NodeRun(environment, planned, key, job.directory, job.transport, job.prompter, on_change, shared=shared)
        nodes.append(node)
    return nodes


def _witness(job: JobContext, plan: Plan) -> Witness:
    """Return what asks the spares that take no part."""
    taken = {node.name for node in plan.nodes}
    found = (job.inventory.find(spare) for spare in plan.recovery.spares if spare not in taken)
    return Witness(tuple(item for item in found if item is not None), job.transport, job.prompter)


def measured_sizes(history: Sequence[AttemptOutcome]) -> dict[str, int]:
    """Return how long the newest checkpoint was that was seen on each node."""
    return {
        name: node.checkpoint_bytes
        for outcome in history
        for name, node in outcome.nodes.items()
        if node.checkpoint_bytes is not None
    }


async def _nothing() -> None:
    """There is nothing to catch up with."""


async def _why_not_started(node: NodeRun) -> str:
    """Return why a node's part is not known to have been started; empty where it was."""
    try:
        status = await node.await_status()
    except AgentError as error:
        return msg(_HALF_STARTED) if error.code == ErrorCode.NO_SUCH_ATTEMPT else error.message
    return msg(_HALF_STARTED) if status.state in (NodeState.PREPARED, NodeState.DISCARDED) else ""


async def _fetch_samples_of(node: NodeRun) -> None:
    if node.client is not None:
        ends = [item.ended_at for item in node.status.exits] if node.status is not None else []
        with contextlib.suppress(HostError, asyncio.TimeoutError):
            await within(node.catch_up_samples(max(ends, default=time.time())), CATCH_UP_DEADLINE_S)
