"""Two jobs side by side, as they ran; and of torn, old and huge directories what there is."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from dttui import jobs
from dttui.errors import ExitCode
from dttui.jobs import JobDirectory
from tests.integration.headless import dttui_here, result_of, shell_job
from tests.processes import ended_agents as ended_agents

ONE = "pytorch-dev-env"
TRAINS = (
    "python3 -c \"import json,os,time; t=time.time(); f=open(os.environ['DTTUI_METRICS'],'a');"
    "[f.write(json.dumps({'step':n,'loss':9-n/10,'samples_per_s':float(os.environ['SPEED']),"
    "'time':t-60+n/float(os.environ['SPEED'])})+chr(10)) for n in range(1,41)]\""
)


def test_two_jobs_stand_side_by_side_with_what_they_ran_with_and_how_they_trained(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {ONE: 1}, TRAINS, env={"SPEED": "2"})
    assert dttui_here("--demo", "--apply", job).returncode == 0
    first = jobs.find("last").job_id
    assert dttui_here("again", "last", "--set", "run.env.SPEED=4", "--set", "strategy.zero_stage=0").returncode == 0

    found = result_of(dttui_here("compare", first, "last", "--output", "json"))
    one, two = found["jobs"]
    assert (one["job_id"], one["state"], one["last_step"]) == (first, "SUCCEEDED", 40)
    changed = {item["key"]: (item["first"], item["second"]) for item in found["configuration"]}
    assert changed["run.env.SPEED"] == ("2", "4")
    assert set(changed) <= {"run.env.SPEED", "strategy.zero_stage"}
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


def test_a_hundred_thousand_steps_are_compared_in_bounded_memory() -> None:
    made: list[JobDirectory] = [jobs.create(name) for name in ("a", "b")]
    for directory in made:
        with directory.metrics.open("w") as stream:
            for step in range(100_000):
                stream.write(json.dumps({"rank": 0, "step": step, "loss": 1.0, "time": 1000.0 + step}) + "\n")
            stream.write('{"rank": 0, "step"' + "x" * (3 << 20))
    tracemalloc.start()
    try:
        found = jobs.compare(*made)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.rows) == 20
    assert found.step_time_ratio == pytest.approx(1.0)
    assert peak < 100 << 20
