"""What is removed of old attempts on a host, and what never is."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

import pytest
from dtagent import journal, retention
from dtagent.attempts import Attempts
from dtagent.locations import AttemptFiles, make_private
from dtagent.protocol.jobs import NodeState

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


@pytest.fixture
def attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attempts:
    monkeypatch.setattr(retention, "KEEP_NEWEST", 2)
    return Attempts(tmp_path, list)


def test_only_what_is_old_and_beyond_the_newest_goes(attempts: Attempts, tmp_path: Path) -> None:
    made = {name: make_attempt(tmp_path, name, OLD - age) for age, name in enumerate(("a", "b", "c", "d"))}
    young = make_attempt(tmp_path, "young", time.time())
    attempts.remove_old()
    assert young.directory.exists()
    assert made["a"].directory.exists(), "it is among the newest two"
    assert not any(made[name].directory.parent.exists() for name in ("b", "c", "d"))


def test_young_attempts_stay_however_many_there_are(attempts: Attempts, tmp_path: Path) -> None:
    made = [make_attempt(tmp_path, f"job{number}", time.time()) for number in range(5)]
    attempts.remove_old()
    assert all(files.directory.exists() for files in made)


@pytest.mark.parametrize("checkpoint", ["checkpoints/step-10/model.pt", "work/ckpt/model.pt"])
def test_checkpoints_stay_and_all_else_goes(attempts: Attempts, tmp_path: Path, checkpoint: str) -> None:
    for name in ("new1", "new2"):
        make_attempt(tmp_path, name, time.time())
    files = make_attempt(tmp_path, "old", OLD, checkpoint=checkpoint)
    attempts.remove_old()
    left = [path.relative_to(files.directory) for path in files.directory.rglob("*") if path.is_file()]
    assert left == [Path(checkpoint)]
    os.utime(files.directory, (OLD, OLD))
    attempts.remove_old()
    assert (files.directory / checkpoint).exists()


def test_an_attempt_whose_supervisor_lives_is_never_touched(attempts: Attempts, tmp_path: Path) -> None:
    for name in ("new1", "new2"):
        make_attempt(tmp_path, name, time.time())
    files = make_attempt(tmp_path, "running", OLD)
    with files.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        attempts.remove_old()
        assert files.start.exists()
    os.utime(files.directory, (OLD, OLD))
    attempts.remove_old()
    assert not files.directory.exists()


def test_what_cannot_be_understood_stays(attempts: Attempts, tmp_path: Path) -> None:
    for name in ("new1", "new2"):
        make_attempt(tmp_path, name, time.time())
    files = make_attempt(tmp_path, "odd", OLD)
    files.prepared.write_text("{")
    os.utime(files.prepared, (OLD, OLD))
    attempts.remove_old()
    assert files.directory.exists()


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
        assert not second.directory.exists()
