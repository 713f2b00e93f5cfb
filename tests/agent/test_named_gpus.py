"""GPUs that a job names by their numbers: it gets those and no others, and waits for those and for no others."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.attempts.attempts import Attempts
from dtagent.attempts.leases import LEASE_S
from dtagent.attempts.shared_gpus import SharedGpus
from dtagent.attempts.waiting_line import WaitingLine
from dtagent.errors import RpcError
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.bounds import OutOfRangeError
from dtagent.protocol.jobs import StopRequest
from dtagent.protocol.preparation import PrepareReply, PrepareRequest
from dtagent.protocol.queueing import QueueReply, QueueRequest
from dtagent.protocol.rpc import ErrorCode
from dtagent.system.gpu_line import PADDED_BYTES, GpuLine, Ticket, leave
from dtagent.system.gpu_locks import GpuLocks, Purpose

from tests.clock import Clock

NAMES = {index: f"GPU-{index}" for index in range(4)}


@pytest.fixture
def idle() -> list[int]:
    """The GPUs that no process uses."""
    return [*NAMES]


@pytest.fixture
def attempts(tmp_path: Path, clock: Clock, idle: list[int]) -> Iterator[Attempts]:
    """A host with four GPUs that is shared with other users."""
    locks = tmp_path / "locks"
    locks.mkdir()
    locks.chmod(0o1777)
    shared = SharedGpus(GpuLocks(locks), lambda: NAMES)
    found = Attempts(tmp_path, lambda: idle, shared_gpus=shared, line=WaitingLine(GpuLine(locks)))
    yield found
    for key in found.census.known_keys():
        found.stop(StopRequest(key))


def prepare(attempts: Attempts, job_id: str, *ids: int, count: int = 0, asked_at: float | None = None) -> PrepareReply:
    request = PrepareRequest(
        AttemptKey(job_id, 0),
        0,
        "sh",
        "127.0.0.1",
        False,
        (29500, 29999),
        len(ids) or count,
        asked_at=asked_at,
        gpu_ids=[*ids],
    )
    return attempts.prepare(request)


def wait(attempts: Attempts, job_id: str, asked_at: float, *ids: int, count: int = 0) -> QueueReply:
    return attempts.line_up(QueueRequest(AttemptKey(job_id, 0), asked_at, len(ids) or count, gpu_ids=[*ids]))


def names(reply: QueueReply) -> list[str]:
    return [item.job for item in reply.before]


def test_a_job_gets_just_the_gpus_that_it_names_in_its_order(attempts: Attempts) -> None:
    assert prepare(attempts, "first", 3, 1).gpu_ids == [3, 1]
    assert prepare(attempts, "second", count=2).gpu_ids == [0, 2]


def test_who_has_one_of_them_is_named_and_nothing_else_is_given_in_its_place(attempts: Attempts, clock: Clock) -> None:
    prepare(attempts, "first", 1, 2)
    prepare(attempts, "another", 3)
    with pytest.raises(RpcError, match=r"^GPU 0, 2 wanted, GPU 2 not free here; job first has GPU 2") as held:
        prepare(attempts, "second", 0, 2)
    assert held.value.code == ErrorCode.REFUSED
    assert "another" not in str(held.value)
    assert prepare(attempts, "third", 0).gpu_ids == [0]  # What was refused keeps nothing.
    clock.now_s += LEASE_S + 1
    assert prepare(attempts, "second", 0, 2).gpu_ids == [0, 2]


def test_another_users_lock_on_one_of_them_is_a_refusal_too(attempts: Attempts, tmp_path: Path) -> None:
    GpuLocks(tmp_path / "locks").take(["GPU-2"], 1, Purpose("theirs", 0, 1_790_000_000.0))
    with pytest.raises(RpcError, match=r"GPU 2 not free here; job theirs of .* has GPU 2 since 2026-09-21 14:13 "):
        prepare(attempts, "mine", 1, 2)
    assert prepare(attempts, "mine", 1, 3).gpu_ids == [1, 3]


def test_one_that_a_process_uses_is_not_given(attempts: Attempts, idle: list[int]) -> None:
    idle.remove(1)
    with pytest.raises(RpcError, match=r"^GPU 0, 1 wanted, GPU 1 not free here$"):
        prepare(attempts, "mine", 0, 1)


def test_gpus_that_the_host_does_not_have_are_neither_given_nor_waited_for(attempts: Attempts) -> None:
    for ask in (lambda: prepare(attempts, "mine", 0, 4, 7), lambda: wait(attempts, "mine", 1.0, 0, 4, 7)):
        with pytest.raises(RpcError, match=r"^this host has no GPU 4, 7$") as refused:
            ask()
        assert refused.value.code == ErrorCode.REFUSED


def test_of_two_that_are_prepared_at_once_for_the_same_gpu_the_second_is_asked_again(attempts: Attempts) -> None:
    prepare(attempts, "b", 1)
    prepare(attempts, "c", 2)
    for job_id, ids, code in (("a", (1, 3), ErrorCode.CONTENDED), ("bb", (1, 3), ErrorCode.REFUSED)):
        with pytest.raises(RpcError) as refused:
            prepare(attempts, job_id, *ids)
        assert refused.value.code == code


@pytest.mark.parametrize(("ids", "count"), [([1, 1], 2), ([1], 2), ([-1], 1), ([4096], 1)])
def test_numbers_that_name_no_gpus_are_no_request(ids: list[int], count: int) -> None:
    key = AttemptKey("x", 0)
    with pytest.raises(OutOfRangeError, match="gpu_ids must be"):
        QueueRequest(key, 0.0, count, gpu_ids=ids)
    with pytest.raises(OutOfRangeError, match="gpu_ids must be"):
        PrepareRequest(key, 0, "sh", "m", False, (29500, 29999), count, gpu_ids=ids)


# --- in the line ------------------------------------------------------------------------------------------------------


def test_who_waits_for_gpus_that_are_taken_holds_back_nobody_who_wants_others(attempts: Attempts) -> None:
    prepare(attempts, "running", 0)
    waiting = wait(attempts, "picky", 1.0, 0)
    assert (waiting.has_room, waiting.free) == (False, 0)
    others = wait(attempts, "others", 2.0, 1, 2)
    assert (others.has_room, others.free, names(others)) == (True, 2, [])
    assert wait(attempts, "any", 3.0, count=1).has_room
    attempts.stop(StopRequest(AttemptKey("running", 0)))
    assert wait(attempts, "picky", 1.0, 0).has_room


def test_what_the_first_has_named_is_kept_for_him_as_it_becomes_free(attempts: Attempts) -> None:
    prepare(attempts, "running", 1)
    assert not wait(attempts, "first", 1.0, 0, 1).has_room
    same = wait(attempts, "second", 2.0, 0)
    assert (same.has_room, same.free, names(same)) == (False, 1, ["first"])
    with pytest.raises(RpcError, match=r"GPU 0 not free here; job first of .* has waited for 2"):
        prepare(attempts, "second", 0)
    assert not wait(attempts, "many", 3.0, count=3).has_room
    assert prepare(attempts, "many", count=2).gpu_ids == [2, 3]


def test_who_names_gpus_leaves_as_many_as_those_before_him_wait_for(attempts: Attempts) -> None:
    prepare(attempts, "running", 0)
    assert wait(attempts, "wide", 1.0, count=3).has_room
    assert not wait(attempts, "picky", 2.0, 2).has_room
    with pytest.raises(RpcError, match="GPU 2 not free here; job wide of"):
        prepare(attempts, "picky", 2)
    wait(attempts, "wide", 1.0, count=2)
    assert wait(attempts, "picky", 2.0, 2).has_room


def test_who_takes_any_is_given_last_what_somebody_waits_for(attempts: Attempts, idle: list[int]) -> None:
    idle.remove(1)
    wait(attempts, "any", 1.0, count=2)
    wait(attempts, "picky", 2.0, 0, 1)
    assert prepare(attempts, "any", count=2, asked_at=1.0).gpu_ids == [2, 3]


def test_who_takes_any_has_them_in_the_order_of_their_numbers(attempts: Attempts) -> None:
    """Also where somebody waits for one of them, which came last: in a container ranks are on others then."""
    wait(attempts, "picky", 2.0, 1)
    assert prepare(attempts, "any", count=4, asked_at=1.0).gpu_ids == [0, 1, 2, 3]


def test_other_users_see_what_one_waits_for_by_names_that_all_see(attempts: Attempts, tmp_path: Path) -> None:
    wait(attempts, "mine", 1.0, 3, 1)
    line = GpuLine(tmp_path / "locks")
    (waiter,) = line.waiters()
    assert waiter.ticket == Ticket("mine", 1.0, 2, named=("GPU-3", "GPU-1"))
    place = line.stand(Ticket("theirs", 0.5, 1, named=("GPU-1",)))
    assert place is not None
    with contextlib.ExitStack() as stack:
        stack.callback(leave, place)
        held = wait(attempts, "mine", 1.0, 3, 1)
        assert (held.has_room, names(held)) == (False, ["theirs"])
        assert wait(attempts, "else", 2.0, 0, 2).has_room
    assert wait(attempts, "mine", 1.0, 3, 1).has_room


def test_a_ticket_too_long_for_its_file_is_seen_by_its_number(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    line = GpuLine(tmp_path)
    place = line.stand(Ticket("mine", 1.0, 2, named=("GPU-" + "a" * PADDED_BYTES, "GPU-b")))
    assert place is not None
    assert [waiter.ticket for waiter in line.waiters()] == [Ticket("mine", 1.0, 2)]
    leave(place)


@pytest.mark.parametrize("named", [["GPU-0"], "GPU-0", [1, 2], {"GPU-0": 1}, None])
def test_what_another_has_written_of_names_is_taken_for_a_number_where_it_is_none(
    named: object, tmp_path: Path
) -> None:
    tmp_path.chmod(0o1777)
    line = GpuLine(tmp_path)
    place = line.stand(Ticket("mine", 1.0, 2))
    assert place is not None
    (file,) = tmp_path.glob("_wait.*")
    file.write_text(json.dumps({"asked_s": 1.0, "gpus": 2, "named": named}))
    assert [waiter.ticket for waiter in line.waiters()] == [Ticket("mine", 1.0, 2)]
    leave(place)
