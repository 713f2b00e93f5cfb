"""What the end of a job is to a shell, and to the versions before that know it by its exit code."""

from __future__ import annotations

import pytest
from dtagent.protocol.events import JobState
from pydantic import BaseModel

from dttui.errors import (
    AuthenticationError,
    DttuiError,
    ExitCode,
    HostUnreachableError,
    LaunchError,
    PreflightError,
    UsageError,
)
from dttui.jobs.aftermath import OUTCOME
from dttui.jobs.exit_codes import end_data, exit_code_of, outcome_data, told_cause, told_end
from dttui.jobs.outcome import AttemptOutcome, cause_of, failed
from dttui.spec.failure_causes import ALERT, CauseKind, kind_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PreflightError("a check refused it"), ExitCode.PREFLIGHT),
        (HostUnreachableError("gpu1", "it does not answer"), ExitCode.UNREACHABLE),
        (AuthenticationError("gpu1", "it lets nobody in"), ExitCode.UNREACHABLE),
        (LaunchError("it was rolled back"), ExitCode.LAUNCH),
        (UsageError("the job file is gone"), ExitCode.USAGE),
        (DttuiError("a defect"), ExitCode.INTERNAL),
    ],
)
def test_an_attempt_that_an_error_ended_has_the_exit_code_of_that_error_by_its_cause(
    error: DttuiError, code: ExitCode
) -> None:
    ended = failed(error.message, cause=cause_of(error))
    assert exit_code_of(ended) == code == error.exit_code
    assert kind_of(ended.cause) is (CauseKind.UNKNOWN if code in (1, 2) else CauseKind.NODE)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (AttemptOutcome(state=JobState.SUCCEEDED), 0),
        (AttemptOutcome(state=JobState.CANCELLED), 103),
        (AttemptOutcome(state=JobState.FAILED), 100),
        (AttemptOutcome(state=JobState.FAILED, cause=ALERT), 100),
    ],
)
def test_an_attempt_that_ran_has_the_exit_code_of_its_state(outcome: AttemptOutcome, code: int) -> None:
    assert exit_code_of(outcome) == code


def test_a_version_that_wants_an_exit_code_in_the_outcome_finds_it_there() -> None:
    class Older(BaseModel):
        state: JobState
        exit_code: int

    ended = failed("b: there is no torchrun", cause="launch")
    assert Older.model_validate(outcome_data(ended)).exit_code == 5
    assert AttemptOutcome.model_validate(outcome_data(ended)) == ended


def test_the_end_that_a_version_before_has_told_says_its_cause_by_its_exit_code() -> None:
    assert told_cause({"state": "FAILED", "exit_code": 4}) == "host-unreachable"
    assert told_cause({"state": "FAILED", "exit_code": 3, OUTCOME: {"state": "FAILED"}}) == "preflight"
    assert told_cause({"state": "FAILED", "exit_code": 100, OUTCOME: {"cause": "alert"}}) == "alert"
    for odd in ({}, {"exit_code": 100}, {"exit_code": "4"}, {OUTCOME: 5}, {OUTCOME: {"cause": 5}, "exit_code": [4]}):
        assert told_cause(odd) is None


def test_an_end_that_was_told_keeps_its_exit_code_whoever_has_told_it() -> None:
    ended = failed("it does not answer", cause="host-unreachable")
    assert told_end(end_data(ended)) == end_data(ended) == {"state": "FAILED", "exit_code": 4}
    assert told_end({"state": "FAILED"}) == {"state": "FAILED", "exit_code": 100}
