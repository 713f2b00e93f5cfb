"""Controllers killed for real in every phase: the next one finds out how far the job came, and starts nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from dtagent.protocol.events import Event, EventKind

from dttui import jobs, locations
from dttui.inventory.demo import demo_inventory
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.launch import submit as launch
from dttui.launch.control import ControllerClient
from dttui.launch.local_plan import make_local_plan
from dttui.launch.starting import ensure_controller
from dttui.launch.submit import submit
from dttui.planning.submission import Submission
from dttui.spec import load_document
from tests.agent.conversation import processes_with
from tests.integration.headless import DEADLINE_S, dttui, shell_job, start_dttui
from tests.processes import controller_of, is_stopped, processes_like
from tests.processes import ended_agents as ended_agents
from tests.waiting import wait_until

ONE, TWO = "pytorch-dev-env", "llm-training-env"
COUNTS = (
    'i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo line $i; echo "{{\\"step\\": $i}}" >> "$DTTUI_METRICS";'
    " sleep 0.02; done; {end}"
)
DOOMED = """
import os, signal, sys
from dttui.engine import controller
from dttui.engine import attempt as gang
from dttui.engine import start as gang_start
from dttui.engine import watch as gang_watch
from dttui.engine.nodes import node_run, node_start

def die(*_arguments, **_options):
    os.kill(os.getpid(), signal.SIGKILL)

def die_after(kind, name):
    act = getattr(kind, name)
    async def both(self, *arguments, **options):
        await act(self, *arguments, **options)
        die()
    setattr(kind, name, both)

phase = sys.argv.pop(1)
if phase == "preflight":
    gang.Preflight.run = die
elif phase == "prepared":
    gang_start.bind = die
elif phase == "bound":
    node_start.NodeStart.start = die
elif phase == "one started":
    start = node_start.NodeStart.start
    async def only_the_first(self, *arguments, **options):
        if self.node.planned.node_rank == 0:
            await start(self, *arguments, **options)
            die()
        await __import__("asyncio").Event().wait()
    node_start.NodeStart.start = only_the_first
elif phase == "all started":
    gang_watch.GangWatch.run = die
elif phase == "rendezvous":
    gang_watch.GangWatch.report = die
elif phase == "stopping":
    die_after(node_run.NodeRun, "stop")
elif phase == "over":
    gang_watch.GangWatch._conclude = die
