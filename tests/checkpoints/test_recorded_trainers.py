"""Saves of Hugging Face's Trainer and of Lightning, as they were recorded, killed at every moment.

What a file held is made by its suffix, of the size that it had; see `record_trainers`.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
from dtagent.checkpoints.search import newest_complete

from tests.checkpoints.kills import Content, Link, Tree, kills
from tests.checkpoints.recorder import Operation

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))
_LATER = "rng_state_"
"""What another rank may write when the first one is done already; half of it keeps the trainer from resuming."""


def _safetensors(size: int) -> bytes:
    length = max(8, size // 4)
    header = json.dumps({"t": {"dtype": "U8", "shape": [length], "data_offsets": [0, length]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(length)


def _archive(size: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"dp_world_size": 2}, 2))
        archive.writestr("archive/data/0", bytes(size // 2))
    return buffer.getvalue()


def _made(path: str, told: dict[str, Any]) -> Content:
    if "link" in told:
        return Link(told["link"])
    if "hex" in told:
        return bytes.fromhex(told["hex"])
    if "text" in told:
        return str(told["text"]).encode()
    return _of_suffix(path, int(told["size"]))


def _shape(path: str) -> str:
    return re.sub(r"\d+", "#", str(Path(path).parent))


def _like_the_others(path: str, told: dict[str, dict[str, Any]]) -> Content:
    """Return what a file held that was removed again: what the same file of a later checkpoint held, with its step."""
    file = Path(path)
    alike = (item for name, item in told.items() if Path(name).name == file.name and _shape(name) == _shape(path))
    other = next(alike, {"size": 300})
    if Path(path).name == "latest":
        return re.sub(r"\d+", re.findall(r"\d+", path)[-1], str(other["text"])).encode()
    return _made(path, {"size": 300} if "text" in other else other)


def _of_suffix(path: str, size: int) -> bytes:
    file = Path(path)
    if file.name == "trainer_state.json":
        return json.dumps({"global_step": int(file.parent.name.rpartition("-")[2]), "log_history": []}).encode()
    if file.suffix == ".safetensors":
        return _safetensors(size)
    if file.suffix == ".json":
        return b'{"a": 1}'
    if file.suffix in (".pt", ".pth", ".bin", ".ckpt"):
        return _archive(size)
    return b"x" * size


def _contents(told: dict[str, Any]) -> tuple[list[Operation], dict[str, Content]]:
    """Return the operations, and what each file held that they name."""
    operations = [Operation(*item) for item in told["operations"]]
    known = {path: _made(path, item) for path, item in told["contents"].items()}
    for kind, path, to in operations:
        name = to if kind == "rename" else path
        if kind in ("create", "rename") and name not in known:
            known[name] = _like_the_others(name, told["contents"])
    return operations, known


def _step_of(tree: Tree, path: str) -> int:
    """Return the step of what a path names, links followed."""
    content = tree.files.get(path)
    name = content.target if isinstance(content, Link) else path
    return int(
        "".join(filter(str.isdigit, Path(name).name.partition("step=")[2] or Path(name).name.rpartition("-")[2]))
    )


def _text(content: Content | None) -> Content | None:
    """Return what a file says, whether a line break ends it or not."""
    return content.rstrip(b"\n") if isinstance(content, bytes) else content


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_the_one_before_is_taken_until_the_next_is_complete(file: Path, tmp_path: Path) -> None:
    told = json.loads(file.read_text())
    operations, contents = _contents(told)
    marks = [int(item.path) for item in operations if item.kind == "mark"]
    assert len(marks) >= 3
    between = {item.path for item in operations if item.kind == "rename"}
    done: int | None = None
    found: list[int | None] = []
    copied: int | None = None
    for kill in kills(Tree(), operations, contents):
        if kill.where.partition(": ")[2].startswith("mark "):
            done = int(kill.where.split()[2])
        upcoming = next((mark for mark in marks if done is None or mark > done), done)
        copied = upcoming if kill.where.endswith("close last.ckpt") else copied
        place = tmp_path / "killed"
        kill.tree.write(place)
        search = newest_complete(place)
        if search.newest is None:
            assert done is None, f"{kill.where}: {search.passed}"
            continue
        path = str(Path(search.newest.path).relative_to(place))
        is_copy = path == "last.ckpt" and isinstance(kill.tree.files.get(path), bytes)
        step = copied if is_copy else _step_of(kill.tree, path)
        others_write = any(_LATER in item.why for item in search.passed)
        before = marks[marks.index(done) - 1] if others_write and done in marks[1:] else done
        assert step in {before, done, upcoming}, f"{kill.where}: {path}, where {done} was done; {search.passed}"
        for name in [name for name in contents if name.startswith(path + "/") and name not in between]:
            if step == upcoming and step != done and not Path(name).name.startswith(_LATER):
                assert _text(kill.tree.files.get(name)) == _text(contents[name]), f"{kill.where}: {name} is not whole"
        if step not in found:
            found.append(step)
    assert found == marks


def test_recordings_of_each_trainer_are_there() -> None:
    assert {file.stem.partition("-")[0] for file in RECORDED} == {"hf", "lightning"}
