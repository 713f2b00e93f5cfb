"""What is removed of old attempts on a host, and what never is."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.attempts import retention
from dtagent.attempts.attempts import Attempts
from dtagent.errors import RpcError
from dtagent.locations import AttemptFiles, make_private, removed_path, socket_path
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import NodeState, StopRequest
from dtagent.protocol.rpc import ErrorCode
from dtagent.supervision import journal

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
    for key in attempts.retention.old():
        attempts.retention.clear(key)
    attempts.retention.remove()


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


def test_what_a_job_left_whose_end_is_only_found_out_now_is_kept_as_of_one_that_ends_now(
    attempts: Attempts, tmp_path: Path
) -> None:
    for name in ("new1", "new2"):
        make_attempt(tmp_path, name, time.time())
    files = make_attempt(tmp_path, "long", OLD)
    files.journal.write_bytes(b"")
    journal.append(files.journal, {"event": "state", "state": NodeState.RUNNING.value, "time": OLD})
    for path in (files.journal, files.directory):
        os.utime(path, (OLD, OLD))
    assert attempts.retention.old() == [AttemptKey("long", 0)]
    remove_old(attempts)
    assert (files.logs / "0.out").read_text() == "hello\n"
    assert attempts.status(AttemptKey("long", 0)).state is NodeState.LOST
    for path in (files.journal, files.directory):
        os.utime(path, (OLD, OLD))
    remove_old(attempts)
    assert not files.directory.exists()


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
    assert [key.job_id for key in attempts.census.known_keys()] == ["new1", "new2"]
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
        patch.setattr(retention, "_put_aside", only_files)
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


def only_files(path: Path, _aside: Path) -> None:
    if path.is_dir():
        raise OSError(5, "Input/output error")
    path.unlink()


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
    [key] = attempts.retention.old()
    os.utime(files.start)
    attempts.retention.clear(key)
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


def test_other_calls_are_answered_while_a_daemon_removes_many_files(tmp_path: Path) -> None:
    root, go = tmp_path / "root", tmp_path / "go"
    for number in range(retention.KEEP_NEWEST):
        make_attempt(root, f"new{number}", time.time())
    old = make_attempt(root, "old", OLD)
    root.chmod(0o700)
    held = (
        "import os, shutil, sys, time\nfrom pathlib import Path\nfrom dtagent.daemon.server import serve\n"
        "real = shutil.rmtree\n"
        "def removed(path, **more):\n"
        f"    while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        "    real(path, **more)\n"
        f"shutil.rmtree = removed\nsys.exit(serve(Path({str(root)!r})))"
    )
    with subprocess.Popen([sys.executable, "-c", held], stderr=subprocess.DEVNULL):
        wait_until(socket_path(root).exists, "the daemon")
        with Conversation(root) as agent:
            wait_until(lambda: not old.directory.exists(), "the old attempt to be out of the way")
            agent.prepare("another")
            agent.start("another", [["true"]])
            assert agent.end_of("another")["state"] == "ended"
            aside = removed_path(root)
            assert any((path / "0.out").exists() for path in aside.iterdir()), "nothing is removed yet"
            go.touch()
            wait_until(lambda: not list(aside.iterdir()), "the files to be removed")


def test_what_cannot_be_moved_is_removed_where_it_is(attempts: Attempts, tmp_path: Path) -> None:
    for name in ("new1", "new2"):
        make_attempt(tmp_path, name, time.time())
    files = make_attempt(tmp_path, "old", OLD)
    removed_path(tmp_path).touch()  # As with a disk that has no room for one directory more.
    with contextlib.suppress(NotADirectoryError):
        remove_old(attempts)
    assert not files.directory.exists()


def test_the_work_of_a_discarded_attempt_is_out_of_the_way_at_once_and_removed_later(
    attempts: Attempts, tmp_path: Path
) -> None:
    files = make_attempt(tmp_path, "given-up", time.time())
    for path in (files.start, files.journal, files.logs / "0.out"):
        path.unlink()
    (files.work / "x").write_text("x")
    assert attempts.stop(StopRequest(AttemptKey("given-up", 0))).state is NodeState.DISCARDED
    assert not files.work.exists()
    assert len(list(removed_path(tmp_path).iterdir())) == 1
    attempts.tidy()
    assert list(removed_path(tmp_path).iterdir()) == []
