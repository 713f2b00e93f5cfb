"""The rows of a job's nodes, each made anew only where something of its node is another and it can be seen. Pure."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from dttui.tui.rows import failure_words, node_row
from dttui.tui.widgets.node_row import NodeRow

if TYPE_CHECKING:
    from dtagent.protocol.telemetry import HostSample

    from dttui.jobs import JobView, NodeView


class NodeRows:
    """Keeps the newest rows, with what each was made of."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[HostSample | None, object, NodeRow]] = {}
        """Node → its reading then, the rest of what the row was made of, and the row."""

    def of(self, view: JobView, shown: Container[int], *, is_over: bool, now: float) -> tuple[NodeRow, ...]:
        """Return the rows of a job as it is at Unix time `now`, in order of rank.

        Args:
            view: of the job.
            shown: places of the rows that can be seen: in the others, readings may be old.
            is_over: whether the job is.
            now: Unix time.
        """
        failed = failure_words(view.failures)
        first = view.failures[0].node if view.failures else ""
        made: dict[str, tuple[HostSample | None, object, NodeRow]] = {}
        for place, (name, node) in enumerate(view.nodes.items()):
            ranks = failed.get(name, {})
            late = view.late_rank if view.late_rank in node.ranks else None
            rest = {**vars(node), "sample": node.sample is None}, ranks, first, late, is_over, _moment(node, now)
            before = self._made.get(name)
            if before is not None and before[1] == rest and (before[0] is node.sample or place not in shown):
                made[name] = before
            else:
                row = node_row(node, view.job_id, ranks, is_over=is_over, now=now, late_rank=late, first_failed=first)
                made[name] = node.sample, rest, row
        self._made = made
        return tuple(row for _sample, _rest, row in made.values())


def _moment(node: NodeView, now: float) -> int | None:
    """Return the second that it is, where a row tells for how long something has been so."""
    return None if node.heard_at is None and node.unhealthy_since is None else int(now)
