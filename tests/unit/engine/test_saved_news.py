"""What hosts of an attempt that has ended say of what it has written there."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import EventKind
from dtagent.protocol.saved import MAX_PLACES, PlaceKind, SavedPlace, SavedReply, SavedRequest

from dttui import jobs
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.saved_news import HURRIED_LOOK_S, LOOK_S, tell_saved
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.saved_text import saved_of

NOW = time.time()
PLACE = SavedPlace("/c", PlaceKind.CHECKPOINTS, 3, 5000, NOW + 100.0, goes_at=NOW + 700.0)


class Node:
    """A node that has ended, whose host's clock is 100 s ahead."""

    is_lost, hurries, is_over = False, False, True

    def __init__(self, name: str, reply: SavedReply | None) -> None:
        self.name, self._reply = name, reply
        self.key = AttemptKey("job", 2)
        self.status: object | None = object()
        self.asked: list[float] = []

    def here(self, moment: float) -> float:
        return moment - 100.0

    async def answer_within(self, method: str, request: SavedRequest, _reply: object, _deadline_s: float) -> Any:
        assert (method, request.key) == ("saved", self.key)
        self.asked.append(request.seconds)
        return self._reply


@pytest.fixture
def directory() -> JobDirectory:
    return jobs.create("x")


async def told(directory: JobDirectory, *nodes: Node, hurries: bool = False) -> list[Any]:
    await tell_saved(
        AttemptLog(EventLog(directory.events), 2), [cast(NodeRun, node) for node in nodes], hurries=hurries
    )
    return directory.read_events(EventKind.SAVED)


async def test_each_host_is_told_by_the_clock_of_the_login_node(directory: JobDirectory) -> None:
    (event,) = await told(directory, Node("a", SavedReply([PLACE], is_kept=True)), Node("b", SavedReply()))
    assert (event.node, event.attempt, event.message) == ("a", 2, "a: 3 files were saved, 5 kB")
    (saved,) = saved_of(event)
    assert (saved.path, saved.kind, saved.count, saved.size_bytes) == ("/c", "checkpoints", 3, 5000)
    assert saved.newest == pytest.approx(NOW)
    assert saved.goes_at == pytest.approx(NOW + 600.0)
    assert (saved.node, saved.attempt, saved.is_kept, saved.is_whole) == ("a", 2, True, True)


async def test_a_host_that_is_lost_silent_or_without_the_attempt_says_nothing(directory: JobDirectory) -> None:
    silent, lost, untouched = Node("a", None), Node("b", SavedReply([PLACE])), Node("c", SavedReply([PLACE]))
    lost.is_lost, untouched.status = True, None
    assert await told(directory, silent, lost, untouched) == []
    assert lost.asked == untouched.asked == []


async def test_where_somebody_waits_for_the_end_the_look_is_short(directory: JobDirectory) -> None:
    well, forced, failed = (Node(name, SavedReply()) for name in "abc")
    forced.hurries = True
    await told(directory, well, forced)
    await told(directory, failed, hurries=True)
    assert [well.asked, forced.asked, failed.asked] == [[LOOK_S], [HURRIED_LOOK_S], [HURRIED_LOOK_S]]


async def test_a_host_that_says_more_than_any_may_is_cut_off(directory: JobDirectory) -> None:
    absurd = SavedPlace("/x", PlaceKind.WORK, -5, -1, NOW)
    (event,) = await told(directory, Node("a", SavedReply([absurd] * (MAX_PLACES + 50))))
    found = saved_of(event)
    assert len(found) == MAX_PLACES
    assert {(item.count, item.size_bytes) for item in found} == {(0, 0)}
