"""Asking processes where they stand, by each of the ways, and what hostile ones say."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.locations import AttemptFiles
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.rpc import to_wire
from dtagent.protocol.stacks import MOST_FRAMES, MOST_THREADS, RankStacks, StacksRequest
from dtagent.stacks import dumps, reading, ways
from dtagent.system import proc_stat

from tests.agent.notices import check_notices
from tests.waiting import wait_until

SCRIPT = """
import os, signal, sys, time
{first}
def stuck():
    print("here", flush=True)
    time.sleep(600)
stuck()
"""
RANK = Path(dumps.__file__).parents[1] / "payload" / "rank.py"
REQUEST = StacksRequest(AttemptKey("job", 0))


@pytest.fixture
def files(tmp_path: Path) -> AttemptFiles:
    found = AttemptFiles(tmp_path / ("long" * 30) / "0")  # Longer than the path of a socket may be.
    for path in (found.logs, found.ranks, found.failures):
        path.mkdir(parents=True)
    return found


@contextlib.contextmanager
def running(files: AttemptFiles, first: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run a rank that stands still in `stuck`."""
    script = files.directory / "train.py"
    script.write_text(SCRIPT.format(first=first))
    env = {**os.environ, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "DTTUI_LOGS": str(files.logs)}
    rank = subprocess.Popen([sys.executable, RANK, script], env=env)
    try:
        wait_until(lambda: (files.logs / "0.out").exists() and "here" in (files.logs / "0.out").read_text(), "it", 120)
        yield rank
    finally:
        rank.kill()
        rank.wait()


@pytest.fixture
def no_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "py_spies", lambda _pid, _tools: [])


def read(files: AttemptFiles) -> RankStacks:
    (found,) = reading.read(files, REQUEST).ranks
    return found


def function(found: RankStacks) -> str:
    assert found.process is not None
    return found.process.threads[0].frames[0].name if found.process.threads else found.process.detail


@pytest.mark.usefixtures("no_py_spy")
def test_a_rank_without_torch_writes_its_stack_upon_the_signal_and_goes_on(files: AttemptFiles) -> None:
    with running(files) as rank:
        found = read(files)
        assert (found.process.source if found.process else "", function(found)) == ("faulthandler", "stuck")
        assert function(read(files)) == "stuck"
        assert rank.poll() is None


@pytest.mark.usefixtures("no_py_spy")
def test_why_a_rank_that_catches_no_signal_could_not_be_read_goes_with_its_code(files: AttemptFiles) -> None:
    with running(files, "import faulthandler; faulthandler.unregister(signal.SIGRTMAX - 3)"):
        told = to_wire(read(files))
    check_notices(told)
    assert told["process"]["detail_notice"]["code"] == "stack-unread"
    assert told["process"]["detail"].endswith("not caught")


@pytest.mark.torch
@pytest.mark.usefixtures("no_py_spy")
def test_a_rank_with_torch_answers_on_a_socket_of_its_own_and_nothing_is_printed_for_it(files: AttemptFiles) -> None:
    take = "import torch.distributed\nsignal.signal(signal.SIGRTMAX - 3, lambda *_: None)"
    with running(files, take):
        found = read(files)
        assert (found.process.source if found.process else "", function(found)) == ("torch", "stuck")
        assert [item.rank for item in reading.read_times(files, REQUEST).ranks] == [0]  # By the same server.
        assert "WorkerServer" not in (files.logs / "0.err").read_text()
        assert files.asked.stat().st_mode & 0o777 == 0o700


@pytest.mark.torch
def test_a_rank_that_is_asked_by_torchs_server_until_its_very_end_ends_well(files: AttemptFiles) -> None:
    script = files.directory / "train.py"
    asked = files.directory / "asked-once"
    script.write_text(
        f"import os, time, torch.distributed\nwhile not os.path.exists({str(asked)!r}): time.sleep(0.01)\n"
        "kept = [[number] for number in range(200_000)]\n"
    )
    env = {**os.environ, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "DTTUI_LOGS": str(files.logs)}
    rank = subprocess.Popen([sys.executable, RANK, script], env=env)
    while rank.poll() is None:
        with contextlib.suppress(ways.NoAnswerError):
            ways.ask_server(files.asked / "0.sock", "dump_traceback")
            asked.touch()
    assert (rank.returncode, (files.logs / "0.err").read_text()) == (0, "")
    assert asked.exists()


