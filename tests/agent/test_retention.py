"""What is removed of old attempts on a host, and what never is."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent import journal, retention
from dtagent.attempts import Attempts
from dtagent.errors import RpcError
from dtagent.locations import AttemptFiles, make_private
from dtagent.protocol.jobs import AttemptKey, NodeState, StopRequest
from dtagent.protocol.rpc import ErrorCode

from tests.agent.conversation import Conversation
from tests.waiting import wait_until

OLD = time.time() - retention.KEEP_S - 60


def make_attempt(root: Path, job_id: str, written_at: float, *, checkpoint: str = "") -> AttemptFiles:
    """Make the directory of an attempt that ended well; `checkpoint` is a file to leave, relative to it."""
    files = AttemptFiles.of(root, job_id, 0)
    for directory in (files.logs, files.work, files.checkpoints):
        make_private(directory)
    (files.logs / "0.out").write_text("hello\n")
    request = {"key": {"job_id": job_id, "attempt": 0}, "node_rank": 0, "python": "p", "master_address": "m"}
    request |= {"reserve_port": False, "port_range": [1, 2], "cuda_slots": 0}
    reply = {"directory": str(files.directory), "python": "p", "payload": "p"}
    files.prepared.write_text(json.dumps({"request": request, "reply": reply}))
    env = {"DTTUI_CHECKPOINT_DIR": str(files.work / "ckpt")}
    files.start.write_text(json.dumps({"processes": [{"cwd": str(files.work), "env": env}]}))
    journal.append(files.journal, {"event": "state", "state": NodeState.ENDED.value, "time": written_at})
    if checkpoint:
        make_private((files.directory / checkpoint).parent)
        (files.directory / checkpoint).write_text("weights")
    for path in (files.prepared, files.start, files.journal, files.directory):
        os.utime(path, (written_at, written_at))
    return files


def remove_old(attempts: Attempts) -> None:
    for key in attempts.old():
        attempts.remove(key)


@pytest.fixture
def attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attempts:
    monkeypatch.setattr(retention, "KEEP_NEWEST", 2)
    return Attempts(tmp_path, list)


def test_only_what_is_old_and_beyond_the_newest_goes(attempts: Attempts, tmp_path: Path) -> None:
    made = {name: make_attempt(tmp_path, name, OLD - age) for age, name in enumerate(("a", "b", "c", "d"))}
    young = make_attempt(tmp_path, "young", time.time())
    remove_old(attempts)
    assert young.directory.exists()
    assert made["a"].directory.exists(), "it is among the newest two"
    assert not any(made[name].directory.parent.exists() for name in ("b", "c", "d"))


def test_young_attempts_stay_however_many_there_are(attempts: Attempts, tmp_path: Path) -> None:
    made = [make_attempt(tmp_path, f"job{number}", time.time()) for number in range(5)]
    remove_old(attempts)
    assert all(files.directory.exists() for files in made)


@pytest.mark.parametrize("checkpoint", ["checkpoints/step-10/model.pt", "work/ckpt/model.pt"])
def test_checkpoints_stay_and_all_else_goes(attempts: Attempts, tmp_path: Path, checkpoint: str) -> None:
    for name in ("new1", "new2"):
        make_attempt(tmp_path, name, time.time())
    files = make_attempt(tmp_path, "old", OLD, checkpoint=checkpoint)
    remove_old(attempts)
    left = [path.relative_to(files.directory) for path in files.directory.rglob("*") if path.is_file()]
    assert left == [Path(checkpoint)]
    os.utime(files.directory, (OLD, OLD))
    remove_old(attempts)
    assert (files.directory / checkpoint).exists()


def test_the_newest_stay_however_often_old_ones_go(attempts: Attempts, tmp_path: Path) -> None:
    names = "abcdef"
    made = [
        make_attempt(tmp_path, name, OLD - age, checkpoint="checkpoints/model.pt") for age, name in enumerate(names)
    ]
    for _ in range(4):
        remove_old(attempts)
        assert [files.prepared.exists() and files.start.exists() for files in made] == [True] * 2 + [False] * 4
    assert all((files.checkpoints / "model.pt").exists() for files in made)


@pytest.mark.parametrize("checkpoint", ["checkpoints/model.pt", "work/ckpt/model.pt"])
def test_an_attempt_that_was_cleared_is_none_any_more(attempts: Attempts, tmp_path: Path, checkpoint: str) -> None:
    for name in ("new1", "new2"):
        make_attempt(tmp_path, name, time.time())
    files = make_attempt(tmp_path, "old", OLD, checkpoint=checkpoint)
    remove_old(attempts)
    assert [key.job_id for key in attempts.known_keys()] == ["new1", "new2"]
    with pytest.raises(RpcError) as caught:
        attempts.status(AttemptKey("old", 0))
    assert caught.value.code == ErrorCode.NO_SUCH_ATTEMPT
    attempts.stop(StopRequest(AttemptKey("old", 0)))
    assert (files.directory / checkpoint).exists(), "a late stop must not remove it"


def test_a_removal_that_was_interrupted_goes_on_and_knows_the_checkpoints(
    attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("new1", "new2"):
        make_attempt(tmp_path, name, time.time())
    files = make_attempt(tmp_path, "old", OLD, checkpoint="work/ckpt/model.pt")
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", broken)
        patch.setattr(Path, "iterdir", files_first)
        remove_old(attempts)
    assert files.logs.exists()
    attempts.status(AttemptKey("old", 0))  # It writes a journal where that is gone.
    for path in (files.directory, files.journal):
        os.utime(path, (OLD, OLD))
    remove_old(attempts)
    left = [path.relative_to(files.directory) for path in files.directory.rglob("*") if path.is_file()]
    assert left == [Path("work/ckpt/model.pt")]


def files_first(directory: Path) -> Iterator[Path]:
    return iter(sorted((directory / name for name in os.listdir(directory)), key=Path.is_dir))


def broken(*_: Any, **__: Any) -> None:
    raise OSError(5, "Input/output error")


def test_an_attempt_whose_supervisor_lives_is_never_touched(attempts: Attempts, tmp_path: Path) -> None:
    for name in ("new1", "new2"):
        make_attempt(tmp_path, name, time.time())
    files = make_attempt(tmp_path, "running", OLD)
    with files.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_old(attempts)
        assert files.start.exists()
    os.utime(files.directory, (OLD, OLD))
    remove_old(attempts)
    assert not files.directory.exists()


def test_what_cannot_be_understood_stays(attempts: Attempts, tmp_path: Path) -> None:
    for name in ("new1", "new2"):
        make_attempt(tmp_path, name, time.time())
    files = make_attempt(tmp_path, "odd", OLD)
    files.prepared.write_text("{")
    os.utime(files.prepared, (OLD, OLD))
    remove_old(attempts)
    assert files.directory.exists()


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"processes": [1]}', '{"processes": [{"env": {"DTTUI_CHECKPOINT_DIR": 1}}]}']
)
def test_an_attempt_whose_checkpoints_cannot_be_told_stays_and_is_logged(
    attempts: Attempts, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    for name in ("new1", "new2"):
        make_attempt(tmp_path, name, time.time())
    files = make_attempt(tmp_path, "torn", OLD, checkpoint="work/out/model.pt")
    other = make_attempt(tmp_path, "whole", OLD)
    files.start.write_text(text)
    os.utime(files.start, (OLD, OLD))
    with caplog.at_level(logging.WARNING):
        remove_old(attempts)
    assert (files.work / "out/model.pt").exists()
    assert files.prepared.exists()
    assert f"cannot remove {files.directory}" in caplog.text
    assert not other.directory.exists()


def test_an_attempt_that_was_started_meanwhile_stays(attempts: Attempts, tmp_path: Path) -> None:
    for name in ("new1", "new2"):
        make_attempt(tmp_path, name, time.time())
    files = make_attempt(tmp_path, "old", OLD)
    [key] = attempts.old()
    os.utime(files.start)
    attempts.remove(key)
    assert files.prepared.exists()


def test_a_daemon_cleans_up_when_it_starts_and_when_it_prepares(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for number in range(retention.KEEP_NEWEST):
        make_attempt(root, f"new{number}", time.time())
    first = make_attempt(root, "first", OLD)
    root.chmod(0o700)
    with Conversation(root) as agent:
        wait_until(lambda: not first.directory.exists(), "the old attempt to go")
        second = make_attempt(root, "second", OLD)
        agent.prepare("another")
        wait_until(lambda: not second.directory.exists(), "the second old attempt to go")


def test_other_calls_are_answered_while_a_daemon_cleans_up(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for number in range(retention.KEEP_NEWEST):
        make_attempt(root, f"new{number}", time.time())
    root.chmod(0o700)
    first = make_attempt(root, "first", OLD)
    with Conversation(root) as agent:
        wait_until(lambda: not first.directory.exists(), "the cleaning at the start")
        old = [make_attempt(root, f"old{number}", OLD - number) for number in range(6)]
        with held_up(old) as let_go:
            send(agent, "prepare", PREPARE)
            assert "result" in answer(agent), "the reply must come before the cleaning"
            send(agent, "status", {"job_id": "new0", "attempt": 0})
            for files in old[:-1]:
                let_go(files)
            assert answer(agent)["result"]["state"] == "ended"
            assert old[-1].start.exists()
        wait_until(lambda: not any(files.directory.exists() for files in old), "the old attempts to go")


PREPARE = {"key": {"job_id": "another", "attempt": 0}, "node_rank": 0, "python": sys.executable}
PREPARE |= {"master_address": "127.0.0.1", "reserve_port": False, "port_range": [1, 2], "cuda_slots": 0}


def send(agent: Conversation, method: str, params: dict[str, Any]) -> None:
    """Ask without waiting for the reply."""
    assert agent.child.stdin is not None
    agent.child.stdin.write(
        json.dumps({"jsonrpc": "2.0", "id": 0, "method": method, "params": params}).encode() + b"\n"
    )
    agent.child.stdin.flush()


def answer(agent: Conversation) -> Any:
    """Return the next reply frame, which must come soon."""
    stream = agent.child.stdout
    assert stream is not None
    wait_until(lambda: select.select([stream], [], [], 0)[0], "a reply")
    return json.loads(stream.readline())


@contextlib.contextmanager
def held_up(old: list[AttemptFiles]) -> Iterator[Callable[[AttemptFiles], None]]:
    """Let the removal of attempts wait, each until it is let go by what this yields or all are at the end."""
    texts = {files: files.start.read_text() for files in old}
    for files in old:
        files.start.unlink()
        os.mkfifo(files.start)
        for path in (files.start, files.directory):
            os.utime(path, (OLD - old.index(files), OLD - old.index(files)))

    def let_go(files: AttemptFiles) -> None:
        descriptor = wait_until(lambda: opened(files.start), f"{files.start} to be read")
        assert descriptor
        with os.fdopen(descriptor, "w") as stream:
            stream.write(texts.pop(files))

    try:
        yield let_go
    finally:
        for files in list(texts):
            let_go(files)


def opened(fifo: Path) -> int | None:
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None  # Nobody reads it yet.
