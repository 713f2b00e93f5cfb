"""Preflights that were made up: what a screen shows of one with trouble."""

from __future__ import annotations

from dttui.i18n import _
from dttui.jobs.board import Board, Changed, Judgement
from dttui.jobs.checks import Check, CheckStatus
from dttui.planning.models import Plan
from dttui.planning.submission import Submission
from dttui.spec.findings import error, warning


async def trouble(submission: Submission, plan: Plan, changed: Changed) -> Board:
    """Check three hosts: the second does not reach the first, and the third has other versions."""
    first, second, *_others = names = tuple(node.name for node in plan.nodes)
    board = Board(names, frozenset(submission.ignored), changed)
    hint = _("A firewall drops it, or {address} is not reached from there.").format(address="10.0.0.11")
    for name in names:
        board.put(name, {Check.REACH: Judgement("10.0.0.11"), Check.AGENT: Judgement("0.1.0")}, 0.21)
        board.put(name, {Check.SOFTWARE: Judgement("Python 3.11.7 · torch 2.13.0")}, 1.34)
        board.put(name, {check: Judgement("fine") for check in Check}, 0.05)
        board.put(name, {Check.MASTER: Judgement("eth0 0.12 ms"), Check.PEERS: Judgement("eth0 0.2 ms")}, 0.1)
    board.put(second, {Check.HEALTH: Judgement("?", status=CheckStatus.UNKNOWN)})
    message = f"{second} → {first}:29517 " + _("timed out") + " (10.0.0.11)"
    found = error("master-unreachable", second, message, hint)
    board.put(second, {Check.MASTER: Judgement(_("timed out"), (found,))}, 4.0)
    board.say([warning("drift", "torch", "torch 2.13.0, 2.12.1", _("Install the same version everywhere."))])
    return board