@pytest.mark.skipif(shutil.which("py-spy", path=os.path.dirname(sys.executable)) is None, reason="no py-spy here")
@pytest.mark.parametrize("is_stopped", [False, True])
def test_py_spy_reads_a_rank_that_runs_and_one_that_is_stopped_which_stays_so(
    is_stopped: bool, files: AttemptFiles
) -> None:
    with running(files) as rank:
        if is_stopped:
            rank.send_signal(signal.SIGSTOP)
            wait_until(lambda: (proc_stat.read(rank.pid) or pytest.fail("gone")).state == "T", "it to stop")
        else:
            wait_until(lambda: (proc_stat.read(rank.pid) or pytest.fail("gone")).state == "S", "it to sleep")
        found = read(files)
        assert found.process is not None
        assert (found.process.source, function(found)) == ("py-spy", "stuck")
        assert found.process.state == ("T" if is_stopped else "S")
        if is_stopped:
            assert (proc_stat.read(rank.pid) or pytest.fail("gone")).state == "T"


@pytest.mark.usefixtures("no_py_spy")
def test_a_script_that_takes_the_signal_for_itself_keeps_it(files: AttemptFiles) -> None:
    take = "signal.signal(signal.SIGRTMAX - 3, lambda *_: print('mine', flush=True))"
    with running(files, take) as rank:
        assert read(files).process is not None
        assert function(read(files)) == ""
        os.kill(rank.pid, signal.SIGRTMAX - 3)
        wait_until(lambda: "mine" in (files.logs / "0.out").read_text(), "its own handler")


@pytest.mark.usefixtures("no_py_spy")
def test_a_child_of_a_rank_is_asked_too_and_one_that_would_die_of_the_signal_is_not(files: AttemptFiles) -> None:
    first = "import subprocess\nchild = subprocess.Popen(['sleep', '600'])\nif os.fork() == 0:\n    time.sleep(600)"
    with running(files, first) as rank:
        found = read(files)
        told = {child.command: [thread.frames[0].name for thread in child.threads] for child in found.children}
        assert told.pop("sleep") == []
        assert list(told.values()) == [["<module>"]]
        children = proc_stat.children_of(proc_stat.read_all())
        assert len(proc_stat.descendants(children, [rank.pid])) == 2
        for pid in proc_stat.descendants(children, [rank.pid]):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("no_py_spy")
def test_a_rank_that_is_stopped_or_gone_is_told_to_be(files: AttemptFiles) -> None:
    with running(files) as rank:
        rank.send_signal(signal.SIGSTOP)
        wait_until(lambda: (proc_stat.read(rank.pid) or pytest.fail("gone")).state == "T", "it to stop")
        found = read(files)
        assert found.process is not None
        assert (found.process.state, found.process.threads) == ("T", [])
    assert read(files) == RankStacks(0, None)


def test_a_rank_in_whose_place_a_stranger_answers_is_cut_off(
    files: AttemptFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways, "MOST_ANSWER_BYTES", 1 << 20)
    monkeypatch.setattr(ways, "ANSWER_S", 20.0)
    files.asked.mkdir()
    place = os.open(files.asked, os.O_RDONLY | os.O_DIRECTORY)
    answers = [b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (1 << 23), b"HTTP/1.1 200 OK\r\n\r\n[[[", b"", b"\0\r\n\r\n"]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{place}/0.sock")
        listener.listen()

        def serve() -> None:
            for answer in answers:
                connection = listener.accept()[0]
                with connection, contextlib.suppress(OSError):
                    connection.recv(4096)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        path = files.asked / "0.sock"
        with pytest.raises(ways.NoAnswerError, match="without end"):
            ways.ask_server(path, "dump_traceback")
        assert ways.ask_server(path, "fr_trace_json") == "[[["
        for _ in range(2):
            with pytest.raises(ways.NoAnswerError, match="status"):
                ways.ask_server(path, "ping")
    os.close(place)


@pytest.mark.parametrize(
    "text", ["", "[" * 100_000, "{}", "[]", "null", '{"entries": 3}', '{"entries": [{"pg_id": []}]}']
)
def test_what_is_no_dump_is_refused_or_empty(text: str) -> None:
    for parse in (
        lambda: dumps.of_pyspy(text, 1),
        lambda: dumps.of_recorder(text),
        lambda: dumps.times_of_recorder(text),
    ):
        with contextlib.suppress(ValueError):
            assert list(parse()) == []
    assert dumps.of_faulthandler(text) == []


def test_a_stack_without_end_is_cut_to_its_inner_and_outer_frames() -> None:
    frames = "\n".join(f'  File "/a/train.py", line {number} in f{number}' for number in range(1000))
    text = "\n\n".join(f"Thread 0x{number:016x} (most recent call first):\n{frames}" for number in range(100))
    threads = dumps.of_faulthandler(text)
    assert len(threads) == MOST_THREADS
    assert threads[0].is_main
    assert (len(threads[0].frames), threads[0].frames[0].name, threads[0].frames[-1].name) == (
        MOST_FRAMES,
        "f0",
        "f999",
    )
