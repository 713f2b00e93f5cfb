"""Following a job's files while they change, and finding the newest job."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from dtagent.protocol import rpc
from dtagent.protocol.events import Event, EventKind

from dttui import jobs
from dttui.errors import NoSuchJobError, UsageError
from dttui.inventory.models import Environment, Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.following import READ_BYTES, GrowingFile, JobFollower
from dttui.jobs.log_following import LogFollower
from dttui.planning.models import Plan
from dttui.planning.planner import plan as make_plan
from dttui.spec import parse_job


def plan_for(*names: str) -> Plan:
    nodes = ", ".join(f"{{id: {name}, resources: {{gpu: {{count: 1}}}}}}" for name in names)
    text = (
        "distributed_training:\n  name: x\n  dataset: none\n  framework: command\n"
        f"  run: {{command: ['true']}}\n  cluster: {{nodes: [{nodes}]}}\n"
    )
    environments = tuple(
        Environment.model_validate({"name": name, "host": name, "resources": {"gpu": {"count": 1}}}) for name in names
    )
    return make_plan(parse_job(text, "job.yaml"), Inventory(environments=environments), {})


@pytest.fixture
def directory() -> JobDirectory:
    return jobs.create("x")


def test_a_plan_that_is_written_again_replaces_the_first_and_states_stay(directory: JobDirectory) -> None:
    log = EventLog(directory.events)
    first = plan_for("a", "b")
    directory.plan.write_text(first.model_dump_json())
    log.add(EventKind.NODE_STATE, "", node="a", data={"state": "running"})
    follower = JobFollower(directory)
    follower.poll()
    assert follower.view.nodes["a"].plan.python == first.nodes[0].python
    nodes = (first.nodes[0].model_copy(update={"python": "python3.99"}), *first.nodes[1:])
    directory.plan.write_text(first.model_copy(update={"nodes": nodes}).model_dump_json())
    follower.poll()
    assert follower.view.nodes["a"].plan.python == "python3.99"
    assert follower.view.nodes["a"].state == "running"
    assert follower.view.nodes["b"].state == "waiting"


def test_a_plan_that_is_half_written_is_read_once_it_is_whole(directory: JobDirectory) -> None:
    text = plan_for("a").model_dump_json()
    follower = JobFollower(directory)
    directory.plan.write_text(text[:50])
    follower.poll()
    assert follower.view.plan is None
    directory.plan.write_text(text)
    follower.poll()
    assert list(follower.view.nodes) == ["a"]


def test_what_a_controller_cannot_write_is_heard_from_it_and_not_shown_again_once_it_is_written(
    directory: JobDirectory,
) -> None:
    """Nor is what the next controller tells under a number that the one before had used."""
    log = EventLog(directory.events)
    log.add(EventKind.PROGRESS, "written")
    controller = socket.socket(socket.AF_UNIX)
    controller.bind(str(directory.socket))
    controller.listen()
    follower = JobFollower(directory)
    assert [event.message for event in follower.poll()] == ["written"]
    link, _address = controller.accept()
    for number, told in ((1, "kept"), (2, "lost")):
        event = rpc.to_wire(Event(number, 100.0 + number, EventKind.PROGRESS, told))
        link.sendall(rpc.encode({"method": "event", "line": json.dumps(event)}))
    link.sendall(rpc.encode({"method": "told"}))
    assert [event.message for event in follower.catch_up()] == ["kept", "lost"]
    log.add(EventKind.PROGRESS, "kept", time=101.0)
    log.add(EventKind.PROGRESS, "the next controller's")
    assert [event.message for event in follower.poll()] == ["the next controller's"]
    link.close()
    controller.close()
    assert follower.poll() == []


@pytest.mark.parametrize("lines", [1, 2, 3, 4, 100])
def test_the_last_lines_are_read_and_then_what_comes(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "0.out"
    path.write_bytes(b"one\ntwo\nthree\n")
    reader = GrowingFile(path, last_lines=lines)
    assert reader.read() == [b"one", b"two", b"three"][-lines:]
    with path.open("ab") as stream:
        stream.write(b"four\nfive\n")
    assert reader.read() == [b"four", b"five"]


@pytest.mark.parametrize(("last_lines", "expected"), [(None, [b"one", b"two", b"three"]), (2, [b"two", b"three"])])
def test_a_last_line_without_its_end_is_a_line_once_nothing_more_comes(
    tmp_path: Path, last_lines: int | None, expected: list[bytes]
) -> None:
    path = tmp_path / "0.out"
    path.write_bytes(b"one\ntwo\nthree")
    assert GrowingFile(path).read() == [b"one", b"two"]
    reader = GrowingFile(path, last_lines=last_lines)
    assert reader.read(to_the_end=True) == expected
    assert reader.read(to_the_end=True) == []


def test_the_last_lines_of_a_file_that_takes_several_reads_are_its_last_ones(directory: JobDirectory) -> None:
    logs = directory.logs(0, "a")
    logs.mkdir(parents=True)
    count = 3 * READ_BYTES // 8
    (logs / "0.out").write_bytes(b"".join(b"%07d\n" % number for number in range(count)))
    wanted = READ_BYTES // 8 + 5
    follower = LogFollower(directory, 0, last_lines=wanted)
    found = []
    while new := follower.poll(["a"]):
        found += [line for part in new for line in part.lines]
    assert found == [b"%07d" % number for number in range(count - wanted, count)]
    (logs / "1.out").write_bytes(b"".join(b"%d\n" % number for number in range(wanted + 3)))
    assert len(follower.poll(["a"])[0].lines) == wanted + 3


def test_the_last_job_is_the_one_that_began_last(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [jobs.create(name) for name in ("first", "second")]
    for began_at, each in zip((100.0, 200.0), made, strict=True):
        monkeypatch.setattr("dttui.jobs.directory.time.time", lambda began_at=began_at: began_at)
        EventLog(each.events).add(EventKind.JOB_STATE, "", data={"state": "RUNNING"})
    os.utime(made[0].path, (900, 900))
    assert jobs.find("last") == made[1]
    third = jobs.create("third")
    third.launch.write_text("{}")
    os.utime(third.launch, (300, 300))
    os.utime(third.path, (50, 50))
    assert jobs.find("last") == third


def begin(name: str, began_at: float, state: str, monkeypatch: pytest.MonkeyPatch) -> JobDirectory:
    directory = jobs.create(name)
    monkeypatch.setattr("dttui.jobs.directory.time.time", lambda: began_at)
    EventLog(directory.events).add(EventKind.JOB_STATE, "", data={"state": state})
    return directory


def test_a_job_to_stop_is_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[JobDirectory] = []
    monkeypatch.setattr(JobDirectory, "has_controller", lambda self: self in alive)
    running = begin("gpt-a", 100.0, "RUNNING", monkeypatch)
    finished = begin("gpt-b", 200.0, "SUCCEEDED", monkeypatch)
    alive.append(running)
    assert jobs.find_open(None) == jobs.find_open("last") == jobs.find_open("gpt") == running
    assert jobs.find_open(finished.job_id) == jobs.find_open("gpt-b") == finished
    other = begin("gpt-c", 300.0, "RUNNING", monkeypatch)
    assert jobs.find_open(None) == running, "no controller watches the other"
    for look in (jobs.find, jobs.find_open):
        with pytest.raises(UsageError, match="the id of the job is empty"):
            look("")
    alive.append(other)
    with pytest.raises(UsageError) as refused:
        jobs.find_open(None)
    assert running.job_id in refused.value.message
    assert other.job_id in refused.value.message
    assert finished.job_id not in refused.value.message
    assert jobs.find_open("last") == other
    alive.clear()
    with pytest.raises(UsageError, match="several"):
        jobs.find_open("gpt")


def test_without_a_running_job_the_newest_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    begin("a", 100.0, "SUCCEEDED", monkeypatch)
    newest = begin("b", 200.0, "FAILED", monkeypatch)
    assert jobs.find_open(None) == newest
    with pytest.raises(NoSuchJobError):
        jobs.find_open("c")


def test_of_many_jobs_that_an_id_may_mean_the_newest_are_named_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoSuchJobError, match="there is no job on this login node"):
        jobs.find("last")
    made = [begin("gpt", moment, "SUCCEEDED", monkeypatch).job_id for moment in (300.0, *(100.0 + n for n in range(9)))]
    with pytest.raises(NoSuchJobError) as refused:
        jobs.find("gp")
    named = ", ".join([made[0], *made[:2:-1]])
    assert refused.value.message == f"gp could be any of: {named} and 2 more"
    assert refused.value.hint


def test_an_exact_name_wins_over_the_start_of_an_id_for_all_verbs_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[JobDirectory] = []
    monkeypatch.setattr(JobDirectory, "has_controller", lambda self: self in alive)
    older, newest = (begin("el", moment, "SUCCEEDED", monkeypatch) for moment in (100.0, 200.0))
    longer = begin("elm", 300.0, "RUNNING", monkeypatch)
    begin("el-f", 400.0, "SUCCEEDED", monkeypatch)
    alive.append(longer)
    assert jobs.find("el") == jobs.find_open("el") == newest, "elm runs, and is not meant"
    assert jobs.find(older.job_id) == jobs.find_open(older.job_id) == older
    running = [begin("el", moment, "RUNNING", monkeypatch) for moment in (500.0, 600.0)]
    alive.extend(running)
    assert jobs.find("el") == jobs.find_open("el") == running[1]
    assert jobs.find_open("elm") == longer


def test_a_name_counts_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    made = begin("El M/1", 100.0, "SUCCEEDED", monkeypatch)
    begin("训练", 200.0, "SUCCEEDED", monkeypatch)
    for each in jobs.list_jobs():
        directory = JobDirectory(made.path.parent / each.job_id)
        name = "El M/1" if directory == made else "训练"
        directory.plan.write_text(json.dumps({"job_name": name}))
    assert jobs.find("El M/1") == made
    assert jobs.find("训练") != made
    with pytest.raises(NoSuchJobError):
        jobs.find("数据")


def test_who_asks_how_a_job_stands_keeps_no_event_of_each_report_of_a_long_training(directory: JobDirectory) -> None:
    log = EventLog(directory.events)
    log.add(EventKind.OUTCOME, "", data={"state": "SUCCEEDED", "exit_code": 0})
    lines = [json.dumps({"rank": 0, "step": step, "loss": 2.0, "time": 50.0}) + "\n" for step in range(100)]
    directory.metrics.write_text("".join(lines))
    follower = JobFollower(directory, reads_samples=False)
    assert [event.kind for event in follower.catch_up()] == [EventKind.OUTCOME]
    newest = follower.view.newest_metric
    assert newest is not None
    assert newest.step == 99
    again = JobFollower(directory, reads_samples=False).catch_up(with_reports=True)
    assert [event.kind for event in again] == [EventKind.OUTCOME, *[EventKind.METRIC] * 100]
