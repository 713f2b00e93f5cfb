"""The scripts of the examples: a checkpoint is marked last, and old ones go."""

from __future__ import annotations

import ast
import os
import shutil
from pathlib import Path

import pytest

from dttui import locations

EXAMPLES = locations.shipped("examples")
MARKING = [path.parent.name for path in sorted(EXAMPLES.glob("*/train.py")) if path.parent.name != "gpt"]


@pytest.mark.parametrize("name", MARKING)
def test_a_checkpoint_is_marked_once_it_is_on_the_disk_and_the_oldest_goes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = ast.parse((EXAMPLES / name / "train.py").read_text(encoding="utf-8"))
    (finish,) = (item for item in tree.body if isinstance(item, ast.FunctionDef) and item.name == "finish")
    names: dict[str, object] = {"os": os, "shutil": shutil, "Path": Path, "KEPT": 3}
    exec(compile(ast.Module([finish], []), name, "exec", dont_inherit=True), names)
    prefix = "epoch" if name == "resnet" else "step"
    folders = [tmp_path / f"{prefix}-{number:08}" for number in range(1, 6)]
    for folder in folders:
        folder.mkdir()
        (folder / "state.pt").write_bytes(b"weights")
        if folder not in (folders[1], folders[-1]):
            (folder / "COMPLETE").touch()
    other = tmp_path / "best"
    other.mkdir()
    (other / "COMPLETE").touch()
    newest, synced = folders[-1], []

    def fsync(descriptor: int) -> None:
        assert not (newest / "COMPLETE").exists()
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    monkeypatch.setattr(os, "fsync", fsync)
    names["finish"](newest)  # type: ignore[operator]  # a function
    assert synced == [newest / "state.pt", newest, tmp_path]
    left = {path.parent.name for path in tmp_path.glob("*/COMPLETE")}
    assert left == {"best", *(folder.name for folder in folders[2:])}
    assert not folders[0].exists()
    assert folders[1].exists()
