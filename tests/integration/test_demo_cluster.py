"""The main job on the embedded cluster, headless: real agents, supervisors and torchrun, without SSH."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dttui.inventory.demo import demo_inventory
from dttui.planning.aggregate import Choice, gpu_text
from dttui.words import moment
from tests.agent.conversation import processes_with
from tests.files import contents_below
from tests.integration.headless import (
    DEADLINE_S,
    dttui,
    dttui_here,
    example_job,
    result_of,
    shell_job,
    start_dttui,
    wait_for_running,
    wait_for_state,
    write_job,
)
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.waiting import wait_until

ONE, TWO, THREE = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"


@pytest.mark.torch
def test_the_example_trains_on_one_plus_one_plus_two_and_its_loss_falls(tmp_path: Path) -> None:
    job = example_job(tmp_path, {TWO: 1, ONE: 1, THREE: 2}, "--steps", "30", "--log-every", "5")
    done = dttui("--demo", "--apply", job, "--output", "json")
    assert done.returncode == 0, done.stderr
    result = result_of(done)
    assert result["state"] == "SUCCEEDED"
    assert result["world_size"] == 4
    assert [(node["name"], node["ranks"]) for node in result["nodes"]] == [(TWO, [0]), (ONE, [1]), (THREE, [2, 3])]
    directory = Path(result["directory"])
    losses = [json.loads(line) for line in (directory / "telemetry/metrics.jsonl").read_text().splitlines()]
    of_master = [line["loss"] for line in losses if line["rank"] == 0]
    assert of_master[-1] < of_master[0] - 1
    assert "world size 4" in (directory / f"logs/0/{TWO}/0.out").read_text()
    for node, rank in ((TWO, 0), (ONE, 1), (THREE, 2), (THREE, 3)):
        assert (directory / f"logs/0/{node}/{rank}.out").exists()
    samples = [json.loads(line) for line in (directory / f"telemetry/{THREE}.jsonl").read_text().splitlines()]
    assert any(sample["ranks"].get(result["job_id"]) for sample in samples)


@pytest.mark.torch
def test_a_warm_start_changes_neither_loss_nor_outcome(tmp_path: Path) -> None:
    job = example_job(tmp_path, {ONE: 2}, "--steps", "6", "--log-every", "1")
    plain = dttui_here("--apply", job, "--demo", "--output", "json")
    job.write_text(job.read_text().replace("    script:", "    warm_start: true\n    script:"))
    told = []
    for _turn in range(2):
        warm = dttui_here("--apply", job, "--demo", "--output", "json")
        assert (warm.returncode, plain.returncode) == (0, 0), warm.stderr
        told.append([_losses(result_of(done)["directory"]) for done in (plain, warm)])
    assert all(before == after for before, after in told)
    assert len(told[0][0]) == 6
    demo = Path(os.environ["DTTUI_DEMO_ROOT"])
    journals = [path.read_text() for path in demo.glob(f"*/jobs/{result_of(warm)['job_id']}/0/journal.jsonl")]
    assert [text.count('"event":"stem"') for text in journals] == [1]


def _losses(directory: str) -> list[float]:
    lines = (Path(directory) / "telemetry/metrics.jsonl").read_text().splitlines()
    return [body["loss"] for line in lines if (body := json.loads(line))["rank"] == 0]


def test_a_rank_that_exits_with_3_is_named_with_its_last_words_and_nothing_is_left(tmp_path: Path) -> None:
    job = example_job(tmp_path, {TWO: 2}, "--fail-at-step", "3", "--fail-rank", "1", "--exit-code", "3")
    done = dttui_here("--demo", "--apply", job, "--output", "json")
    assert done.returncode == 100, done.stderr
    first = result_of(done)["failures"][0]
    assert (first["node"], first["rank"], first["exit_code"]) == (TWO, 1, 3)
    assert any("--exit-code" in line for line in first["tail"])
    assert processes_with(f"DTTUI_JOB_ID={result_of(done)['job_id']}") == []


@pytest.mark.torch
def test_an_exception_comes_back_with_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/broken.py").write_text("def f():\n    raise ValueError('a bad thing')\nf()\n")
    run = {"script": "broken.py", "workdir": "work"}
    job = write_job(tmp_path, {ONE: 1}, framework="pytorch-ddp", run=run)
    done = dttui_here("--demo", "--apply", job, "--output", "json")
    assert done.returncode == 100, done.stderr
    first = result_of(done)["failures"][0]
    assert first["error"] == "ValueError: a bad thing"
    assert "line 2, in f" in first["traceback"]
    assert "rank.py" not in first["traceback"]


def test_events_are_a_line_each_on_stdout_and_nothing_else_is(tmp_path: Path) -> None:
    done = dttui_here("--demo", "--apply", shell_job(tmp_path, {ONE: 1, TWO: 2}, "echo hello"), "--output", "jsonl")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    states = [event["data"]["state"] for event in events if event["kind"] == "job_state"]
    assert states == ["PREFLIGHT", "LAUNCHING", "RENDEZVOUS", "RUNNING", "SUCCEEDED"]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert events[-1]["kind"] == "outcome"


def test_a_rank_that_something_else_ends_by_sigterm_is_a_failure(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {ONE: 1, TWO: 1}, 'test "$RANK" = 1 && kill -TERM $$; sleep 60')
    done = dttui_here("--demo", "--apply", job, "--output", "json")
    assert done.returncode == 100, done.stderr
    first = result_of(done)["failures"][0]
    assert (first["node"], first["rank"], first["signal"]) == (TWO, 1, signal.SIGTERM)


def test_a_stop_while_the_job_is_being_launched_leaves_nothing(tmp_path: Path) -> None:
    running = start_dttui("--demo", "--apply", shell_job(tmp_path, {ONE: 2, TWO: 4}, "sleep 60"), "--output", "jsonl")
    assert running.stdout is not None
    for line in running.stdout:
        if json.loads(line)["data"].get("state") in ("LAUNCHING", "RENDEZVOUS"):
            running.send_signal(signal.SIGINT)
            break
    _out, err = running.communicate(timeout=DEADLINE_S)
    assert running.returncode == 103, err
    job_id = json.loads(dttui_here("ps", "--all", "--output", "json").stdout)[0]["job_id"]
    assert processes_with(f"DTTUI_JOB_ID={job_id}") == []


def test_every_rank_of_a_command_gets_the_environment_torchrun_would_give(tmp_path: Path) -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR DTTUI_NODE_RANK DTTUI_NODE_COUNT"
    show = "; ".join(f"echo {name}=${name}" for name in names.split())
    done = dttui_here("--demo", "--apply", shell_job(tmp_path, {ONE: 1, TWO: 2}, show), "--output", "json")
    logs = Path(result_of(done)["directory"]) / "logs/0"
    told = dict(line.split("=") for line in (logs / TWO / "2.out").read_text().splitlines())
    assert told == {
        "RANK": "2",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "127.0.0.1",
        "DTTUI_NODE_RANK": "1",
        "DTTUI_NODE_COUNT": "2",
    }


def test_one_interrupt_stops_gracefully_and_says_so(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {ONE: 1, TWO: 1}, "trap 'echo saved; exit 0' TERM; while :; do sleep 0.1; done")
    running = start_dttui("--demo", "--apply", job)
    job_id = wait_for_running()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=DEADLINE_S)
    assert running.returncode == 103, err
    assert "press Ctrl-C again" in err
    assert "CANCELLED" in out
    assert "saved" in dttui_here("logs", job_id, "--node", TWO).stdout
    assert processes_with(f"DTTUI_JOB_ID={job_id}") == []


def test_a_second_interrupt_forces_the_end(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {ONE: 1}, "trap 'echo heard' TERM; while :; do sleep 0.1; done")
    running = start_dttui("--demo", "--apply", job)
    job_id = wait_for_running()
    running.send_signal(signal.SIGINT)
    wait_until(lambda: "heard" in dttui_here("logs", job_id).stdout, "the rank to hear of it", DEADLINE_S)
    running.send_signal(signal.SIGINT)
    _out, err = running.communicate(timeout=DEADLINE_S)
    asked = Path(os.environ["DTTUI_DEMO_ROOT"], ONE, "jobs", job_id, "0/stop").read_text()
    assert asked == "kill", "the grace period went on"
    assert running.returncode == 103, err
    assert "forcing" in err
    assert processes_with(f"DTTUI_JOB_ID={job_id}") == []


def test_a_detached_job_is_followed_by_its_files(tmp_path: Path) -> None:
    command = "echo one; echo two >&2; sleep 1; printf 'no newline' >&2; exit 4"
    done = dttui_here("--demo", "--apply", shell_job(tmp_path, {ONE: 1}, command), "--detach")
    assert done.returncode == 0, done.stderr
    assert "RENDEZVOUS" in done.stderr
    job_id = done.stdout.strip()
    wait_for_state(job_id, "FAILED")
    assert dttui_here("status", job_id).returncode == 100
    assert dttui_here("logs", job_id, "-f", "--stderr", "--rank", "0").stdout == "two\nno newline\n"
    assert job_id not in dttui_here("ps").stdout
    assert job_id in dttui_here("ps", "--all").stdout


def test_a_detached_job_that_is_refused_has_the_exit_code_of_the_refusal(tmp_path: Path) -> None:
    python = shell_job(tmp_path, {ONE: 1}, "true", python="/no/such/python")
    refused = dttui_here("--demo", "--apply", python, "--detach", "--output", "json")
    assert refused.returncode == 3, refused.stderr
    assert result_of(refused)["state"] == "FAILED"
    rolled_back = dttui_here(
        *("--demo", "--apply", shell_job(tmp_path, {ONE: 1}, "true", workdir="/no/such/directory"), "--detach"),
        *("--ignore", "path-missing"),
    )
    assert rolled_back.returncode == 5, rolled_back.stderr
    assert "FAILED" in rolled_back.stdout


def test_a_job_onto_slots_that_another_job_holds_is_refused_with_that_job_s_name_and_until_when(tmp_path: Path) -> None:
    first = dttui_here("--demo", "--apply", shell_job(tmp_path, {ONE: 2}, "sleep 60"), "--detach", "--for", "8h")
    assert first.returncode == 0, first.stderr
    job_id = first.stdout.strip()
    wait_for_state(job_id, "RUNNING")

    def occupants() -> list[dict[str, Any]]:
        (row,) = json.loads(dttui_here("--demo", "envs", ONE, "--output", "json").stdout)
        return list(row["occupants"]) if row["state"] == "busy" else []

    (occupant,) = wait_until(occupants, "a reading with the job")
    assert occupant["job"] == job_id
    assert (occupant["simulated"], occupant["overdue"]) == (2, False)
    # The checks before the start took some of them.
    assert occupant["until"] - occupant["since"] == pytest.approx(8 * 3600, abs=DEADLINE_S)
    refused = dttui_here("--demo", "--apply", shell_job(tmp_path, {ONE: 1, TWO: 1}, "true"), "--output", "json")
    assert refused.returncode == 3, refused.stderr
    assert f"{ONE} has 0 free GPUs" in result_of(refused)["reason"]
    assert f"job {job_id} since " in result_of(refused)["reason"]
    # Each is told from a reading of its own, and a minute may end between what they come to.
    told = {f", until {moment(occupant['until'] + shift_s)}" for shift_s in (-30, 0, 30)}
    assert any(until in result_of(refused)["reason"] for until in told)
    # The refused job is the newest; a bare stop means the one that runs.
    stopped = dttui_here("stop", "--force")
    assert stopped.returncode == 0, stopped.stderr
    assert job_id in stopped.stdout
    assert dttui_here("--demo", "--apply", shell_job(tmp_path, {ONE: 2}, "true")).returncode == 0


@pytest.mark.parametrize(
    ("checkpoint", "place"),
    [(None, "{attempt}/checkpoints"), ("{base}/a/b", "{base}/a/b"), ("ckpt/deep", "{attempt}/work/ckpt/deep")],
)
def test_the_checkpoint_directory_is_there_when_the_script_starts(
    tmp_path: Path, checkpoint: str | None, place: str
) -> None:
    (tmp_path / "work").mkdir()
    fields = {"recovery": {"checkpoint": {"dir": checkpoint.format(base=tmp_path)}}} if checkpoint else {}
    command = (
        'test -d "$DTTUI_CHECKPOINT_DIR" && echo "$DTTUI_CHECKPOINT_DIR" && cd / && touch "$DTTUI_CHECKPOINT_DIR/x"'
    )
    run = {"command": ["sh", "-c", command], "workdir": "work"}
    job = write_job(tmp_path, {ONE: 1}, framework="command", run=run, **fields)
    done = dttui_here("--demo", "--apply", job, "--output", "json")
    assert done.returncode == 0, done.stderr
    result = result_of(done)
    attempt = Path(os.environ["DTTUI_DEMO_ROOT"]) / ONE / "jobs" / result["job_id"] / "0"
    expected = Path(place.format(attempt=attempt, base=tmp_path))
    assert (Path(result["directory"]) / f"logs/0/{ONE}/0.out").read_text() == f"{expected}\n"
    assert (expected / "x").exists()
    inside = [
        path for path in (attempt, *attempt.parents, *attempt.rglob("*")) if path.is_relative_to(attempt.parents[2])
    ]
    assert {oct(path.stat().st_mode & 0o777) for path in inside if path.is_dir()} == {"0o700"}


def test_a_secret_reaches_the_rank_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = shell_job(tmp_path, {ONE: 1}, "test ${#MY_TOKEN} -eq 13", secrets=["MY_TOKEN"])
    refused = dttui_here("--demo", "--apply", job)
    assert refused.returncode == 2
    assert "MY_TOKEN" in refused.stderr
    monkeypatch.setenv("MY_TOKEN", "sesame-opens!")
    done = dttui_here("--demo", "--apply", job)
    assert done.returncode == 0, done.stderr
    roots = [Path(os.environ["XDG_STATE_HOME"]), Path(os.environ["DTTUI_DEMO_ROOT"])]
    files = contents_below(*roots)
    assert files
    assert [path for path, content in files.items() if b"sesame-opens!" in content] == []


def test_environments_are_listed_with_their_state(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []

    def are_idle() -> bool:
        done = dttui_here("--demo", "envs", "--output", "json")
        assert done.returncode == 0, done.stderr
        rows[:] = json.loads(done.stdout)
        return {row["state"] for row in rows} == {"idle"}

    wait_until(are_idle, "readings without the job before this test", DEADLINE_S)
    assert [(row["name"], row["zone"]) for row in rows] == [
        (ONE, "beijing-a"),
        (TWO, "beijing-a"),
        (THREE, "shenzhen-c"),
    ]
    assert all(row["facts"]["memory_total_mib"] > 0 for row in rows)
    # The screen's words for the same GPUs.
    environments = demo_inventory(tmp_path, tmp_path, sys.executable).environments
    told = zip(dttui_here("--demo", "envs").stdout.splitlines(), environments, strict=True)
    assert [item.name for row, item in told if f" {gpu_text(Choice(item))} simulated " not in row] == []


def test_a_job_that_dies_in_preparation_is_rolled_back_everywhere(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {ONE: 1, TWO: 1}, "true", workdir="/no/such/directory")
    done = dttui_here("--demo", "--apply", job, "--output", "json", "--ignore", "path-missing")
    assert done.returncode == 5, done.stderr
    assert "/no/such/directory" in result_of(done)["reason"]
    job_id = result_of(done)["job_id"]
    for environment in (ONE, TWO):
        directory = Path(os.environ["DTTUI_DEMO_ROOT"]) / environment / "jobs" / job_id / "0"
        assert not (directory / "start.json").exists()


def test_headless_use_never_imports_textual(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {ONE: 1}, "true")
    code = (
        "import sys\nfrom dttui.cli import main\n"
        f"status = main(['--demo', '--apply', {str(job)!r}])\n"
        "assert status == 0, status\nassert 'textual' not in sys.modules\nassert 'paramiko' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
