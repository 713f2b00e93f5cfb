"""What an attempt does about its own checkpoints and those of the attempts before it, while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from dacite import from_dict
from dtagent.checks.checkpoints import Checkpoints
from dtagent.protocol.events import Event, EventKind, JobState
from dtagent.protocol.probes import PathsReply, PathState
from dtagent.protocol.rpc import to_wire

from dttui.engine.checkpoints.checkpoint_watch import CheckpointWatch
from dttui.engine.checkpoints.earlier_checkpoints import EarlierCheckpoints
from dttui.errors import HostUnreachableError
from dttui.jobs import JobDirectory
from dttui.planning.models import Bindings, BoundPlan
from dttui.planning.resumption import Resume, Resumption, directory_of
from tests.unit.engine.test_resuming_far_back import Job, write_checkpoint
from tests.unit.engine.test_resuming_far_back import in_this_process as in_this_process
from tests.waiting import until

ATTEMPT = 2
KEPT = Resumption(is_kept=True, keep=2, interval_s=1.0, shared=True)


class Host:
    """What an agent does about checkpoints, without the wire."""

    def __init__(self) -> None:
        self._checkpoints = Checkpoints()
        self.looks = 0
        self.free_mib: int | None = None
        self.is_silent = False

    async def call(self, method: str, request: Any, _reply: object, _deadline_s: float = 0.0) -> Any:
        if self.is_silent:
            raise HostUnreachableError("a", "no answer")
        if method == "paths":
            return PathsReply([PathState(path, free_mib=self.free_mib) for path in request.paths])
        if method == "drop_checkpoints":
            return await self._checkpoints.drop(request)
        self.looks += 1
        return await self._checkpoints.newest(request)


def begun_at(attempt: int) -> float:
    return 1000.0 * (attempt + 1)


class Disk(Host):
    """One of another node, on which the same paths lead elsewhere."""

    def __init__(self, seen: Path, real: Path) -> None:
        super().__init__()
        self._seen, self._real = str(seen), str(real)

    async def call(self, method: str, request: Any, reply: object, _deadline_s: float = 0.0) -> Any:
        there = json.dumps(to_wire(request)).replace(self._seen, self._real)
        return await super().call(method, from_dict(type(request), json.loads(there)), reply)


class Running:
    """The third attempt of a job, and what it and those before it have written."""

    def __init__(self, place: Path, resumption: Resumption = KEPT, *, first: int = 0) -> None:
        self.place = place
        self.unfenced: Collection[str] = ()
        self.job = Job(place, ATTEMPT, resumption)
        self.directory: JobDirectory = self.job.directory
        data = {"state": JobState.LAUNCHING.value}
        for number in range(first, ATTEMPT + 1):
            event = Event(number, begun_at(number), EventKind.JOB_STATE, "", attempt=number, data=data)
            with self.directory.events.open("a") as lines:
                lines.write(json.dumps(to_wire(event)) + "\n")
        self.host = Host()
        for node in self.job.nodes:
            node.client = self.host  # type: ignore[assignment]  # all that is asked of it
        resumed = directory_of(str(place), 1) + "/step-25"
        resume = Resume(checkpoint=resumed, directory=os.path.dirname(resumed), step=25, attempt=1)
        bindings = Bindings(job_id="x", attempt=ATTEMPT, master_port=1, nodes={}, resume=resume)
        self.bound = BoundPlan(plan=self.job.plan, bindings=bindings)
        told = self.directory, self.job.log, self.job.nodes, self.bound, lambda: self.unfenced, first
        self.watch = CheckpointWatch(*told)
        self.earlier = EarlierCheckpoints(*told)

    def write(self, attempt: int, step: int, at: float | None = None, place: Path | None = None) -> Path:
        """Write one while an attempt runs, or at another time; at the node a, or on another's disk."""
        path = write_checkpoint(Path(directory_of(str(place or self.place), attempt)), step)
        at = begun_at(attempt) + 500 if at is None else at
        for file in path.iterdir():
            os.utime(file, (at, at))
        return path

    def with_own_disks(self, other: Path) -> Disk:
        """Give the node b a disk of its own, which it sees where a sees its own."""
        disk = Disk(self.place, other)
        self.job.nodes[1].client = disk  # type: ignore[assignment]  # all that is asked of it
        return disk

    async def looked(self) -> None:
        """Let it work for some looks, each of which has told what it has to."""
        seen = self.host.looks
        task = asyncio.create_task(self.watch.run())
        try:
            await until(lambda: self.host.looks >= seen + 3 or task.done(), "three looks")
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def looked_once(self) -> None:
        complete = await self.watch.look()
        if complete is not None:
            await self.earlier.remove(complete)

    def findings(self) -> list[str]:
        return [str(event.data["code"]) for event in self.directory.read_events(EventKind.FINDING)]


