"""What was measured on a host before a failure, and which cause that explains better than words do."""

from __future__ import annotations

from dataclasses import replace

from dttui.agent_words import agent_text
from dttui.diagnosis.advice import EXCHANGE
from dttui.diagnosis.causes import followed_by, tell
from dttui.diagnosis.last_readings import Before, XidKind, read_before, xid_kind
from dttui.diagnosis.models import Cause, Confidence, Evidence, Explained, Failed, NodeEvidence
from dttui.diagnosis.out_of_memory import weighed
from dttui.i18n import _

_GPU_DOUBT = frozenset(
    {"cuda-error", "cuda-fault", "gpu-ecc", "gpu-lost", "nccl-error", "segfault", "aborted", "killed", "exit-code"}
)
"""Causes that a critical error of the GPU explains better."""


def before_failure(failure: Failed, evidence: Evidence) -> Before | None:
    """Return what was measured before a failure; `None` where nothing of its host is known."""
    node = next((item for item in evidence.nodes if item.name == failure.node), None)
    if node is None:
        return None
    found = [
        read_before(node.readings, failure.time, evidence.job_id, failure.rank, gpu)
        for gpu in _gpus(node, failure.rank) or (None,)
    ]
    # Of several, the one that says most: whose error it may be, else whose memory was the fullest.
    return max(found, key=_tells)


def _gpus(node: NodeEvidence, rank: int | None) -> tuple[int, ...]:
    """Return the GPUs that a rank drives: all of a node's where it is the only one there."""
    if rank not in node.ranks:
        return ()
    if len(node.ranks) == 1:
        return node.gpu_ids
    local = node.ranks.index(rank)
    return node.gpu_ids[local : local + 1]


def _tells(before: Before | None) -> tuple[bool, bool, float]:
    gpu = before.gpu if before is not None else None
    if gpu is None:
        return False, False, 0.0
    return gpu.error is not None, gpu.xid is not None, (gpu.memory_peak_mib or 0) / (gpu.memory_total_mib or 1)


def with_readings(first: Explained, before: Before | None, evidence: Evidence) -> Cause:
    """Return the cause, made better by what was measured: a critical error of the GPU, memory that was full."""
    cause, failure = first.cause, first.failure
    if before is None:
        before = Before(0, None)
    gpu = before.gpu
    if gpu is not None and gpu.error and cause.code in _GPU_DOUBT:
        words = _("GPU {index} of {host} could not be read any more: {error}.")
        return replace(
            cause,
            code="gpu-lost",
            words=words.format(index=gpu.index, host=failure.node, error=agent_text(gpu.error, gpu.error_notice)),
            advice=(tell(EXCHANGE, {}),),
            confidence=Confidence.LIKELY,
        )
    if gpu is not None and gpu.xid is not None and cause.code in _GPU_DOUBT:
        kind, meaning = xid_kind(gpu.xid)
        words = _("GPU {index} of {host} reported Xid {number}: {meaning}.")
        told = words.format(index=gpu.index, host=failure.node, number=gpu.xid, meaning=meaning)
        if kind is XidKind.PROGRAM:
            return replace(cause, words=followed_by(cause.words, told))
        advice = tell(EXCHANGE, {})
        return replace(cause, code="gpu-xid", words=told, advice=(advice,), confidence=Confidence.LIKELY)
    if cause.code == "exit-code" and evidence.broken_metrics:
        words = _("Its loss had stopped being a number: {what}")
        return replace(
            cause, code="not-finite", words=words.format(what=evidence.broken_metrics[0]), confidence=Confidence.LIKELY
        )
    return weighed(cause, failure, before)
