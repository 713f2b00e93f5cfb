"""What a job puts in place of the files that its ranks write: nobody waits for it, and the status is still told."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dtagent.attempts import adoption, failure_records, history, rendezvous
from dtagent.attempts.attempts import Attempts
from dtagent.attempts.census import Census
from dtagent.locations import AttemptFiles, make_private
from dtagent.protocol import sentences
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import NodeState
from dtagent.protocol.rpc import MAX_FRAME_BYTES, decode, encode, to_wire
from dtagent.protocol.said import notice_of
from dtagent.supervision import journal
from dtagent.system import untrusted_files
from dtagent.telemetry.rank_use import RankProcess

from tests.agent.conversation import Conversation, processes_with
from tests.waiting import wait_until


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def an_endless_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_directory(path: Path) -> None:
    path.mkdir()


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        directory = os.open(path.parent, os.O_RDONLY)  # The path may be longer than a socket address allows.
        listener.bind(f"/proc/self/fd/{directory}/{path.name}")
        os.close(directory)


def a_huge_file(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def nothing_of_use(path: Path) -> None:
    path.write_text("[]")


HOSTILE = [a_pipe, an_endless_device, a_directory, a_socket, a_huge_file, nothing_of_use]
Make = Callable[[Path], None]


@pytest.fixture
def files(tmp_path: Path) -> AttemptFiles:
    found = AttemptFiles.of(tmp_path, "job", 0)
    for directory in (found.logs, found.ranks, found.failures):
        make_private(directory)
    found.start.write_text(json.dumps({"processes": [{}], "ranks": [4, 1]}))
    journal.append(found.journal, {"event": "state", "state": NodeState.ENDED.value, "time": 1.0})
    journal.append(found.journal, {"event": "exit", "name": "0", "ended_at": 2.0, "exit_code": 1})
    return found


@pytest.mark.parametrize("make", HOSTILE)
def test_the_failures_beside_it_are_told(files: AttemptFiles, make: Make) -> None:
    make(files.failures / "0.json")
    make(files.failures / "launcher.json")
    (files.failures / "1.json").write_text('{"rank": 1, "time": 5.0, "error": "ValueError: x"}')
    assert [(item.rank, item.error) for item in failure_records.read(files)] == [(1, "ValueError: x")]


@pytest.mark.parametrize("make", HOSTILE)
def test_the_ranks_beside_it_are_sampled(files: AttemptFiles, tmp_path: Path, make: Make) -> None:
    make(files.ranks / "3.json")
    (files.ranks / "1.json").write_text('{"pid": 41, "start_time": 7}')
    (files.ranks / "2.json").write_text('{"pid": "41"}')
    (files.ranks / "²³.json").write_text('{"pid": 41}')
    census = Census(tmp_path)
    census.expect(files)
    with files.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert census.running_ranks() == {"job": {1: RankProcess(41, 7, local_rank=1)}}


@pytest.mark.parametrize("make", HOSTILE)
def test_a_status_is_told_whatever_lies_in_the_place_of_its_own_records(files: AttemptFiles, make: Make) -> None:
    for path in (files.journal, files.stop, files.start, files.supervisor):
        path.unlink(missing_ok=True)
        make(path)
    assert adoption.identity(files) is None
    told = history.read(files)
    assert told.exits == []
    assert told.state in (NodeState.RUNNING, NodeState.LOST)


def test_spoilt_codes_of_its_warnings_and_its_end_leave_the_texts_and_an_answer_that_is_taken(
    files: AttemptFiles,
) -> None:
    deep: Any = "x"
    for _level in range(400):
        deep = {"code": "no-warm-start", "values": {"reason": deep}}
    sound = sentences.DISK_WAS_FULL(path="/a", time="now")
    for notice in (deep, {"code": "x", "values": {"a": 10**30}}, "x", sound.notice):
        journal.append(files.journal, {"event": "warning", "text": sound, "notice": notice})
    journal.append(files.journal, {"event": "state", "state": "ended", "reason": "it was so", "notice": deep})
    told = history.read(files)
    assert (told.warnings, told.reason) == ([sound] * 4, "it was so")
    answer = decode(encode(to_wire({"warnings": notice_of(told.warnings), "reason": notice_of(told.reason)})).strip())
    assert answer == {"warnings": [None, None, None, sound.notice], "reason": None}


@pytest.mark.parametrize("make", HOSTILE[:-1])
def test_what_is_no_file_of_bytes_or_too_long_is_an_error(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "x")
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=r"not a regular file|longer than"):
        untrusted_files.read(tmp_path / "x")
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize(
    "text",
    [
        '{"rank": 1e999}',
        '{"rank": NaN}',
        '{"rank": -1}',
        '{"rank": 123456789}',
        '{"rank": null}',
        '["rank"]',
        '"rank"',
        "7",
        f'{{"rank": 0, "time": 1, "exit_code": 1{"0" * 400}}}',
        '{"rank": 0, "time": 1, "error": 5}',
    ],
)
def test_a_failure_that_is_none_is_left_out(files: AttemptFiles, text: str) -> None:
    (files.failures / "0.json").write_text(text)
    assert failure_records.read(files) == []


@pytest.mark.parametrize("time", ["1e999", "1" + "0" * 400, "null", '"soon"', "[]"])
def test_a_failure_without_a_time_is_told_all_the_same(files: AttemptFiles, time: str) -> None:
    (files.failures / "0.json").write_text(f'{{"rank": 0, "time": {time}, "error": "x"}}')
    assert [(item.rank, item.time) for item in failure_records.read(files)] == [(0, 0.0)]


def test_no_number_that_a_job_writes_breaks_the_frame_that_its_status_comes_in(
    files: AttemptFiles, tmp_path: Path
) -> None:
    huge = "1" + "0" * 400
    (files.failures / "0.json").write_text(f'{{"rank": 0, "time": 1, "error": "x", "memory_limit_mib": {huge}}}')
    disturbance = f'{{"what": "state", "how": "forged", "mended": true, "count": {huge}}}'
    (files.failures / "rendezvous.json").write_text(f"[{disturbance}]")
    told = Attempts(tmp_path, list).status(AttemptKey("job", 0))
    assert [item.rank for item in told.failures] == [0]
    assert [item.how for item in told.disturbances] == ["forged"]
    assert decode(encode({"result": to_wire(told)}))["result"]["failures"]


@pytest.mark.parametrize("pid", ["1e999", "[]", '"me"'])
def test_whether_ranks_meet_is_told_whatever_one_writes_of_itself(files: AttemptFiles, pid: str) -> None:
    (files.ranks / "0.json").write_text(f'{{"pid": {pid}, "start_time": 1}}')
    assert rendezvous.look(files, 0, 29500).ranks_connected == []


@pytest.mark.parametrize("letter", ["a", "\0", "汉"])
def test_however_much_the_ranks_write_the_answer_fits_and_the_first_failure_is_whole(
    files: AttemptFiles, tmp_path: Path, letter: str
) -> None:
    for rank in range(300):
        body = {"rank": rank, "time": 1000.0 - rank, "error": letter * 900, "traceback": letter * 17_000}
        (files.failures / f"{rank}.json").write_text(json.dumps(body, ensure_ascii=letter != "汉"))
        (files.ranks / f"{rank}.json").write_text("{}")
    told = Attempts(tmp_path, list).status(AttemptKey("job", 0))
    assert len(encode({"result": to_wire(told)})) < MAX_FRAME_BYTES
    assert len(told.failures) > 250
    first = min(told.failures, key=lambda item: item.time)
    assert len(first.traceback or "") == failure_records.MAX_TEXT
    assert told.failures == sorted(told.failures, key=lambda item: item.rank)


def test_names_that_are_numbers_to_unicode_alone_are_no_attempts_and_no_ranks(
    files: AttemptFiles, tmp_path: Path
) -> None:
    (files.ranks / "²³.json").write_text("{}")
    (files.ranks / "5.json").write_text("{}")
    other = AttemptFiles(files.directory.with_name("²"))
    make_private(other.directory)
    other.discarded.touch()
    attempts = Attempts(tmp_path, list)
    assert attempts.status(AttemptKey("job", 0)).ranks_started == [5]
    assert attempts.census.known_keys() == [AttemptKey("job", 0)]


def test_pipes_in_the_place_of_its_files_do_not_keep_a_job_from_being_stopped(tmp_path: Path) -> None:
    with Conversation(tmp_path / "root") as agent:
        agent.prepare("pipes")
        agent.start("pipes", [["sleep", "317"]])
        home = agent.root / "jobs/pipes/0"
        wait_until((home / "ranks/0.json").exists, "the rank to run")
        for name in ("failures/1.json", "failures/launcher.json", "ranks/1.json", "stop"):
            os.mkfifo(home / name)
        assert agent.status("pipes")["ranks_started"] == [0, 1]
        agent.stop("pipes", force=True)
        assert agent.end_of("pipes")["state"] == "ended"
        assert processes_with("DTTUI_JOB_ID=pipes") == []