async def test_once_an_attempt_has_as_many_as_are_to_stay_those_of_earlier_ones_go(tmp_path: Path) -> None:
    running = Running(tmp_path / "kept")
    old = [running.write(0, 10), running.write(1, 10), running.write(1, 20)]
    own = [running.write(2, 30), running.write(2, 40)]
    await running.looked()
    assert [path.exists() for path in old] == [False] * 3
    assert all(path.exists() for path in own)
    (told,) = (event for event in running.directory.read_events() if "removed" in event.data)
    assert told.data["removed"] == 3


async def test_before_it_has_as_many_all_stay(tmp_path: Path) -> None:
    running = Running(tmp_path / "kept")
    old = [running.write(0, 10), running.write(1, 20)]
    running.write(2, 30)
    await running.looked()
    assert all(path.exists() for path in old)


async def test_while_something_of_an_earlier_attempt_may_still_run_all_stay(tmp_path: Path) -> None:
    running = Running(tmp_path / "kept")
    running.unfenced = ("b",)
    old = [running.write(0, 10), running.write(1, 20)]
    running.write(2, 30)
    running.write(2, 40)
    await running.looked()
    assert all(path.exists() for path in old)
    running.unfenced = ()
    await running.looked()
    assert not any(path.exists() for path in old)


async def test_what_an_earlier_job_wrote_stays(tmp_path: Path) -> None:
    running = Running(tmp_path / "kept", first=1)
    foreign, old = running.write(0, 10), running.write(1, 20)
    running.write(2, 30)
    running.write(2, 40)
    await running.looked()
    assert (foreign.exists(), old.exists()) == (True, False)


async def test_of_a_job_that_does_not_say_how_many_stay_nothing_is_removed(tmp_path: Path) -> None:
    running = Running(tmp_path / "kept", Resumption(shared=True))
    old = running.write(1, 20)
    running.write(2, 30)
    running.write(2, 40)
    await running.looked()
    assert old.exists()
    assert running.host.looks == 0


async def test_what_the_attempt_went_on_from_stays(tmp_path: Path) -> None:
    running = Running(tmp_path / "kept")
    old, resumed = running.write(0, 10), running.write(1, 25)
    running.write(2, 30)
    running.write(2, 40)
    await running.looked_once()
    assert (old.exists(), resumed.exists()) == (False, True)


@pytest.mark.parametrize("offset_s", [0.0, 100.0])
async def test_what_lay_there_before_the_attempt_began_is_not_its_own(offset_s: float, tmp_path: Path) -> None:
    running = Running(tmp_path / "kept")
    for node in running.job.nodes:
        node.clock_offset_s = offset_s
    old = running.write(1, 20)
    running.write(2, 30)
    running.write(2, 40, begun_at(2) + offset_s - 1)
    await running.looked_once()
    assert old.exists()
    running.write(2, 50)
    running.write(2, 60)
    await running.looked_once()
    assert not old.exists()


async def test_where_nobody_knows_when_the_attempt_began_all_stay(tmp_path: Path) -> None:
    running = Running(tmp_path / "kept")
    lines = running.directory.events.read_text().splitlines(keepends=True)
    running.directory.events.write_text("".join(lines[:-1]))
    old = running.write(1, 20)
    running.write(2, 30)
    running.write(2, 40)
    await running.looked_once()
    assert old.exists()


