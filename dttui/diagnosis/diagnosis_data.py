"""A diagnosis as data, for `--output json`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dttui.diagnosis.models import Diagnosis, Evidence, Explained
from dttui.diagnosis.report import MOST_LAST_LINES, signal_name
from dttui.diagnosis.standing import RankGroup


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as data."""
    evidence = diagnosis.evidence
    return {
        "job_id": evidence.job_id,
        "state": evidence.state.value,
        "reason": evidence.reason,
        "exit_code": evidence.exit_code,
        "attempt": evidence.attempt,
        "is_watched": evidence.is_watched,
        "headline": diagnosis.headline,
        "first_failure": _first_document(diagnosis.first, evidence) if diagnosis.first else None,
        "cause": _cause_document(diagnosis),
        "before": asdict(diagnosis.before) if diagnosis.before else None,
        "failed_after": [_failure_document(item) for item in diagnosis.failed_after],
        "lost_before": [_failure_document(item) for item in diagnosis.lost_before],
        "places": [_place_document(group) for group in diagnosis.places],
        "ranks": [{**asdict(other), "doing": other.doing.value} for other in diagnosis.others],
        "findings": [{"message": message, "hint": hint} for message, hint in evidence.findings],
        "advice": list(diagnosis.advice),
        "earlier_attempts": [{"attempt": number, "reason": why} for number, why in evidence.earlier],
    }


def _place_document(group: RankGroup) -> dict[str, Any]:
    place = group.place
    where = {"call": place.call, "function": place.function, "file": place.file, "line": place.line}
    return {"ranks": [rank for rank, _node in group.ranks], "standing": place.standing.value, **where}


def _cause_document(diagnosis: Diagnosis) -> dict[str, Any] | None:
    cause = diagnosis.cause
    if cause is None:
        return None
    return {**asdict(cause), "confidence": cause.confidence.value}


def _first_document(explained: Explained, evidence: Evidence) -> dict[str, Any]:
    metric = evidence.metrics.get(explained.failure.rank) if explained.failure.rank is not None else None
    progress = {"step": metric.step if metric else None, "loss": metric.loss if metric else None}
    return {**_failure_document(explained), **progress}


def _failure_document(explained: Explained) -> dict[str, Any]:
    failure = explained.failure
    return {
        "node": failure.node,
        "rank": failure.rank,
        "message": failure.message,
        "time": failure.time,
        "exit_code": failure.exit_code,
        "signal": failure.signal,
        "signal_name": signal_name(failure.signal) if failure.signal is not None else None,
        "error": failure.error,
        "traceback": failure.traceback,
        "tail": [asdict(line) for line in failure.lines[-MOST_LAST_LINES:]],
        "cause": {
            "code": explained.cause.code,
            "words": explained.cause.words,
            "confidence": explained.cause.confidence.value,
            "is_consequence": explained.cause.is_consequence,
            "is_shared": explained.is_shared,
        },
    }
