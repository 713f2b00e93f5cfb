"""A job whose interpreter is only found behind `run.prefix`: checked and launched on the embedded cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.integration.headless import dttui_here, result_of, write_job
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents

ONE, TWO = "pytorch-dev-env", "llm-training-env"


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """A program that alone knows where the interpreter `train-python` is."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    runner = tmp_path / "within"
    for path, text in (
        (hidden / "train-python", f'exec {sys.executable} "$@"'),
        (runner, f'[ "$1" = train ] || exit 3; shift; PATH="{hidden}:$PATH"; exec "$@"'),
    ):
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    return runner


@pytest.mark.torch
def test_an_interpreter_that_only_the_prefix_knows_is_checked_and_trains(tmp_path: Path, runner: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/train.py").write_text("import os\nprint('rank', os.environ['RANK'])\n")
    run = {"script": "train.py", "workdir": "work", "python": "train-python"}
    nodes = {ONE: 1, TWO: 1}
    job = write_job(tmp_path, nodes, framework="pytorch-ddp", run={**run, "prefix": ["nice", str(runner), "train"]})
    done = dttui_here("--demo", "--apply", job, "--output", "json")
    assert done.returncode == 0, done.stderr
    result = result_of(done)
    assert result["state"] == "SUCCEEDED"
    assert "rank 1" in (Path(result["directory"]) / f"logs/0/{TWO}/1.out").read_text()
    checked = dttui_here("preflight", job, "--demo", "--output", "json")
    document = json.loads(checked.stdout)
    told = [node["checks"]["software"] for node in document["nodes"]]
    assert all(cell["verdict"] == "ok" and "torch 2." in cell["text"] for cell in told), told
    assert "python-unknown" not in {item["code"] for item in document["findings"]}
    # Without it nobody has such an interpreter, which is no mere warning.
    job = write_job(tmp_path, nodes, framework="pytorch-ddp", run={**run, "prefix": ["nice"]})
    plain = dttui_here("preflight", job, "--demo", "--output", "json")
    assert plain.returncode == 3
    assert "python-missing" in {item["code"] for item in json.loads(plain.stdout)["findings"]}
