"""Ending a job whose controller has died: its newest attempt is stopped on every host, and nothing is started."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import NoReturn

from dtagent.protocol.events import EventKind, JobState
from dtagent.protocol.jobs import AttemptKey, NodeState

from dttui.errors import CancelledError, HostError, HostUnreachableError, JobFailedError, UsageError
from dttui.i18n import _, told
from dttui.inventory.models import Inventory
from dttui.planning.models import BoundPlan, Plan
from dttui.services.jobs import EventLog, JobDirectory
from dttui.services.node_run import METRICS_STREAM, RECONNECT_S, NodeRun
from dttui.services.outcome import ending, stopped_on_request
from dttui.transport.base import Prompter, Transport

STOP_DEADLINE_S = 45.0
"""How long the hosts have to end their part gracefully."""
KILL_DEADLINE_S = 15.0
"""How long they have once it is forced."""


class Orphan:
    """What a controller that died has left on the hosts."""

    def __init__(
        self, directory: JobDirectory, log: EventLog, transport: Transport, prompter: Prompter, inventory: Inventory
    ) -> None:
        self._directory = directory
        self._log = log
        self._transport = transport
        self._prompter = prompter
        self._inventory = inventory
        self._attempt = _newest_attempt(directory)
        self._forced = asyncio.Event()

    def request_stop(self, force: bool) -> None:
        """Kill at once what is being stopped, where `force` is set."""
        if force:
            self._forced.set()

    async def end(self) -> NoReturn:
        """Stop every host's part.

        Raises:
            CancelledError: nothing is left.
            JobFailedError: something may be, on the hosts that it names.
        """
        self._log.add(
            EventKind.JOB_STATE,
            told("the controller had died; stopping what it left"),
            attempt=self._attempt,
            data={"state": JobState.STOPPING.value},
        )
        nodes = self._make_nodes()
        try:
            unclean = [name for name in await asyncio.gather(*(self._end(node) for node in nodes)) if name]
        finally:
            await asyncio.gather(*(node.close() for node in nodes))
        if unclean:
            raise JobFailedError(
                told("stopped on request; what runs on {hosts} is unknown", hosts=", ".join(unclean)),
                told("Look at the host when it is back."),
            )
        raise CancelledError(stopped_on_request(nodes))

    def _make_nodes(self) -> list[NodeRun]:
        nodes = []
        for planned in _read_plan(self._directory, self._attempt).nodes:
            environment = self._inventory.find(planned.name)
            if environment is None:
                raise UsageError(_("there is no environment {name}").format(name=planned.name))
            key = AttemptKey(self._directory.job_id, self._attempt)
            logs = self._directory.logs(self._attempt, planned.name)
            # Logs go on where the dead controller left them. How many metrics it had read is written nowhere: the
            # rest of them is passed over, rather than all told twice.
            offsets = {path.name: path.stat().st_size for path in logs.glob("*")} | {METRICS_STREAM: sys.maxsize}
            nodes.append(
                NodeRun(
                    environment,
                    planned,
                    key,
                    self._directory,
                    self._transport,
                    self._prompter,
                    lambda: None,
                    _offsets=offsets,
                )
            )
        return nodes

    async def _end(self, node: NodeRun) -> str:
        """End one node's part; return its name where something may be left there."""
        graceful = asyncio.create_task(self._stop(node, force=False))
        forced = asyncio.create_task(self._forced.wait())
        try:
            await asyncio.wait({graceful, forced}, timeout=STOP_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
            if not graceful.done():
                graceful.cancel()
                await asyncio.gather(graceful, return_exceptions=True)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._stop(node, force=True), KILL_DEADLINE_S)
            else:
                graceful.result()
        except HostError as error:
            self._note(node, "lost", error.message)
            return node.name
        finally:
            forced.cancel()
        status = node.status
        is_over = status is not None and status.state.is_final
        if status is None or not is_over or status.state is NodeState.UNKILLABLE or status.leftovers:
            unknown = told("could not be reached; what runs there is unknown")
            self._note(node, "lost", (status.reason if status is not None and is_over else "") or unknown)
            return node.name
        self._note(node, "discarded" if status.state is NodeState.DISCARDED else "stopped", ending(status))
        return ""

    async def _stop(self, node: NodeRun, *, force: bool) -> None:
        """Tell a node to end until it hears it; follow it to its end. Raises HostError where asking again is no use."""
        while True:
            try:
                await node.stop(force=force)
                break
            except HostUnreachableError:
                if node.client is not None:
                    client, node.client = node.client, None
                    await client.close()
                await asyncio.sleep(RECONNECT_S)
        await node.follow()

    def _note(self, node: NodeRun, state: str, message: str) -> None:
        self._log.add(EventKind.NODE_STATE, message, attempt=self._attempt, node=node.name, data={"state": state})


def _newest_attempt(directory: JobDirectory) -> int:
    told = [event.attempt for event in directory.read_events() if event.attempt is not None]
    bound = [int(path.name) for path in (directory.path / "attempts").glob("*") if path.name.isdigit()]
    return max(told + bound, default=0)


def _read_plan(directory: JobDirectory, attempt: int) -> Plan:
    """Return the plan of an attempt; the job's where the controller died before it was bound."""
    with contextlib.suppress(FileNotFoundError):
        return BoundPlan.model_validate_json(directory.bound_plan(attempt).read_bytes()).plan
    return Plan.model_validate_json(directory.plan.read_bytes())
