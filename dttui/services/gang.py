"""One attempt of a job across all its nodes: all of them start or none, and the first failure ends them all."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from dtagent.protocol.events import EventKind, JobState
from dtagent.protocol.jobs import AttemptKey, NodeState, NodeStatus, PrepareReply
from dtagent.protocol.telemetry import HostFacts

from dttui.errors import (
    CancelledError,
    DttuiError,
    HostError,
    JobFailedError,
    LaunchError,
    PreflightError,
)
from dttui.i18n import Told, _, ntold, told
from dttui.inventory.models import Inventory
from dttui.planning.binding import bind, checkpoint_directory
from dttui.planning.models import Bindings, BoundPlan, Finding, NodeBinding, Plan, Severity
from dttui.services.jobs import EventLog, JobDirectory
from dttui.services.node_run import NodeRun
from dttui.services.occupation import HostReading, check_room
from dttui.services.outcome import ending, rank_failures, stopped_on_request
from dttui.services.preflight import check_hosts
from dttui.services.upload import list_upload, send
from dttui.transport.base import Prompter, Transport

Result = TypeVar("Result")

GRACE_S = 15.0
STOP_DEADLINE_S = GRACE_S + 30.0
"""How long the nodes have to end once told to; whoever cannot be reached by then is lost."""
FORCED_STOP_DEADLINE_S = 8.0
ROLLBACK_DEADLINE_S = 30.0
ROOM_WAIT_S = 2.5
"""How long GPUs that are taken are looked at again before the job is refused."""


class Gang:
    """Runs one attempt. `run` returns when the job succeeded and raises the error that says how else it ended."""

    def __init__(
        self,
        directory: JobDirectory,
        log: EventLog,
        transport: Transport,
        prompter: Prompter,
        *,
        inventory: Inventory,
        plan: Plan,
        replan: Callable[[Inventory, dict[str, HostFacts]], Plan],
        base: Any,
        secrets: dict[str, str],
        attempt: int = 0,
    ) -> None:
        self._directory = directory
        self._log = log
        self._transport = transport
        self._prompter = prompter
        self._inventory = inventory
        self._plan = plan
        self._replan = replan
        self._base = base
        self._secrets = secrets
        self._key = AttemptKey(directory.job_id, attempt)
        self._state = JobState.PENDING
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._force = False
        self._cancelled = False
        self._stops: dict[str, str] = {}
        """Node → what it was last told: `stop` or `kill`."""
        self._broken: dict[str, str] = {}
        """Node → why it could no longer be followed."""
        self._told: dict[str, str] = {}
        self._silent: set[str] = set()
        """Nodes that were told to be silent, and not yet to be back."""
        self._nodes = self._make_nodes()

    def request_stop(self, *, force: bool) -> None:
        """Stop the job: gracefully, or at once."""
        self._force = self._force or force
        self._stopping.set()
        self._changed.set()

    async def run(self) -> None:
        """Run the attempt to its end.

        Raises:
            HostError: a host could not be reached; nothing was started.
            PreflightError: a check failed; nothing was started.
            LaunchError: the start failed and was rolled back.
            JobFailedError: it ran and failed.
            CancelledError: it was stopped on request.
        """
        try:
            self._enter(JobState.PREFLIGHT, ntold("checking {count} host", "checking {count} hosts", len(self._nodes)))
            await self._unless_stopped(self._preflight())
            self._enter(
                JobState.LAUNCHING, ntold("preparing {count} host", "preparing {count} hosts", len(self._nodes))
            )
            bound = await self._launch()
            await self._watch(bound)
        except DttuiError:
            raise
        except Exception:  # A defect of ours must not leave processes behind on the hosts.
            await self._roll_back()
            raise
        finally:
            await asyncio.gather(*(node.close() for node in self._nodes))

    def _make_nodes(self) -> list[NodeRun]:
        nodes = []
        for planned in self._plan.nodes:
            environment = self._inventory.find(planned.name)
            if environment is None:
                raise LaunchError(_("there is no environment {name}").format(name=planned.name))
            nodes.append(
                NodeRun(
                    environment,
                    planned,
                    self._key,
                    self._directory,
                    self._transport,
                    self._prompter,
                    self._changed.set,
                )
            )
        return nodes

    def _enter(self, state: JobState, message: str) -> None:
        """The one place where the job's state changes."""
        self._state = state
        self._log.add(EventKind.JOB_STATE, message, attempt=self._key.attempt, data={"state": state.value})

    async def _preflight(self) -> None:
        await self._on_all(lambda node: self._reach(node))
        read = await self._on_all(lambda node: node.read_host())
        readings = {node.name: reading for node, reading in zip(self._nodes, read, strict=True)}
        facts = {name: reading.facts for name, reading in readings.items()}
        self._plan = self._replan(self._with_addresses(), facts)
        findings = [*self._plan.findings, *check_hosts(self._plan, facts), *await self._room(readings)]
        for finding in findings:
            self._tell(finding)
        errors = [finding for finding in findings if finding.severity is Severity.ERROR]
        if errors:
            more = _(" (and {count} more)").format(count=len(errors) - 1) if len(errors) > 1 else ""
            raise PreflightError(errors[0].message + more, errors[0].hint)
        self._directory.plan.write_text(self._plan.model_dump_json(indent=2), encoding="utf-8")
        for node, planned in zip(self._nodes, self._plan.nodes, strict=True):
            node.planned = planned

    async def _room(self, readings: dict[str, HostReading]) -> list[Finding]:
        """Return who is in the way; a job that has only just ended may be in the first reading still."""
        deadline = time.monotonic() + ROOM_WAIT_S
        while True:
            found = check_room(self._plan, self._inventory, readings)
            taken = {finding.subject for finding in found if finding.severity is Severity.ERROR}
            if not taken or time.monotonic() > deadline:
                return found
            nodes = [node for node in self._nodes if node.name in taken]
            later = await asyncio.gather(*(node.read_host(readings[node.name]) for node in nodes))
            readings = {**readings, **{node.name: reading for node, reading in zip(nodes, later, strict=True)}}

    async def _reach(self, node: NodeRun) -> None:
        await node.connect()
        self._note(node, "connected", told("reached"))

    def _with_addresses(self) -> Inventory:
        """Give each environment without an address the one we reached it by: hosts may not know each other's names."""
        reached = {node.name: node.client.connection.address for node in self._nodes if node.client is not None}
        environments = tuple(
            item
            if item.address or item.name not in reached
            else item.model_copy(update={"address": reached[item.name]})
            for item in self._inventory.environments
        )
        return self._inventory.model_copy(update={"environments": environments})

    async def _launch(self) -> BoundPlan:
        try:
            return await self._unless_stopped(self._prepare_and_start())
        except CancelledError as error:
            raise CancelledError(await self._roll_back(error.message)) from error
        except (DttuiError, OSError) as error:
            message = error.message if isinstance(error, DttuiError) else str(error)
            hint = error.hint if isinstance(error, DttuiError) else ""
            raise LaunchError(await self._roll_back(message), hint) from error

    async def _prepare_and_start(self) -> BoundPlan:
        replies = await self._on_all(lambda node: node.prepare(self._plan.master_address, self._plan.port_range))
        bound = bind(self._plan, self._bindings(replies))
        for node, own, reply in zip(self._nodes, bound.plan.nodes, replies, strict=True):
            self._note(node, "prepared", told("ready"), gpu_ids=reply.gpu_ids, checkpoints=checkpoint_directory(own))
        if self._plan.upload is not None:
            files = list_upload(self._base / self._plan.upload)
            sent = sum(await self._on_all(lambda node: send(node.client, self._key, files) if node.client else _zero()))
            self._log.add(
                EventKind.PROGRESS,
                ntold(
                    "sent {count} file, {size:.1f} MB in all",
                    "sent {count} files, {size:.1f} MB in all",
                    len(files),
                    size=sent / 1e6,
                ),
                attempt=self._key.attempt,
            )
        path = self._directory.bound_plan(self._key.attempt)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(bound.model_dump_json(indent=2), encoding="utf-8")
        planned = {item.name: item for item in bound.plan.nodes}
        await self._on_all(lambda node: node.start(planned[node.name], GRACE_S, self._secrets))
        return bound

    def _bindings(self, replies: list[PrepareReply]) -> Bindings:
        port = replies[0].master_port
        if port is None:
            raise LaunchError(_("{host}: no port was reserved").format(host=self._nodes[0].name))
        return Bindings(
            job_id=self._key.job_id,
            attempt=self._key.attempt,
            master_port=port,
            nodes={
                node.name: NodeBinding(
                    directory=reply.directory,
                    payload=reply.payload,
                    python=reply.python,
                    interface=reply.interface,
                    gpu_ids=tuple(reply.gpu_ids),
                )
                for node, reply in zip(self._nodes, replies, strict=True)
            },
        )

    async def _roll_back(self, reason: str = "") -> Told:
        """Clear all nodes; return the reason with what there is to say about that."""
        self._log.add(EventKind.PROGRESS, told("rolling back"), attempt=self._key.attempt)
        cleaners = [asyncio.create_task(self._clean(node)) for node in self._nodes]
        _done, pending = await asyncio.wait(cleaners, timeout=ROLLBACK_DEADLINE_S)
        for task in pending:
            task.cancel()
        await asyncio.gather(*cleaners, return_exceptions=True)
        unclean = [node for node in self._nodes if not node.is_over or node.is_lost]
        for node in unclean:
            self._note(node, "lost", told("could not be reached; what runs there is unknown"))
        if not unclean:
            return told("{reason}; every host was rolled back", reason=reason)
        hosts = ", ".join(node.name for node in unclean)
        return told("{reason}; what runs on {hosts} is unknown", reason=reason, hosts=hosts)

    async def _clean(self, node: NodeRun) -> None:
        try:
            await node.stop(force=True)
            await node.follow()
        except HostError:
            return  # Told as lost by the caller.
        self._note(node, "ended", told("clean"))

    async def _watch(self, bound: BoundPlan) -> None:
        size = bound.plan.world_size
        self._enter(JobState.RENDEZVOUS, ntold("waiting for {count} rank", "waiting for {count} ranks", size))
        followers = [asyncio.create_task(node.follow()) for node in self._nodes]
        samplers = [asyncio.create_task(node.record_samples()) for node in self._nodes]
        for follower in followers:
            follower.add_done_callback(lambda _task: self._changed.set())
        stop_deadline: float | None = None
        try:
            while not all(follower.done() for follower in followers):
                await self._wait_for_change(stop_deadline)
                await self._give_up_broken(followers)
                self._report()
                if self._state is JobState.RENDEZVOUS and all(node.has_all_ranks for node in self._nodes):
                    self._enter(JobState.RUNNING, ntold("the rank runs", "all {count} ranks run", size))
                broken = any(node.has_failed or node.is_lost for node in self._nodes) or bool(self._broken)
                if broken or self._stopping.is_set():
                    limit_s = FORCED_STOP_DEADLINE_S if self._force else STOP_DEADLINE_S
                    stop_deadline = min(stop_deadline or math.inf, time.monotonic() + limit_s)
                    await self._stop_all()
                    if time.monotonic() > stop_deadline:
                        self._give_up_silent()
        finally:
            for task in (*followers, *samplers):
                task.cancel()
            await asyncio.gather(*followers, *samplers, return_exceptions=True)
        self._report()
        self._conclude()

    async def _wait_for_change(self, stop_deadline: float | None) -> None:
        timeout = None if stop_deadline is None else max(0.1, stop_deadline - time.monotonic())
        try:
            await asyncio.wait_for(self._changed.wait(), timeout)
        except asyncio.TimeoutError:
            return
        self._changed.clear()

    async def _stop_all(self) -> None:
        failed = next((node.name for node in self._nodes if node.has_failed or node.is_lost), None)
        if self._state is not JobState.STOPPING:
            why = told("a failure on {host} ends all", host=failed) if failed else told("stopping on request")
            self._enter(JobState.STOPPING, why)
            self._cancelled = failed is None
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
                self._note(node, "lost", told("could not be reached; what runs there is unknown"))

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
            self._note(node, "lost", reason)

    def _report(self) -> None:
        """Say what is new about each node."""
        for node in self._nodes:
            if node.is_lost:
                continue
            if node.silent_since is not None:
                seconds = node.silent_since - node.heard_at
                message = told("no word from {host} for {seconds:.0f} s", host=node.name, seconds=seconds)
                self._silent.add(node.name)
                self._note(node, "unknown", message, heard_at=node.heard_at)
            elif node.status is not None:
                if node.name in self._silent:
                    self._silent.discard(node.name)
                    self._log.add(EventKind.PROGRESS, told("{host} is back", host=node.name), attempt=self._key.attempt)
                self._note(node, _state_word(node.status), ending(node.status))
            self._report_metrics(node)

    def _report_metrics(self, node: NodeRun) -> None:
        """Warn of reports that nobody can plot: at the first, and with the whole count at the end."""
        metrics = node.metrics
        found = {}
        if metrics.broken:
            found["loss-not-finite"] = told(
                "{host} reports a loss that is no number: {line}", host=node.name, line=metrics.broken
            )
        if metrics.unreadable and (node.is_over or f"finding metrics-unreadable {node.name}" not in self._told):
            found["metrics-unreadable"] = ntold(
                "{count} line of metrics of {host} could not be read: {line}",
                "{count} lines of metrics of {host} could not be read; the first: {line}",
                metrics.unreadable,
                host=node.name,
                line=metrics.first_unreadable,
            )
        for code, message in found.items():
            self._tell(Finding(code=code, severity=Severity.WARNING, subject=node.name, message=message), message)

    def _conclude(self) -> None:
        """Raise what says how the attempt ended; return when every rank of every node ended well."""
        failures = rank_failures(self._directory, self._nodes)
        lost = [node.name for node in self._nodes if node.is_lost]
        uncleared = [item for item in failures if item.data.get("uncleared")]
        if self._cancelled and not lost and not uncleared:
            raise CancelledError(stopped_on_request(self._nodes))
        for failure in failures:
            self._log.add(
                EventKind.RANK_FAILED,
                failure.message,
                attempt=self._key.attempt,
                node=failure.node,
                rank=failure.rank,
                data=failure.data,
            )
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

    async def _on_all(self, act: Callable[[NodeRun], Awaitable[Result]]) -> list[Result]:
        """Do something on all nodes at once. When some fail, all others are awaited first and every failure is told."""
        results = await asyncio.gather(*(act(node) for node in self._nodes), return_exceptions=True)
        failed = [
            (node, item) for node, item in zip(self._nodes, results, strict=True) if isinstance(item, BaseException)
        ]
        for node, error in failed:
            if isinstance(error, DttuiError):
                self._note(node, "failed", error.message)
        if failed:
            raise failed[0][1]
        return [item for item in results if not isinstance(item, BaseException)]

    async def _unless_stopped(self, work: Awaitable[Result]) -> Result:
        """Await the work, or give it up when a stop is asked for meanwhile."""
        task = asyncio.ensure_future(work)
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise CancelledError(told("stopped on request before the job ran"))
        finally:
            stop.cancel()

    def _note(self, node: NodeRun, state: str, message: str, **data: object) -> None:
        if self._told.get(node.name) != f"{state} {message}":
            self._told[node.name] = f"{state} {message}"
            self._log.add(EventKind.NODE_STATE, message, attempt=self._key.attempt, node=node.name,
                          data={"state": state, **data})  # fmt: skip

    def _tell(self, finding: Finding, message: str = "") -> None:
        name = f"finding {finding.code} {finding.subject}"
        if self._told.get(name) != finding.message:
            self._told[name] = finding.message
            data = {
                "code": finding.code,
                "severity": finding.severity.value,
                "subject": finding.subject,
                "hint": finding.hint,
                **(finding.place.model_dump(exclude={"source_line"}) if finding.place is not None else {}),
            }
            self._log.add(EventKind.FINDING, message or finding.message, attempt=self._key.attempt, data=data)


def _state_word(status: NodeStatus) -> str:
    """Return what a person is told of a node: of the ends, whether it was a failure or our own stop."""
    if status.state is NodeState.ENDED and status.reason == "stopped":
        return "stopped"
    if status.state is NodeState.ENDED and any(item.exit_code != 0 for item in status.exits):
        return "failed"
    return status.state.value


async def _zero() -> int:
    return 0
