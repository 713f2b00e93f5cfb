"""What an end that may be for want of memory is called, against what was measured on the host."""

from __future__ import annotations

import signal

import pytest
from dtagent.protocol.telemetry import HostSample

from dttui.diagnosis.diagnose import diagnose
from dttui.diagnosis.models import Cause
from tests.unit.diagnosis.test_diagnosis import evidence, failed, node

MIB_PER_GIB = 1024


def reading(time: float, share: float, kills: int | None = None) -> HostSample:
    total_mib = 100 * MIB_PER_GIB
    return HostSample(1, time, memory_used_mib=int(share * total_mib), memory_total_mib=total_mib, oom_kills=kills)


def cause(*readings: HostSample, error: str | None = None, limit_mib: int | None = None) -> Cause:
    ended = {"signal": signal.SIGKILL, "exit_code": None} if error is None else {"memory_limit_mib": limit_mib}
    found = diagnose(evidence(failed(0, error, **ended), nodes=(node("a", 0, readings=readings),)))
    assert found.cause is not None
    return found.cause


def test_a_kill_that_the_kernel_did_not_count_was_not_for_memory_even_on_a_full_host() -> None:
    found = cause(reading(95.0, 0.97, kills=2), reading(101.0, 0.5, kills=2))
    assert found.code == "killed"
    assert "The kernel did not do it for want of memory" in found.words
    assert "memory" not in " ".join(found.advice)


def test_a_kill_that_the_kernel_counted_was_for_memory_also_where_no_reading_saw_it_full() -> None:
    found = cause(reading(95.0, 0.85, kills=2), reading(101.0, 0.5, kills=3))
    assert found.code == "host-oom"
    assert "85%" in found.words


def test_a_kill_that_the_kernel_counted_on_a_host_with_room_was_by_the_limit_of_a_cgroup() -> None:
    found = cause(reading(95.0, 0.2, kills=0), reading(101.0, 0.2, kills=1))
    assert found.code == "memory-limit"
    assert "the limit of its container or cgroup" in found.words
    assert "memory.max" in found.advice[0]


def test_a_kill_long_before_the_failure_is_not_counted() -> None:
    found = cause(reading(80.0, 0.2, kills=0), reading(90.0, 0.2, kills=1), reading(101.0, 0.2, kills=1))
    assert found.code == "killed"


@pytest.mark.parametrize(
    ("readings", "words"),
    [
        ((), "It was killed from outside (SIGKILL), and not by dttui."),
        ((reading(99.0, 0.3),), "It was killed from outside (SIGKILL), and not by dttui."),
        ((reading(99.0, 0.3, kills=4),), "It was killed from outside (SIGKILL), and not by dttui."),
        ((reading(99.0, 0.85),), "It was killed from outside (SIGKILL), and not by dttui."),
        ((reading(99.0, 0.95),), "was full (95%), and the kernel killed this rank for it"),
    ],
)
def test_without_a_count_after_it_a_kill_is_told_by_how_full_the_host_was(
    readings: tuple[HostSample, ...], words: str
) -> None:
    found = cause(*readings)
    assert words in found.words
    assert "The kernel did not do it" not in found.words  # A cgroup's limit may have been reached on a host with room.


@pytest.mark.parametrize(
    ("kills", "code", "words"),
    [
        (1, "memory-limit", "the limit of its container or cgroup"),
        (0, "killed", "The kernel did not do it for want of memory"),
        (None, "killed", "It was killed from outside (SIGKILL), and not by dttui."),
    ],
)
def test_a_count_of_the_host_itself_after_the_end_decides_where_the_readings_ended_before(
    kills: int | None, code: str, words: str
) -> None:
    ended = failed(0, None, signal=signal.SIGKILL, exit_code=None, oom_kills=kills)
    found = diagnose(evidence(ended, nodes=(node("a", 0, readings=(reading(99.0, 0.2, kills=4),)),)))
    assert found.cause is not None
    assert found.cause.code == code
    assert words in found.cause.words


@pytest.mark.parametrize(
    ("share", "code", "words"),
    [
        (0.95, "host-oom", "The memory of a was full (95%)."),
        (0.85, "memory-refused", "91.3 of 107.4 GB of the host were in use."),
        (0.2, "memory-limit", "The host had room (21.5 of 107.4 GB in use): a limit stood in the way"),
    ],
)
def test_memory_that_was_refused_is_told_by_how_full_the_host_was(share: float, code: str, words: str) -> None:
    found = cause(reading(99.0, share), error="MemoryError")
    assert found.code == code
    assert found.words.startswith("It asked a for memory, and was refused.")
    assert words in found.words


def test_a_limit_that_the_rank_told_of_itself_is_named() -> None:
    found = cause(reading(99.0, 0.2), error="MemoryError", limit_mib=2048)
    assert found.code == "memory-limit"
    assert "this rank may have no more than 2.1 GB there" in found.words


def test_more_than_the_whole_host_has_is_a_wrong_size() -> None:
    found = cause(reading(99.0, 0.2), error="numpy.MemoryError: Unable to allocate 7.28 TiB for an array")
    assert (found.code, found.asked_bytes) == ("memory-limit", int(7.28 * 2**40))
    assert found.words.endswith("All of a has 107 GB.")
    assert "a shape, a unit or a count" in found.advice[0]


@pytest.mark.parametrize(
    ("readings", "words"),
    [
        ((), "it had reached the limit of its container"),
        ((reading(99.0, 0.97),), "limit"),
        ((reading(99.0, 0.3),), "room"),
    ],
    ids=["no reading", "a full host", "a host with room"],
)
def test_a_limit_that_the_cgroup_itself_counts_is_the_cause_however_full_the_host_was(
    readings: tuple[HostSample, ...], words: str
) -> None:
    ended = failed(0, None, signal=signal.SIGKILL, exit_code=None, oom_kills=1, is_at_limit=True)
    found = diagnose(evidence(ended, nodes=(node("a", 0, readings=readings),)))
    assert found.cause is not None
    assert found.cause.code == "memory-limit"
    assert words in found.cause.words
    assert "memory.max" in found.cause.advice[0]


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (signal.SIGKILL, "killed"),
        # Who exits with 137 may have run something elsewhere, in a container of its own.
        (None, "memory-limit"),
    ],
    ids=["a signal", "a code"],
)
def test_a_kill_of_somebody_else_on_the_host_is_not_taken_for_the_ranks(ended: int | None, code: str) -> None:
    readings = (reading(95.0, 0.2, kills=0), reading(101.0, 0.2, kills=1))
    number = None if ended is not None else 137
    end = failed(0, None, signal=ended, exit_code=number, oom_kills=1, is_spared=True)
    found = diagnose(evidence(end, nodes=(node("a", 0, readings=readings),)))
    assert found.cause is not None
    assert found.cause.code == code
    assert ("no such kill in the cgroup of the job on a" in found.cause.words) is (code == "killed")
