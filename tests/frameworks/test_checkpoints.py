"""Checkpoints of DeepSpeed and of Megatron: their real writers, two ranks, killed at every moment; or on two disks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from dtagent.checkpoints.joining import join
from dtagent.checkpoints.search import newest_complete
from dtagent.protocol.checkpoints import JOINED, PART, JoinReply
from dtagent.protocol.replication import STORE

from tests.checkpoints.kills import Tree, kills
from tests.checkpoints.recorder import MARK, Recorder, recording
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
END = "END"
SAVES = 3


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return what two ranks are told alike."""
    return {
        **os.environ,
        **variables,
        "PYTHONPATH": str(ROOT),
        "DS_ACCELERATOR": "cpu",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }


def _record(
    python: Path, variables: Mapping[str, str], module: str, root: Path, *arguments: str
) -> tuple[Recorder, Tree]:
    """Run two ranks that save, and return what they did."""
    told = _environment(variables)
    command = [str(python), "-m", f"tests.frameworks.{module}", str(root), str(SAVES), *arguments]
    with recording(root) as recorder:
        ranks: list[subprocess.Popen[str]] = []
        for rank in range(2):
            env = {**told, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            with (root.parent / f"rank-{rank}.err").open("wb") as errors:
                output = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
                options: Any = {"stdout": output, "stderr": errors, "text": True, "start_new_session": True}
                ranks.append(subprocess.Popen(command, cwd=ROOT, env=env, **options))
        try:
            for line in ranks[0].stdout or ():
                if line.startswith(MARK):
                    recorder.mark(line.removeprefix(MARK).strip())
                elif line.startswith(END):  # What a rank has started beside itself may keep its output open.
                    break
            codes = [rank.wait(timeout=120) for rank in ranks]
        finally:
            for process in ranks:
                if process.stdout is not None:
                    process.stdout.close()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    assert codes == [0, 0], (root.parent / "rank-0.err").read_text()[-2000:]
    return recorder, Tree.of(root)


def _check(recorder: Recorder, after: Tree, place: Path, tracker: str, names: list[str]) -> None:
    """Kill the writers everywhere; what names the last one held another name after each save."""
    done, tree, found = "", Tree(), []
    rest = list(recorder.operations)
    for name in names:
        end = next(index for index, item in enumerate(rest) if item.kind == "mark")
        contents = {**after.files, tracker: name.encode()}
        for kill in kills(tree, rest[:end], contents):
            kill.tree.write(place)
            search = newest_complete(place)
            got = Path(search.newest.path).name if search.newest is not None else ""
            step = re.sub(r"\D", "", name)
            assert got.endswith((done or "nothing", step)) or got == done == "", f"{kill.where}: {search}"
            if got and got != done:
                for path, content in after.files.items():
                    if path.startswith(f"{got}/") and not path.endswith(".tmp"):
                        assert kill.tree.files.get(path) == content, f"{kill.where}: {path} is not whole"
            found += [got] if got not in found else []
            tree = kill.tree
        done, rest = got, rest[end + 1 :]
        assert got.endswith(step), f"{search} once {name} was done"
    assert len([got for got in found if got]) == len(names)


@pytest.mark.parametrize("stage", [0, pytest.param(2, marks=pytest.mark.thorough), 3])
def test_of_deepspeed_the_one_before_is_taken_until_all_ranks_have_written(
    stage: int, tmp_path: Path, frameworks_python: Path, deepspeed_variables: dict[str, str]
) -> None:
    root = tmp_path / "run"
    root.mkdir()
    recorder, after = _record(frameworks_python, deepspeed_variables, "deepspeed_saver", root, str(stage))
    _check(recorder, after, tmp_path / "killed", "latest", [f"global_step{step}" for step in (1, 2, 3)])


def test_of_megatron_the_one_before_is_taken_until_the_next_is_complete(
    tmp_path: Path, frameworks_python: Path
) -> None:
    root = tmp_path / "run"
    root.mkdir()
    recorder, after = _record(frameworks_python, {}, "megatron_saver", root)
    _check(recorder, after, tmp_path / "killed", "latest_checkpointed_iteration.txt", ["9", "10", "11"])


def _each_on_its_disk(python: Path, variables: Mapping[str, str], *arguments: str, disks: list[Path]) -> list[Any]:
    """Run a rank on each disk; return what they have found."""
    told = _environment(variables)
    command = [str(python), "-m", "tests.frameworks.parts_on_disks", *arguments]
    ranks, said = [], [disk.with_name(f"{disk.name}.out") for disk in disks]
    try:
        for rank, (disk, file) in enumerate(zip(disks, said, strict=True)):
            with file.open("wb") as output:
                env = {**told, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                ranks.append(
                    subprocess.Popen([*command, str(disk)], cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT)
                )
        codes = [process.wait(timeout=200) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert codes == [0, 0], said[0].read_text()[-3000:]
    return [json.loads(file.read_text().rpartition("found ")[2].splitlines()[0]) for file in said]


def _joined(disks: list[Path]) -> list[JoinReply]:
    """Bring together on each disk what lies on all of them; the newest that each has written first."""
    found = [newest_complete(disk) for disk in disks]
    assert not any(search.complete for search in found), "each has a part alone"
    newest = [search.parts[0] for search in found]
    assert [item.form != PART for item in newest] == [True, False], "the first rank names all"
    assert {item.step for item in newest} == {3}
    paths = [Path(item.path) for item in newest]
    return [join(disk / STORE / "job", sorted(paths, key=lambda path: path.parent != disk)) for disk in disks]


def _as_trainer(disk: Path, *, is_first: bool) -> Path:
    """Have a part of DeepSpeed's lie as Hugging Face's Trainer has it, which writes what names it by rank 0 alone."""
    place = disk.parent / f"trainer-{disk.parent.name}"
    folder = place / "checkpoint-3"
    shutil.copytree(disk / "global_step3", folder / "global_step3")
    if is_first:
        (folder / "latest").write_text("global_step3")
        (folder / "trainer_state.json").write_text('{"global_step": 3}')
    return place


def test_parts_of_deepspeed_on_two_disks_are_joined_to_what_each_rank_had_saved(
    tmp_path: Path, frameworks_python: Path, deepspeed_variables: dict[str, str]
) -> None:
    """Also as Hugging Face's Trainer has them; and not while a file is missing or short."""
    disks = [tmp_path / "a", tmp_path / "b"]
    saved = _each_on_its_disk(frameworks_python, deepspeed_variables, "deepspeed", "save", disks=disks)
    for stage in (1, 3):
        assert all(reply.path for reply in _joined([disk / f"zero-{stage}" for disk in disks]))
    assert _each_on_its_disk(frameworks_python, deepspeed_variables, "deepspeed", "load", disks=disks) == saved
    trainers = [_as_trainer(disk / "zero-3", is_first=disk is disks[0]) for disk in disks]
    assert [reply.detail for reply in _joined(trainers)] == ["", ""]
    for file in [file for disk in trainers for file in disk.glob("checkpoint-3/global_step3/*states.pt")]:
        content = file.read_bytes()
        for left in (None, content[: len(content) // 2]):
            file.unlink(missing_ok=True)
            if left is not None:
                file.write_bytes(left)
            assert [reply.path for reply in _joined(trainers)] == ["", ""], file
        file.write_bytes(content)


def test_parts_of_megatron_on_two_disks_are_joined_to_what_each_rank_had_saved(
    tmp_path: Path, frameworks_python: Path
) -> None:
    disks = [tmp_path / "a", tmp_path / "b"]
    saved = _each_on_its_disk(frameworks_python, {}, "megatron", "save", disks=disks)
    places = [disk / "megatron" for disk in disks]
    assert [reply.detail for reply in _joined(places)] == ["", ""]
    joined = places[1] / STORE / "job" / JOINED
    assert (joined / "latest_checkpointed_iteration.txt").read_text() == "3"
    assert _each_on_its_disk(frameworks_python, {}, "megatron", "load", disks=disks) == saved
