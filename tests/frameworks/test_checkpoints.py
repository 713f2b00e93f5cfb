"""Checkpoints of DeepSpeed and of Megatron: their real writers, of two ranks, killed at every moment."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from dtagent.checkpoints.search import newest_complete

from tests.checkpoints.kills import Tree, kills
from tests.checkpoints.recorder import MARK, Recorder, recording
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
END = "END"
SAVES = 3


def _record(
    python: Path, variables: Mapping[str, str], module: str, root: Path, *arguments: str
) -> tuple[Recorder, Tree]:
    """Run two ranks that save, and return what they did."""
    told = {
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


@pytest.mark.parametrize("stage", [0, 2, 3])
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
