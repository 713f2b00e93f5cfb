"""Ends what earlier attempts have left on hosts that were lost, and fetches its logs, at the first contact.

That is beside later attempts; once the job is over, it is for `leftovers`.
"""

from __future__ import annotations

import asyncio
import contextlib

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import EventKind, NodeStanding

from dttui.engine.attempt_log import AttemptLog
from dttui.engine.context import JobContext
from dttui.engine.copies.metric_copy import read_metrics
from dttui.engine.failures import last_words
from dttui.engine.leftovers import end_leftovers
from dttui.engine.nodes.node_record import Shared
from dttui.engine.nodes.node_run import MOST_RECONNECT_S, PERSON_RETRY_S, RECONNECT_S, NodeRun
from dttui.errors import REFUSALS, HostError
from dttui.i18n import msg
from dttui.planning.models import Plan
from dttui.transport.deadline import within


class LostHosts:
    """Hosts on which something of an earlier attempt may still run: each is tried until it answers, and cleared.

    Args:
        job: whose attempts they are.
    """

    def __init__(self, job: JobContext) -> None:
        self._job = job
        self._clearing: dict[tuple[int, str], asyncio.Task[None]] = {}
        self._retry = asyncio.Event()
        self.changed = asyncio.Event()
        """Set when a host is clear."""

    def add(self, attempt: int, name: str, plan: Plan) -> None:
        """Watch for a host on which something of an attempt may still run.

        Args:
            attempt: its number.
            name: of the environment.
            plan: of that attempt.
        """
        planned = next((node for node in plan.nodes if node.name == name), None)
        environment = self._job.inventory.find(name)
        if planned is None or environment is None or (attempt, name) in self._clearing:
            return
        key = AttemptKey(self._job.directory.job_id, attempt)
        job = self._job
        node = NodeRun(
            environment,
            planned,
            key,
            job.directory,
            job.transport,
            job.prompter,
            lambda: None,
            Shared.of(plan, job.log.backlog),
        )
        self._clearing[attempt, name] = asyncio.create_task(self._clear(node))

    @property
    def open(self) -> tuple[str, ...]:
        """The hosts that are not known to be clear."""
        return tuple(dict.fromkeys(name for (_attempt, name), task in self._clearing.items() if not task.done()))

    def retry_now(self) -> None:
        """Try at once to reach them."""
        self._retry.set()
        self._retry = asyncio.Event()

    async def close(self) -> None:
        """Watch no more."""
        for task in self._clearing.values():
            task.cancel()
        await asyncio.gather(*self._clearing.values(), return_exceptions=True)

    async def _clear(self, node: NodeRun) -> None:
        """Try to reach the host until nothing of the attempt is left there, and tell that."""
        log, forced = AttemptLog(self._job.log, node.key.attempt), asyncio.Event()
        pause_s, directory = RECONNECT_S, self._job.directory
        # What was kept of it is not taken again.
        node.record.resume(await asyncio.to_thread(read_metrics, directory, node.key.attempt, is_written=True))
        try:
            while True:
                retry = self._retry
                try:
                    await node.connect()  # Else what follows would try a host that is off twice a second.
                    state, message = await end_leftovers(node, log, forced)
                    if state is not NodeStanding.LOST:
                        break
                except HostError as error:
                    pause_s = max(pause_s, PERSON_RETRY_S) if isinstance(error, REFUSALS) else pause_s
                await node.drop_link()
                with contextlib.suppress(asyncio.TimeoutError):
                    await within(retry.wait(), pause_s)
                pause_s = min(2 * pause_s, MOST_RECONNECT_S)
        finally:
            await node.close()
        data = {"state": state.value, **last_words(node)}
        attempt = node.key.attempt
        self._job.log.add(EventKind.NODE_STATE, message, attempt=attempt, node=node.name, data=data)
        log.progress(msg("nothing of attempt {number} is left on {host}", number=attempt, host=node.name))
        asyncio.get_running_loop().call_soon(self.changed.set)  # Once this task is done.
