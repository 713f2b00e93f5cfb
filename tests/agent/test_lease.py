"""GPUs and ports that were set aside for a start: held while its client is heard of, and not for ever."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.attempts.attempts import Attempts
from dtagent.attempts.leases import LEASE_S
from dtagent.errors import RpcError
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import StartRequest, StopRequest
from dtagent.protocol.preparation import PrepareReply, PrepareRequest, UploadRequest
from dtagent.protocol.rpc import ErrorCode
from dtagent.system.interfaces import reserve_port

from tests.clock import Clock

GPUS = [0, 1]
PORTS = (31000, 31999)
"""Of none of the agents that other tests run beside this one."""


@pytest.fixture
def attempts(tmp_path: Path, clock: Clock) -> Iterator[Attempts]:
    found = Attempts(tmp_path, lambda: GPUS)
    yield found
    give_up_all(found)


def give_up_all(attempts: Attempts) -> None:
    for key in attempts.census.known_keys():
        attempts.stop(StopRequest(key))


def free_pair() -> tuple[int, int]:
    """Return two ports, one after the other, that nobody has."""
    for first in range(*PORTS):
        held = [reserve_port(port, port) for port in (first, first + 1)]
        for each in filter(None, held):
            each.close()
        if None not in held:
            return first, first + 1
    raise AssertionError("no two are free")


def prepare(
    attempts: Attempts, job_id: str, port: int = 0, gpus: int = len(GPUS), simulated: int = 0, attempt: int = 0
) -> PrepareReply:
    ports = (port, port) if port else PORTS
    key = AttemptKey(job_id, attempt)
    total = 4 if simulated else 0
    return attempts.prepare(
        PrepareRequest(key, 0, "sh", "127.0.0.1", True, ports, gpus, simulated_slots=simulated, simulated_total=total)
    )


def test_what_is_set_aside_is_nobody_elses_until_its_client_falls_silent(attempts: Attempts, clock: Clock) -> None:
    assert prepare(attempts, "first").gpu_ids == GPUS
    clock.now_s += LEASE_S - 1
    with pytest.raises(RpcError, match="2 GPUs are wanted and 0 are free"):
        prepare(attempts, "second")
    attempts.upload(UploadRequest(AttemptKey("first", 0), "a", 0, ""))
    clock.now_s += LEASE_S - 1
    with pytest.raises(RpcError, match="job first has GPU 0, 1"):
        prepare(attempts, "second")
    clock.now_s += 2
    assert prepare(attempts, "second").gpu_ids == GPUS


def test_a_start_that_comes_after_another_has_its_gpus_is_refused(attempts: Attempts, clock: Clock) -> None:
    prepare(attempts, "first")
    clock.now_s += LEASE_S + 1
    prepare(attempts, "second")
    with pytest.raises(RpcError, match="the start came too late: job second has GPU 0, 1 by now") as caught:
        attempts.start(StartRequest(AttemptKey("first", 0), 0, [], []))
    assert caught.value.code == ErrorCode.WRONG_STATE
    assert attempts.status(AttemptKey("first", 0)).state.value == "prepared"


def test_a_port_is_given_again_when_its_client_fell_silent(attempts: Attempts, clock: Clock) -> None:
    port = prepare(attempts, "first").master_port
    assert port is not None
    clock.now_s += LEASE_S - 1
    with pytest.raises(RpcError, match="is taken"):
        prepare(attempts, "second", port, gpus=0)
    clock.now_s += 2
    assert prepare(attempts, "second", port).master_port == port


def test_a_port_is_let_go_of_when_its_client_fell_silent_though_nobody_asks(attempts: Attempts, clock: Clock) -> None:
    port = prepare(attempts, "first", gpus=0).master_port
    for elapsed_s, is_free in ((0, False), (LEASE_S + 1, True)):
        clock.now_s += elapsed_s
        attempts.expire_leases()
        with (
            socket.socket() as other,
            contextlib.nullcontext() if is_free else pytest.raises(OSError, match="in use"),
        ):
            other.bind(("", port))


def test_after_a_restart_of_the_daemon_a_lease_begins_anew(attempts: Attempts, clock: Clock, tmp_path: Path) -> None:
    prepare(attempts, "first")
    clock.now_s += LEASE_S + 1
    again = Attempts(tmp_path, lambda: GPUS)
    with pytest.raises(RpcError, match="job first has GPU 0, 1"):
        prepare(again, "second")
    clock.now_s += LEASE_S
    assert prepare(again, "second").gpu_ids == GPUS
    give_up_all(again)


def test_a_refusal_says_since_when_a_job_has_gpus(attempts: Attempts, tmp_path: Path) -> None:
    """Since it was first given them: that its client goes on asking changes nothing."""
    for gpus, simulated, what in ((1, 0, "GPU 0"), (0, 3, "3")):
        prepare(attempts, f"first{simulated}", gpus=gpus, simulated=simulated)
        (prepared,) = tmp_path.glob(f"jobs/first{simulated}/0/prepared.json")
        os.utime(prepared, (1_790_000_000, 1_790_000_000))
        prepare(attempts, f"first{simulated}", gpus=gpus, simulated=simulated)
        said = f"job first{simulated} has {what} since 2026-09-21 14:13 UTC$"
        with pytest.raises(RpcError, match=said):
            prepare(attempts, "second", gpus=2 * gpus, simulated=simulated)


def test_simulated_gpus_are_set_aside_as_real_ones_are(attempts: Attempts, clock: Clock) -> None:
    prepare(attempts, "first", gpus=0, simulated=3)
    with pytest.raises(RpcError, match="2 simulated GPUs are wanted and 1 are free here; job first has 3") as caught:
        prepare(attempts, "second", gpus=0, simulated=2)
    assert caught.value.code == ErrorCode.REFUSED
    prepare(attempts, "second", gpus=0, simulated=1)
    clock.now_s += LEASE_S + 1
    prepare(attempts, "third", gpus=0, simulated=4)
    with pytest.raises(RpcError, match="too late: job third has the simulated GPUs by now"):
        attempts.start(StartRequest(AttemptKey("first", 0), 0, [], []))


def test_of_two_jobs_that_are_prepared_at_once_the_first_by_name_may_wait_and_the_other_gives_way(
    attempts: Attempts,
) -> None:
    prepare(attempts, "second")
    with pytest.raises(RpcError, match="job second has GPU 0, 1") as waits:
        prepare(attempts, "first")
    with pytest.raises(RpcError, match="job second has GPU 0, 1") as gives_way:
        prepare(attempts, "third")
    assert (waits.value.code, gives_way.value.code) == (ErrorCode.CONTENDED, ErrorCode.REFUSED)
    attempts.stop(StopRequest(AttemptKey("second", 0)))
    assert prepare(attempts, "first").gpu_ids == GPUS


def test_to_prepare_again_keeps_the_lease_and_says_when_it_is_too_late(attempts: Attempts, clock: Clock) -> None:
    first = prepare(attempts, "first")
    clock.now_s += LEASE_S - 1
    assert prepare(attempts, "first") == first
    clock.now_s += LEASE_S - 1
    with pytest.raises(RpcError, match="0 are free"):
        prepare(attempts, "second")
    clock.now_s += 2
    prepare(attempts, "second")
    with pytest.raises(RpcError, match="too late: job second has GPU 0, 1 by now"):
        prepare(attempts, "first")
    with pytest.raises(RpcError, match="prepared otherwise"):
        prepare(attempts, "second", gpus=1)


def test_a_port_that_another_program_took_meanwhile_makes_the_start_too_late(tmp_path: Path) -> None:
    killed = Attempts(tmp_path, lambda: GPUS)
    port = prepare(killed, "first", gpus=0).master_port
    del killed
    with pytest.warns(ResourceWarning, match="unclosed"):  # Of the socket that held the port.
        gc.collect()
    again = Attempts(tmp_path, lambda: GPUS)
    with socket.socket() as other:
        other.bind(("", port))
        with pytest.raises(RpcError, match=f"too late: port {port} is taken by now"):
            again.start(StartRequest(AttemptKey("first", 0), 0, [], []))
    assert prepare(again, "first", gpus=0).master_port == port
    give_up_all(again)


def test_what_comes_late_for_an_attempt_that_was_overtaken_is_refused(attempts: Attempts) -> None:
    prepare(attempts, "job")
    assert prepare(attempts, "job", attempt=1).gpu_ids == GPUS  # Which the earlier attempt had.
    for act in (
        lambda: prepare(attempts, "job"),
        lambda: attempts.start(StartRequest(AttemptKey("job", 0), 0, [], [])),
    ):
        with pytest.raises(RpcError, match="attempt 1 of job job was seen here already") as caught:
            act()
        assert caught.value.code == ErrorCode.WRONG_STATE
    assert attempts.status(AttemptKey("job", 0)).state.value == "discarded"


def test_an_abort_that_comes_first_leaves_a_tombstone(attempts: Attempts) -> None:
    attempts.stop(StopRequest(AttemptKey("job", 2)))
    for attempt, why in ((2, "given up already"), (1, "attempt 2 of job job was seen")):
        with pytest.raises(RpcError, match=why):
            prepare(attempts, "job", attempt=attempt)
    assert prepare(attempts, "job", attempt=3).gpu_ids == GPUS


def test_the_port_that_was_tried_is_taken_where_it_is_free_and_of_the_range(attempts: Attempts) -> None:
    def port(job_id: str, wanted: int | None, within: tuple[int, int] = PORTS) -> int | None:
        key = AttemptKey(job_id, 0)
        request = PrepareRequest(key, 0, "sh", "127.0.0.1", True, within, 0, preferred_port=wanted)
        assert attempts.prepare(request) == attempts.prepare(request)
        return attempts.prepare(request).master_port

    first = port("first", None)
    attempts.stop(StopRequest(AttemptKey("first", 0)))
    assert port("second", first) == first
    assert port("third", first) not in (None, first)
    fourth = port("fourth", first, (31990, 31999) if first and first < 31900 else (31000, 31010))
    assert fourth not in (None, first)


def test_a_later_attempt_of_a_job_gets_a_port_that_none_before_had_as_long_as_there_is_one(attempts: Attempts) -> None:
    two = free_pair()

    def port(attempt: int, wanted: int | None = None) -> int | None:
        key = AttemptKey("again", attempt)
        reply = attempts.prepare(PrepareRequest(key, 0, "sh", "127.0.0.1", True, two, 0, preferred_port=wanted))
        attempts.stop(StopRequest(key))
        return reply.master_port

    first = port(0)
    second = port(1, wanted=first)
    assert {first, second} == set(two)
    assert port(2) in two
