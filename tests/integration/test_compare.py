"""Two jobs side by side, as they ran; and of torn, old and huge directories what there is."""

from __future__ import annotations

import json
import os
import sys
import tracemalloc
from pathlib import Path

import pytest

from dttui import inventory as inventories
from dttui import jobs, locations
from dttui.errors import ExitCode
from dttui.inventory.demo import demo_inventory
from dttui.inventory.models import Resources
from dttui.jobs import JobDirectory
from tests.agent.nvml_stub import CONTROL, change, nvml_library
from tests.integration.headless import dttui_here, result_of, shell_job, write_job
from tests.processes import ended_agents as ended_agents

__all__ = ["nvml_library"]

ONE = "pytorch-dev-env"
TRAINS = (
    "python3 -c \"import json,os,time; t=time.time(); f=open(os.environ['DTTUI_METRICS'],'a');"
    "[f.write(json.dumps({'step':n,'loss':9-n/10,'samples_per_s':float(os.environ['SPEED']),"
    "'time':t-60+n/float(os.environ['SPEED'])})+chr(10)) for n in range(1,41)]\""
)


def test_two_jobs_stand_side_by_side_with_what_they_ran_with_and_how_they_trained(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in ("same.py", "changed.py"):
        (work / name).write_text("old")
    job = shell_job(tmp_path, {ONE: 1}, TRAINS, env={"SPEED": "2"}, workdir="work")
    assert dttui_here("--demo", "--apply", job).returncode == 0
    first = jobs.find("last").job_id
    (work / "changed.py").write_text("new")
    assert dttui_here("again", "last", "--set", "run.env.SPEED=4", "--set", "strategy.zero_stage=0").returncode == 0

    found = result_of(dttui_here("compare", first, "last", "--output", "json"))
    one, two = found["jobs"]
    assert (one["job_id"], one["state"], one["last_step"]) == (first, "SUCCEEDED", 40)
    changed = {item["key"]: (item["first"], item["second"]) for item in found["configuration"]}
    assert changed["run.env.SPEED"] == ("2", "4")
    assert set(changed) <= {"run.env.SPEED", "strategy.zero_stage", "files.changed.py"}
    assert len(set(changed["files.changed.py"])) == 2
    assert one["versions"] == two["versions"]
    assert {"dttui", "Python"} <= set(one["versions"])
    assert (one["step_time_s"], two["step_time_s"]) == (pytest.approx(0.5), pytest.approx(0.25))
    assert found["step_time_ratio"] == pytest.approx(0.5)
    assert (len(found["steps"]), found["steps"][-1]["step"]) == (20, 40)
    assert found["steps"][-1]["loss"] == [pytest.approx(5.0), pytest.approx(5.0)]
    assert found["steps"][-1]["step_time_s"] == [pytest.approx(0.5), pytest.approx(0.25)]

    told = dttui_here("compare", first, "last").stdout
    assert "run.env.SPEED" in told
    assert "0.5 times as long" in told
    figures = json.loads(dttui_here("history", "--output", "json").stdout)[0]["figures"]
    assert figures["step_time_s"] == {"estimated": None, "low": None, "high": None, "measured": pytest.approx(0.25)}
    assert figures["samples_per_s"]["measured"] == 4.0
    assert figures["memory_per_gpu_gb"]["measured"] is None
    assert "seconds a step: 0.25, without an estimate" in dttui_here("status").stdout
    assert result_of(dttui_here("status", "--output", "json"))["figures"] == figures


def test_of_directories_that_are_torn_empty_of_another_version_or_none_there_is_what_there_is() -> None:
    empty, torn = jobs.create("empty"), jobs.create("torn")
    for name in ("job.yaml", "plan.json", "events.jsonl", "telemetry/metrics.jsonl"):
        (torn.path / name).write_bytes(b'{"seq": 0, "kind": [\xff\xfe\n\x00' * 50)
    for other in (empty, torn):
        done = dttui_here("compare", empty.job_id, other.job_id)
        assert done.returncode == ExitCode.OK, done.stderr
        assert "the job files are not compared" in done.stdout
        assert "there is no step that both have reported" in done.stdout
        assert result_of(dttui_here("compare", empty.job_id, other.job_id, "--output", "json"))["configuration"] == []
    done = dttui_here("compare", "empty", "nowhere")
    assert (done.returncode, "there is no job nowhere" in done.stderr) == (ExitCode.NO_SUCH_JOB, True)


def test_metrics_of_many_megabytes_are_compared_in_little_memory() -> None:
    made: list[JobDirectory] = [jobs.create(name) for name in ("a", "b")]
    for directory in made:
        with directory.metrics.open("w") as stream:
            for step in range(15_000):
                body = {"rank": 0, "step": step, "loss": 1.0, "time": 1000.0 + step, "extra": {"x" * 1000: 1.0}}
                stream.write(json.dumps(body) + "\n")
            stream.write('{"rank": 0, "step"' + "x" * (3 << 20))
    tracemalloc.start()
    try:
        found = jobs.compare(*made)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.rows) == 20
    assert found.step_time_ratio == pytest.approx(1.0)
    assert peak < 16 << 20


def test_what_was_estimated_on_real_gpus_stands_beside_what_was_measured_there(
    nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPUs are a stub's under the driver's own binding; the job has them fuller once it has trained."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library.parent))
    control, fuller = tmp_path / "gpus", tmp_path / "fuller"
    monkeypatch.setenv(CONTROL, str(control))
    for path, used_mib in ((control, 300), (fuller, 50_000)):
        change({CONTROL: str(path)}, {"gpus": 2, "name": "NVIDIA A100-SXM4-80GB", "memory_used_mib": used_mib})
    demo = demo_inventory(Path(os.environ["DTTUI_DEMO_ROOT"]), Path("examples"), sys.executable)
    real = tuple(item.model_copy(update={"resources": Resources()}) for item in demo.environments if item.name == ONE)
    monkeypatch.setattr(inventories, "demo_inventory", lambda *_: demo.model_copy(update={"environments": real}))
    heard = f"grep -qs memory_used_mib.:50000 {locations.jobs_directory()}/*/telemetry/{ONE}.jsonl"
    command = f"{TRAINS}; mv {fuller} {control}; for n in $(seq 150); do {heard} && break; sleep 0.2; done"
    model = {"parameters": 1.3e9, "layers": 24, "hidden_size": 2048, "heads": 16, "seq_length": 2048}
    run = {"command": ["sh", "-c", command], "env": {"SPEED": "2"}}
    job = write_job(tmp_path, {ONE: 1}, framework="command", run=run, model=model)
    done = dttui_here("--demo", "--apply", job)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(dttui_here("history", "--output", "json").stdout)
    figures = found["figures"]
    assert figures["step_time_s"]["measured"] == pytest.approx(0.5)
    assert figures["step_time_s"]["low"] < figures["step_time_s"]["estimated"] < figures["step_time_s"]["high"]
    assert figures["memory_per_gpu_gb"]["measured"] == pytest.approx(50_000 * (1 << 20) / 1e9, rel=0.02)
    assert figures["memory_per_gpu_gb"]["low"] > 1
    assert figures["tokens_per_s"]["estimated"] > 0
    assert figures["tokens_per_s"]["measured"] is None
    shown = dttui_here("status").stdout
    assert "tokens a second: not measured; estimated" in shown
    assert "GB of the fullest GPU: 52.4; estimated" in shown
    assert {"driver", "Python"} <= set(result_of(dttui_here("status", "--output", "json"))["versions"][ONE])
