"""GPUs that one user has and no other gets, with real users, daemons and supervisors, in a directory that all share."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import select
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from dtagent.system.gpu_locks import GpuLocks, Purpose, restore
from dtagent.system.shared_files import UnsafeDirectoryError

from tests.agent.conversation import Conversation, processes_with
from tests.processes import open_files
from tests.waiting import wait_until

ANN, BOB = 61001, 61002
GPUS = ["GPU-a", "GPU-b"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")


@pytest.fixture
def shared() -> Iterator[Path]:
    """Where all users of the host have their locks: pytest's own directories are for its user alone."""
    with tempfile.TemporaryDirectory(prefix="dttui-") as parent:
        os.chmod(parent, 0o755)
        directory = Path(parent, "locks")
        directory.mkdir()
        directory.chmod(0o1777)
        yield directory


def become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def as_user(uid: int, act: Callable[[], Any]) -> Any:
    """Return what an act comes to for a user, in a process that ends then."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become(uid)
            os.write(writing, json.dumps(act()).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as stream:
        told = stream.read()
    os.waitpid(pid, 0)
    return json.loads(told)


class Keeper:
    """A process of a user that takes GPUs and has them until it is ended."""

    def __init__(self, uid: int, directory: Path, gpus: Sequence[str] = GPUS, job_id: str = "theirs") -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                become(uid)
                taken = GpuLocks(directory).take(gpus, len(gpus), Purpose(job_id, 0, 1_790_000_000.0))
                os.write(writing, json.dumps([*taken]).encode() + b"\n")
                select.select([], [], [])
            finally:
                os._exit(1)
        os.close(writing)
        self._reading = reading

    @functools.cached_property
    def taken(self) -> list[str]:
        """What it could take."""
        with open(self._reading, "rb") as stream:
            told: list[str] = json.loads(stream.readline())
        return told

    def end(self) -> None:
        self.taken  # noqa: B018 - its pipe is read and closed
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture
def keep(shared: Path) -> Iterator[Callable[..., Keeper]]:
    made: list[Keeper] = []

    def make(uid: int, *arguments: Any) -> Keeper:
        made.append(Keeper(uid, shared, *arguments))
        return made[-1]

    yield make
    for keeper in made:
        keeper.end()


def attempt(shared: Path, gpus: Sequence[str] = GPUS) -> list[str]:
    return [*GpuLocks(shared).take(gpus, len(gpus), Purpose("mine"))]


@needs_root
def test_what_one_user_has_no_other_gets_until_the_holder_is_gone(shared: Path, keep: Callable[..., Keeper]) -> None:
    ann = keep(ANN, ["GPU-a"])
    assert ann.taken == ["GPU-a"]
    assert as_user(BOB, lambda: attempt(shared)) == ["GPU-b"]
    assert as_user(ANN, lambda: attempt(shared)) == ["GPU-b"]  # Another job of the same user.
    assert attempt(shared, ["GPU-a"]) == []  # Nor root.
    (holder,) = GpuLocks(shared).holders()
    assert (holder.gpu, holder.uid, holder.purpose.job_id) == ("GPU-a", ANN, "theirs")
    assert holder.purpose.since_s == 1_790_000_000.0
    os.kill(ann.pid, signal.SIGSTOP)
    assert as_user(BOB, lambda: attempt(shared)) == ["GPU-b"]
    os.kill(ann.pid, signal.SIGKILL)
    wait_until(lambda: as_user(BOB, lambda: attempt(shared)) == GPUS, "the lock to go with its process")
    assert GpuLocks(shared).holders() == []


@needs_root
def test_of_many_who_ask_at_once_each_gpu_goes_to_one(shared: Path, keep: Callable[..., Keeper]) -> None:
    keepers = [keep(uid) for uid in (ANN, BOB, 61003, 61004) * 2]
    assert sorted(gpu for keeper in keepers for gpu in keeper.taken) == GPUS


@needs_root
def test_a_directory_is_made_for_all_whatever_the_umask(shared: Path) -> None:
    shared.rmdir()
    shared.parent.chmod(0o1777)

    def act() -> list[str]:
        os.umask(0o077)
        return attempt(shared, ["GPU-a"])

    assert as_user(ANN, act) == ["GPU-a"]
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    assert stat.S_IMODE((shared / f"GPU-a.{ANN}").stat().st_mode) == 0o644
    assert as_user(BOB, act) == ["GPU-a"]


def plant(shared: Path, how: str, name: str, elsewhere: Path) -> None:
    path = shared / name
    if how == "link":
        path.symlink_to(elsewhere)
    elif how == "hard link":
        path.hardlink_to(elsewhere)
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "directory":
        path.mkdir()
    else:
        path.write_text("x")
        path.chmod(0o666)
    if how != "hard link":
        os.chown(path, BOB, BOB, follow_symlinks=False)


@needs_root
@pytest.mark.parametrize("how", ["link", "hard link", "pipe", "directory", "file"])
def test_what_another_user_has_put_in_the_place_of_a_lock_is_left_alone_and_the_gpu_locked_all_the_same(
    shared: Path, keep: Callable[..., Keeper], how: str
) -> None:
    precious = shared.parent / "precious"
    precious.write_text("precious")
    os.chown(precious, ANN, ANN)
    plant(shared, how, f"GPU-a.{ANN}", precious)
    assert keep(ANN, ["GPU-a"]).taken == ["GPU-a"]
    assert as_user(BOB, lambda: attempt(shared)) == ["GPU-b"]
    assert [holder.uid for holder in GpuLocks(shared).holders()] == [ANN]
    assert precious.read_text() == "precious"


@needs_root
def test_who_keeps_looking_at_a_lock_keeps_nobody_from_locking(shared: Path, keep: Callable[..., Keeper]) -> None:
    assert as_user(ANN, lambda: attempt(shared, ["GPU-a"])) == ["GPU-a"]
    with open(shared / f"GPU-a.{ANN}") as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)
        assert keep(ANN, ["GPU-a"]).taken == ["GPU-a"]
        assert as_user(BOB, lambda: attempt(shared)) == ["GPU-b"]


@needs_root
@pytest.mark.parametrize(
    ("mode", "why"), [(0o755, "only its owner can write to it"), (0o777, "anybody can remove what is in it")]
)
def test_a_directory_that_is_not_safe_is_refused(
    shared: Path, mode: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dtagent.system.shared_files.MOMENT_S", 0.1)
    os.chown(shared, BOB, BOB)
    shared.chmod(mode)

    def act() -> str:
        try:
            return str(attempt(shared))
        except UnsafeDirectoryError as error:
            return str(error.strerror)

    assert as_user(ANN, act) == why
    shared.rmdir()
    shared.symlink_to(shared.parent)
    assert as_user(ANN, act) == "no directory"


def test_where_there_is_no_place_for_locks_gpus_are_given_without(tmp_path: Path) -> None:
    taken = GpuLocks(tmp_path / "absent" / "locks").take(GPUS, 1, Purpose("mine"))
    assert taken == {"GPU-a": None}
    assert GpuLocks(tmp_path / "absent" / "locks").holders() == []


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"\xff", b"[" * 4000, b'{"job_id": "\\u001b[2J", "attempt": -1, "since_s": "x", "until_s": 1e99}'],
)
def test_what_a_lock_says_may_be_anything(shared: Path, text: bytes) -> None:
    taken = GpuLocks(shared).take(["GPU-a"], 1, Purpose("mine", since_s=5.0))
    descriptor = taken["GPU-a"]
    assert descriptor is not None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)
    os.utime(descriptor, (7.0, 7.0))
    (holder,) = GpuLocks(shared).holders()
    assert (holder.uid, holder.purpose) == (os.geteuid(), Purpose(since_s=7.0))
    os.close(descriptor)


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_lock_that_was_removed_is_made_anew(shared: Path, what: str) -> None:
    purpose = Purpose("mine", 3, 5.0, 9.0)
    descriptor = GpuLocks(shared).take(["GPU-a"], 1, purpose)["GPU-a"]
    assert descriptor is not None
    for path in shared.iterdir():
        path.unlink()
    if what == "directory":
        shared.rmdir()
    assert GpuLocks(shared).holders() == []
    restore(descriptor)
    assert [holder.purpose for holder in GpuLocks(shared).holders()] == [purpose]
    assert attempt(shared) == ["GPU-b"]
    os.close(descriptor)


class Users:
    """Agents of several users on one host, with the stub's GPUs."""

    def __init__(self, directory: Path, environment: dict[str, str], locks: Path) -> None:
        self._directory = directory
        self._environment = {**environment, "DTAGENT_GPU_LOCKS": str(locks)}

    def agent(self, uid: int, *, keep_daemon: bool = False) -> Conversation:
        """Talk to the agent of a user, who may read what is root's, so that the tests' interpreter will do."""
        root = self._directory / str(uid)
        root.mkdir(0o700, exist_ok=True)
        os.chown(root, uid, uid)
        reads = "+dac_read_search"
        before = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", f"--inh-caps={reads}"]
        environment = {**self._environment, "HOME": str(root)}
        return Conversation(
            root / "root", env=environment, keep_daemon=keep_daemon, before=[*before, f"--ambient-caps={reads}"]
        )


