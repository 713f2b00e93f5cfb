"""The login node's disk full: the job is followed and told to its end all the same, and written once there is room."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind, JobState

from dttui import jobs
from dttui.jobs import JobDirectory
from tests.faults.test_disk_full import fill
from tests.integration.headless import dttui, result_of, shell_job, start_dttui
from tests.processes import ended_agents as ended_agents
from tests.waiting import wait_until

ONE, TWO = "pytorch-dev-env", "llm-training-env"
DEADLINE_S = 90.0
DISK_BYTES = 8 << 20
LINES = [f"line {number}" for number in range(1, 2001)]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The login node's disk: a small file system of its own."""
    place = tmp_path / "state"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", str(place)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system can only be mounted by root, and not in every container")
    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """What the ranks wait for."""
    return tmp_path / "go"


def ending_job(base: Path, go: Path, code: int) -> Path:
    """Write a job that waits for `go`, prints and reports steps, and of which rank 1 ends with a code once all did."""
    waits = f"echo begun; until [ -e {go} ]; do sleep 0.1; done"
    steps = 'i=1; while [ $i -le 20 ]; do echo "{\\"step\\": $i}" >> $DTTUI_METRICS; i=$((i+1)); done'
    ends = f"[ $DTTUI_NODE_RANK = 1 ] || exec touch {go}.0; until [ -e {go}.0 ]; do sleep 0.1; done; exit {code}"
    return shell_job(base, {ONE: 1, TWO: 1}, f"{waits}; seq -f 'line %.0f' 1 2000; {steps}; {ends}")


def running() -> JobDirectory:
    found = wait_until(
        lambda: next((job.job_id for job in jobs.list_jobs() if job.state is JobState.RUNNING), None),
        "the job to run",
        DEADLINE_S,
    )
    directory = jobs.find(str(found))
    wait_until(lambda: directory.has_logs(0, ONE) and directory.has_logs(0, TWO), "the first lines", DEADLINE_S)
    return directory


def assert_written(directory: JobDirectory, exit_code: int) -> None:
    """The controller has written everything, once, and gone."""
    wait_until(lambda: not directory.has_controller(), "the controller to have written all", DEADLINE_S)
    events = directory.read_events()
    assert [event.seq for event in events] == list(range(len(events)))
    assert [event.data["exit_code"] for event in events if event.kind is EventKind.OUTCOME] == [exit_code]
    for rank, name in enumerate((ONE, TWO)):
        copy = directory.logs(0, name) / f"{rank}.out"
        assert copy.read_text().splitlines() == ["begun", *LINES]
    steps = [line for line in directory.metrics.read_text().splitlines() if '"step"' in line]
    assert len(steps) == 40


@pytest.mark.parametrize(("code", "exit_code", "state_name"), [(0, 0, "SUCCEEDED"), (3, 100, "FAILED")])
def test_a_job_is_told_to_its_end_on_a_full_disk_and_written_once_there_is_room(
    state: Path, tmp_path: Path, go: Path, code: int, exit_code: int, state_name: str
) -> None:
    """`--apply` ends with the job, and from any terminal the job has its outcome while not a byte can be written.

    All within 90 s, on a machine under load.
    """
    with start_dttui("--demo", "--apply", ending_job(tmp_path, go, code)) as applied:
        directory = running()
        fill(state)
        go.touch()
        try:
            _output, errors = applied.communicate(timeout=DEADLINE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                applied.kill()
    assert applied.returncode == exit_code, errors
    assert "No space left on device" in errors
    assert directory.has_controller()
    status = dttui("status", directory.job_id, "--output", "json")
    assert (status.returncode, result_of(status)["state"]) == (exit_code, state_name)
    assert result_of(status)["nodes"][1]["state"] == ("failed" if code else "ended")
    assert dttui("ps").stdout == ""
    stopped = dttui("stop", directory.job_id)
    assert stopped.returncode == 0, stopped.stderr
    (state / "ballast").unlink()
    assert_written(directory, exit_code)


@pytest.mark.parametrize("part", [".", "logs", "telemetry"])
def test_a_job_is_told_to_its_end_where_its_directory_or_a_part_of_it_becomes_read_only(
    state: Path, tmp_path: Path, go: Path, part: str
) -> None:
    """As a file system does that finds an error: `--apply` says so and ends with the job; what is missing comes after.

    From elsewhere the job has its outcome at once. All within 90 s.
    """
    with start_dttui("--demo", "--apply", ending_job(tmp_path, go, 3)) as applied:
        directory = running()
        with read_only(directory.path / part):
            go.touch()
            try:
                _output, errors = applied.communicate(timeout=DEADLINE_S)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    applied.kill()
            assert applied.returncode == 100, errors
            assert "Read-only file system" in errors
            status = dttui("status", directory.job_id)
            assert (status.returncode, "FAILED  " in status.stdout) == (100, True), status.stdout
            assert jobs.summarize(directory).state is JobState.FAILED
    assert_written(directory, 100)


@contextlib.contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Nothing can be written below a directory."""
    subprocess.run(["mount", "--bind", str(directory), str(directory)], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", str(directory)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_a_login_node_that_is_full_from_the_start_launches_nothing_and_says_why(
    state: Path, tmp_path: Path, go: Path
) -> None:
    """Within 60 s; nothing is left of it once there is room again."""
    fill(state)
    refused = dttui("--demo", "--apply", ending_job(tmp_path, go, 0))
    assert refused.returncode == 2
    assert "No space left on device" in refused.stderr
    assert "internal error" not in refused.stderr
    assert jobs.list_jobs() == []
