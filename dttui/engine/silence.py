"""For how long the nodes of a job that may be started again may be silent until they are given up as lost."""

from __future__ import annotations

from collections.abc import Sequence

from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.witness import Witness
from dttui.frameworks import traits_of
from dttui.frameworks.traits import GroupForming
from dttui.planning.models import Plan
from dttui.timestamps import elapsed_s


class SilenceLimit:
    """Says when a silent node is waited for no more.

    Args:
        nodes: of the attempt, in order of rank.
        plan: of the attempt.
        witness: tells whether it is this machine that is cut off, where the job has one host alone.
    """

    def __init__(self, nodes: Sequence[NodeRun], plan: Plan, witness: Witness | None) -> None:
        self._nodes = nodes
        self._plan = plan
        self._witness = witness

    def left_s(self, node: NodeRun, *, is_ending: bool) -> float | None:
        """Return for how long a silent node is waited for; `None` of one that is waited for as in any job.

        A job that may be started again does not wait for ever, unless it is this machine that nobody answers, or ranks
        that can only train together make steps.

        Args:
            node: it.
            is_ending: whether all nodes are told to end, so that steps say nothing any more.
        """
        recovery = self._plan.recovery
        if not recovery.may_restart or (self._plan.min_nodes is not None and node is not self._nodes[0]):
            return None  # Without any but the rendezvous' host an elastic job goes on by itself.
        if node.is_over or node.silent_since is None or node.agent_gone or node.needs_person:
            return None
        if all(other.silent_since is not None for other in self._nodes) and not self._is_seen_by_another(node):
            return recovery.heartbeat_s if len(self._nodes) == 1 else None
        shows_life = self._trains_together and not is_ending
        since = max(node.silent_since, node.shared.steps.made_at if shows_life else 0.0)
        return recovery.heartbeat_s - elapsed_s(since)

    async def close(self) -> None:
        """Ask nobody any more."""
        if self._witness is not None:
            await self._witness.close()

    def _is_seen_by_another(self, node: NodeRun) -> bool:
        """Whether this machine has reached a spare since its job's only host fell silent; if not, it is asked."""
        if self._witness is None or len(self._nodes) > 1 or node.silent_since is None:
            return False
        if self._witness.seen_at <= node.silent_since:
            self._witness.look()
        return self._witness.seen_at > node.silent_since

    @property
    def _trains_together(self) -> bool:
        """Whether no rank can make a step without all others, as far as that is known beforehand."""
        if self._plan.require_process_group != "auto":
            return self._plan.require_process_group is True
        return traits_of(self._plan.framework).process_group.forming is GroupForming.EXPECTED
