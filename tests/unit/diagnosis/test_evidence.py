"""What a diagnosis reads of a job's directory: lines with their numbers, one clock, nothing that may not show."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind, JobState
from dtagent.protocol.rpc import to_wire
from dtagent.protocol.telemetry import HostSample

from dttui import jobs
from dttui.cli import main
from dttui.diagnosis import evidence as diagnosis_evidence
from dttui.diagnosis.diagnose import diagnose
from dttui.diagnosis.evidence import read_evidence
from dttui.diagnosis.models import Confidence, Evidence
from dttui.engine.copies.copy_cap import CopyCap
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.following import JobFollower
from dttui.jobs.sparse_files import last_hole_end
from dttui.spec.failure_causes import kind_of
from tests.unit.jobs.test_follow import plan_for

TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 1\nValueError: s3cret \x1b]52;c;aGk=\x07is wrong\n'


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> JobDirectory:
    monkeypatch.setenv("API_KEY", "s3cret")
    made = jobs.create("broken")
    made.plan.write_text(plan_for("a", "b").model_copy(update={"secrets": ("API_KEY", "UNSET")}).model_dump_json())
    for name, rank in (("a", 0), ("b", 1)):
        made.logs(0, name).mkdir(parents=True)
        (made.logs(0, name) / f"{rank}.out").write_text("step 1\nstep 2\n")
    return made


def fail(directory: JobDirectory, **data: object) -> None:
    log = EventLog(directory.events)
    log.add(EventKind.NODE_STATE, "", attempt=0, node="b", data={"state": "connected", "clock_offset_s": 1000.0})
    log.add(EventKind.NODE_STATE, "", attempt=0, node="b", data={"state": "failed", "exits": {"1": 1}})
    log.add(EventKind.RANK_FAILED, "rank 1: s3cret", attempt=0, node="b", rank=1, data={"time": 5000.0, **data})
    log.add(EventKind.JOB_STATE, "rank 1: s3cret", data={"state": "FAILED"})
    log.add(EventKind.OUTCOME, "rank 1: s3cret", data={"state": "FAILED", "exit_code": 100})


def read(directory: JobDirectory) -> Evidence:
    follower = JobFollower(directory)
    while follower.poll():
        pass
    return read_evidence(directory, follower.view)


def test_lines_have_their_numbers_also_in_a_log_of_which_only_the_end_is_read(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis_evidence, "TAIL_BYTES", 64)
    path = directory.logs(0, "b") / "1.err"
    path.write_text("".join(f"line {number}\n" for number in range(1, 101)) + "10%\r100%\nlast")
    fail(directory, exit_code=1)
    (failure,) = read(directory).failures
    assert [(line.line, line.text) for line in failure.lines[-3:]] == [(100, "line 100"), (101, "100%"), (102, "last")]
    assert failure.lines[-1].place == "logs/0/b/1.err:102"
    assert failure.lines[0].file == "logs/0/b/1.out"
    monkeypatch.setattr(diagnosis_evidence, "COUNTED_BYTES", 100)
    (failure,) = read(directory).failures
    assert failure.lines[-1].place == "logs/0/b/1.err"


def test_an_exit_code_that_nothing_explains_is_laid_to_files_that_were_removed_there(
    directory: JobDirectory,
) -> None:
    for host, code in (("a", "agent-files-removed"), ("b", "agent-records")):
        EventLog(directory.events).add(EventKind.FINDING, "", attempt=0, data={"code": code, "subject": host})
    fail(directory, exit_code=2)
    before = diagnose(read(directory)).cause
    assert before is not None
    assert before.code == "exit-code"
    EventLog(directory.events).add(
        EventKind.FINDING, "", attempt=0, data={"code": "agent-files-removed", "subject": "b"}
    )
    found = diagnose(read(directory))
    assert found.cause is not None
    assert found.cause.code == "agent-files-removed"
    assert "removed from b while it ran" in found.cause.words
    assert any("agent_root" in text for text in found.advice)


@pytest.mark.parametrize("host", ["a", "b"])
def test_what_nothing_explains_but_the_loss_of_another_is_laid_to_a_disk_that_was_full(
    directory: JobDirectory, host: str
) -> None:
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.77.1.12]:29872."
    fail(directory, exit_code=1, time=time.time(), **({"error": lost} if host == "a" else {}))
    EventLog(directory.events).add(EventKind.FINDING, "", attempt=0, data={"code": "agent-disk-full", "subject": host})
    evidence = read(directory)
    found = diagnose(evidence).cause
    assert found is not None
    assert (found.code, found.confidence, found.is_consequence) == ("disk-was-full", Confidence.LIKELY, False)
    assert f"a disk of {host} was full while it ran" in found.words
    assert kind_of(found.code).is_retried, "as what it was taken for before"
    hours_before = replace(evidence, full_on={host: time.time() - 3600.0})
    told = diagnose(hours_before).cause
    assert told is not None
    assert told.code == ("peer-gone" if host == "a" else "exit-code")


def report(directory: JobDirectory, rank: int, attempt: int = 0, **numbers: object) -> None:
    body = {"rank": rank, **numbers, "source": [attempt, "ab"[rank], "metrics", 1, 1]}
    with directory.metrics.open("a") as stream:
        stream.write(json.dumps(body) + "\n")


def test_the_step_of_a_rank_is_known_however_much_the_others_have_reported_since(directory: JobDirectory) -> None:
    report(directory, 0, step=3, loss=2.5)
    padding = {f"a_long_name_of_a_number_{number}": 0.123456789 for number in range(30)}
    for step in range(400):
        report(directory, 1, step=step, loss=2.0, extra=padding)
    fail(directory, exit_code=1)
    assert {rank: metric.step for rank, metric in read(directory).metrics.items()} == {0: 3, 1: 399}


def test_a_report_without_a_step_takes_no_step_away(
    directory: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (0, 1):
        report(directory, rank, step=7, loss=2.5)
        report(directory, rank, epoch=1.0)
    report(directory, 1, not_finite=["loss"])
    fail(directory, exit_code=1)
    assert main(["diagnose", directory.job_id]) == 100
    told = capsys.readouterr().out
    (other,) = [line for line in told.splitlines() if line.startswith("  rank 0 on a  ")]
    assert other.endswith(" · step 7 · loss 2.5000")
    (facts,) = [line for line in told.splitlines() if line.startswith("node b    rank 1")]
    assert facts.endswith("    step 7    loss nan")
    assert main(["diagnose", directory.job_id, "--output", "json"]) == 100
    first = json.loads(capsys.readouterr().out)["first_failure"]
    assert (first["step"], first["loss"]) == (7, None)


def test_what_an_earlier_attempt_reported_is_not_told_of_a_later_one(directory: JobDirectory) -> None:
    report(directory, 0, attempt=0, step=900)
    report(directory, 1, attempt=0, step=900)
    report(directory, 1, attempt=1, step=2)
    log = EventLog(directory.events)
    log.add(EventKind.NODE_STATE, "", attempt=0, node="a", data={"state": "running"})
    log.add(EventKind.NODE_STATE, "", attempt=1, node="a", data={"state": "running"})
    assert {rank: metric.step for rank, metric in read(directory).metrics.items()} == {1: 2}


def test_a_long_log_is_read_once_however_often_it_is_looked_at_and_of_a_rank_that_runs_its_end_alone(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis_evidence, "BLOCK_BYTES", 1024)
    monkeypatch.setattr(diagnosis_evidence, "TAIL_BYTES", 1024)
    monkeypatch.setattr(diagnosis_evidence, "LAST_LINE_BYTES", 1024)
    for name, rank in (("a", 0), ("b", 1)):
        (directory.logs(0, name) / f"{rank}.out").write_text("x\n" * 100_000 + "end\n")
    fail(directory, exit_code=1)
    counted = diagnosis_evidence.lines_in_block
    before = counted.cache_info().misses
    found = read(directory)
    assert found.failures[0].lines[-1].place == "logs/0/b/1.out:100001"
    assert found.last_lines[0].place == "logs/0/a/0.out"
    assert counted.cache_info().misses == before + (200_004 - 1024) // 1024
    with (directory.logs(0, "b") / "1.out").open("a") as log:
        log.write("more\n")
    assert read(directory).failures[0].lines[-1].place == "logs/0/b/1.out:100002"
    assert counted.cache_info().misses == before + (200_004 - 1024) // 1024


def test_lines_are_counted_anew_once_the_middle_of_a_log_was_dropped(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis_evidence, "BLOCK_BYTES", 16 * 1024)
    path = directory.logs(0, "b") / "1.out"
    path.write_bytes(b"line\n" * 100_000 + b"end\n")
    fail(directory, exit_code=1)
    assert read(directory).failures[0].lines[-1].place == "logs/0/b/1.out:100001"
    for cap_bytes in (300_000, 200_000):
        CopyCap(cap_bytes).note(path)
        with path.open("rb") as log:
            assert last_hole_end(log.fileno()) > 0, "this file system punches holes"
        expected = path.read_bytes().count(b"\n")
        assert expected < 100_001
        assert read(directory).failures[0].lines[-1].place == f"logs/0/b/1.out:{expected}"


def test_logs_are_read_of_the_first_failures_alone(directory: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis_evidence, "MOST_READ", 1)
    log = EventLog(directory.events)
    for name, rank in (("a", 0), ("b", 1)):
        data = {"time": 1.0, "exit_code": 1, "tail": ["told"]}
        log.add(EventKind.RANK_FAILED, "", attempt=0, node=name, rank=rank, data=data)
    assert [failure.lines[-1].text for failure in read(directory).failures] == ["step 2", "told"]


def test_in_what_python_prints_of_a_crash_there_are_no_frames_of_ours(directory: JobDirectory) -> None:
    frames = ["/w/train.py", "/var/tmp/x/jobs/j/0/payload/rank.py", "<frozen runpy>", "/x/dtagent/payload/warm.py"]
    printed = [f'  File "{name}", line 5 in main' for name in frames]
    (directory.logs(0, "b") / "1.err").write_text("\n".join(["Fatal Python error: Aborted", *printed, ""]))
    fail(directory, signal=6)
    (failure,) = read(directory).failures
    assert [(line.line, line.text) for line in failure.lines[2:]] == [
        (1, "Fatal Python error: Aborted"),
        (2, '  File "/w/train.py", line 5 in main'),
    ]


def test_when_each_process_ended_is_read_and_nonsense_is_not(directory: JobDirectory) -> None:
    log = EventLog(directory.events)
    for told in ({"exits": {"1": 0, "2": "x"}, "ended_at": {"1": 7, "2": None}}, {}):
        log.add(EventKind.NODE_STATE, "", attempt=0, node="b", data={"state": "stopped", **told})
    fail(directory, lost=True)
    found = read(directory)
    assert [(dict(node.exits), dict(node.ended_at)) for node in found.nodes if node.name == "b"] == [
        ({"1": 1}, {"1": 7.0})
    ]
    assert found.failures[0].is_cleared


def test_readings_are_on_the_login_node_s_clock_and_broken_ones_are_passed_over(directory: JobDirectory) -> None:
    fail(directory, exit_code=1)
    samples = [
        json.dumps(to_wire(HostSample(n, 5990.0 + n, memory_used_mib=n, memory_total_mib=20))) for n in (1, 9, 11)
    ]
    directory.samples("b").write_text("\n".join([samples[0], "{torn", *samples[1:], ""]))
    directory.metrics.write_text('{"rank": 0, "step": 7}\nnonsense\n{"rank": 0, "step": 8}\n')
    found = diagnose(read(directory))
    assert found.before is not None
    assert (found.before.samples, found.before.age_s, found.before.memory_peak_mib) == (2, 1.0, 9)
    assert [(other.rank, other.step) for other in found.others] == [(0, 8)]
    assert found.others[0].last_line is not None
    assert found.others[0].last_line.place == "logs/0/a/0.out:2"


@pytest.mark.parametrize("output", ["human", "json"])
def test_no_secret_and_no_escape_sequence_is_shown(
    directory: JobDirectory, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    (directory.logs(0, "b") / "1.err").write_text(f"the key is s3cret\n{TRACEBACK}")
    fail(directory, exit_code=1, error=TRACEBACK.splitlines()[-1], traceback=TRACEBACK)
    assert main(["diagnose", directory.job_id[:8], "--output", output]) == 100
    told = capsys.readouterr().out
    assert "ValueError" in told
    assert "s3cret" not in told
    assert "\x1b" not in told
    assert "aGk=" not in told


@pytest.mark.parametrize("time", [1e300, -1e300, 1e12])
def test_a_failure_at_a_time_that_no_clock_shows_is_told_at_that_of_its_event(
    directory: JobDirectory, capsys: pytest.CaptureFixture[str], time: float
) -> None:
    fail(directory, exit_code=1, time=time)
    assert main(["diagnose", directory.job_id[:8]]) == 100
    assert "exit code 1" in capsys.readouterr().out


def test_a_job_without_a_controller_is_told_by_what_its_logs_end_with(directory: JobDirectory) -> None:
    (directory.logs(0, "b") / "1.err").write_text(TRACEBACK)
    EventLog(directory.events).add(EventKind.JOB_STATE, "running", attempt=0, data={"state": "RUNNING"})
    evidence = read(directory)
    assert (evidence.state, evidence.is_watched) == (JobState.UNKNOWN, False)
    found = diagnose(evidence)
    assert found.first is not None
    assert (found.first.failure.node, found.first.failure.rank) == ("b", 1)
    assert (found.cause.code if found.cause else "") == "exception"


def test_a_directory_with_nothing_in_it_can_be_diagnosed(tmp_path: Path) -> None:
    empty = jobs.create("empty")
    assert main(["diagnose", empty.job_id]) == 101
    assert read(empty).nodes == ()


def test_events_that_hold_other_things_than_ours_break_nothing(directory: JobDirectory) -> None:
    fail(directory, exit_code=1, tail=["x", 3])
    log = EventLog(directory.events)
    log.add(EventKind.NODE_STATE, "", attempt=0, node="b", data={"exits": [1], "ranks_started": {"a": 1}})
    assert diagnose(read(directory)).first is not None


def test_of_a_job_that_was_started_again_the_attempts_before_are_told_and_no_failure_is_denied(
    directory: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    log = EventLog(directory.events)
    log.add(EventKind.JOB_STATE, "", attempt=0, data={"state": "RUNNING"})
    log.add(EventKind.RANK_FAILED, "rank 1 was killed", attempt=0, node="b", rank=1, data={"signal": 9})
    why = "rank 1: s3cret was killed; starting again"
    log.add(EventKind.JOB_STATE, why, attempt=0, data={"state": "RESTARTING"})
    assert read(directory).earlier == ()  # What has failed is told in full until the next attempt begins.
    log.add(EventKind.JOB_STATE, "", attempt=1, data={"state": "RUNNING"})
    log.add(EventKind.JOB_STATE, "done", data={"state": "SUCCEEDED"})
    log.add(EventKind.OUTCOME, "done", data={"state": "SUCCEEDED", "exit_code": 0})
    assert main(["diagnose", directory.job_id]) == 0
    told = capsys.readouterr().out
    assert "Nothing has failed in this attempt." in told
    assert "Attempts before:\n  attempt 0: rank 1: ••• was killed; starting again\n" in told
    assert main(["diagnose", directory.job_id, "--output", "json"]) == 0
    assert [item["attempt"] for item in json.loads(capsys.readouterr().out)["earlier_attempts"]] == [0]
