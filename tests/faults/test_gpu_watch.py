"""What the GPUs of a running job do is seen: one that is slower than the other, and whether they compute in silence.

The GPUs are a stub's under the driver's own binding, read by a real agent and followed by a real controller.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from dtagent.protocol.events import Event, EventKind, JobState

from dttui import inventory as inventories
from dttui import jobs
from dttui.inventory.demo import demo_inventory
from dttui.inventory.models import Resources
from dttui.jobs import JobDirectory
from tests.agent.nvml_stub import CONTROL, change, nvml_library
from tests.integration.headless import dttui_here, write_job
from tests.processes import ended_agents as ended_agents
from tests.waiting import wait_until

__all__ = ["nvml_library"]

ONE, TWO, THREE = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
LOADED = {"gpus": 2, "name": "NVIDIA H100 80GB HBM3", "utilization": 99, "memory_utilization": 40, "sm_clock": 1700,
          "temperature": 60, "power_mw": 600_000, "power_limit_mw": 700_000}  # fmt: skip
STEP = "echo '{\"step\": 1}' >> $DTTUI_METRICS; [ $DTTUI_ATTEMPT = 0 ] || exit 0; sleep 600"
ABORTS = (
    "echo '{\"step\": 1}' >> $DTTUI_METRICS; [ $DTTUI_ATTEMPT = 0 ] || exit 0; "
    "while [ $RANK != 0 ] || [ ! -e {broken} ]; do sleep 0.1; done; kill -ABRT $$"
)
Set = Callable[[Mapping[str, object]], None]


@pytest.fixture
def gpus(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended_agents: None) -> Iterator[Set]:
    """Give a host of the embedded cluster two GPUs that compute, and what changes their readings."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library.parent))
    monkeypatch.setenv(CONTROL, str(tmp_path / "gpus"))
    change(os.environ, LOADED)
    demo = demo_inventory(Path(os.environ["DTTUI_DEMO_ROOT"]), Path("examples"), sys.executable)
    first, *others = demo.environments
    assert first.name == ONE
    real = (first.model_copy(update={"resources": Resources()}), *others)
    monkeypatch.setattr(inventories, "demo_inventory", lambda *_: demo.model_copy(update={"environments": real}))
    yield lambda settings: change(os.environ, settings)
    for job in jobs.list_jobs():
        if not job.state.is_final:
            dttui_here("stop", job.job_id, "--force")


def launched(job: Path) -> JobDirectory:
    done = dttui_here("--demo", "--apply", job, "--detach")
    assert done.returncode == 0, done.stderr
    return jobs.find("last")


def told(directory: JobDirectory, kind: EventKind) -> list[Event]:
    return directory.read_events(kind)


def test_a_gpu_whose_clock_falls_is_named_while_that_lasts_and_equal_ones_are_not(gpus: Set, tmp_path: Path) -> None:
    """With `straggler_s: 8`: told within 60 s, and taken back within 60 s."""
    run = {"command": ["sleep", "600"]}
    directory = launched(write_job(tmp_path, {ONE: 2}, framework="command", run=run, recovery={"straggler_s": 8}))
    samples = directory.samples(ONE)
    wait_until(lambda: samples.exists() and samples.read_text().count("\n") > 12, "readings of equal GPUs", 60)
    assert told(directory, EventKind.STRAGGLER) == []
    gpus({"sm_clock.1": 850, "temperature.1": 90, "throttle.1": 0x40})
    wait_until(lambda: told(directory, EventKind.STRAGGLER), "it to be named", 60)
    (event,) = told(directory, EventKind.STRAGGLER)
    assert (event.node, event.rank) == (ONE, 1)
    assert (event.data["gpu"], event.data["by"], event.data["share"]) == (1, "temperature", 0.5)
    assert event.data["held_back_by"] == ["hardware thermal slowdown"]
    assert event.data["since"] < event.time
    assert event.message in dttui_here("status", directory.job_id).stdout
    assert event.message in dttui_here("diagnose", directory.job_id).stdout
    gpus({"sm_clock.1": None, "temperature.1": None, "throttle.1": None})
    wait_until(lambda: len(told(directory, EventKind.STRAGGLER)) > 1, "it to be taken back", 60)
    assert [item.data["severity"] for item in told(directory, EventKind.STRAGGLER)] == ["warning", "info"]


def test_a_silent_job_whose_gpus_compute_is_ended_only_once_they_stop(gpus: Set, tmp_path: Path) -> None:
    """With `hang_s: 5` and `on_hang: restart`: within 120 s of the launch the second attempt has ended well."""
    recovery = {"max_restarts": 1, "hang_s": 5, "on_hang": "restart"}
    run = {"command": ["sh", "-c", STEP]}
    directory = launched(write_job(tmp_path, {ONE: 2}, framework="command", run=run, recovery=recovery))
    wait_until(lambda: told(directory, EventKind.HANG), "the silence to be told", 60)
    (event,) = told(directory, EventKind.HANG)
    assert "while all 2 GPUs compute" in event.message
    assert (event.data["severity"], event.data["restarts"]) == ("warning", False)
    assert event.data["gpus"]["counts"] == {"computes": 2}
    assert jobs.summarize(directory).state is JobState.RUNNING
    gpus({"power_mw": 130_000, "memory_utilization": 0})
    wait_until(directory.is_over, "its end", 60)
    summary = jobs.summarize(directory)
    assert (summary.state, summary.attempts) == (JobState.SUCCEEDED, 2), directory.read_events()[-1].message
    last = told(directory, EventKind.HANG)[-1]
    assert (last.data["severity"], last.data["restarts"]) == ("error", True)


def test_a_rank_that_aborts_after_an_xid_of_its_gpu_has_a_spare_take_over(gpus: Set, tmp_path: Path) -> None:
    """Over within 120 s: the cause is the GPU, and the host that has it is replaced."""
    broken = tmp_path / "broken"
    run = {"command": ["sh", "-c", ABORTS.replace("{broken}", str(broken))]}
    checkpoint = {"dir": str(tmp_path / "kept"), "shared": True}
    recovery = {"on_node_failure": "replace", "max_restarts": 1, "spares": [THREE], "checkpoint": checkpoint}
    directory = launched(write_job(tmp_path, {ONE: 1, TWO: 1}, framework="command", run=run, recovery=recovery))
    samples = directory.samples(ONE)
    gpus({"xid.0": 79})
    wait_until(
        lambda: samples.exists() and '"xid_last":79' in samples.read_text().replace(" ", ""), "the Xid to be read", 60
    )
    gpus({"xid.0": None})
    broken.touch()
    wait_until(directory.is_over, "its end", 60)
    events = directory.read_events()
    assert jobs.summarize(directory).state is JobState.SUCCEEDED, events[-1].message
    (restart,) = (event for event in events if event.data.get("state") == "RESTARTING")
    assert restart.data["cause"] == "gpu-xid"
    assert [node.name for node in directory.read_bound_plan(1).plan.nodes] == [THREE, TWO]
