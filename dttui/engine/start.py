"""Starting one attempt on all its nodes in two phases: every node prepared, then every node started, or none left."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import secrets
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from dtagent.protocol.events import NodeStanding
from dtagent.protocol.preparation import PrepareReply

from dttui.agent_words import agent_text
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.context import HostUse
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.nodes.node_start import NodeStart
from dttui.engine.nodes.start_requests import StartRequests
from dttui.errors import AgentError, CancelledError, DttuiError, HostError, LaunchError
from dttui.files import write_atomic
from dttui.i18n import Message, _, msg, nmsg
from dttui.jobs import JobDirectory
from dttui.planning.binding import bind, checkpoint_directory
from dttui.planning.models import Bindings, BoundPlan, NodeBinding, Plan
from dttui.planning.resumption import Resume
from dttui.spec.findings import warning
from dttui.words import listed, size_text
from dttui.workdir.selection import survey
from dttui.workdir.upload import Bundle, make_bundle

MOST_NAMES = 3
"""Hosts that a message names."""
GRACE_S = 15.0
ROLLBACK_DEADLINE_S = 30.0
FAILURE_GRACE_S = 5.0
"""How long the other nodes may still answer once one has failed, so that all failures are told together."""
PROGRESS_S = 1.0
RENDEZVOUS_KEY_BYTES = 32

Result = TypeVar("Result")


class GangStart:
    """Takes all nodes of an attempt from connected to started; any failure takes all of them back.

    Args:
        directory: of the job.
        log: of the attempt.
        nodes: in order of rank, connected.
        plan: what to run on them.
        base: what the plan's `upload` is relative to.
        secrets: environment variables of the processes that are written nowhere.
        tried_port: where the preflight saw the nodes reach the master; the rendezvous will be there if it is free.
        resume: what its ranks go on from.
        use: what hosts are told of the job.
    """

    def __init__(
        self,
        directory: JobDirectory,
        log: AttemptLog,
        nodes: Sequence[NodeRun],
        plan: Plan,
        base: Path,
        secrets: dict[str, str],
        tried_port: int | None = None,
        resume: Resume | None = None,
        use: HostUse = HostUse(),  # noqa: B008 - it never changes
    ) -> None:
        self._directory = directory
        self._log = log
        self._nodes = [NodeStart(node) for node in nodes]
        self._plan = plan
        self._base = base
        self._secrets = secrets
        self.tried_port = tried_port
        self._resume = resume
        self._use = use
        self._progress = _Progress([node.name for node in nodes])

    async def run(self, unless_stopped: Callable[[Awaitable[BoundPlan]], Awaitable[BoundPlan]]) -> BoundPlan:
        """Start everywhere; return what runs.

        Args:
            unless_stopped: awaits what it is given, or gives it up when a stop is asked for.

        Raises:
            LaunchError: it failed and was rolled back; the message says why, and what is not known to be clean.
            CancelledError: so it was stopped.
        """
        try:
            return await unless_stopped(self._prepare_and_start())
        except CancelledError as error:
            raise CancelledError(await self.roll_back(error.message)) from error
        except (DttuiError, OSError) as fault:
            known = not_written(self._directory.path, fault) if isinstance(fault, OSError) else fault
            raise LaunchError(await self.roll_back(known.message), known.hint) from fault

    async def roll_back(self, reason: str = "") -> Message:
        """Clear all nodes; return the reason with what there is to say about that."""
        self._log.progress(msg("rolling back"))
        cleaners = [asyncio.create_task(self._clean(start.node)) for start in self._nodes]
        _done, pending = await asyncio.wait(cleaners, timeout=ROLLBACK_DEADLINE_S)
        for task in pending:
            task.cancel()
        refusals = await asyncio.gather(*cleaners, return_exceptions=True)
        unclean = []
        for start, refusal in zip(self._nodes, refusals, strict=True):
            node = start.node
            if node.is_clean:
                continue
            unclean.append(node)
            why: str = msg("could not be reached; what runs there is unknown")
            if node.status is not None and node.status.state.is_final and node.status.reason:
                why = agent_text(node.status.reason, node.status.reason_notice)
            elif refusal and isinstance(refusal, str):
                why = msg("{reason}; what runs there is unknown", reason=refusal)
            self._log.note(node.name, NodeStanding.LOST, why)
        if not unclean:
            return msg("{reason}; every host was rolled back", reason=reason)
        hosts = ", ".join(node.name for node in unclean)
        return msg("{reason}; what runs on {hosts} is unknown", reason=reason, hosts=hosts)

    async def _clean(self, node: NodeRun) -> str:
        """Have a node end its part; return why it refuses to, for the caller to tell."""
        try:
            await node.end(force=True)
        except HostError as error:
            return error.message if isinstance(error, AgentError) else ""
        if node.is_clean:
            self._log.note(node.name, NodeStanding.ENDED, msg("clean"))
        return ""

    async def _prepare_and_start(self) -> BoundPlan:
        bundle = await self.make_bundle()
        holders = [asyncio.create_task(node.hold()) for node in self._nodes]
        ticker = asyncio.create_task(self._tell_progress())
        try:
            replies = await on_all(self._nodes, self._log, lambda node: self._make_ready(node, bundle))
            bound = await asyncio.to_thread(bind, self._plan, self._bindings(replies))
            for node, own, reply in zip(self._nodes, bound.plan.nodes, replies, strict=True):
                paths = checkpoint_directory(own)
                self._log.note(node.name, NodeStanding.PREPARED, msg("ready"), gpu_ids=reply.gpu_ids, checkpoints=paths)
            if bundle is not None:
                self._tell_sent(bundle)
            self._tell_old_agents()
            write_atomic(self._directory.bound_plan(self._log.attempt), bound.model_dump_json(indent=2))
        finally:
            for task in (*holders, ticker):
                task.cancel()
            await asyncio.gather(*holders, ticker, return_exceptions=True)
        nodes, cap = bound.plan.nodes, bound.plan.log_cap_bytes
        # Of this attempt alone, and known here only for as long as it takes to start it.
        key = secrets.token_hex(RENDEZVOUS_KEY_BYTES) if bound.plan.min_nodes is not None else ""
        attempt = self._nodes[0].node.key
        fence_s = bound.plan.recovery.self_fence_s
        health = bound.plan.health
        requests = await asyncio.to_thread(
            StartRequests, attempt, nodes, GRACE_S, self._secrets, cap, key, fence_s, health, bound.plan.metric_patterns
        )
        await on_all(self._nodes, self._log, lambda node: node.start(requests))
        return bound

    async def make_bundle(self) -> Bundle | None:
        """Return what is sent to each host; `None` where nothing is."""
        if self._plan.upload is None:
            return None
        upload = self._base / self._plan.upload
        bundle = await asyncio.to_thread(lambda: make_bundle(survey(upload).files))
        write_atomic(self._directory.files(self._log.attempt), bundle.text)
        return bundle

    async def _make_ready(self, node: NodeStart, bundle: Bundle | None) -> PrepareReply:
        reply = await node.prepare(self._plan.master_address, self._plan.port_range, self.tried_port, self._use)
        if bundle is not None:
            sent = await node.send(bundle, lambda sent, left: self._progress.sent(node.name, sent, left))
            self._progress.sent(node.name, sent, 0)
        self._progress.ready(node.name)
        return reply

    async def _tell_progress(self) -> None:
        before = ""
        while True:
            await asyncio.sleep(PROGRESS_S)
            message = self._progress.message()
            if message and message != before:
                before = message
                self._log.progress(message, **self._progress.data())

    def _tell_old_agents(self) -> None:
        """Tell on which hosts nobody will look at what the job wants to have watched."""
        for start in self._nodes:
            hint = msg("Upgrade it: dttui agents deploy {host}", host=start.name)
            if self._plan.health is not None and not start.checks_health:
                message = msg("{host}: its agent is too old for monitoring.health: it never runs the command",
                               host=start.name)  # fmt: skip
                self._log.tell(warning("health-old-agent", start.name, message, hint))
            if self._plan.metric_patterns and not start.searches_metrics:
                message = msg("{host}: its agent is too old for the expressions in monitoring.metrics",
                               host=start.name)  # fmt: skip
                self._log.tell(warning("metrics-old-agent", start.name, message, hint))
            if self._plan.recovery.straggler_s is not None and not start.tells_call_times:
                message = msg("{host}: its agent is too old for recovery.straggler_s, which looks at its GPUs and the "
                              "steps of its ranks alone", host=start.name)  # fmt: skip
                self._log.tell(warning("straggler-old-agent", start.name, message, hint))
            if self._use.keeps and not start.keeps_directories:
                message = msg("{host}: its agent is too old for --keep: what the job leaves there may go after 7 days",
                               host=start.name)  # fmt: skip
                self._log.tell(warning("keep-old-agent", start.name, message, hint))

    def _tell_sent(self, bundle: Bundle) -> None:
        data = self._progress.data()
        sent = int(data["sent_bytes"])
        if sent:
            message = nmsg(
                "{count} file for the job; sent {size} to {hosts} of {all} hosts",
                "{count} files for the job; sent {size} to {hosts} of {all} hosts",
                bundle.count,
                size=size_text(sent),
                hosts=self._progress.receivers,
                all=len(self._nodes),
            )
        else:
            message = nmsg(
                "{count} file for the job; the hosts had its content already",
                "{count} files for the job; the hosts had all their content already",
                bundle.count,
            )
        self._log.progress(message, **data, files=bundle.count, file_bytes=bundle.size)

    def _bindings(self, replies: Sequence[PrepareReply]) -> Bindings:
        port = replies[0].master_port
        if port is None:
            raise LaunchError(_("{host}: no port was reserved").format(host=self._nodes[0].name))
        if self.tried_port not in (None, port):
            message = _("{host}: port {tried} was taken since the preflight; {port} is used, and was not tried")
            message = message.format(host=self._nodes[0].name, tried=self.tried_port, port=port)
            self._log.tell(warning("port-not-tried", self._nodes[0].name, message))
        return Bindings(
            job_id=self._directory.job_id,
            attempt=self._log.attempt,
            master_port=port,
            resume=self._resume,
            nodes={
                node.name: NodeBinding(
                    directory=reply.directory,
                    payload=reply.payload,
                    python=reply.python,
                    interface=reply.interface,
                    gpu_ids=tuple(reply.gpu_ids),
                    port=reply.master_port,
                    user_ids=reply.user_ids,
                )
                for node, reply in zip(self._nodes, replies, strict=True)
            },
        )


class _Progress:
    """How far the nodes are that are being made ready."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._ready: set[str] = set()
        self._sent: dict[str, int] = {}
        self._left: dict[str, int] = {}

    def ready(self, name: str) -> None:
        self._ready.add(name)

    def sent(self, name: str, sent: int, left: int) -> None:
        self._sent[name], self._left[name] = sent, left

    @property
    def receivers(self) -> int:
        """Nodes that something was sent to."""
        return sum(1 for sent in self._sent.values() if sent)

    def data(self) -> dict[str, int]:
        sent = sum(self._sent.values())
        return {
            "sent_bytes": sent,
            "total_bytes": sent + sum(self._left.values()),
            "ready_nodes": len(self._ready),
            "nodes": len(self._names),
        }

    def message(self) -> str:
        data = self.data()
        waiting = [name for name in self._names if name not in self._ready]
        if not waiting:
            return ""
        if not data["total_bytes"]:
            return msg(
                "{ready} of {count} hosts are ready; waiting for {hosts}",
                ready=data["ready_nodes"],
                count=data["nodes"],
                hosts=listed(waiting, MOST_NAMES),
            )
        return msg(
            "sent {sent:.1f} of {total:.1f} MB; {ready} of {count} hosts are ready",
            sent=data["sent_bytes"] / 1e6,
            total=data["total_bytes"] / 1e6,
            ready=data["ready_nodes"],
            count=data["nodes"],
        )


