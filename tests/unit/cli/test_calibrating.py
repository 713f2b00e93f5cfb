"""`calibrate` from the shell, and estimates that count with what was learned."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dttui import locations
from dttui.cli import main
from dttui.fleet.measured_runs import measured_runs, record_run
from dttui.planning.cost.calibration import CostBasis, MeasuredRun
from dttui.planning.cost.hardware import Hardware, default_links, gpu_table
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.memory import memory_per_gpu
from dttui.planning.cost.shape import usual_shape
from dttui.planning.cost.step_time import step_time

ESTIMATE = ("estimate", "--parameters", "1e9", "--gpu", "A100-80GB", "--gpus", "1", "--global-batch", "8")


def keep(number: int, slower: float, kind: str = "A100-80GB") -> None:
    gpu = gpu_table().find(kind)
    assert gpu is not None
    shape, layout = usual_shape((0.5 + number) * 1e9), Layout(global_batch=8)
    hardware = Hardware(gpu, 1, 1, *default_links(gpu))
    taken, held = step_time(shape, layout, hardware).value, memory_per_gpu(shape, layout).low
    basis = CostBasis.of(shape, layout, hardware)
    record_run(
        MeasuredRun(
            job=f"{kind}-{number}",
            ended_at=1.7e9 + number * 86400,
            basis=basis,
            step_time_s=taken * slower,
            memory_bytes=1.25 * held,
        )
    )


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "--output", "json"]) == code
    return json.loads(capsys.readouterr().out)


def test_without_jobs_it_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate"]) == 0
    assert "nothing was learned yet" in capsys.readouterr().out
    assert document(capsys, "calibrate") == {"kinds": {}, "jobs": [], "unknown_kinds": []}


def test_it_shows_factors_where_they_are_from_and_each_job_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        keep(number, 2.0)
    assert main(["calibrate"]) == 0
    out = capsys.readouterr().out
    assert "A100-80GB, bf16: the step ×2, " in out
    assert "cannot be told apart" in out
    assert "3 jobs, 2023-11-14 – 2023-11-16" in out
    assert "A100-80GB: memory ×1.2" in out
    (row,) = [line for line in out.splitlines() if line.endswith("A100-80GB-1")]
    assert row.split()[5:7] == ["-50%", "+0%"]
    told = document(capsys, "calibrate")
    assert [item["job_id"] for item in told["jobs"]] == ["A100-80GB-0", "A100-80GB-1", "A100-80GB-2"]
    time = told["jobs"][0]["step_time_s"]
    assert time["measured"] == pytest.approx(2 * time["before"])
    assert time["after"] == pytest.approx(time["measured"], rel=0.01)
    factor = told["kinds"]["A100-80GB"]["time"]["bf16"]
    assert (factor["are_apart"], factor["source"]["jobs"][0]) == (False, "A100-80GB-0")


def test_an_estimate_counts_with_it_says_so_and_does_without_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    before = document(capsys, *ESTIMATE)
    for number in range(3):
        keep(number, 2.0)
    after = document(capsys, *ESTIMATE)
    assert after["step_time_s"]["value"] == pytest.approx(2 * before["step_time_s"]["value"], rel=0.01)
    assert after["memory_per_gpu_gb"]["low"] == pytest.approx(1.25 * before["memory_per_gpu_gb"]["low"], rel=0.02)
    told = after["inputs"]["calibration.time_jobs"]
    assert told["source"] == "measured"
    assert told["measured_at"] == 1.7e9 + 2 * 86400
    assert told["value"] == "A100-80GB-0, A100-80GB-1, A100-80GB-2"
    assert main([*ESTIMATE]) == 0
    out = capsys.readouterr().out
    assert "computing ×2, traffic ×2" in out
    assert "learned from A100-80GB-0" in out
    assert document(capsys, "calibrate", "--drop", "A100", "--yes")["forgotten"] == [f"A100-80GB-{n}" for n in range(3)]
    assert document(capsys, *ESTIMATE) == before


def test_a_drop_asks_first_says_what_it_would_do_and_leaves_other_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    keep(1, 2.0)
    keep(2, 2.0, "H100-80GB")
    assert main(["calibrate", "--drop"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert document(capsys, "calibrate", "--drop", "--dry-run") == {
        "forgotten": ["A100-80GB-1", "H100-80GB-2"],
        "dry_run": True,
    }
    assert len(measured_runs()) == 2
    assert main(["calibrate", "--drop", "H100-80GB", "--yes"]) == 0
    assert "1 job forgotten" in capsys.readouterr().out
    assert [run.job for run in measured_runs()] == ["A100-80GB-1"]


def test_a_kind_of_which_nothing_is_known_is_told_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    keep(1, 2.0)
    for kind in ("H100", "nonsense"):
        assert main(["calibrate", "--drop", kind, "--yes"]) == 2
        told = capsys.readouterr().err
        assert f'nothing was learned of "{kind}"' in told
        assert "A100-80GB" in told
    assert len(measured_runs()) == 1


def test_a_damaged_file_is_told_of_by_each_verb_that_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    path = locations.measured_runs_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{")
    for arguments in (["calibrate"], ["calibrate", "--drop", "--yes"], [*ESTIMATE]):
        assert main(arguments) == 2
        told = capsys.readouterr().err
        assert str(path) in told
        assert "move it away" in told
    assert path.read_text() == "{"


def test_jobs_of_a_type_that_is_no_more_known_are_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    keep(1, 2.0)
    (run,) = measured_runs()
    record_run(run.model_copy(update={"job": "old", "basis": run.basis.model_copy(update={"kind": "gone"})}))
    assert main(["calibrate"]) == 0
    assert "gone: no type of that name is known any more" in capsys.readouterr().out
