"""Writers that are there with torch alone, killed at every boundary of a file and in the middle of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from dtagent.checkpoints.search import newest_complete

from tests.checkpoints.kills import kills, record
from tests.checkpoints.writers import ROOT, WRITERS, Writer, load_sharded, save_sharded
from tests.ports import free_port

ROUNDS, SEED = 12, 15


def _steps_after_kills(
    root: Path, tmp_path: Path, write: Callable[[], object], writer: Writer, step: int
) -> list[int | None]:
    """Kill a writer everywhere while it saves a step; return what was found after the kills, without repetitions.

    What was found has been loaded, and its name tells its step wherever it tells one.
    """
    before, operations, after = record(root, write)
    assert operations
    found: list[int | None] = []
    place = tmp_path / "killed"
    for kill in kills(before, operations, after.files):
        kill.tree.write(place)
        search = newest_complete(place)
        loaded = writer.load(Path(search.newest.path)) if search.newest is not None else None
        if search.newest is not None:
            assert search.newest.step in (loaded, None if writer.in_place else loaded), kill.where
        may_be_none = writer.in_place or step == 0
        assert loaded in {step, step - 1 if step else None, None if may_be_none else step}, f"{kill.where}: {search}"
        found += [loaded] if not found or found[-1] != loaded else []
    return found


@pytest.mark.parametrize("name", [name for name, writer in WRITERS.items() if not writer.in_place])
def test_the_one_before_is_taken_until_the_next_is_complete(name: str, tmp_path: Path) -> None:
    root, writer = tmp_path / "run", WRITERS[name]
    root.mkdir()
    for step in range(4):  # From the third one on, the example removes the oldest.
        write = lambda step=step: writer.save(root, step)  # noqa: E731
        assert _steps_after_kills(root, tmp_path, write, writer, step) == [step - 1 if step else None, step]


@pytest.mark.parametrize("name", [name for name, writer in WRITERS.items() if writer.in_place])
def test_what_is_written_over_the_one_before_is_taken_whole_or_not_at_all(name: str, tmp_path: Path) -> None:
    root, writer = tmp_path / "run7", WRITERS[name]
    root.mkdir()
    assert _steps_after_kills(root, tmp_path, lambda: writer.save(root, 0), writer, 0) == [None, 0]
    steps = _steps_after_kills(root, tmp_path, lambda: writer.save(root, 1), writer, 1)
    assert (steps[0], steps[-1]) == (0, 1)
    assert set(steps[1:-1]) <= {None, 0}


@pytest.mark.parametrize("name", ["example", "shards", "shards-in-place"])
def test_a_saving_loop_is_killed_at_random_moments(name: str, tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    command = [sys.executable, "-m", "tests.checkpoints.saving_loop", name, str(root), str(ROUNDS), str(SEED)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["saves"] >= ROUNDS
    assert told["found"] == ROUNDS or WRITERS[name].in_place


def test_shards_of_several_ranks_are_complete_with_all_of_them(tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()

    def write() -> None:
        told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
        command = [sys.executable, "-m", "tests.checkpoints.sharded_rank", str(root), "2"]
        ranks = [subprocess.Popen(command, cwd=ROOT, env={**os.environ, **told, "RANK": str(rank)}) for rank in (0, 1)]
        assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]

    before, operations, after = record(root, write)
    found: list[int | None] = []
    for kill in kills(before, operations, after.files):
        kill.tree.write(tmp_path / "killed")
        newest = newest_complete(tmp_path / "killed").newest
        step = load_sharded(Path(newest.path)) if newest is not None else None
        assert newest is None or newest.step == step, kill.where
        found += [step] if not found or found[-1] != step else []
    assert found == [None, 0, 1]
    assert len(list((root / "step-1").glob("*.distcp"))) == 2


def test_the_number_of_the_directory_itself_is_no_step(tmp_path: Path) -> None:
    root = tmp_path / "run-7"
    save_sharded(root, 3)
    newest = newest_complete(root).newest
    assert newest is not None
    assert (newest.step, load_sharded(Path(newest.path))) == (None, 3)
