"""Stops asked of a controller that is there and does not answer, and of one that falls silent after it was asked."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from dttui import jobs
from dttui.errors import NotFinishedError
from dttui.jobs import JobDirectory
from dttui.launch import stop_request
from dttui.launch.stop_request import hanging, stop_job


@pytest.fixture
def hung() -> Iterator[JobDirectory]:
    """A job whose controller, this process, listens and never answers."""
    directory = jobs.create("x")
    lock = directory.claim()
    assert lock is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(directory.socket))
        listener.listen()
        yield directory
    os.close(lock)


def test_a_controller_that_does_not_answer_is_named_with_its_process(
    hung: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop_request, "REPLY_DEADLINE_S", 0.1)
    with pytest.raises(NotFinishedError) as caught:
        stop_job(hung, force=False)
    assert caught.value.message == f"the controller of job {hung.job_id}, process {os.getpid()}, does not answer"
    assert f"`kill -9 {os.getpid()}`, and then `dttui stop {hung.job_id}`" in caught.value.hint


def test_one_that_never_comes_to_listen_is_not_said_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = jobs.create("x")
    lock = directory.claim()
    assert lock is not None
    monkeypatch.setattr(stop_request, "DIAL_DEADLINE_S", 0.1)
    with pytest.raises(NotFinishedError, match="does not answer"):
        stop_job(directory, force=False)
    os.close(lock)


def test_only_a_controller_without_a_sign_of_life_hangs(hung: JobDirectory) -> None:
    os.utime(hung.lock)
    assert hanging(hung) is None
    os.utime(hung.lock, (0, 0))
    found = hanging(hung)
    assert found is not None
    assert f"process {os.getpid()}" in found.message
