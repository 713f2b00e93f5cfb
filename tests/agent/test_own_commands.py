"""Metrics of commands that start their own ranks, or train themselves: what the launcher's log tells, and of whom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dtagent.locations import AttemptFiles
from dtagent.logs.trainer_metrics import Training

from tests.agent.conversation import Conversation
from tests.agent.trainer_files import OUTPUT, written
from tests.agent.trainer_files import files as files
from tests.waiting import wait_until


def start(files: AttemptFiles, **environment: object) -> None:
    files.start.write_text(json.dumps({"processes": [{"name": "launcher", "env": environment}]}))


def test_a_command_that_trains_itself_reports_as_the_first_rank_of_its_node(files: AttemptFiles) -> None:
    start(files, DTTUI_OWN_RANKS="4:8")
    (files.logs / "launcher.out").write_bytes((OUTPUT / "ultralytics-8.4.190.out").read_bytes())
    Training().look(files, is_over=True)
    found = written(files)
    assert [(body["step"], body["loss"]) for body in found[:3]] == [(0, 4.961), (1, 3.913), (2, 2.623)]
    assert (found[-1]["step"], found[-1]["loss"], found[-1]["epoch_steps"]) == (18, 3.806, 6)
    assert {body["rank"] for body in found} == {4}


@pytest.mark.parametrize("environment", [{}, {"DTTUI_OWN_RANKS": "x:8"}, {"DTTUI_OWN_RANKS": ["0:8"]}])
def test_a_launcher_of_dttuis_own_is_not_read(files: AttemptFiles, environment: dict[str, object]) -> None:
    start(files, **environment)
    (files.logs / "launcher.out").write_bytes(b"step 1 loss 2.5\n")
    Training().look(files, is_over=True)
    assert written(files) == []


def test_what_a_rank_tells_comes_before_the_words_of_its_launcher(files: AttemptFiles) -> None:
    start(files, DTTUI_OWN_RANKS="0:2")
    followed = Training()
    for step in range(3):
        for stream in ("1.out", "launcher.out"):
            with (files.logs / stream).open("ab") as log:
                log.write(f"step {step} loss 2.5\n".encode())
        followed.look(files)
    followed.look(files, is_over=True)
    assert [(body["step"], body["rank"]) for body in written(files)] == [(0, 1), (1, 1), (2, 1)]


def test_a_bar_on_stderr_and_the_report_of_its_step_on_stdout_are_one(files: AttemptFiles) -> None:
    for stream in ("out", "err"):
        (files.logs / f"0.{stream}").write_bytes((OUTPUT / f"ms-swift-4.6.0.{stream}").read_bytes())
    Training().look(files, is_over=True)
    found = written(files)
    assert [body["step"] for body in found] == list(range(1, 27))
    assert all({"loss", "steps_per_s", "total_steps"} <= body.keys() for body in found)
    assert (found[-1]["loss"], found[-1]["total_steps"]) == (5.143, 26)


def test_a_command_that_trains_itself_is_read_while_it_runs(tmp_path: Path) -> None:
    key = {"job_id": "alone", "attempt": 0}
    process = {"name": "launcher", "argv": ["sh", "-c", "echo step 1 loss 2.5; exec sleep 600"], "cwd": "/"}
    with Conversation(tmp_path / "root") as agent:
        agent.prepare("alone")
        env = {"DTTUI_JOB_ID": "alone", "DTTUI_ATTEMPT": "0", "DTTUI_OWN_RANKS": "0:1"}
        agent.call("start", {"key": key, "node_rank": 0, "processes": [{**process, "env": env}], "ranks": [0]})
        trainer = AttemptFiles.of(tmp_path / "root", "alone", 0)
        wait_until(lambda: [body["loss"] for body in written(trainer)] == [2.5], "the loss to be read")
        agent.stop("alone", force=True)
        agent.end_of("alone")