@pytest.fixture
def users(shared: Path, tmp_path: Path, nvml_stub: Callable[..., dict[str, str]]) -> Users:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv (apt install util-linux), to be two users")
    return Users(tmp_path, nvml_stub(2), shared)


def refused(agent: Conversation, job_id: str, gpus: int) -> str:
    request = {"key": {"job_id": job_id, "attempt": 0}, "node_rank": 0, "python": "sh"}
    more = {"master_address": "127.0.0.1", "reserve_port": False, "port_range": [29500, 29999], "cuda_slots": gpus}
    return str(agent.ask("prepare", {**request, **more})["error"]["message"])


def end(agent: Conversation, job_id: str = "anns") -> None:
    agent.stop(job_id, force=True)
    assert agent.end_of(job_id)["state"] == "ended"


def supervisor_of(agent: Conversation) -> int:
    """Return the pid of the supervisor of the job `anns`, once that has started what it owns."""
    wait_until(lambda: agent.status("anns")["ranks_started"], "its rank to start")
    return int(json.loads((agent.root / "jobs/anns/0/supervisor.json").read_text())["pid"])


def test_a_user_is_refused_the_gpus_of_another_and_told_whose_they_are_and_since_when(users: Users) -> None:
    with users.agent(ANN) as ann, users.agent(BOB) as bob:
        today = {time.strftime("%Y-%m-%d", time.gmtime())}
        assert ann.prepare("anns", cuda_slots=1, python="sh")["gpu_ids"] == [0]
        said = refused(bob, "bobs", 2)
        today.add(time.strftime("%Y-%m-%d", time.gmtime()))  # Midnight may lie between.
        assert said.startswith(
            tuple(f"2 GPUs are wanted and 1 are free here; job anns of {ANN} has GPU 0 since {day} " for day in today)
        )
        assert bob.prepare("bobs", cuda_slots=1, python="sh")["gpu_ids"] == [1]
        ann.start("anns", [["sleep", "300"]])
        assert f"job anns of {ANN} has GPU 0" in refused(bob, "third", 1)
        end(ann)
        assert bob.prepare("third", cuda_slots=1, python="sh")["gpu_ids"] == [0]


