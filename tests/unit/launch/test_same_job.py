"""Submissions of one user take turns, and say so where a file system cannot keep them apart."""

from __future__ import annotations

import errno
import fcntl
import os

import pytest

from dttui.errors import UsageError
from dttui.launch.same_job import one_submission_at_a_time


def test_where_a_file_system_has_no_locks_that_is_told_and_no_descriptor_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(UsageError, match=r"cannot write to .*jobs: No locks available"), one_submission_at_a_time():
        pytest.fail("it went on without a lock")
    assert os.listdir("/proc/self/fd") == before
