"""When a slow link is told: how long it takes, once, and taken back; and what is no word of one."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from dtagent.protocol.events import EventKind
from dtagent.protocol.traffic import PeerTraffic

from dttui import jobs
from dttui.diagnosis.slow_links import Link
from dttui.engine import slow_link_watch
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.slow_link_watch import SlowLinkWatch
from dttui.jobs.event_log import EventLog
from tests.waiting import until

MB = 10**6


class Watched:
    """Three nodes in a ring, each sending 50 MB/s, and a clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after_s: float | None = 120.0) -> None:
        self.now, self.woken, self.asked, self.after_s = 1000.0, False, 0, after_s
        monkeypatch.setattr(slow_link_watch, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(slow_link_watch, "_read_all", self._read_all)
        self.nodes: list[Any] = [SimpleNamespace(name=name, silent_since=None, is_over=False) for name in "abc"]
        self.busy: dict[Link, float] = {("a", "b"): 0.1, ("b", "c"): 0.1, ("c", "a"): 0.1}
        self.rate: dict[Link, float] = dict.fromkeys(self.busy, 50.0 * MB)
        self.sent = {link: PeerTraffic(link[1], 1, 0, 0.0) for link in self.busy}
        self.directory = jobs.create("x")
        self.take_over()

    def take_over(self) -> None:
        """Let another controller watch, which finds what was told."""
        log, told = AttemptLog(EventLog(self.directory.events), 0), self.directory.read_events()
        self.watch = SlowLinkWatch(self.after_s, log, lambda: self.nodes, self._wake, told)

    def slow_down(self, *links: Link) -> None:
        for link in links:
            self.rate[link], self.busy[link] = 1.0 * MB, 1.0

    async def after(self, seconds: float, *, is_running: bool = True) -> list[tuple[str | None, str]]:
        """Look every five seconds for so long; return all that was told, as node and severity."""
        for _ in range(int(seconds / 5)):
            self.now += 5
            self.sent = {
                link: PeerTraffic(
                    link[1], 1, int(peer.sent_bytes + 5 * self.rate[link]), peer.busy_s + 5 * self.busy[link]
                )
                for link, peer in self.sent.items()
            }
            self.woken = False
            self.watch.look(is_running=is_running)
            if self.after_s is not None and self.watch.wait_s is None:
                await until(lambda: self.woken, "an answer")
            self.watch.look(is_running=is_running)
        return [(event.node, event.data["severity"]) for event in self.directory.read_events(EventKind.STRAGGLER)]

    def _wake(self) -> None:
        self.woken = True

    async def _read_all(self, _nodes: Sequence[Any]) -> tuple[float, dict[Link, PeerTraffic]]:
        self.asked += 1
        return self.now, self.sent


async def test_it_is_told_once_after_its_time_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(monkeypatch)
    assert await job.after(300) == []
    job.slow_down(("b", "c"))
    assert not job.watch.is_suspected
    assert await job.after(85) == []
    assert (job.watch.is_suspected, job.watch.is_named) == (True, False)
    assert await job.after(65) == [("b", "warning")]
    assert job.watch.is_named
    (event,) = job.directory.read_events(EventKind.STRAGGLER)
    assert event.message == "the link from b to c is slow: 1 MB/s where others have 500 MB/s, in use 100% of the time"
    assert (event.rank, event.data["links"], event.data["busy"]) == (None, [["b", "c"]], 1.0)
    assert await job.after(300) == [("b", "warning")]
    job.take_over()
    assert await job.after(300) == [("b", "warning")]
    job.rate[("b", "c")], job.busy[("b", "c")] = 50.0 * MB, 0.1
    assert await job.after(180) == [("b", "warning"), (None, "info")]
    assert not job.watch.is_suspected
    job.take_over()
    assert not job.watch.is_named


async def test_who_takes_over_takes_back_no_sooner_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(monkeypatch)
    job.slow_down(("b", "c"))
    assert await job.after(200) == [("b", "warning")]
    job.take_over()
    job.rate[("b", "c")], job.busy[("b", "c")] = 50.0 * MB, 0.1
    assert await job.after(90) == [("b", "warning")]
    assert await job.after(90) == [("b", "warning"), (None, "info")]


async def test_a_host_is_named_where_what_it_sends_and_is_sent_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(monkeypatch)
    job.slow_down(("b", "c"), ("a", "b"))
    assert await job.after(200) == [("b", "warning")]
    (event,) = job.directory.read_events(EventKind.STRAGGLER)
    assert event.message.startswith("the network of b is slow: 1 MB/s where others have ")


async def test_one_that_is_slow_now_and_then_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(monkeypatch)
    for _ in range(6):
        job.slow_down(("b", "c"))
        await job.after(90)
        job.rate[("b", "c")], job.busy[("b", "c")] = 50.0 * MB, 0.1
        await job.after(60)
    assert await job.after(5) == []


async def test_of_connections_that_are_made_anew_each_time_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(monkeypatch)
    job.slow_down(("b", "c"))
    for number in range(12):
        job.sent[("b", "c")] = PeerTraffic("c", 1, -1000 * MB * number, 0.0)
        await job.after(30)
    assert await job.after(5) == []


@pytest.mark.parametrize("why", ["unwanted", "two nodes", "silent", "not running"])
async def test_no_question_is_asked_where_none_is_wanted_or_nothing_would_be_meant(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Watched(monkeypatch, None if why == "unwanted" else 120.0)
    if why == "two nodes":
        job.nodes[2].is_over = True
    if why == "silent":
        job.nodes[2].silent_since = 1.0
    await job.after(300, is_running=why != "not running")
    assert job.asked == 0