def holds(agent: Conversation) -> list[dict[str, Any]] | None:
    """Return whose GPUs are by the agent's newest sample."""
    samples = agent.call("telemetry", {"wait_s": 5})["samples"]
    return cast("list[dict[str, Any]] | None", samples[-1].get("holds")) if samples else None


def told(agent: Conversation, *jobs: str) -> list[dict[str, Any]]:
    """Wait until just these jobs are told to have GPUs, and return what is told."""

    def look() -> list[list[dict[str, Any]]]:
        found = holds(agent)
        return [found] if found is not None and [item["job"] for item in found] == [*jobs] else []

    return wait_until(look, f"{jobs} to have GPUs")[0]


def test_samples_tell_whose_gpus_are_since_when_and_until_when(users: Users) -> None:
    with users.agent(ANN) as ann, users.agent(BOB) as bob:
        assert told(bob) == []
        before = time.time()
        ann.prepare("anns", cuda_slots=1, python="sh", for_s=3600.0)
        ((hold,), (own,)) = told(bob, "anns"), told(ann, "anns")
        assert hold == own
        assert (hold["user"], hold["job"], hold["gpus"]) == (str(ANN), "anns", [0])
        assert before - 0.1 <= hold["since"] <= time.time()  # Times of files lag by a tick of the kernel.
        assert hold["until"] == pytest.approx(hold["since"] + 3600.0, abs=1.0)
        ann.start("anns", [["sleep", "300"]])
        bob.prepare("bobs", cuda_slots=1, python="sh")
        found = told(ann, "anns", "bobs")
        assert [(item["user"], item["gpus"]) for item in found] == [(str(ANN), [0]), (str(BOB), [1])]
        end(ann)
        told(bob, "bobs")
        # Of simulated GPUs no other user is told.
        ann.prepare("more", python="sh", simulated_slots=3, simulated_total=4)
        ann.start("more", [["sleep", "300"]])
        assert [item.get("simulated") for item in told(ann, "more", "bobs")] == [3, None]
        told(bob, "bobs")
        end(ann, "more")


