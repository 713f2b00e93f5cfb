"""Shards that each host has on a disk of its own are brought together before another attempt, if no host was lost."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from tests.faults.restarting import begun, ended
from tests.faults.test_restarts import ONE, TWO, demo
from tests.integration.headless import write_job
from tests.processes import ended_agents as ended_agents

SCRIPT = Path(__file__).parents[1] / "integration" / "sharded_training.py"
NO_TORCH = "torch is not installed: pip install .[torch]"
pytestmark = [pytest.mark.torch, pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason=NO_TORCH)]


def test_fsdp2_goes_on_from_shards_of_which_each_host_has_its_own_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over within 200 s; of what was brought together nothing is left."""
    (tmp_path / "work").mkdir()
    shutil.copy(SCRIPT, tmp_path / "work" / "train.py")
    run = {"script": "train.py", "workdir": "work", "python": sys.executable}
    file = write_job(tmp_path, {ONE: 1, TWO: 1}, framework="pytorch-fsdp", run=run)
    directory, first = begun(file, demo(), monkeypatch, 0)
    events = ended(directory, first)
    assert events[-1].data["state"] == "SUCCEEDED", [event.message for event in events][-12:]
    resume = directory.read_bound_plan(1).bindings.resume
    assert resume is not None
    assert (resume.step, resume.attempt, len(resume.elsewhere)) == (4, 0, 1)
    for rank, name in enumerate((ONE, TWO)):
        before, after = ((directory.logs(attempt, name) / f"{rank}.out").read_text() for attempt in (0, 1))
        (saved,) = (line for line in before.splitlines() if line.startswith("saved 4 "))
        assert f"loaded{saved.removeprefix('saved')}" in after.splitlines()
    assert not any(Path(path).exists() for path in (resume.checkpoint, *resume.elsewhere.values()))
