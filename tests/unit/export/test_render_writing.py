"""`dttui render` on the command line: what it writes where, what it refuses, and what it never touches."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from dttui.cli import main
from dttui.errors import UsageError
from dttui.export.rendered import Rendered
from dttui.export.writing import foreign_files, is_taken, write

DEMO_NODE = "llm-training-env"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print('hello')\n")
    return write_job(tmp_path, run={"script": "train.py"})


def write_job(directory: Path, **fields: object) -> Path:
    whole = {"name": "x", "framework": "pytorch-ddp", "dataset": "none", "cluster": {"nodes": [{"id": DEMO_NODE}]}}
    path = directory / "job.yaml"
    path.write_text(yaml.safe_dump({"distributed_training": {**whole, **fields}}))
    return path


def test_what_was_written_is_listed_and_is_there(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["render", str(job), "-o", str(out), "--demo", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    listed = ["README.md", "node0/run.sh", "node0/work", "work/job.yaml", "work/train.py"]
    assert sorted(document["files"]) == listed
    assert document["left_alone"] == []
    assert document["target"] == "scripts"
    assert sorted(foreign_files(out, [])) == listed
    assert os.access(out / "node0" / "run.sh", os.X_OK)
    checked = subprocess.run(["bash", "-n", out / "node0" / "run.sh"], capture_output=True, check=False)
    assert checked.stderr == b""


def test_a_plan_with_errors_is_refused_with_its_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_job(tmp_path, run={"script": "absent.py"})
    out = tmp_path / "out"
    assert main(["render", str(job), "-o", str(out), "--demo"]) == 2
    assert "there is no script absent.py" in capsys.readouterr().err
    assert not out.exists()
    assert main(["render", str(job), "-o", str(out), "--demo", "--output", "json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["files"] == []
    assert [item["code"] for item in document["findings"] if item["severity"] == "error"] == ["script-missing"]


def test_a_target_that_is_not_there_is_refused_with_the_nearest(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", str(job), "-o", "out", "--demo", "--target", "slrum"]) == 2
    assert 'did you mean "slurm"?' in capsys.readouterr().err


def test_a_directory_that_is_not_empty_is_left_alone_without_consent(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    (out / "README.md").write_text("old")
    assert main(["render", str(job), "-o", str(out), "--demo"]) == 2
    told = capsys.readouterr().err
    assert "--yes" in told
    assert f"{out} has README.md already: what was written there is replaced." in told
    assert sorted(os.listdir(out)) == ["README.md", "mine.txt"]
    assert main(["render", str(job), "-o", str(out), "--demo", "--yes"]) == 0
    assert "mine.txt" in capsys.readouterr().err
    assert (out / "mine.txt").read_text() == "mine"
    assert (out / "README.md").read_text() != "old"


def test_what_is_left_of_an_earlier_render_is_named_and_stays(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    (tmp_path / "other.py").write_text("")
    arguments = ["render", str(job), "-o", str(out), "--demo", "--yes", "--output", "json"]
    assert main(arguments) == 0
    capsys.readouterr()
    (tmp_path / "other.py").unlink()
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["left_alone"] == ["work/other.py"]
    assert (out / "work" / "other.py").exists()


def test_the_working_directory_itself_is_no_place_for_it(job: Path, tmp_path: Path) -> None:
    before = sorted(os.listdir(tmp_path))
    assert main(["render", str(job), "-o", str(tmp_path), "--demo", "--yes"]) == 2
    assert sorted(os.listdir(tmp_path)) == before


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    out = tmp_path / "out"
    out.mkdir()
    (out / "README.md").symlink_to(tmp_path / "theirs")
    write(out, [Rendered("README.md", "new\n")])
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert (out / "README.md").read_text() == "new\n"


def test_a_directory_that_is_a_link_to_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "node0").symlink_to(tmp_path / "theirs")
    with pytest.raises(UsageError, match="link that leads elsewhere"):
        write(tmp_path / "out", [Rendered("node0/run.sh", "x")])
    assert os.listdir(tmp_path / "theirs") == []


def test_what_stands_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="Not a directory"):
        is_taken(tmp_path / "file")
    (tmp_path / "out" / "node0" / "work").mkdir(parents=True)
    with pytest.raises(UsageError, match="node0/work"):
        write(tmp_path / "out", [Rendered("node0/work", link="../work")])
    assert os.listdir(tmp_path / "out" / "node0") == ["work"]
