"""What is told of ranks that are waited for, and that run; of a command that starts them nobody knows how many."""

from __future__ import annotations

from dttui.i18n import Message, nmsg
from dttui.planning.models import Plan


def waited_for(plan: Plan) -> Message:
    """Return what is told while ranks are yet to begin."""
    if _starts_own_ranks(plan):
        return nmsg("the command starts on {count} host", "the command starts on {count} hosts", len(plan.nodes))
    return nmsg("waiting for {count} rank", "waiting for {count} ranks", plan.world_size)


def all_run(plan: Plan) -> Message:
    """Return what is told once all have begun."""
    if _starts_own_ranks(plan):
        return nmsg("the command runs on {count} host", "the command runs on {count} hosts", len(plan.nodes))
    return nmsg("the rank runs", "all {count} ranks run", plan.world_size)


def _starts_own_ranks(plan: Plan) -> bool:
    return any(node.starts_own_ranks for node in plan.nodes)
