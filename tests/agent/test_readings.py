"""Readings that never come back: each kind costs one thread, and whoever asks again does not wait for it again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from dtagent.calls import Workers
from dtagent.errors import RpcError
from dtagent.facts import collection, interpreters
from dtagent.facts.interpreters import examine_all
from dtagent.protocol.rpc import ErrorCode
from dtagent.system import users
from dtagent.system.readings import Readings
from dtagent.telemetry.nvml import Nvml

from tests.waiting import wait_until


@pytest.fixture
def hang() -> Iterator[Callable[..., None]]:
    """What does not come back before the end of the test."""
    end = threading.Event()

    def wait(*_: object) -> None:
        end.wait(60)

    yield wait
    end.set()
    wait_until(lambda: not readers(), "the threads to end")


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "reading"]


def test_a_reading_that_hangs_is_not_begun_again_nor_waited_for_again(hang: Callable[..., None]) -> None:
    readings = Readings(most=3)
    assert readings.within("disk", hang, 1.0) is None
    waits = [readings.begin("disk", lambda: 1, 1.0) for _ in range(30)]
    began = time.monotonic()
    assert [wait() for wait in waits if wait is not None] == [None] * 30
    assert time.monotonic() - began < 20, "the time is over: thirty more waits would take 30 s"
    assert len(readers()) == 1
    assert readings.within("other", lambda: 2, 30.0) == 2


def test_once_it_comes_back_it_is_taken_again() -> None:
    readings = Readings(most=1)
    gate = threading.Event()
    assert readings.within("disk", gate.wait, 0.05) is None
    gate.set()
    wait_until(lambda: readings.within("disk", lambda: 3, 5.0) == 3, "the reading to be taken anew")


def test_who_asks_meanwhile_gets_the_same_answer() -> None:
    readings = Readings(most=1)
    gate = threading.Event()
    waits = [readings.begin("disk", lambda: gate.wait(10) and object(), 10.0) for _ in range(2)]
    gate.set()
    first, second = (wait() for wait in waits if wait is not None)
    assert first is second


def test_so_many_may_be_under_way_and_a_failure_is_no_answer(hang: Callable[..., None]) -> None:
    readings = Readings(most=2)
    assert [readings.begin(kind, hang, 0.0) is None for kind in "abc"] == [False, False, True]
    assert Readings(most=1).within("x", lambda: int("x"), 5.0) is None


def test_facts_of_a_host_whose_disk_hangs_leave_one_thread_however_often_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, hang: Callable[..., None]
) -> None:
    monkeypatch.setattr("dtagent.system.system_facts.file_systems", hang)
    monkeypatch.setattr(interpreters, "resolve", hang)
    monkeypatch.setattr(collection, "DISKS_WAIT_S", 0.05)
    monkeypatch.setattr(collection, "examine_all", lambda pythons, **more: examine_all(pythons, timeout_s=-1.9, **more))
    for _ in range(4):
        found = collection.collect(["/dead/bin/python"], Nvml(), driver_wait_s=5.0)
        assert found.file_systems is None
        assert found.pythons[0].error == "/dead/bin/python cannot be reached: its file system does not answer"
    wait_until(lambda: len(readers()) == 2, "one thread for each of both that hang")


def test_many_interpreters_that_hang_leave_a_bounded_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, hang: Callable[..., None]
) -> None:
    monkeypatch.setattr(interpreters, "resolve", hang)
    monkeypatch.setattr(interpreters, "_READINGS", Readings(most=4))
    found = [examine_all([f"/dead/{turn}/{number}" for number in range(3)], timeout_s=-1.99) for turn in range(3)]
    assert len(readers()) == 4
    assert found[2][2].error == "/dead/2/2 was not examined: too many others do not answer"


def test_a_directory_service_that_hangs_costs_the_names_of_users_alone(
    monkeypatch: pytest.MonkeyPatch, hang: Callable[..., None]
) -> None:
    monkeypatch.setattr(users, "_known", {})
    monkeypatch.setattr(users, "_readings", Readings(most=2))
    monkeypatch.setattr(users, "LIMIT_S", 0.05)
    monkeypatch.setattr(users, "pwd", SimpleNamespace(getpwuid=hang))
    began = time.monotonic()
    assert [users.name_of(uid) for uid in (1, 2, 3, 1)] == ["1", "2", "3", "1"]
    assert time.monotonic() - began < 20
    assert len(readers()) == 2


def test_a_user_without_a_name_goes_by_the_number_and_one_with_a_name_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def getpwuid(uid: int) -> SimpleNamespace:
        asked.append(uid)
        if uid == 7:
            raise KeyError(uid)
        return SimpleNamespace(pw_name="li")

    monkeypatch.setattr(users, "_known", {})
    monkeypatch.setattr(users, "pwd", SimpleNamespace(getpwuid=getpwuid))
    assert [users.name_of(uid) for uid in (7, 8, 7, 8)] == ["7", "li", "7", "li"]
    assert asked == [7, 8]


async def test_a_thread_that_cannot_be_started_costs_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers("test", 1)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(3):
            with pytest.raises(RpcError) as caught:
                await workers.run(lambda: 1)
            assert caught.value.code is ErrorCode.BUSY
        assert Readings(most=1).within("x", lambda: 1, 1.0) is None
    assert await workers.run(lambda: 1) == 1
