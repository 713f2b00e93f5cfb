"""Parts that several hosts have written count beside what is complete: by attempt, then by step."""

from __future__ import annotations

import os
import pickle
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dtagent.protocol.checkpoints import PART
from dtagent.protocol.replication import HeldCopy

from dttui.engine.checkpoints import resuming
from dttui.engine.checkpoints.checkpoint_places import PlacedCheckpoint
from dttui.planning.resumption import Resume, Resumption
from tests.unit.engine.test_resuming_far_back import (
    HostOfItsOwn,
    Job,
    begin,
    kept_in,
    write_checkpoint,
)
from tests.unit.engine.test_resuming_far_back import in_this_process as in_this_process


def write_shards(directory: Path, step: int) -> None:
    """Write what is whole by itself of torch.distributed.checkpoint."""
    place = directory / f"step-{step}"
    place.mkdir(parents=True)
    (place / "__0_0.distcp").write_text("bytes")
    lies = SimpleNamespace(relative_path="__0_0.distcp", offset=0, length=5)
    (place / ".metadata").write_bytes(pickle.dumps(SimpleNamespace(storage_data={0: lies})))


class TwoDisks:
    """A job of two hosts that write a part each, of which all that are wanted are brought together."""

    def __init__(self, place: Path, attempt: int, resumption: Resumption, monkeypatch: pytest.MonkeyPatch) -> None:
        self.job = Job(place / "kept", attempt, resumption)
        self.disks = self.job.place, place / "b"
        self.job.nodes[1].client = HostOfItsOwn(*self.disks)  # type: ignore[assignment]  # all that is asked of it
        self.tried: list[tuple[int, list[int | None]]] = []
        self.is_had = True
        monkeypatch.setattr(resuming, "gather", self._gather)

    async def _gather(
        self, attempt: int, _bound: object, wanted: Sequence[Mapping[int, PlacedCheckpoint]], *_: Any
    ) -> Resume | None:
        if not wanted:
            return None
        steps = [of_step[0].found.step for of_step in wanted]
        self.tried.append((attempt, steps))
        return Resume(checkpoint="/whole", directory="/", step=steps[0], attempt=attempt) if self.is_had else None

    def write_parts(self, attempt: int, step: int) -> list[Path]:
        """Have both write their part; return where."""
        found = []
        for rank, disk in enumerate(self.disks):
            place = (disk / f"attempt-{attempt}" if attempt else disk) / f"step-{step}"
            place.mkdir(parents=True)
            (place / f"__{rank}_0.distcp").write_text("bytes")
            if rank == 0:
                (place / ".metadata").write_text("names all")
            found.append(place)
        return found

    async def found(self) -> tuple[int, int | None] | None:
        """Return attempt and step of what is gone on from."""
        resume = await self.job.found()
        return None if resume is None else (resume.attempt, resume.step)


@pytest.mark.parametrize("copies", [False, True])
async def test_of_an_attempt_newer_parts_count_before_an_older_complete_one_which_counts_where_they_are_not_had(
    copies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = TwoDisks(tmp_path, 1, kept_in(tmp_path / "kept") if copies else Resumption(), monkeypatch)
    write_shards(two.job.place, 10)
    two.write_parts(0, 20)
    assert await two.found() == (0, 20)
    two.is_had = False
    assert await two.found() == (0, 10)


async def test_parts_of_a_later_attempt_count_before_a_complete_one_of_an_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = TwoDisks(tmp_path, 3, Resumption(), monkeypatch)
    write_checkpoint(two.job.place / "attempt-1", 200)
    two.write_parts(2, 50)
    two.write_parts(0, 900)
    assert await two.found() == (2, 50)
    assert two.tried == [(2, [50])]


async def test_parts_that_lay_there_before_the_attempt_began_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = TwoDisks(tmp_path, 2, Resumption(), monkeypatch)
    for place in two.write_parts(1, 500):
        for file in place.iterdir():
            os.utime(file, (1000.0, 1000.0))
    two.write_parts(1, 20)
    begin(two.job, 2, time.time() - 5)
    assert await two.found() == (1, 20)
    assert two.tried == [(1, [20])]


async def test_copies_of_parts_are_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = TwoDisks(tmp_path, 1, kept_in(tmp_path / "kept"), monkeypatch)
    places = two.write_parts(0, 20)
    lost = two.job.nodes[1]
    lost.planned = lost.planned.model_copy(update={"name": "c"})
    assert await two.found() is None

    async def add(copies: dict[str, list[HeldCopy]], *_: Any) -> None:
        copies["a"] += [HeldCopy("/copies/step-20", PART, 0, 1, str(places[1]), 20, 5)]

    monkeypatch.setattr(resuming, "add_copies", add)
    assert await two.found() == (0, 20)


@pytest.mark.parametrize("is_copy", [False, True], ids=["own", "copy"])
async def test_where_one_host_has_written_parts_on_the_newest_step_of_both_is_taken(
    is_copy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = TwoDisks(tmp_path, 1, kept_in(tmp_path / "kept"), monkeypatch)
    places = two.write_parts(0, 20)
    for step in range(30, 230, 10):
        (two.job.place / f"step-{step}").mkdir()
        (two.job.place / f"step-{step}" / "__0_0.distcp").write_text("bytes")
    if is_copy:

        async def add(copies: dict[str, list[HeldCopy]], *_: Any) -> None:
            copies["a"] += [HeldCopy("/copies/step-20", PART, 0, 1, str(places[1]), 20, 5)]

        monkeypatch.setattr(resuming, "add_copies", add)
        shutil.rmtree(places[1])
    assert await two.found() == (0, 20)


async def test_a_job_that_names_no_directory_has_no_parts_and_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.engine.test_resuming_far_back.directory_of", lambda *_: "")
    two = TwoDisks(tmp_path, 1, kept_in(tmp_path / "kept"), monkeypatch)
    assert await two.found() is None
