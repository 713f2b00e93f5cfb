"""Each node's part of a checkpoint is copied to others once all parts of it are written."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.checkpoints import PART, CheckpointsOf, CheckpointsReply, FoundCheckpoint
from dtagent.protocol.replication import SendReply, TakeReply

from dttui.engine.checkpoints.checkpoint_places import read_plans
from dttui.engine.checkpoints.replication import replicator as module
from dttui.engine.checkpoints.replication.replicator import Replicator
from dttui.planning.resumption import Resumption
from tests.unit.engine.test_resuming_far_back import Job
from tests.waiting import until


class Disk:
    """A host with parts, which sends them."""

    def __init__(self) -> None:
        self.parts: list[FoundCheckpoint] = []
        self.sent: list[tuple[int | None, str, int]] = []
        """Step, form and node rank of each."""
        self.keeps: list[int] = []
        self.looks = 0

    def writes(self, step: int, form: str = PART) -> None:
        self.parts.insert(0, FoundCheckpoint(f"/kept/step-{step}", form, step, 100))

    async def call(self, method: str, request: Any, _reply: object, _deadline_s: float = 0.0) -> Any:
        if method == "checkpoints":
            assert request.parts
            self.looks += 1
            return CheckpointsReply([CheckpointsOf(parts=list(self.parts))])
        if method == "copy_take":
            self.keeps.append(request.keep)
            return TakeReply(1)
        self.sent.append((request.step, request.form, request.node_rank))
        return SendReply("/copy", 100, 100)


async def test_no_part_is_copied_before_there_is_what_names_all_and_then_each_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST_LOOK_S", 0.01)
    monkeypatch.setattr(module, "MOST_LOOK_S", 0.01)
    job = Job(tmp_path / "kept", 1, Resumption(copies=1, place=str(tmp_path / "kept"), interval_s=0.05))
    disks = Disk(), Disk()
    for node, disk in zip(job.nodes, disks, strict=True):
        node.client = disk  # type: ignore[assignment]  # all that is asked of it
    bound = read_plans(job.directory, [0])[0]
    copying = asyncio.create_task(Replicator(job.directory.job_id, job.log, job.nodes, bound).run())

    async def looked() -> None:
        counts = [disk.looks for disk in disks]
        await until(
            lambda: all(disk.looks > count + 2 for disk, count in zip(disks, counts, strict=True)), "two more looks"
        )

    try:
        disks[1].writes(10)
        await looked()
        disks[0].writes(10)
        await looked()
        assert [disk.sent for disk in disks] == [[], []], "rank 0 has not written yet what names all"
        disks[0].parts.clear()
        disks[0].writes(10, "torch-dcp")
        await until(lambda: all(disk.sent for disk in disks), "a copy of each part")
        disks[0].writes(20, "torch-dcp")
        await looked()
        assert [disk.sent for disk in disks] == [[(10, PART, 0)], [(10, PART, 1)]]
        disks[1].writes(20)
        await until(lambda: all(len(disk.sent) == 2 for disk in disks), "a copy of the next")
        assert [disk.sent[1] for disk in disks] == [(20, PART, 0), (20, PART, 1)]
        assert {keep for disk in disks for keep in disk.keeps} == {2}, (
            "the newest of one may be here before the other's"
        )
    finally:
        copying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await copying
