"""Daemon, supervisor and torchrun killed at any moment: nothing starts twice, nothing stays, the end is told right."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.attempts import adoption
from dtagent.locations import AttemptFiles
from dtagent.supervision import journal
from dtagent.system import processes
from dtagent.system.cgroup import Cgroup

from tests.agent.conversation import DEADLINE_S, Conversation, processes_with
from tests.waiting import wait_until

FINAL = ("ended", "lost", "discarded", "unkillable")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Conversation]:
    with Conversation(tmp_path / "root") as conversation:
        yield conversation


def supervisor_of(root: Path, job_id: str) -> int:
    path = AttemptFiles.of(root, job_id, 0).supervisor
    wait_until(path.exists, "the supervisor to say who it is")
    return int(json.loads(path.read_text())["pid"])


def run(agent: Conversation, job_id: str, *commands: list[str], **more: Any) -> None:
    agent.prepare(job_id)
    agent.start(job_id, list(commands), **more)


def is_gone(pid: int) -> bool:
    return processes.identify(pid) is None


@pytest.mark.parametrize("seed", range(4))
def test_a_daemon_killed_at_any_moment_of_a_launch_starts_nothing_twice_and_forgets_nothing(
    tmp_path: Path, seed: int
) -> None:
    """Each end within 30 s, and told right; no process of a job is left."""
    moments = random.Random(seed)
    root, runs = tmp_path / "root", tmp_path / "runs"
    runs.mkdir()
    for number in range(3):
        job_id = f"job-{seed}-{number}"
        command = ["sh", "-c", 'echo out; mktemp "$0/XXXXXX" >/dev/null; sleep 0.1; echo end', str(runs / job_id)]
        (runs / job_id).mkdir()
        with Conversation(root, keep_daemon=True) as first:
            daemon = first.call("hello", {"versions": [1]})["pid"]
            # A process of its own, so that the kill comes in the middle of whatever the daemon does.
            killer = subprocess.Popen(["sh", "-c", f"sleep {moments.uniform(0.0, 0.25):.4f}; kill -9 {daemon}"])
            with contextlib.suppress(BrokenPipeError, json.JSONDecodeError, ConnectionError):
                run(first, job_id, command)
                first.call("follow", {"key": {"job_id": job_id, "attempt": 0}, "wait_s": 5})
            killer.wait()
            first.child.wait(DEADLINE_S)
        with Conversation(root) as second:
            run(second, job_id, command)  # As a controller does that had no answer and found nothing started.
            status = second.end_of(job_id)
            assert processes_with(f"DTTUI_JOB_ID={job_id}") == []
            started = len(list((runs / job_id).iterdir()))
            assert (status["state"], started) in {("ended", 1), ("lost", 0)}, status
            if started:
                assert second.streams(job_id)["0.out"] == b"out\nend\n"
            daemon = second.call("hello", {"versions": [1]})["pid"]
        wait_until(functools.partial(is_gone, daemon), "the daemon to end, which would not serve the next client long")


@pytest.mark.parametrize("seed", range(4))
def test_a_supervisor_killed_at_any_moment_leaves_nothing_and_is_told(agent: Conversation, seed: int) -> None:
    """Each within 30 s, once; no process of a job is left."""
    moments = random.Random(seed)
    for number in range(4):
        job_id = f"orphan-{seed}-{number}"
        agent.prepare(job_id)
        files = AttemptFiles.of(agent.root, job_id, 0)
        # The sooner the better: it is killed while it forks and writes.
        watcher = 'while [ ! -s "$0" ]; do :; done; sleep "$1"; kill -9 "$(grep -o \'"pid": [0-9]*\' "$0" | cut -c8-)"'
        pause = f"{moments.choice([0.0, moments.uniform(0.0, 0.03)]):.4f}"
        killer = subprocess.Popen(["sh", "-c", watcher, str(files.supervisor), pause])
        agent.start(job_id, [["sh", "-c", "env -i setsid sleep 312 & exec sleep 312"]] * 3)
        killer.wait(DEADLINE_S)
        status = agent.end_of(job_id)
        assert status["state"] == "lost"
        assert status["reason"] == "the supervisor on this host died"
        assert processes_with(f"DTTUI_JOB_ID={job_id}") == []
        states = [record["state"] for record in journal.read(files.journal) if record["event"] == "state"]
        assert states.count("lost") == 1


@pytest.mark.lab
def test_a_daemonised_grandchild_with_a_clean_environment_outlives_no_supervisor(
    can_have_lab: None, agent: Conversation, tmp_path: Path
) -> None:
    """Within 30 s; a control group finds what no mark does. It is gone too."""
    told = tmp_path / "pid"
    hide = ["sh", "-c", 'env -i setsid sh -c "echo \\$\\$ > $0.new; mv $0.new $0; exec sleep 313" & exec sleep 313']
    run(agent, "hidden", [*hide, str(told)])
    wait_until(told.exists, "the grandchild")
    os.kill(supervisor_of(agent.root, "hidden"), signal.SIGKILL)
    assert agent.end_of("hidden")["state"] == "lost"
    assert processes.identify(int(told.read_text())) is None


def test_torchrun_killed_leaves_no_rank(agent: Conversation, tmp_path: Path) -> None:
    """Told within 30 s; no process of the job is left."""
    script = tmp_path / "train.py"
    script.write_text("import time\nprint('ready', flush=True)\ntime.sleep(314)\n")
    env = {"DTTUI_JOB_ID": "torch", "DTTUI_ATTEMPT": "0", "DTTUI_NODE_RANK": "0"}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    agent.prepare("torch")
    spec = {"name": "launcher", "argv": launch, "cwd": "/", "env": env}
    body = {"key": {"job_id": "torch", "attempt": 0}, "node_rank": 0, "processes": [spec], "ranks": [0, 1]}
    agent.call("start", body)
    out = agent.root / "jobs/torch/0/logs/launcher.out"
    wait_until(lambda: out.exists() and out.read_text().count("ready") == 2, "both ranks to run", 60)
    (launcher,) = (
        record["pid"]
        for record in journal.read(AttemptFiles.of(agent.root, "torch", 0).journal)
        if record["event"] == "process"
    )
    os.kill(launcher, signal.SIGKILL)
    status = agent.end_of("torch")
    assert processes_with("DTTUI_JOB_ID=torch") == []
    assert [(item["name"], item["signal"]) for item in status["exits"]] == [("launcher", signal.SIGKILL)]


def test_after_a_reboot_nobody_with_an_old_pid_is_touched(agent: Conversation) -> None:
    """Within 30 s the job is lost, and the stranger lives."""
    run(agent, "before", ["sleep", "315"])
    files = AttemptFiles.of(agent.root, "before", 0)
    os.kill(supervisor_of(agent.root, "before"), signal.SIGKILL)
    for pid in processes_with("DTTUI_JOB_ID=before"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with subprocess.Popen(["sleep", "316"]) as stranger:
        start_time = int(Path(f"/proc/{stranger.pid}/stat").read_text().rpartition(") ")[2].split()[19])
        # As if that process had the pid, and by chance the start time, of what ran before the boot.
        identity = {"pid": stranger.pid, "start_time": start_time}
        told = json.loads(files.supervisor.read_text())
        files.supervisor.write_text(json.dumps({**told, **identity, "boot_id": "another boot", "cgroup": None}))
        journal.append(files.journal, {"event": "process", "name": "0", **identity})
        agent.stop("before", force=True)
        status = agent.end_of("before")
        assert (status["state"], status["reason"]) == ("lost", "the host was restarted")
        if told["cgroup"]:
            Cgroup(Path(told["cgroup"])).remove()  # No boot has.
        assert stranger.poll() is None
        stranger.kill()


def test_nobody_with_an_old_pid_is_a_supervisor_while_the_one_before_still_ends(tmp_path: Path) -> None:
    """At once, of a record of another boot: whoever has the pid by now has not the lock open that still is held."""
    files = AttemptFiles(tmp_path)
    with files.lock.open("w") as lock, subprocess.Popen(["sleep", "319"]) as stranger:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = processes.identify(stranger.pid)
        assert process is not None
        told = {"boot_id": "another boot", "pid": process.pid, "start_time": process.start_time}
        files.supervisor.write_text(json.dumps(told))
        assert adoption.identity(files) is None
        stranger.kill()
        own = processes.identify(os.getpid())
        assert own is not None
        files.supervisor.write_text(json.dumps({**told, "pid": own.pid, "start_time": own.start_time}))
        assert adoption.identity(files) == own


def test_a_supervisor_that_lives_hears_of_a_stop_though_the_host_says_that_it_has_booted_since(
    agent: Conversation,
) -> None:
    """Within 30 s; nothing is left: whoever holds the lock lives, and his pid and start time are his."""
    run(agent, "since", ["sleep", "317"])
    supervisor_of(agent.root, "since")
    files = AttemptFiles.of(agent.root, "since", 0)
    told = json.loads(files.supervisor.read_text())
    files.supervisor.write_text(json.dumps({**told, "boot_id": "another boot"}))
    agent.stop("since")
    assert agent.end_of("since")["state"] == "ended"
    assert processes_with("DTTUI_JOB_ID=since") == []


def test_a_discarded_attempt_cannot_be_started_late(agent: Conversation) -> None:
    """Refused at once; nothing was started."""
    agent.prepare("late")
    assert agent.stop("late")["state"] == "discarded"
    params = {"key": {"job_id": "late", "attempt": 0}, "node_rank": 0, "processes": [], "ranks": []}
    assert agent.ask("start", params)["error"]["code"] == 3


def test_a_stop_during_prepare_keeps_a_late_start_out(agent: Conversation) -> None:
    """At once; nothing was started."""
    request = {"key": {"job_id": "raced", "attempt": 0}, "node_rank": 0, "python": sys.executable}
    request |= {"master_address": "127.0.0.1", "reserve_port": True, "port_range": [29500, 29999], "cuda_slots": 0}
    frames = [("prepare", request), ("stop", {"key": request["key"]}), ("prepare", request)]
    assert agent.child.stdin is not None
    assert agent.child.stdout is not None
    for number, (method, params) in enumerate(frames):
        agent.child.stdin.write(json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n")
    agent.child.stdin.flush()
    for _ in frames:
        agent.child.stdout.readline()
    assert agent.status("raced")["state"] == "discarded"
    start = {"key": request["key"], "node_rank": 0, "ranks": [0]}
    start["processes"] = [{"name": "0", "argv": ["touch", str(agent.root / "ran")], "cwd": "/"}]
    assert agent.ask("start", start)["error"]["code"] == 3
    assert not (agent.root / "ran").exists()


def test_a_supervisor_without_the_attempts_lock_starts_nothing(tmp_path: Path) -> None:
    """Within 30 s it has ended, and left no file."""
    (tmp_path / "supervisor.lock").touch()
    with (tmp_path / "other").open("w") as other:
        for descriptor in (other.fileno(), 99):
            done = supervise(tmp_path, descriptor)
            assert done.returncode == 4
            assert b"is not the lock of" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"supervisor.lock", "other"}


def test_a_supervisor_that_gets_no_secrets_because_the_daemon_died_starts_nothing(tmp_path: Path) -> None:
    """Within 30 s it has ended, and left no file."""
    with (tmp_path / "supervisor.lock").open("w") as lock:
        assert supervise(tmp_path, lock.fileno()).returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == ["supervisor.lock"]


def supervise(directory: Path, lock: int) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-I", "-m", "dtagent", "supervise", str(directory), str(lock)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        pass_fds=[lock] if lock < 99 else [],
        timeout=120,
        check=False,
    )
