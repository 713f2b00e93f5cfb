"""Shards that each host has on a disk of its own are brought together before another attempt, or copies of them."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.faults import recovering
from tests.faults.recovering import lab as lab
from tests.faults.recovering import on_hosts, submitted
from tests.faults.restarting import begun, ended
from tests.faults.test_copies import DIRECTORY, kept_on_own_disks, wait_for_copy
from tests.faults.test_restarts import ONE, TWO, demo
from tests.integration.headless import write_job
from tests.lab.hosts import Lab
from tests.processes import ended_agents as ended_agents

SCRIPT = Path(__file__).parents[1] / "integration" / "sharded_training.py"
NO_TORCH = "torch is not installed: pip install .[torch]"
pytestmark = [pytest.mark.torch, pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason=NO_TORCH)]


@pytest.mark.parametrize(
    "dies_at_call",
    [
        "",
        "join_checkpoint",
        *(pytest.param(call, marks=pytest.mark.thorough) for call in ("checkpoints", "copy_take", "copy_send")),
    ],
)
def test_fsdp2_goes_on_from_shards_of_which_each_host_has_its_own_alone(
    dies_at_call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over within 200 s, also where the controller is killed as it looks for them, has them sent or joined.

    Of what was brought together nothing is left.
    """
    (tmp_path / "work").mkdir()
    shutil.copy(SCRIPT, tmp_path / "work" / "train.py")
    run = {"script": "train.py", "workdir": "work", "python": sys.executable}
    file = write_job(tmp_path, {ONE: 1, TWO: 1}, framework="pytorch-fsdp", run=run)
    directory, first = begun(file, demo(), monkeypatch, 0, dies_at_call=dies_at_call)
    events = ended(directory, first)
    assert first.returncode == (-signal.SIGKILL if dies_at_call else 0)
    assert events[-1].data["state"] == "SUCCEEDED", [event.message for event in events][-12:]
    resume = directory.read_bound_plan(1).bindings.resume
    assert resume is not None
    assert (resume.step, resume.attempt, len(resume.elsewhere)) == (4, 0, 1)
    for rank, name in enumerate((ONE, TWO)):
        before, after = ((directory.logs(attempt, name) / f"{rank}.out").read_text() for attempt in (0, 1))
        (saved,) = (line for line in before.splitlines() if line.startswith("saved 4 "))
        assert f"loaded{saved.removeprefix('saved')}" in after.splitlines()
    assert not any(Path(path).exists() for path in (resume.checkpoint, *resume.elsewhere.values()))


@pytest.mark.lab
@pytest.mark.xdist_group("lab of recovery")
@pytest.mark.timeout(420)
@pytest.mark.parametrize("lost", ["gpu1", pytest.param("gpu2", marks=pytest.mark.thorough)])
def test_fsdp2_goes_on_from_copies_of_the_shards_of_a_host_that_was_lost(lost: str, lab: Lab, tmp_path: Path) -> None:
    """Over within 240 s; each rank has the state that its rank had saved, whichever of them is gone."""
    (tmp_path / "work").mkdir()
    shutil.copy(SCRIPT, tmp_path / "work" / "train.py")
    run = {"script": "train.py", "workdir": "work", "args": ["--until-lost"]}
    file = write_job(tmp_path, {"gpu1": 1, "gpu2": 1}, framework="pytorch-fsdp", run=run)
    directory = submitted(file, on_hosts(lab, tmp_path), **kept_on_own_disks(f"{DIRECTORY}-of-{lost}"))
    for target in ("gpu1", "gpu2"):
        wait_for_copy(directory, target, 4)
    lab[lost].kill()
    events = recovering.ended(directory, 240)
    assert events[-1].data["state"] == "SUCCEEDED", [event.message for event in events][-12:]
    resume = directory.read_bound_plan(1).bindings.resume
    assert resume is not None
    assert resume.step is not None
    assert (resume.step >= 4, resume.attempt, "/joined/" in resume.checkpoint) == (True, 0, True)
    for rank, name in enumerate(("gpu1", "gpu2")):
        before = (directory.logs(0, name) / f"{rank}.out").read_text()
        ran_at = "gpu3" if name == lost else name
        after = (directory.logs(1, ran_at) / f"{rank}.out").read_text()
        (saved,) = (line for line in before.splitlines() if line.startswith(f"saved {resume.step} "))
        assert f"loaded{saved.removeprefix('saved')}" in after.splitlines()