def not_written(path: Path, error: OSError) -> LaunchError:
    """Return what tells that a file without which nothing may be started cannot be had on this login node."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
    hint = msg("Make room on this login node, and launch again.") if is_full else ""
    return LaunchError(
        msg("{path}: {reason}", path=str(error.filename or path), reason=error.strerror or str(error)), hint
    )


async def on_all(
    nodes: Sequence[NodeStart], log: AttemptLog, act: Callable[[NodeStart], Awaitable[Result]]
) -> list[Result]:
    """Do something on all nodes at once, each with deadlines of its own; return the results in order.

    When one fails, the others have a moment to answer too: every failure is told, and the first one raised.
    """
    tasks = [asyncio.ensure_future(act(node)) for node in nodes]
    try:
        _done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if pending:
            await asyncio.wait(pending, timeout=FAILURE_GRACE_S)
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
    failures = []
    for node, task in zip(nodes, tasks, strict=True):
        if task.cancelled():
            log.note(node.name, NodeStanding.WAITING, msg("has not answered yet; another host failed"))
            continue
        error = task.exception()
        if isinstance(error, DttuiError):
            log.note(node.name, NodeStanding.FAILED, error.message)
        if error is not None:
            failures.append(error)
    if failures:
        raise failures[0]
    return [task.result() for task in tasks]
