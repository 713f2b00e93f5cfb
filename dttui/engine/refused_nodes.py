"""Which nodes a preflight refuses, so that another attempt had better do without them. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from dttui.jobs.board import Board
from dttui.jobs.outcome import TAKEN, UNFIT, UNREACHABLE

_GPUS_TAKEN = "gpus-taken"


@dataclass(frozen=True)
class NodeRefusal:
    """Why nothing can be started on a node."""

    why: str
    """Code, as an outcome has it."""
    reason: str = field(default="", compare=False)
    """The same in words, where there are any of this node."""


def refused_nodes(board: Board, proven: Collection[str] = ()) -> dict[str, NodeRefusal]:
    """Return the nodes on which nothing can be started, each with why.

    What goes wrong between two nodes is told of the one that saw it. Where others have passed together before, it is
    the fault of who has come since: of a master that they cannot reach, of an NCCL that is not theirs.

    Args:
        board: of a preflight that is over.
        proven: nodes that have passed one before, or that the job names where others stand for the rest.
    """
    names, errors = set(board.names), board.errors
    new = names - set(proven) if names & set(proven) else set()
    blamed: dict[str, NodeRefusal] = {}

    def blame(name: str, code: str, reason: str) -> None:
        if name not in blamed or blamed[name].why == TAKEN:
            blamed[name] = NodeRefusal(TAKEN if code == _GPUS_TAKEN else UNFIT, reason)

    for finding in errors:
        is_of_master = finding.code == "master-unreachable" and board.names[0] in new and finding.subject not in new
        if is_of_master or finding.subject in names:
            blame(board.names[0] if is_of_master else finding.subject, finding.code, finding.message)
    told = {finding.subject: finding for finding in errors}
    for drift in board.drift:
        if drift.item in told:
            alike = (set(nodes) for nodes in (drift.usual_nodes, *drift.others.values()))
            for name in (name for nodes in alike if nodes <= new for name in nodes):
                blame(name, told[drift.item].code, told[drift.item].message)
    blamed |= {name: NodeRefusal(UNREACHABLE, error.message) for name, error in board.unreachable.items()}
    return {name: blamed[name] for name in board.names if name in blamed}
