"""A port that a rank found taken: by another rank of its job on the same host, or by a stranger. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace

from dttui.diagnosis.models import Cause, Confidence, Evidence, Failed
from dttui.i18n import _

PORT_IN_USE = "port-in-use"


def with_sibling(cause: Cause, failure: Failed, evidence: Evidence, known: Mapping[str, str]) -> Cause:
    """Return the cause of a port that was taken with who took it most likely, where that is the job itself.

    All ranks run the same lines: where one of a host failed for a port, and another there ran on, that one has it most
    likely. Where all of them failed, or there is one alone, somebody else has it.

    Args:
        cause: as the table has it.
        failure: of a rank.
        evidence: of the job.
        known: what fills the words.
    """
    if not _has_sibling(failure, evidence):
        return cause
    words = _("A port that the script wanted on {host} was taken, most likely by another rank of the job there.")
    if known.get("port"):
        words = _("Port {port} of {host} was taken, most likely by another rank of the job there.")
    advice = _("Let one rank of a host open it (LOCAL_RANK 0), or each one of its own: port + LOCAL_RANK, or port 0.")
    confidence = Confidence.POSSIBLE if cause.confidence is Confidence.POSSIBLE else Confidence.LIKELY
    return replace(cause, words=words.format(**known), advice=(advice,), confidence=confidence)


def _has_sibling(failure: Failed, evidence: Evidence) -> bool:
    ranks = next((node.ranks for node in evidence.nodes if node.name == failure.node), ())
    if failure.rank not in ranks or failure.rank == min(ranks):
        return False  # What one rank of a host opens is opened by its first: a stranger has it.
    # Whoever failed by itself may have done so before it came to the port; who was ended by a signal had it, or waited.
    failed = {item.rank for item in evidence.failures if item.node == failure.node and not _was_ended(item)}
    return any(rank != failure.rank and rank not in failed for rank in ranks)


def _was_ended(failure: Failed) -> bool:
    return failure.signal == signal.SIGTERM and failure.error is None
