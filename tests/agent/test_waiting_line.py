"""Who waits for GPUs of a host: in the order of asking, with real users, daemons and a directory that all share."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.attempts import waiting_line
from dtagent.attempts.attempts import Attempts
from dtagent.attempts.waiting_line import WaitingLine
from dtagent.errors import RpcError
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import StopRequest
from dtagent.protocol.preparation import PrepareReply, PrepareRequest
from dtagent.protocol.queueing import QueueReply, QueueRequest
from dtagent.protocol.rpc import ErrorCode
from dtagent.system.gpu_line import GpuLine, Ticket, leave

from tests.agent.conversation import Conversation
from tests.agent.test_gpu_locks import ANN, BOB, Users, as_user, needs_root
from tests.agent.test_gpu_locks import shared as shared
from tests.agent.test_gpu_locks import users as users
from tests.clock import Clock
from tests.waiting import wait_until

SLOTS = 4


@pytest.fixture
def attempts(tmp_path: Path, clock: Clock) -> Iterator[Attempts]:
    """A host with simulated GPUs, and one with two that are not."""
    found = Attempts(tmp_path, lambda: [0, 1])
    yield found
    for key in found.census.known_keys():
        found.stop(StopRequest(key))


def wait(attempts: Attempts, job_id: str, asked_at: float, slots: int, **more: Any) -> QueueReply:
    return attempts.line_up(QueueRequest(AttemptKey(job_id, 0), asked_at, 0, slots, SLOTS, **more))


def prepare(attempts: Attempts, job_id: str, slots: int, asked_at: float | None = None) -> PrepareReply:
    key, ports = AttemptKey(job_id, 0), (29500, 29999)
    return attempts.prepare(
        PrepareRequest(
            key, 0, "sh", "127.0.0.1", False, ports, 0, simulated_slots=slots, simulated_total=SLOTS, asked_at=asked_at
        )
    )


def end(attempts: Attempts, job_id: str) -> None:
    attempts.stop(StopRequest(AttemptKey(job_id, 0)))


def names(reply: QueueReply) -> list[str]:
    return [item.job for item in reply.before]


def test_a_wide_job_is_not_overtaken_by_narrow_ones_however_many_come(attempts: Attempts) -> None:
    prepare(attempts, "running", 1)
    wide = wait(attempts, "wide", 10.0, SLOTS)
    assert (wide.has_room, wide.free, names(wide)) == (False, 3, [])
    for number in range(5):  # Three GPUs are free, and each wants one.
        narrow = wait(attempts, f"narrow{number}", 20.0 + number, 1)
        assert (narrow.has_room, narrow.free) == (False, 3)
        assert names(narrow)[0] == "wide"
        with pytest.raises(RpcError, match="1 simulated GPUs are wanted and 0 are free here") as refused:
            prepare(attempts, f"hasty{number}", 1)
        assert "job wide of" in str(refused.value)
        assert "has waited for 4 since 1970-01-01 00:00 UTC" in str(refused.value)
        assert refused.value.code == ErrorCode.REFUSED
    end(attempts, "running")
    assert wait(attempts, "wide", 10.0, SLOTS).has_room
    assert not wait(attempts, "narrow0", 20.0, 1).has_room
    prepare(attempts, "wide", SLOTS, 10.0)
    assert wait(attempts, "wide", 10.0, SLOTS).is_set_aside
    assert names(wait(attempts, "narrow1", 21.0, 1)) == ["narrow0"]
    end(attempts, "wide")
    for number in range(4):
        assert wait(attempts, f"narrow{number}", 20.0 + number, 1).has_room
    assert not wait(attempts, "narrow4", 24.0, 1).has_room


def test_who_asked_later_goes_ahead_only_where_there_is_room_for_all_before_him_too(attempts: Attempts) -> None:
    assert wait(attempts, "first", 1.0, 3).has_room
    assert not wait(attempts, "second", 2.0, 2).has_room
    assert not wait(attempts, "third", 3.0, 1).has_room
    wait(attempts, "second", 2.0, 2, leaves=True)
    assert wait(attempts, "third", 3.0, 1).has_room
    prepare(attempts, "third", 1, 3.0)
    assert wait(attempts, "first", 1.0, 3).has_room


def test_of_two_who_asked_at_once_the_same_goes_first_on_every_host(attempts: Attempts) -> None:
    for job_id in ("b", "a"):
        wait(attempts, job_id, 5.0, SLOTS)
    assert [names(wait(attempts, job_id, 5.0, SLOTS)) for job_id in ("a", "b")] == [[], ["a"]]


def test_who_stands_aside_lets_others_by_and_is_first_again_afterwards(attempts: Attempts) -> None:
    wait(attempts, "first", 1.0, SLOTS, stands_aside=True)
    assert wait(attempts, "second", 2.0, SLOTS).has_room
    wait(attempts, "first", 1.0, SLOTS)
    assert not wait(attempts, "second", 2.0, SLOTS).has_room


def test_a_place_lapses_without_a_word_and_the_order_is_the_same_once_it_is_back(
    attempts: Attempts, clock: Clock
) -> None:
    wait(attempts, "first", 1.0, SLOTS)
    clock.now_s += waiting_line.PLACE_S - 1
    assert names(wait(attempts, "second", 2.0, SLOTS)) == ["first"]
    clock.now_s += 2
    assert wait(attempts, "second", 2.0, SLOTS).has_room
    assert wait(attempts, "first", 1.0, SLOTS).has_room
    assert not wait(attempts, "second", 2.0, SLOTS).has_room


def test_an_attempt_that_begins_anew_comes_before_those_who_asked_after_its_job(attempts: Attempts) -> None:
    wait(attempts, "waiting", 10.0, SLOTS)
    prepare(attempts, "older", 2, 5.0)
    assert not wait(attempts, "waiting", 10.0, SLOTS).has_room


@pytest.mark.parametrize(
    ("command", "may_restart", "goes_first"),
    [("exit 3", True, True), ("kill -9 $$", True, True), ("exit 3", False, False), ("exit 0", True, False)],
)
def test_a_job_that_may_be_started_again_goes_first_from_a_bad_end_on(
    tmp_path: Path, command: str, may_restart: bool, goes_first: bool
) -> None:
    """Whoever asks for the line when the end has just been written finds it there already."""
    wanted = {"simulated_slots": SLOTS, "simulated_total": SLOTS}

    def has_room(agent: Conversation, job_id: str, asked_at: float, **more: Any) -> Any:
        request = {"key": {"job_id": job_id, "attempt": 1}, "asked_at": asked_at, "cuda_slots": 0, **wanted, **more}
        return agent.call("queue", request)["has_room"]

    with Conversation(tmp_path / "root") as agent:
        agent.prepare("first", asked_at=5.0, may_restart=may_restart, **wanted)
        agent.start("first", [["sh", "-c", command]])
        agent.end_of("first")
        if not goes_first:
            assert has_room(agent, "later", 10.0)
            return
        agent.prepare("hasty", **wanted)  # Nobody waits, and it need not either.
        agent.stop("hasty")
        assert not has_room(agent, "later", 10.0)
        assert has_room(agent, "earlier", 1.0)
        has_room(agent, "earlier", 1.0, leaves=True)
        has_room(agent, "first", 5.0, leaves=True)
        assert has_room(agent, "later", 10.0)


def test_a_job_that_is_over_before_it_is_heard_of_again_is_in_no_line(tmp_path: Path) -> None:
    """Its controller asks every two seconds, and may not know yet that it has begun."""
    wanted = {"simulated_slots": SLOTS, "simulated_total": SLOTS, "cuda_slots": 0}
    with Conversation(tmp_path / "root") as agent:
        agent.prepare("short", asked_at=5.0, **wanted)
        agent.start("short", [["true"]])
        agent.end_of("short")
        replies = [
            agent.call("queue", {"key": {"job_id": job, "attempt": 0}, "asked_at": asked_at, **wanted})
            for job, asked_at in (("short", 5.0), ("next", 6.0))
        ]
    assert replies[0]["is_set_aside"]
    assert replies[1]["has_room"]


def test_a_job_whose_next_attempt_has_begun_is_in_no_line(tmp_path: Path) -> None:
    """Half of the GPUs are left, for who comes first."""
    half = {"simulated_slots": SLOTS // 2, "simulated_total": SLOTS}
    with Conversation(tmp_path / "root") as agent:
        agent.prepare("first", asked_at=5.0, may_restart=True, **half)
        agent.start("first", [["false"]])
        agent.end_of("first")
        agent.prepare("first", 1, asked_at=5.0, may_restart=True, **half)
        key = {"job_id": "later", "attempt": 0}
        assert agent.call("queue", {"key": key, "asked_at": 10.0, "cuda_slots": 0, **half})["has_room"]


def test_more_than_a_host_has_is_not_waited_for(attempts: Attempts) -> None:
    with pytest.raises(RpcError, match="5 simulated GPUs are wanted and 4 are free here") as refused:
        wait(attempts, "greedy", 1.0, SLOTS + 1)
    assert refused.value.code == ErrorCode.REFUSED
    assert wait(attempts, "modest", 2.0, SLOTS).has_room


def test_a_file_that_is_removed_is_made_anew(shared: Path) -> None:
    line = WaitingLine(GpuLine(shared))
    for _turn in range(2):
        line.keep(Ticket("mine", 1.0, 2))
        assert [waiter.ticket for waiter in GpuLine(shared).waiters()] == [Ticket("mine", 1.0, 2)]
        for path in shared.iterdir():
            path.unlink()
    line.keep(Ticket("mine", 1.0, 2))
    line.leave("mine")
    assert list(shared.iterdir()) == []


def test_a_file_that_could_not_be_had_at_first_is_had_later(shared: Path) -> None:
    class Full(GpuLine):
        has_room = False

        def stand(self, ticket: Ticket) -> int | None:
            if not self.has_room:
                raise OSError(errno.ENOSPC, "no room")
            return super().stand(ticket)

    full = Full(shared)
    line = WaitingLine(full)
    line.keep(Ticket("mine", 1.0, 2))
    assert ([waiter.ticket.job_id for waiter in line.waiters()], GpuLine(shared).waiters()) == (["mine"], [])
    full.has_room = True
    line.keep(Ticket("mine", 1.0, 2))
    assert [waiter.ticket.job_id for waiter in GpuLine(shared).waiters()] == ["mine"]


def test_a_file_that_cannot_be_read_hides_nobody(shared: Path) -> None:
    descriptor = GpuLine(shared).stand(Ticket("mine", 1.0, 2))
    (shared / f"_wait.a.{os.geteuid()}").symlink_to("nowhere")
    assert [waiter.ticket.job_id for waiter in GpuLine(shared).waiters()] == ["mine"]
    assert descriptor is not None
    leave(descriptor)


@needs_root
def test_what_others_write_of_their_waiting_may_be_anything(shared: Path) -> None:
    texts: list[object] = [
        *("", "[]", "[" * 4000, {"asked_s": 1.0}, {"asked_s": 1.0, "gpus": True}, {"asked_s": 1.0, "gpus": -1}),
        *({"asked_s": "x", "gpus": 1}, {"asked_s": 1e99, "gpus": 1}, {"asked_s": 1.0, "gpus": 10**9}),
    ]
    for text in texts:
        descriptor = GpuLine(shared).stand(Ticket("theirs", 1.0, 1))
        assert descriptor is not None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, (text if isinstance(text, str) else json.dumps(text)).encode(), 0)
        assert GpuLine(shared).waiters() == []
        leave(descriptor)
    # A name that another has taken keeps nobody from waiting, and what nobody stands at is nothing.
    (shared / f"_wait.mine.{ANN}").write_text(json.dumps({"asked_s": 1.0, "gpus": 1}))

    def stand() -> list[int]:
        GpuLine(shared).stand(Ticket("mine", 3.0, 1))
        return [waiter.uid for waiter in GpuLine(shared).waiters()]

    assert as_user(ANN, stand) == [ANN]
    assert GpuLine(shared).waiters() == []  # He is gone, and so is his place.


def ask(agent: Conversation, job_id: str, asked_at: float, gpus: int) -> dict[str, Any]:
    request = {"key": {"job_id": job_id, "attempt": 0}, "asked_at": asked_at, "cuda_slots": gpus}
    reply = agent.call("queue", request)
    assert isinstance(reply, dict)
    return reply


def test_users_wait_in_one_line_and_a_place_goes_with_the_agent_that_keeps_it(users: Users) -> None:
    asked_at = time.time()
    with users.agent(BOB) as bob:
        with users.agent(ANN, keep_daemon=True) as ann:
            bob.prepare("running", cuda_slots=1, python="sh")
            assert not ask(ann, "anns", asked_at, 2)["has_room"]
            late = ask(bob, "late", asked_at + 1, 1)
            assert [(item["user"], item["job"], item["gpus"]) for item in late["before"]] == [(str(ANN), "anns", 2)]
            assert not late["has_room"]
            hasty = {"key": {"job_id": "hasty", "attempt": 0}, "node_rank": 0, "python": "sh", "cuda_slots": 1}
            more = {"master_address": "127.0.0.1", "reserve_port": False, "port_range": [29500, 29999]}
            refused = bob.ask("prepare", {**hasty, **more})["error"]["message"]
            assert refused.startswith("1 GPUs are wanted and 0 are free here; ")
            assert f"job anns of {ANN} has waited for 2 since " in refused

            def waits() -> list[str]:
                return [item["job"] for item in bob.call("telemetry", {"wait_s": 5})["samples"][-1].get("waits", ())]

            wait_until(lambda: waits() == ["anns", "late"], "the line to be told")
            left = {"key": {"job_id": "late", "attempt": 0}, "asked_at": asked_at + 1, "cuda_slots": 1, "leaves": True}
            bob.call("queue", left)
            wait_until(lambda: waits() == ["anns"], "who has left to be told no more")
            ann.kill_daemon()
        assert ask(bob, "late", asked_at + 1, 1)["has_room"]
        with users.agent(ANN) as ann:  # Whoever waits keeps the time of asking himself.
            assert not ask(ann, "anns", asked_at, 2)["has_room"]
            assert not ask(bob, "late", asked_at + 1, 1)["has_room"]
