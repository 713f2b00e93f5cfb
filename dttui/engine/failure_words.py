"""In what words an attempt has failed: those of its first failure, as every reader of the job finds it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dttui.diagnosis.models import Diagnosis
from dttui.engine.outcome import FoundFailure
from dttui.i18n import msg


@dataclass(frozen=True)
class GivenUp:
    """A node of which nobody knows what runs there."""

    name: str
    broken: str = ""
    """Why it could not be followed."""
    unstopped: str = ""
    """Why it has not ended, of one that could be reached."""
    is_agent_gone: bool = False


def why_not_stopped(given_up: Sequence[GivenUp], job_id: str) -> tuple[str, str]:
    """Return what to say, and what to do, of a stop on request that not all nodes have followed."""
    ordered = sorted(given_up, key=lambda item: (not item.broken, not item.unstopped))
    message, hint = _of_given_up(ordered, job_id)
    if ordered[0].unstopped and not ordered[0].broken:
        return msg("stopped on request, but not ended: {reason}", reason=message), hint
    return msg("stopped on request, but {what}", what=message), hint


def why_failed(
    found: Diagnosis | None,
    failures: Sequence[FoundFailure],
    given_up: Sequence[GivenUp],
    over: str | None,
    job_id: str,
) -> tuple[str, str]:
    """Return what to say, and what to do, of an attempt that has failed.

    Args:
        found: its diagnosis; `None` where that could not be made.
        failures: what was told of ranks, launchers and nodes, the first cause first; there are some, or nodes given up.
        given_up: the nodes that were.
        over: why the attempt could not go on, where that is not the failure alone.
        job_id: of the job.
    """
    first = found.first.failure if found is not None and found.first is not None else None
    told_of = next((item for item in failures if first is not None and item.is_of(first)), None)
    if told_of is None:
        of_first = [item for item in given_up if first is not None and item.name == first.node]
        if of_first or not failures:
            return _of_given_up([*of_first, *(item for item in given_up if item not in of_first)], job_id)
        told_of = failures[0]
    message: str = told_of.message
    if found is not None and found.first is not None and found.first.is_shared:
        message = found.headline
    elif found is not None and found.first is None and found.cause is not None and found.cause.words:
        message = found.cause.words
    uncleared = next((item for item in failures if item.data.get("uncleared")), told_of)
    for why in (uncleared.message if uncleared is not told_of else None, over):
        message = msg("{what}; {why}", what=message, why=why) if why else message
    return message, ""


def _of_given_up(given_up: Sequence[GivenUp], job_id: str) -> tuple[str, str]:
    """Return the same of nodes that were given up, the first of which comes first."""
    first = given_up[0]
    if first.broken:
        return msg("{host} could not be followed: {reason}", host=first.name, reason=first.broken), ""
    if first.unstopped:
        return first.unstopped, msg("What runs there is unknown; `dttui stop {job}` asks again.", job=job_id)
    if first.is_agent_gone:
        gone = [item.name for item in given_up if item.is_agent_gone]
        hint = msg(
            "What ran there may run on: `dttui agents deploy {hosts}`, then `dttui stop {job}` ends it.",
            hosts=" ".join(gone),
            job=job_id,
        )
        return msg("the agent of {hosts} is gone", hosts=", ".join(gone)), hint
    lost = [item.name for item in given_up if not (item.broken or item.unstopped or item.is_agent_gone)]
    hint = msg("What runs there is unknown; look at the host when it is back.")
    return msg("{hosts} could not be reached", hosts=", ".join(lost)), hint
