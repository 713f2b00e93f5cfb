"""Between the codes of an outcome and exit codes: what the end of a job is to a shell, and in an event. Pure.

Nothing is decided by an exit code: it is made of state and cause where an event is written, and read again only of an
event of a version that told no cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dtagent.protocol.events import JobState

from dttui.errors import ExitCode
from dttui.jobs.aftermath import OUTCOME
from dttui.spec.failure_causes import HOST_UNREACHABLE, INTERNAL, INVALID, LAUNCH, PREFLIGHT

if TYPE_CHECKING:
    from dttui.jobs.outcome import AttemptOutcome

_OF_STATE = {JobState.SUCCEEDED: ExitCode.OK, JobState.CANCELLED: ExitCode.CANCELLED}
_OF_CAUSE = {
    PREFLIGHT: ExitCode.PREFLIGHT,
    HOST_UNREACHABLE: ExitCode.UNREACHABLE,
    LAUNCH: ExitCode.LAUNCH,
    INVALID: ExitCode.USAGE,
    INTERNAL: ExitCode.INTERNAL,
}
"""Of a job that failed; any other cause is one of a job that ran."""
_CAUSE_OF = {int(code): cause for cause, code in _OF_CAUSE.items()}


def exit_code_of(outcome: AttemptOutcome) -> ExitCode:
    """Return what `--apply` exits with where this is the end of the job."""
    if outcome.state in _OF_STATE:
        return _OF_STATE[outcome.state]
    return _OF_CAUSE.get(outcome.cause or "", ExitCode.JOB_FAILED)


def end_data(outcome: AttemptOutcome) -> dict[str, Any]:
    """Return what the events of a job's end have of it: its state and exit code, by which any version knows it."""
    return {"state": outcome.state.value, "exit_code": int(exit_code_of(outcome))}


def outcome_data(outcome: AttemptOutcome, *, exclude: set[str] | None = None) -> dict[str, Any]:
    """Return the outcome as an event keeps it; a version that knows no causes wants an exit code there."""
    kept = outcome.model_dump(mode="json", exclude_defaults=True, exclude=exclude)
    return {**kept, "exit_code": int(exit_code_of(outcome))}


def told_end(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return `end_data` of a job of whose end the event of its state has this."""
    code = data.get("exit_code")
    known = code if isinstance(code, int) else int(ExitCode.JOB_FAILED)
    return {"state": JobState(data.get("state")).value, "exit_code": known}


def told_cause(data: Mapping[str, Any]) -> str | None:
    """Return the code of the cause of a job's end: as the outcome in its event names it, of an older one by exit code.

    `None` where it did not fail, or where a rank or node says why.
    """
    outcome = data.get(OUTCOME)
    cause = outcome.get("cause") if isinstance(outcome, dict) else None
    code = data.get("exit_code")
    return cause if isinstance(cause, str) else _CAUSE_OF.get(code) if isinstance(code, int) else None
