"""What `--apply` and `attach` show of the ranks of a job that really runs."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from dttui import jobs
from tests.faults.restarting import begun
from tests.faults.test_restarts import FAILS_ONCE, demo
from tests.integration.headless import DEADLINE_S, dttui, shell_job, start_dttui, wait_for_running, wait_for_state
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.waiting import wait_until

ONE, TWO = "pytorch-dev-env", "llm-training-env"
TOKEN = "hf_" + "b" * 30
LINES = 300_000
FLOOD = f'''python3 -c "
import os, time
began = time.monotonic()
for first in range(0, {LINES}, 1000):
    os.write(1, b''.join(b'line %d\\n' % n for n in range(first, first + 1000)))
    time.sleep(max(0.0, began + first / 100_000 - time.monotonic()))
"'''
LOOP = "trap 'echo saved; exit 0' TERM; while :; do echo y; sleep 0.1; done"


def read_until(running: subprocess.Popen[str], text: str) -> None:
    """Read states until one says so; who waits for stdout reads nothing of it."""
    assert running.stderr is not None
    assert any(text in line for line in running.stderr), f"it ended without: {text}"


def test_what_rank_0_prints_comes_before_the_outcome_and_states_go_to_stderr(tmp_path: Path) -> None:
    command = f"echo rank $RANK has {TOKEN}; echo told on stderr >&2; printf 'no end'"
    job = shell_job(tmp_path, {ONE: 1, TWO: 2}, command)
    done = dttui("--demo", "--apply", job)
    *lines, outcome, _places = done.stdout.splitlines()
    assert sorted(lines) == ["no end", "rank 0 has •••", "told on stderr"], done.stderr
    assert "SUCCEEDED" in outcome
    assert "RUNNING" in done.stderr
    several = dttui("--demo", "--apply", job, "--logs", "0,2", "--output", "jsonl")
    events = [json.loads(line) for line in several.stdout.splitlines()]
    logged = {
        (event["node"], event["rank"], event["stream"], event["line"]) for event in events if event["kind"] == "log"
    }
    assert logged == {
        (node, rank, stream, line)
        for node, rank in ((ONE, 0), (TWO, 2))
        for stream, line in (("out", f"rank {rank} has •••"), ("err", "told on stderr"), ("out", "no end"))
    }
    assert events[-1]["kind"] == "outcome"
    assert [event["kind"] for event in events if event["kind"] != "log"][-2:] == ["job_state", "outcome"]


def test_a_flood_slows_neither_the_job_nor_its_states_and_is_shown_with_a_count_of_the_rest(tmp_path: Path) -> None:
    running = start_dttui("--demo", "--apply", shell_job(tmp_path, {ONE: 1}, FLOOD))
    read_until(running, "RUNNING")
    read_until(running, "SUCCEEDED")  # Nobody has read stdout so far: a pipe takes 64 KiB.
    out, _err = running.communicate(timeout=DEADLINE_S)
    assert running.returncode == 0
    shown = [int(line.split()[1]) for line in out.splitlines() if line.startswith("line ")]
    left_out = [int(count.replace(",", "")) for count in re.findall(r"^… ([\d,]+) lines left out", out, re.MULTILINE)]
    assert shown == sorted(set(shown))
    assert shown[-1] == LINES - 1
    assert len(shown) + sum(left_out) == LINES
    assert len(shown) < LINES / 4


def test_ctrl_c_is_heard_while_nobody_reads_stdout(tmp_path: Path) -> None:
    running = start_dttui("--demo", "--apply", shell_job(tmp_path, {ONE: 1}, f"seq 9000; {LOOP}"))
    job_id = wait_for_running()
    log = jobs.find(job_id).logs(0, ONE) / "0.out"
    wait_until(lambda: log.exists() and log.stat().st_size > 40_000, "the lines", DEADLINE_S)
    running.send_signal(signal.SIGINT)
    read_until(running, "CANCELLED")
    out, _err = running.communicate(timeout=DEADLINE_S)
    assert running.returncode == 103
    lines = out.splitlines()
    assert lines[:9000] == [str(number) for number in range(1, 9001)]
    assert lines[-3] == "saved"


def test_a_reader_who_has_read_enough_ends_the_command_and_not_the_job(tmp_path: Path) -> None:
    with start_dttui("--demo", "--apply", shell_job(tmp_path, {ONE: 1}, LOOP)) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "y\n"
        running.stdout.close()
        read_until(running, "the job goes on")
        assert running.wait(DEADLINE_S) == 0
    job_id = wait_for_running()
    attached = start_dttui("attach", job_id, "--logs", "all")
    assert attached.stdout is not None
    assert attached.stdout.readline() == "[0] y\n"
    attached.send_signal(signal.SIGINT)
    _out, err = attached.communicate(timeout=DEADLINE_S)
    assert (attached.returncode, "the job goes on" in err) == (101, True)
    assert dttui("stop", job_id).returncode == 0
    wait_for_state(job_id, "CANCELLED")


def test_a_job_that_is_started_again_goes_on_with_the_logs_of_the_new_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = f"{tmp_path}/$DTTUI_ATTEMPT"  # Rank 1 does not fail before rank 0 has printed anything.
    meet = f"touch {here}-$RANK; until [ -e {here}-0 ]; do sleep 0.1; done"
    command = f"echo attempt $DTTUI_ATTEMPT of $RANK; {meet}; {FAILS_ONCE}; sleep 0.4; printf 'its end'"
    directory, controller = begun(shell_job(tmp_path, {ONE: 1, TWO: 1}, command), demo(), monkeypatch, 0)
    wait_until(lambda: directory.logs(0, ONE).exists(), "the job to start", DEADLINE_S)
    done = dttui("attach", directory.job_id, "--logs", "all", "--output", "jsonl")
    assert (done.returncode, controller.wait(DEADLINE_S)) == (0, 0), done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    lines = [(event["attempt"], event["rank"], event["line"]) for event in events if event["kind"] == "log"]
    expected = [(attempt, rank, f"attempt {attempt} of {rank}") for attempt in (0, 1) for rank in (0, 1)]
    expected += [(1, rank, "its end") for rank in (0, 1)]
    # Rank 0 of the first attempt was stopped somewhere on its way.
    assert sorted(line for line in lines if line[2] != "ran" and line != (0, 0, "its end")) == sorted(expected)
    assert lines == sorted(lines, key=lambda line: line[0])
    kinds = [event["kind"] for event in events]
    assert max(index for index, kind in enumerate(kinds) if kind == "log") < kinds.index("outcome")
