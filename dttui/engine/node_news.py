"""Tells what is new about the nodes of an attempt: how each stands, who is silent or back, and what else there is."""

from __future__ import annotations

from collections.abc import Iterable

from dtagent.protocol.events import Event, EventKind, NodeStanding
from dtagent.protocol.jobs import EndReason, NodeState, NodeStatus

from dttui.engine.attempt_log import AttemptLog
from dttui.engine.failures import ending, last_words
from dttui.engine.nodes.node_run import NodeRun, disk_words
from dttui.engine.nodes.node_warnings import NodeWarnings, log_rest
from dttui.i18n import msg
from dttui.spec.findings import warning
from dttui.timestamps import elapsed_s

_SILENT = (NodeStanding.UNKNOWN, NodeStanding.AGENT_GONE)


class NodeNews:
    """Tells only what was not told before.

    Args:
        job_id: of the job.
        log: of the attempt.
        told: what another controller has told of the attempt.
    """

    def __init__(self, job_id: str, log: AttemptLog, told: Iterable[Event] = ()) -> None:
        self._job_id = job_id
        self._log = log
        self._warnings = NodeWarnings(log)
        states = {event.node: event.data.get("state") for event in told if event.kind is EventKind.NODE_STATE}
        self._silent = {name for name, state in states.items() if name is not None and state in _SILENT}
        """Nodes that were told to be silent, and not yet to be back."""

    def tell(self, node: NodeRun) -> None:
        """Tell what is new about a node."""
        if node.silent_since is not None:
            seconds = elapsed_s(node.heard_at, node.silent_since)
            message = msg("no word from {host} for {seconds:.0f} s", host=node.name, seconds=seconds)
            if node.needs_person is not None:
                message = msg(
                    "{why}. `dttui attach {job}` lets you answer, and brings the keys of your ssh-agent",
                    why=node.needs_person.message,
                    job=self._job_id,
                )
            standing = NodeStanding.UNKNOWN
            if node.agent_gone is not None:
                standing = NodeStanding.AGENT_GONE
                message = msg(
                    "{why}; what runs there goes on, and nobody sees it. `dttui agents deploy {host}` brings the "
                    "agent back",
                    why=node.agent_gone.message,
                    host=node.name,
                )
            self._silent.add(node.name)
            self._log.note(node.name, standing, message, heard_at=node.heard_at)
        elif node.status is not None:
            if node.name in self._silent:
                self._silent.discard(node.name)
                self._log.news(node.name, msg("{host} is back", host=node.name))
            self._log.note(
                node.name, _standing(node.status), ending(node.status, node.told_to_end_at), **last_words(node)
            )
        if node.disk_trouble is not None:
            message = msg("what comes from {host} cannot be kept here: {reason}; it is fetched again",
                           host=node.name, reason=disk_words(node.disk_trouble))  # fmt: skip
            self._log.tell(warning("copy-behind", node.name, message))
        self._warnings.tell(node)
        if node.is_cut_short:
            self._log.tell(log_rest(self._job_id, node))


def _standing(status: NodeStatus) -> NodeStanding:
    """Return what a person is told of a node: of the ends, whether it was a failure or our own stop."""
    if status.state is NodeState.ENDED and status.end_reason is EndReason.STOPPED:
        return NodeStanding.STOPPED
    if status.state is NodeState.ENDED and any(item.exit_code != 0 for item in status.exits):
        return NodeStanding.FAILED
    return NodeStanding(status.state.value)
