"""What a job runs sees the GPUs that it names and no others, from the file to the process.

The GPUs are a stub's under the driver's own binding, of a real agent that a real controller asks.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dttui import inventory as inventories
from dttui import jobs
from dttui.inventory.demo import demo_inventory
from dttui.inventory.models import Resources
from dttui.jobs import JobDirectory
from tests.agent.nvml_stub import CONTROL, change, nvml_library
from tests.integration.headless import dttui_here, result_of, write_job
from tests.processes import ended_agents as ended_agents

__all__ = ["nvml_library"]

HOST = "pytorch-dev-env"


@pytest.fixture
def gpus(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended_agents: None) -> None:
    """Give a host of the embedded cluster four GPUs."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library.parent))
    monkeypatch.setenv(CONTROL, str(tmp_path / "gpus"))
    change(os.environ, {"gpus": 4, "name": "NVIDIA A100-SXM4-80GB"})
    demo = demo_inventory(Path(os.environ["DTTUI_DEMO_ROOT"]), Path("examples"), sys.executable)
    real = tuple(item.model_copy(update={"resources": Resources()}) for item in demo.environments if item.name == HOST)
    monkeypatch.setattr(inventories, "demo_inventory", lambda *_: demo.model_copy(update={"environments": real}))


def job_on(tmp_path: Path, *ids: int) -> Path:
    run = {"command": ["sh", "-c", 'echo "sees $CUDA_VISIBLE_DEVICES as $LOCAL_RANK"']}
    cluster = {"nodes": [{"id": HOST, "resources": {"gpu": {"ids": [*ids]}}}]}
    return write_job(tmp_path, {}, framework="command", run=run, cluster=cluster)


def printed(directory: JobDirectory) -> list[str]:
    return sorted(line for path in (directory.path / "logs").rglob("*.out") for line in path.read_text().splitlines())


def test_what_runs_sees_just_the_gpus_that_the_job_names(gpus: None, tmp_path: Path) -> None:
    done = dttui_here("--demo", "--apply", job_on(tmp_path, 3, 1))
    assert done.returncode == 0, done.stderr
    assert printed(jobs.find("last")) == ["sees 3,1 as 0", "sees 3,1 as 1"]
    shown = result_of(dttui_here("--demo", "plan", job_on(tmp_path, 3, 1), "--output", "json"))
    assert shown["nodes"][0]["gpu_ids"] == [3, 1]


def test_one_that_somebody_uses_keeps_the_job_from_being_launched(gpus: None, tmp_path: Path) -> None:
    change(os.environ, {"processes.1": f"{os.getpid()}:100"})
    refused = dttui_here("--demo", "--apply", job_on(tmp_path, 3, 1))
    assert refused.returncode == 3, refused.stderr
    assert f"{HOST}: the job wants GPU 3,1 there, and not all are free: GPU 1" in refused.stderr
    done = dttui_here("--demo", "--apply", job_on(tmp_path, 2, 0))
    assert done.returncode == 0, done.stderr
    assert printed(jobs.find("last")) == ["sees 2,0 as 0", "sees 2,0 as 1"]