async def test_of_an_attempt_that_began_anew_what_is_newer_stays(tmp_path: Path) -> None:
    running = Running(tmp_path / "kept")
    older, newer = running.write(1, 20), running.write(1, 5000)
    running.write(2, 10)
    running.write(2, 20)
    await running.looked_once()
    assert (older.exists(), newer.exists()) == (False, True)


async def test_where_names_tell_epochs_alone_all_stay(tmp_path: Path) -> None:
    running = Running(tmp_path / "kept")
    written = [running.write(*item) for item in ((1, 20), (2, 30), (2, 40))]
    paths = [path.rename(path.with_name(path.name.replace("step", "epoch"))) for path in written]
    await running.looked_once()
    assert all(path.exists() for path in paths)


async def test_while_a_node_is_over_all_stay(tmp_path: Path) -> None:
    running = Running(tmp_path / "kept")
    running.job.nodes[1].is_lost = True
    old = running.write(1, 20)
    running.write(2, 30)
    running.write(2, 40)
    await running.looked_once()
    assert old.exists()


async def test_where_a_host_cannot_look_all_stay(tmp_path: Path) -> None:
    running = Running(tmp_path / "kept", KEPT.model_copy(update={"shared": False}))
    disk = running.with_own_disks(tmp_path / "other")
    old = running.write(1, 20)
    running.write(2, 30)
    running.write(2, 40)
    unreadable = Path(directory_of(str(tmp_path / "other"), 2))
    os.makedirs(unreadable.parent)
    os.symlink(unreadable, unreadable)
    await running.looked_once()
    assert disk.looks
    assert old.exists()
    os.unlink(unreadable)
    await running.looked_once()
    assert not old.exists()


@pytest.mark.parametrize("own", [0, 1, 2])
async def test_a_host_that_has_fewer_of_the_attempt_and_some_of_earlier_ones_keeps_all(
    own: int, tmp_path: Path
) -> None:
    running = Running(tmp_path / "kept", KEPT.model_copy(update={"shared": False}))
    running.with_own_disks(tmp_path / "other")
    old = [running.write(1, 20), running.write(1, 20, place=tmp_path / "other")]
    for step in (30, 40):
        running.write(2, step)
    for step in (30, 40)[2 - own :]:
        running.write(2, step, place=tmp_path / "other")
    await running.looked_once()
    assert [path.exists() for path in old] == [own < KEPT.keep] * 2


async def test_what_could_not_be_removed_is_tried_again_with_each_checkpoint_and_told_once(tmp_path: Path) -> None:
    running = Running(tmp_path / "kept")
    old = running.write(1, 20)
    pipe = old.parent / "checkpoint-1" / "trainer_state.json"
    pipe.parent.mkdir()
    os.mkfifo(pipe)  # What a trainer calls its best cannot be read there.
    running.write(2, 30)
    running.write(2, 40)
    await running.looked_once()
    assert old.exists()
    assert running.findings() == ["checkpoint-not-removed"]
    running.write(2, 50)
    await running.looked_once()
    assert old.exists()
    assert running.findings() == ["checkpoint-not-removed"]
    shutil.rmtree(pipe.parent)
    await running.looked_once()
    assert old.exists()
    running.write(2, 60)
    await running.looked_once()
    assert not old.exists()


@pytest.mark.parametrize("is_silent", [True, False])
async def test_where_a_host_does_not_answer_all_stay(is_silent: bool, tmp_path: Path) -> None:
    running = Running(tmp_path / "kept", KEPT.model_copy(update={"shared": False}))
    other = Host()
    other.is_silent = is_silent
    running.job.nodes[1].client = other  # type: ignore[assignment]  # all that is asked of it
    old = running.write(1, 20)
    running.write(2, 30)
    running.write(2, 40)
    await running.looked()
    assert old.exists() == is_silent


async def test_a_disk_without_room_for_the_next_one_is_told_once(tmp_path: Path) -> None:
    running = Running(tmp_path / "kept")
    running.host.free_mib = 1
    path = running.write(2, 30)
    (path / "state").write_bytes(bytes(3 << 20))
    await running.looked()
    assert running.watch.sizes == {"a": 3 << 20}
    assert running.findings() == ["checkpoint-room"]
    running.host.free_mib = 10
    await running.looked()
    assert running.findings() == ["checkpoint-room"]
