"""What to try after a failure."""

from __future__ import annotations

import signal

import pytest
from dtagent.protocol.events import JobState

from dttui.services.advice import advice
from dttui.services.view import Failure, JobView


def failed(error: str = "", *, tail: str = "", number: int | None = None, exit_code: int | None = 1) -> JobView:
    view = JobView("job", state=JobState.FAILED, exit_code=100)
    view.failures.append(Failure("gpu1", 3, "rank 3 failed", exit_code, number, error or None, None, (tail,), 0.0))
    return view


@pytest.mark.parametrize(
    ("error", "word"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "memory"),
        ("ModuleNotFoundError: No module named 'deepspeed'", "package"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data'", "workdir"),
        ("RuntimeError: NCCL error: unhandled system error", "NCCL_DEBUG"),
        ("OSError: [Errno 28] No space left on device", "disk"),
        ("RuntimeError: [enforce fail] Connection refused", "firewall"),
    ],
)
def test_known_words_have_known_remedies(error: str, word: str) -> None:
    assert word in advice(failed(error))[0]
    assert word in advice(failed(tail=error))[0]


def test_signals_are_explained() -> None:
    assert "killed from outside" in advice(failed(number=signal.SIGKILL, exit_code=None))[0]
    assert "compiled code" in advice(failed(number=signal.SIGSEGV, exit_code=None))[0]


def test_a_job_that_did_not_fail_needs_no_advice() -> None:
    assert advice(JobView("job", state=JobState.SUCCEEDED, exit_code=0)) == ()
    assert advice(JobView("job", state=JobState.CANCELLED, exit_code=103)) == ()


@pytest.mark.parametrize("exit_code", [1, 3, 4, 5, 100])
def test_there_is_always_something_to_try(exit_code: int) -> None:
    assert advice(JobView("job", state=JobState.FAILED, exit_code=exit_code))
    assert advice(failed())
