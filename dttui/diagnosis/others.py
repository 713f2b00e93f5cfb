"""What the ranks were doing that did not fail first, and whom of them the others waited for. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dtagent.protocol.events import JobState, NodeStanding

from dttui.diagnosis.models import ENDED_WITH_OTHERS, Cause, Doing, Evidence, Explained, NodeEvidence, Other
from dttui.i18n import _
from dttui.jobs import LAUNCHER
from dttui.spec.failure_causes import HOST_UNREACHABLE, NEVER_RAN, PREFLIGHT
from dttui.words import rank_names

MOST_NAMED = 4
"""Ranks that a sentence names."""
_ENQUEUED = re.compile(r"last enqueued(?: NCCL)? work: (\d+)")


def other_ranks(evidence: Evidence, explained: Sequence[Explained]) -> tuple[Other, ...]:
    """Return what every rank was doing but the first that failed; nothing where no rank was to start yet."""
    if not explained and evidence.outcome_cause in (HOST_UNREACHABLE, PREFLIGHT):
        return ()
    first = explained[0].failure.rank if explained else None
    failed = {item.failure.rank: item for item in explained if item.failure.rank is not None}
    found = []
    launcher = explained[0].failure.node if explained and explained[0].failure.process == LAUNCHER else None
    for node in evidence.nodes:
        for rank in node.ranks:
            if rank == first or _is_the_command(node, rank, evidence, launcher):
                continue
            metric = evidence.metrics.get(rank)
            found.append(
                Other(
                    rank,
                    node.name,
                    _doing(node, rank, failed, evidence, explained[0].failure.time if explained else None),
                    failed[rank].failure.message if rank in failed else "",
                    metric.step if metric else None,
                    metric.loss if metric else None,
                    evidence.last_lines.get(rank),
                )
            )
    return tuple(found)


def _is_the_command(node: NodeEvidence, rank: int, evidence: Evidence, launcher: str | None) -> bool:
    """Whether a rank may be no process of its own: of a command that trains itself nothing else was seen."""
    is_seen = rank in evidence.metrics and node.name != launcher
    return node.starts_own_ranks and node.ranks_started == () and not is_seen


def suspect(cause: Cause, explained: Sequence[Explained], others: Sequence[Other], absent: Mapping[int, str]) -> str:
    """Return whom to look at where every failure follows from another one; empty where nobody stands out."""
    if cause.code == "rendezvous-timeout" and absent:
        return _("Never joined the others: {ranks}.").format(ranks=_named(list(absent.items())))
    missing = [other for other in others if other.doing is Doing.ABSENT]
    if missing:
        return _("Never started: {ranks}.").format(ranks=_named([(item.rank, item.node) for item in missing]))
    if behind := _behind(explained):
        return behind
    if cause.code == "peer-gone":
        early = [(other.rank, other.node) for other in others if other.doing is Doing.ENDED]
        words = _("Already ended, and well: {ranks}. Had it fewer steps to do?")
        return words.format(ranks=_named(early)) if early else ""
    return _waited_for(others)


def _behind(explained: Sequence[Explained]) -> str:
    """Return who has begun fewer collectives than others; empty where all have begun as many, or none tells."""
    begun = {
        item.failure.rank: max(found)
        for item in explained
        if (found := [int(number) for line in item.failure.lines for number in _ENQUEUED.findall(line.text)])
    }
    low, high = min(begun.values(), default=0), max(begun.values(), default=0)
    if low == high:
        return ""
    words = _("Behind by {count} collectives: {ranks}. Look at what it was doing.")
    failed = [(item.failure.rank, item.failure.node) for item in explained if item.failure.rank is not None]
    late = [(rank, node) for rank, node in failed if begun.get(rank) == low]
    return words.format(ranks=_named(late), count=high - low)


def _waited_for(others: Sequence[Other]) -> str:
    """Return whom the others waited for: of those that went on, who was behind; empty where nobody did."""
    quiet = [item for item in others if item.doing in (Doing.STOPPED, Doing.RUNNING, Doing.STARTING)]
    steps = [item.step for item in others if item.step is not None]
    late = [(item.rank, item.node) for item in quiet if item.step is not None and item.step < max(steps)]
    known = late or [(item.rank, item.node) for item in quiet]
    words = _("Waited for, and not failed itself: {ranks}. Look at what it was doing.")
    return words.format(ranks=_named(known)) if known else ""


def _named(ranks: Sequence[tuple[int | None, str]]) -> str:
    return rank_names(ranks, MOST_NAMED)


def _doing(
    node: NodeEvidence, rank: int, failed: Mapping[int, Explained], evidence: Evidence, time: float | None
) -> Doing:
    if rank in failed:
        return Doing.STOPPED if failed[rank].cause.code == ENDED_WITH_OTHERS else Doing.FAILED
    if _is_lost(node, evidence):
        return Doing.LOST
    if node.exits.get(str(rank)) == 0:
        # A rank that is asked to end may do so with 0 too.
        return Doing.STOPPED if time is not None and node.ended_at.get(str(rank), time) > time else Doing.ENDED
    has_gone = _had_gone(node, rank, evidence.job_id, time)
    has_started = _has_started(node, rank, evidence)
    if evidence.state is JobState.SUCCEEDED or has_gone or (has_started and node.state is NodeStanding.ENDED):
        return Doing.ENDED
    if not has_started or node.state in (NodeStanding.WAITING, NodeStanding.CONNECTED, NodeStanding.PREPARED):
        return Doing.ABSENT if evidence.state.is_final else Doing.STARTING
    if node.state.is_over or node.state is NodeStanding.STOPPING:
        return Doing.STOPPED
    return Doing.RUNNING


def _is_lost(node: NodeEvidence, evidence: Evidence) -> bool:
    """Whether nothing was heard of a node any more, and nobody has cleared up there."""
    is_cleared = any(item.is_cleared and item.node == node.name for item in evidence.failures)
    return node.state in (NodeStanding.LOST, NodeStanding.AGENT_GONE, NodeStanding.UNKNOWN) and not is_cleared


def _has_started(node: NodeEvidence, rank: int, evidence: Evidence) -> bool:
    """Whether a rank has begun; of an attempt that does not tell, that is taken for granted."""
    is_known = node.ranks_started is not None or evidence.outcome_cause in NEVER_RAN
    is_seen = rank in evidence.last_lines or rank in evidence.metrics
    return not is_known or rank in (node.ranks_started or ()) or is_seen


def _had_gone(node: NodeEvidence, rank: int, job_id: str, time: float | None) -> bool:
    """Whether a rank was seen to run, and at the time of the failure not any more: its launcher waits for others."""
    if node.state in (NodeStanding.RUNNING, NodeStanding.LOST):
        return False  # A lost one was cleared unseen.
    seen = [
        any(item.rank == rank for item in sample.ranks.get(job_id, []))
        for sample in node.readings
        if time is not None and sample.time <= time
    ]
    return any(seen) and not seen[-1]
