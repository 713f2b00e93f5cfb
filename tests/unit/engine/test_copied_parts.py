"""Each node's part of a checkpoint is copied to others once all parts of it are written."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.checkpoints import PART, CheckpointsOf, CheckpointsReply, FoundCheckpoint
from dtagent.protocol.replication import SendReply, TakeReply

from dttui.engine.checkpoints.checkpoint_places import read_plans
from dttui.engine.checkpoints.replication import replicator as module
from dttui.engine.checkpoints.replication.replicator import Replicator
from dttui.errors import HostUnreachableError
from dttui.planning.resumption import Resumption
from tests.unit.engine.test_resuming_far_back import Job, begin
from tests.waiting import until


class Disk:
    """A host with parts, which sends them."""

    def __init__(self) -> None:
        self.parts: list[FoundCheckpoint] = []
        self.complete: list[FoundCheckpoint] = []
        self.is_silent = False
        self.sent: list[tuple[int | None, str, int]] = []
        """Step, form and node rank of each."""
        self.keeps: list[int] = []
        self.looks = 0
        self.sends = asyncio.Event()
        """Whether what it sends arrives."""
        self.sends.set()

    def writes(self, step: int, form: str = PART, *, changed_s: float | None = None) -> None:
        changed_ns = round((time.time() if changed_s is None else changed_s) * 1e9)
        self.parts.insert(0, FoundCheckpoint(f"/kept/step-{step}", form, step, 100, changed_ns=changed_ns))

    async def call(self, method: str, request: Any, _reply: object, _deadline_s: float = 0.0) -> Any:
        if method == "checkpoints":
            assert request.parts
            self.looks += 1
            if self.is_silent:
                raise HostUnreachableError("a", "no word")
            return CheckpointsReply([CheckpointsOf(list(self.complete), parts=list(self.parts))])
        if method == "copy_take":
            self.keeps.append(request.keep)
            return TakeReply(1)
        self.sent.append((request.step, request.form, request.node_rank))
        await self.sends.wait()
        return SendReply("/copy", 100, 100)


class Copying:
    """A job of some hosts whose checkpoints are copied to all others as long as this lasts."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...] = ("a", "b")) -> None:
        monkeypatch.setattr(module, "LEAST_LOOK_S", 0.01)
        monkeypatch.setattr(module, "MOST_LOOK_S", 0.01)
        resumption = Resumption(copies=len(names) - 1, place=str(place), interval_s=0.05)
        self.job = Job(place, 1, resumption, names=names)
        self.disks = [Disk() for _ in names]
        for node, disk in zip(self.job.nodes, self.disks, strict=True):
            node.client = disk  # type: ignore[assignment]  # all that is asked of it
        begin(self.job, 2, time.time())

    async def __aenter__(self) -> Copying:
        bound = read_plans(self.job.directory, [0])[0]
        replicator = Replicator(self.job.directory, self.job.log, self.job.nodes, bound)
        self._copying = asyncio.create_task(replicator.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._copying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._copying

    async def looked(self) -> None:
        counts = [disk.looks for disk in self.disks]
        await until(
            lambda: all(disk.looks > count + 2 for disk, count in zip(self.disks, counts, strict=True)),
            "two more looks",
        )

    async def copied(self, count: int) -> list[list[int | None]]:
        """Wait until each host has sent so many; return the steps."""
        await until(lambda: all(len(disk.sent) == count for disk in self.disks), "a copy of each part")
        return [[step for step, _form, _rank in disk.sent] for disk in self.disks]


async def test_no_part_is_copied_before_there_is_what_names_all_and_then_each_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Copying(tmp_path / "kept", monkeypatch) as copying:
        disks = copying.disks
        disks[1].writes(10)
        await copying.looked()
        disks[0].writes(10)
        await copying.looked()
        assert [disk.sent for disk in disks] == [[], []], "rank 0 has not written yet what names all"
        disks[0].parts.clear()
        disks[0].writes(10, "torch-dcp")
        await copying.copied(1)
        disks[0].writes(20, "torch-dcp")
        await copying.looked()
        assert [disk.sent for disk in disks] == [[(10, PART, 0)], [(10, PART, 1)]]
        disks[1].writes(20)
        await copying.copied(2)
        assert [disk.sent[1] for disk in disks] == [(20, PART, 0), (20, PART, 1)]
        assert {keep for disk in disks for keep in disk.keeps} == {2}, (
            "the newest of one may be here before the other's"
        )


async def test_what_another_job_has_left_is_not_copied_and_what_is_written_over_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Copying(tmp_path / "kept", monkeypatch) as copying:
        for disk in copying.disks:
            disk.writes(500, "torch-dcp", changed_s=time.time() - 30)
            disk.parts.append(FoundCheckpoint("/kept/step-10", "torch-dcp", 10, 100, changed_ns=time.time_ns()))
        assert await copying.copied(1) == [[10], [10]]
        for disk in copying.disks:
            disk.parts.clear()
            disk.writes(500, "torch-dcp")
        assert await copying.copied(2) == [[10, 500], [10, 500]]


async def test_a_part_that_is_written_over_in_place_is_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Copying(tmp_path / "kept", monkeypatch) as copying:
        for disk in copying.disks:
            disk.writes(10, "torch-dcp")
        assert await copying.copied(1) == [[10], [10]]
        for disk in copying.disks:
            disk.parts.clear()
            disk.writes(10, "torch-dcp")
        assert await copying.copied(2) == [[10, 10], [10, 10]]


async def test_newer_parts_are_copied_beside_an_older_complete_one_and_while_a_host_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Copying(tmp_path / "kept", monkeypatch) as copying:
        for disk in copying.disks:
            disk.complete = [FoundCheckpoint("/kept/step-0", "complete-file", 0, 100)]
            disk.writes(10, "torch-dcp")
        await until(lambda: all((10, PART, rank) in disk.sent for rank, disk in enumerate(copying.disks)), "a copy")
        first, second = copying.disks
        first.sent.clear()
        second.is_silent = True
        await copying.looked()
        first.parts = [FoundCheckpoint("/kept/step-10", "torch-dcp", 10, 101, changed_ns=time.time_ns())]
        await until(lambda: bool(first.sent), "a copy of what the other host had a part of as it answered last")


async def test_nobody_is_two_steps_ahead_of_the_host_that_sends_slowest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where two of three are lost the third has of theirs only copies, of which two stay: one step must be of both."""
    async with Copying(tmp_path / "kept", monkeypatch, ("a", "b", "c")) as copying:
        fast, slow, last = copying.disks

        async def write(step: int) -> None:
            for disk in copying.disks:
                disk.writes(step, "torch-dcp")
            looks = fast.looks
            await until(lambda: fast.looks > looks + 2, "two more looks of one that waits for nothing")

        await write(10)
        await until(lambda: all(len(disk.sent) == 2 for disk in copying.disks), "two copies of each part")
        slow.sends.clear()
        for step in (20, 30, 40):
            await write(step)
        assert [step for step, *_ in slow.sent] == [10, 10, 20]
        assert [step for step, *_ in fast.sent] == [step for step, *_ in last.sent] == [10, 10, 20, 20]
        slow.sends.set()
        await until(
            lambda: all(disk.sent[-2:] == [(40, PART, rank)] * 2 for rank, disk in enumerate(copying.disks)), "copies"
        )