def test_a_job_has_its_gpus_though_its_agent_and_its_supervisor_are_killed(users: Users) -> None:
    with users.agent(BOB) as bob:
        with users.agent(ANN, keep_daemon=True) as ann:
            ann.prepare("anns", cuda_slots=2, python="sh")
            ann.start("anns", [["sleep", "300"]])
            daemon = ann.call("hello", {"versions": [1]})["pid"]
            supervisor = supervisor_of(ann)
            os.kill(daemon, signal.SIGKILL)
            ann.child.wait(30)
            assert f"job anns of {ANN} has GPU 0, 1" in refused(bob, "bobs", 1)
            os.kill(supervisor, signal.SIGKILL)
            assert f"job anns of {ANN} has GPU 0, 1" in refused(bob, "bobs", 1)  # Its ranks live.
            assert processes_with("DTTUI_JOB_ID=anns")
        with users.agent(ANN) as ann:  # Comes back, and ends what has lost its supervisor.
            assert ann.end_of("anns")["state"] == "lost"
            assert bob.prepare("bobs", cuda_slots=2, python="sh")["gpu_ids"] == [0, 1]


def test_a_lease_whose_agent_died_is_taken_up_again_or_is_too_late(users: Users) -> None:
    with users.agent(BOB) as bob:
        for number, (user, bobs) in enumerate(((ANN, "none"), (61003, "one"))):
            with users.agent(user, keep_daemon=True) as ann:
                ann.prepare(f"anns{number}", cuda_slots=2, python="sh")
                ann.kill_daemon()
            if bobs == "one":
                bob.prepare("bobs", cuda_slots=1, python="sh")
            with users.agent(user) as ann:
                if bobs == "none":
                    ann.start("anns0", [["sleep", "300"]])
                    assert "job anns0" in refused(bob, "bobs", 1)
                    end(ann, "anns0")
                else:
                    request = {"key": {"job_id": "anns1", "attempt": 0}, "node_rank": 0, "processes": [], "ranks": []}
                    said = ann.ask("start", request)["error"]["message"]
                    assert said.startswith(f"the start came too late: job bobs of {BOB} has GPU 0 since ")


def test_a_lock_that_is_removed_while_a_job_runs_is_made_anew_by_its_supervisor(users: Users, shared: Path) -> None:
    with users.agent(ANN) as ann, users.agent(BOB) as bob:
        ann.prepare("anns", cuda_slots=2, python="sh")
        ann.start("anns", [["sleep", "300"]])
        for path in shared.iterdir():
            path.unlink()

        def whose() -> list[str]:
            return [holder.purpose.job_id for holder in GpuLocks(shared).holders()]

        # One is locked a moment before it says for what.
        wait_until(lambda: whose() == ["anns", "anns"], "the locks to be there again", 60)
        assert f"job anns of {ANN} has GPU 0, 1" in refused(bob, "bobs", 1)
        end(ann)


def test_no_device_is_open_for_a_lock(users: Users) -> None:
    with users.agent(ANN) as ann:
        ann.prepare("anns", cuda_slots=2, python="sh")
        ann.start("anns", [["sleep", "300"]])
        supervisor = supervisor_of(ann)
        opened = open_files(supervisor)
        assert not [path for path in opened if path.startswith("/dev/") and path != "/dev/null"]
        assert len([path for path in opened if "/locks/" in path]) == 2
        end(ann)
