"""Waiting for news of attempts: each is looked at once for all who wait, and the event loop is left alone meanwhile."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from dtagent.daemon import attempt_watcher as watcher_module
from dtagent.daemon.attempt_watcher import AttemptSnapshot, AttemptWatcher, look_at
from dtagent.locations import AttemptFiles, make_private

from tests.waiting import until

MANY = 50
DEADLINE_S = 20.0


@pytest.fixture
def files(tmp_path: Path) -> AttemptFiles:
    found = AttemptFiles(tmp_path / "jobs/gpt/0")
    for directory in (found.logs, found.ranks, found.failures):
        make_private(directory)
    found.prepared.touch()
    return found


def never(_look: AttemptSnapshot) -> bool:
    return False


def has(stream: str) -> Callable[[AttemptSnapshot], bool]:
    return lambda look: stream in look.sizes


async def test_many_who_wait_for_one_attempt_cost_one_look_a_turn_and_nothing_on_the_loop(
    files: AttemptFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[tuple[str, AttemptFiles]] = []

    def look(watched: AttemptFiles) -> AttemptSnapshot:
        looks.append((threading.current_thread().name, watched))
        return look_at(watched)

    monkeypatch.setattr(watcher_module, "look_at", look)
    watcher = AttemptWatcher()
    began = time.monotonic()
    told = await asyncio.gather(*(watcher.wait(files, never, 1.0) for _ in range(MANY)))
    turns = (time.monotonic() - began) / watcher_module.BUSY_PACE_S
    assert told == [None] * MANY
    assert set(looks) == {("attempt-watcher", files)}
    assert len(looks) <= turns + MANY  # Who comes is answered at once, which may be a look for each.
    looks.clear()
    other = AttemptFiles(files.directory.with_name("other"))
    waiting = asyncio.create_task(watcher.wait(other, never, DEADLINE_S))
    await until(lambda: [watched for _thread, watched in looks].count(other) >= 5, "looks at the other")
    waiting.cancel()
    of_whom = [watched for _thread, watched in looks]
    # One look at the first may have been under way when it was let go of.
    assert set(of_whom[of_whom.index(other) :]) == {other}, "one that nobody waits for is looked at"


@pytest.mark.parametrize(
    "change",
    [
        lambda files: (files.logs / "0.out").write_text("x"),
        lambda files: (files.ranks / "0.json").write_text("{}"),
        lambda files: (files.failures / "0.json").write_text("{}"),
        lambda files: files.journal.write_text("x"),
        lambda files: files.start.touch(),
        lambda files: files.discarded.touch(),
        lambda files: files.metrics.write_text("{}"),
    ],
)
async def test_whatever_happens_to_an_attempt_is_seen(
    files: AttemptFiles, change: Callable[[AttemptFiles], object]
) -> None:
    before = look_at(files)
    watcher = AttemptWatcher()
    waiting = asyncio.create_task(watcher.wait(files, lambda look: look != before, DEADLINE_S))
    assert await watcher.wait(files, lambda look: look == before, DEADLINE_S) == before
    change(files)
    after = await waiting
    assert after is not None
    assert (after.stamp, after.sizes) != (before.stamp, before.sizes)


async def test_what_was_seen_before_somebody_came_does_not_answer_him(files: AttemptFiles) -> None:
    watcher = AttemptWatcher()
    assert await watcher.wait(files, has("0.out"), 0.05) is None
    (files.logs / "0.out").write_text("x")
    waiting = asyncio.create_task(watcher.wait(files, never, DEADLINE_S))
    found = await watcher.wait(files, lambda _look: True, DEADLINE_S)
    assert found is not None
    assert "0.out" in found.sizes
    waiting.cancel()


async def test_who_came_when_a_look_failed_is_answered_by_the_next_though_it_shows_what_was_seen_before(
    files: AttemptFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[OSError] = []

    def look(watched: AttemptFiles) -> AttemptSnapshot:
        if failures:
            raise failures.pop()
        return look_at(watched)

    monkeypatch.setattr(watcher_module, "look_at", look)
    watcher = AttemptWatcher()
    staying = asyncio.create_task(watcher.wait(files, never, DEADLINE_S))
    assert await watcher.wait(files, lambda _look: True, DEADLINE_S) is not None
    failures += [OSError("too many open files")] * 3
    assert await watcher.wait(files, lambda _look: True, DEADLINE_S) == look_at(files)
    assert len(caplog.records) == 1
    staying.cancel()


async def test_an_attempt_that_cannot_be_looked_at_holds_up_no_other(
    files: AttemptFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = AttemptFiles(tmp_path / "jobs/broken/0")

    def look(watched: AttemptFiles) -> AttemptSnapshot:
        if watched == broken:
            raise OSError("the disk is on fire")
        return look_at(watched)

    monkeypatch.setattr(watcher_module, "look_at", look)
    watcher = AttemptWatcher()
    waiting = asyncio.create_task(watcher.wait(broken, lambda _look: True, 1.0))
    assert await watcher.wait(files, lambda _look: True, DEADLINE_S) == look_at(files)
    assert await waiting is None


async def test_a_record_is_seen_that_was_written_before_another_and_got_its_name_after_it(files: AttemptFiles) -> None:
    first, second, written = files.ranks / "0.json", files.ranks / "1.json", files.ranks / "0.json.77"
    first.write_text("{}")
    written.write_text("{}")
    second.write_text("{}")
    os.utime(second, ns=(2**62, 2**62))
    before = look_at(files)
    written.rename(first)
    assert look_at(files).stamp != before.stamp
