"""One attempt of a job across all its nodes: all of them start or none, and the first failure ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from dtagent.protocol.events import EventKind, JobState, NodeStanding
from dtagent.protocol.jobs import AttemptKey

from dttui.engine.alerts.matching import AlertWatch
from dttui.engine.alerts.metric_watch import MetricWatch
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.copies.copy_cap import CopyCap
from dttui.engine.nodes.node_record import Shared
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.start import GangStart, not_written
from dttui.engine.warm import ask_warm
from dttui.engine.watch import GangWatch
from dttui.errors import CancelledError, DttuiError, LaunchError
from dttui.files import write_atomic
from dttui.i18n import _, msg, nmsg
from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.board import Cell, Check, cells_to_data
from dttui.jobs.event_log import EventLog
from dttui.planning.models import Plan, PlannedNode
from dttui.preflight.run import Preflight, Replan
from dttui.rpc.client import AgentClient
from dttui.transport.base import Prompter, Transport

Result = TypeVar("Result")
LEAST_LOG_SHARE = 0.03
"""Of a core, what the logs of one of many nodes may take."""


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
        replan: Replan,
        base: Path,
        secrets: dict[str, str],
        attempt: int = 0,
        ignored: frozenset[str] = frozenset(),
        alerts: AlertWatch | None = None,
    ) -> None:
        self._alerts = alerts or AlertWatch()
        self._alerts.attempt = attempt
        self._ignored = ignored
        self._directory = directory
        self._inventory = inventory
        self._plan = plan
        self._replan = replan
        self._base = base
        self._secrets = secrets
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._tried_port: int | None = None
        """Where the preflight saw the nodes reach the master."""
        key = AttemptKey(directory.job_id, attempt)
        self._nodes = make_nodes(
            plan, inventory, key, directory, transport, prompter, self._changed.set, self._alerts, log
        )
        self._events = AttemptLog(log, attempt)
        self._warming: list[asyncio.Task[None]] = []
        self._watch = GangWatch(directory, self._events, self._nodes, self._changed, secrets.values())

    def request_stop(self, *, force: bool) -> None:
        """Stop the job: gracefully, or at once."""
        self._stopping.set()
        self._watch.request_stop(force=force)

    async def run(self) -> str:
        """Run the attempt to its end; return what there is to say of a good one, empty where that is nothing.

        Raises:
            HostError: a host could not be reached; nothing was started.
            PreflightError: a check failed; nothing was started.
            LaunchError: the start failed and was rolled back.
            JobFailedError: it ran and failed.
            CancelledError: it was stopped on request.
        """
        try:
            self._events.enter(
                JobState.PREFLIGHT, nmsg("checking {count} host", "checking {count} hosts", len(self._nodes))
            )
            await self._unless_stopped(self._preflight())
            self._events.enter(
                JobState.LAUNCHING, nmsg("preparing {count} host", "preparing {count} hosts", len(self._nodes))
            )
            start = GangStart(
                self._directory,
                self._events,
                self._nodes,
                self._plan,
                self._base,
                self._secrets,
                self._tried_port,
            )
            try:
                return await self._watch.run(await start.run(self._unless_stopped))
            except DttuiError:
                raise
            except Exception:  # A defect of ours must not leave processes behind on the hosts.
                await start.roll_back()
                raise
        finally:
            for task in self._warming:
                task.cancel()
            await asyncio.gather(*self._warming, return_exceptions=True)
            await asyncio.gather(*(node.close() for node in self._nodes))

    def retry_now(self) -> None:
        """Try at once to reach the hosts that are silent: somebody came who may answer for us."""
        for node in self._nodes:
            node.retry_now()

    async def _preflight(self) -> None:
        preflight = Preflight(
            self._nodes,
            self._plan,
            self._inventory,
            self._replan,
            ignored=self._ignored,
            on_change=self._show_checks,
        )
        board = await preflight.run()
        for node in self._nodes:
            if node.name in board.unreachable:
                self._events.note(node.name, NodeStanding.FAILED, board.unreachable[node.name].message)
        for finding in board.findings:
            self._events.tell(finding)
        board.raise_errors()
        self._tried_port = preflight.master_port
        self._plan = board.plan or self._plan
        try:
            write_atomic(self._directory.plan, self._plan.model_dump_json(indent=2))
        except OSError as error:
            raise not_written(self._directory.plan, error) from error
        for node, planned in zip(self._nodes, self._plan.nodes, strict=True):
            node.planned = planned
            node.shared.world_size = self._plan.world_size

    def _show_checks(self, name: str, cells: Mapping[Check, Cell]) -> None:
        node = next(node for node in self._nodes if node.name == name)
        if Check.CLOCK in cells and node.client is not None:  # Of a host out of reach the clock is told as unknown.
            self._events.note(node.name, NodeStanding.CONNECTED, msg("reached"), clock_offset_s=node.clock_offset_s)
        if Check.REACH in cells and node.client is not None:
            self._warming.append(asyncio.create_task(self._warm(node.client, node.planned)))
        data = {"cells": cells_to_data(cells)}
        self._events.add(EventKind.PREFLIGHT, "", node=name, data=data)

    async def _warm(self, client: AgentClient, planned: PlannedNode) -> None:
        if message := await ask_warm(client, planned):
            self._events.progress(message)

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
            raise CancelledError(msg("stopped on request before the job ran"))
        finally:
            stop.cancel()


def make_nodes(
    plan: Plan,
    inventory: Inventory,
    key: AttemptKey,
    directory: JobDirectory,
    transport: Transport,
    prompter: Prompter,
    on_change: Callable[[], None],
    alerts: AlertWatch,
    log: EventLog,
) -> list[NodeRun]:
    """Return the nodes of an attempt, in order of rank. Raises LaunchError where the inventory lacks one."""
    nodes = []
    cap, is_elastic = CopyCap(plan.log_cap_bytes), plan.min_nodes is not None
    shared = Shared(MetricWatch(), alerts, cap, log.backlog, plan.slots, is_elastic, log.redaction)
    shared.requires_group = plan.require_process_group is True and plan.world_size > 1
    shared.log_share = max(LEAST_LOG_SHARE, shared.log_share / max(1, len(plan.nodes)))
    for planned in plan.nodes:
        environment = inventory.find(planned.name)
        if environment is None:
            raise LaunchError(_("there is no environment {name}").format(name=planned.name))
        node = NodeRun(environment, planned, key, directory, transport, prompter, on_change, shared=shared)
        nodes.append(node)
    return nodes