sys.exit(controller.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        ("preflight", "the controller died before the start"),
        ("prepared", "the controller died before the start; every host was rolled back"),
        ("bound", "the controller died while the hosts were being started; every host was rolled back"),
        ("one started", "the controller died while the hosts were being started; every host was rolled back"),
    ],
)
def test_what_was_never_a_whole_gang_is_cleared_and_has_failed(
    phase: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over within 120 s of the next controller; neither a process of the job nor a controller is left."""
    directory = doomed(phase, tmp_path, monkeypatch, "sleep 600")
    events = taken_over(directory)
    assert (events[-1].message, events[-1].data) == (message, {"state": "FAILED", "exit_code": 5})
    assert processes_with(f"DTTUI_JOB_ID={directory.job_id}") == []


@pytest.mark.parametrize("phase", ["all started", "rendezvous", "over"])
def test_a_whole_gang_goes_on_to_its_real_end_and_nothing_is_lost_or_told_twice(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over within 120 s of the next controller; neither a process of the job nor a controller is left."""
    command = COUNTS.format(lines=40, end='if [ "$RANK" = 1 ]; then sleep 0.2; exit 3; else sleep 600; fi')
    directory = doomed(phase, tmp_path, monkeypatch, command)
    events = taken_over(directory)
    assert events[-1].data == {"state": "FAILED", "exit_code": 100}
    assert events[-1].message == f"rank 1 on {TWO} exited with code 3"
    assert [event.rank for event in events if event.kind is EventKind.RANK_FAILED] == [1]
    check_copies(directory, 40)
    assert processes_with(f"DTTUI_JOB_ID={directory.job_id}") == []


def test_a_stop_that_was_under_way_is_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 120 s; neither a process of the job nor a controller is left."""
    directory = doomed("stopping", tmp_path, monkeypatch, "echo begun; while :; do sleep 0.1; done", stops=True)
    events = taken_over(directory)
    assert events[-1].data == {"state": "CANCELLED", "exit_code": 103}
    assert processes_with(f"DTTUI_JOB_ID={directory.job_id}") == []


def test_an_attach_follows_through_the_deaths_of_two_controllers_and_has_the_job_s_exit_code(tmp_path: Path) -> None:
    """Within 120 s, each line and step once, to the job that follows and in the copies; nothing is left."""
    job = shell_job(tmp_path, {ONE: 1, TWO: 1}, COUNTS.format(lines=400, end="exit 0"))
    started = dttui("--demo", "--apply", job, "--detach")
    assert started.returncode == 0, started.stderr
    directory = jobs.find(started.stdout.strip())
    following = start_dttui("attach", "--output", "jsonl")
    for lines in (50, 150):
        wait_for_lines(directory, lines)
        for pid in processes_like("dttui.engine", str(directory.path)):
            with contextlib.suppress(ProcessLookupError):  # What it has just forked looks like it until its exec.
                os.kill(pid, signal.SIGKILL)
    out, err = following.communicate(timeout=DEADLINE_S)
    assert following.returncode == 0, err
    told = [json.loads(line) for line in out.splitlines()]
    seen = [event["seq"] for event in told if event["kind"] != "metric"]
    assert seen == list(range(len(seen)))
    assert [event["data"]["state"] for event in told if event["kind"] == "job_state"].count("SUCCEEDED") == 1
    assert sorted(event["data"]["step"] for event in told if event["kind"] == "metric" and event["rank"] == 1) == [
        *range(1, 401)
    ]
    check_copies(directory, 400)


def test_a_controller_that_was_stopped_for_a_while_goes_on_without_blaming_a_host(tmp_path: Path) -> None:
    """Unknown meanwhile to who asks; once it is continued, over within 120 s. Nothing is left."""
    job = shell_job(tmp_path, {ONE: 1, TWO: 1}, COUNTS.format(lines=600, end="exit 0"))
    started = dttui("--demo", "--apply", job, "--detach")
    directory = jobs.find(started.stdout.strip())
    wait_for_lines(directory, 20)
    pid = controller_of(directory.path)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(pid), "it to stand still", DEADLINE_S)
    os.utime(directory.lock, (0, 0))  # As if it were long ago.
    document = json.loads(dttui("status", directory.job_id, "--output", "json").stdout)
    assert document["state"] == "UNKNOWN"
    assert {node["state"] for node in document["nodes"]} == {"unknown"}
    assert "has not run since" in document["reason"]
    wait_until(lambda: not processes_with(f"DTTUI_JOB_ID={directory.job_id}"), "the ranks to end", DEADLINE_S)
    os.kill(pid, signal.SIGCONT)
    wait_until(directory.is_over, "the job to end", DEADLINE_S)
    events = directory.read_events()
    assert events[-1].data == {"state": "SUCCEEDED", "exit_code": 0}
    assert not [event for event in events if event.data.get("state") in ("unknown", "lost")]
    check_copies(directory, 600)


def test_a_torn_event_of_a_killed_controller_is_cut_and_numbers_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over within 120 s of the next controller, of which nothing is left."""
    directory = doomed("over", tmp_path, monkeypatch, "exit 0")
    with directory.events.open("ab") as stream:
        stream.write(b'{"seq": 99, "time": 1.0, "kind": "job_st')
    events = taken_over(directory)
    assert events[-1].data == {"state": "SUCCEEDED", "exit_code": 0}
    assert [event.seq for event in events] == list(range(len(events)))
    assert len(directory.events.read_bytes().splitlines()) == len(events)


def test_a_stop_of_a_job_that_ended_with_lost_hosts_looks_at_them_again_and_ends_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 120 s; no process of the job is left."""
    directory = doomed(
        "all started", tmp_path, monkeypatch, f'test "$RANK" = 1 && touch {tmp_path}/over && exit 0; sleep 600'
    )
    log = EventLog(directory.events)
    for name in (ONE, TWO):
        log.add(EventKind.NODE_STATE, "could not be reached", attempt=0, node=name, data={"state": "lost"})
    data = {"state": "FAILED", "exit_code": 100}
    log.add(EventKind.JOB_STATE, "they could not be reached", attempt=0, data=data)
    log.add(EventKind.OUTCOME, "they could not be reached", data=data)
    wait_until((tmp_path / "over").exists, "rank 1 to end", DEADLINE_S)
    wait_until(lambda: len(processes_with(f"DTTUI_JOB_ID={directory.job_id}")) == 2, "what is left", DEADLINE_S)
    stopped = dttui("stop", directory.job_id, "--force")
    assert stopped.returncode == 0, stopped.stderr
    assert processes_with(f"DTTUI_JOB_ID={directory.job_id}") == []
    assert f"{ONE}: stopped (looked again: it was still there, and was ended (killed))" in stopped.stderr
    assert f"{TWO}: stopped (looked again: " in stopped.stderr
    again = dttui("attach", directory.job_id, "--output", "json")
    assert again.returncode == 100, again.stderr
    assert {node["state"] for node in json.loads(again.stdout)["nodes"]} == {"stopped"}


def doomed(
    phase: str, base: Path, monkeypatch: pytest.MonkeyPatch, command: str, *, stops: bool = False
) -> JobDirectory:
    """Submit a job of two nodes to a controller that kills itself in a phase; return once it has."""
    started: list[subprocess.Popen[bytes]] = []

    def start(directory: JobDirectory, lock: int, **_options: bool) -> None:
        arguments = [phase, str(directory.path), "--launch", f"--lock={lock}"]
        started.append(subprocess.Popen([sys.executable, "-c", DOOMED, *arguments], pass_fds=[lock]))
        os.close(lock)

    monkeypatch.setattr(launch, "start_controller", start)
    file = shell_job(base, {ONE: 1, TWO: 1}, command)
    inventory = demo_inventory(locations.demo_root(), locations.shipped("examples"), sys.executable)
    submission = Submission(load_document(file).job, inventory, base)
    directory = submit(submission, make_local_plan(submission), expects_client=False)
    if stops:
        wait_for_lines(directory, 1)
        asyncio.run(stop_first(directory))
    assert started[0].wait(DEADLINE_S) == -signal.SIGKILL
    assert not directory.has_controller()
    assert not directory.is_over()
    return directory


async def stop_first(directory: JobDirectory) -> None:
    client = await ControllerClient.connect(directory)
    assert await client.stop()
    await client.close()


def taken_over(directory: JobDirectory) -> list[Event]:
    """Have another controller find out; return all events once the job is over."""
    assert ensure_controller(directory)
    try:
        wait_until(lambda: directory.is_over() and not directory.has_controller(), "the job to end", DEADLINE_S)
    except AssertionError as error:
        told = [f"{event.kind.value}: {event.message}" for event in directory.read_events()]
        raise AssertionError(f"{error}\n{directory.controller_log.read_text()}\n{told}") from error
    assert directory.controller_log.read_text() == ""
    return directory.read_events()


def wait_for_lines(directory: JobDirectory, lines: int) -> None:
    paths = [directory.logs(0, name) / f"{rank}.out" for rank, name in enumerate((ONE, TWO))]
    wait_until(
        lambda: any(path.exists() and path.read_bytes().count(b"\n") >= lines for path in paths), "lines", DEADLINE_S
    )


def check_copies(directory: JobDirectory, lines: int) -> None:
    """Check that every line of the logs, every report and every sample is there once and in its place."""
    expected = "".join(f"line {number}\n" for number in range(1, lines + 1))
    steps: Counter[tuple[int, int]] = Counter()
    for line in directory.metrics.read_text().splitlines():
        body = json.loads(line)
        steps[body["rank"], body["step"]] += 1
    assert steps == Counter((rank, step) for rank in (0, 1) for step in range(1, lines + 1))
    for rank, name in enumerate((ONE, TWO)):
        assert (directory.logs(0, name) / f"{rank}.out").read_text() == expected
        samples = [json.loads(line)["seq"] for line in directory.samples(name).read_text().splitlines()]
        assert samples == sorted(set(samples))
