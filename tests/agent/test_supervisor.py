"""The supervisor with real processes: nothing outlives an attempt, and how each ended is known."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.system import proc_stat

from tests.agent.conversation import Conversation, processes_with
from tests.processes import open_files
from tests.waiting import wait_until

PYTHON = sys.executable


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Conversation]:
    with Conversation(tmp_path / "root") as conversation:
        yield conversation


def run(agent: Conversation, job_id: str, *commands: list[str], **more: object) -> None:
    agent.prepare(job_id)
    agent.start(job_id, list(commands), **more)  # type: ignore[arg-type]  # passed through to the frame


def test_a_command_runs_and_its_output_and_exit_code_come_back(agent: Conversation) -> None:
    run(agent, "plain", ["sh", "-c", "echo out; echo err >&2"])
    assert agent.streams("plain") == {"0.out": b"out\n", "0.err": b"err\n"}
    status = agent.status("plain")
    assert status["state"] == "ended"
    assert [(item["name"], item["exit_code"]) for item in status["exits"]] == [("0", 0)]


def test_a_failing_rank_ends_the_other_ranks_of_the_node(agent: Conversation) -> None:
    run(agent, "one-fails", ["sh", "-c", "exit 3"], ["sleep", "300"])
    status = agent.end_of("one-fails")
    assert {item["name"]: item.get("exit_code", item.get("signal")) for item in status["exits"]} == {
        "0": 3,
        "1": signal.SIGTERM,
    }
    assert processes_with("DTTUI_JOB_ID=one-fails") == []


def test_grandchildren_in_sessions_of_their_own_are_ended_too(agent: Conversation) -> None:
    script = (
        "import os,time\nif os.fork()==0:\n os.setsid()\n if os.fork()==0:\n  time.sleep(300)\n os._exit(0)\nos.wait()"
    )
    run(agent, "grandchild", [PYTHON, "-c", script])
    assert agent.end_of("grandchild")["state"] == "ended"
    assert processes_with("DTTUI_JOB_ID=grandchild") == []


def test_a_descendant_that_drops_its_environment_is_ended_too(agent: Conversation) -> None:
    # Marked by descent alone: its environment tells nothing.
    run(agent, "no-mark", ["sh", "-c", "env -i setsid sleep 301 & sleep 0.2"])
    assert agent.end_of("no-mark")["state"] == "ended"
    assert not _running("sleep\0301\0")


def test_a_rank_that_ignores_term_is_killed_after_the_grace_period(agent: Conversation) -> None:
    run(agent, "stubborn", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"], grace_s=0.5)
    _wait_for_log(agent, "stubborn", "ready\n")
    agent.stop("stubborn")
    status = agent.end_of("stubborn")
    assert status["state"] == "ended"
    assert status["exits"][0]["signal"] == signal.SIGKILL
    assert processes_with("DTTUI_JOB_ID=stubborn") == []


def test_a_stop_reaches_ranks_that_are_stopped_by_a_signal_and_what_runs_below_them(
    agent: Conversation, tmp_path: Path
) -> None:
    number = tmp_path / "pid"
    ending = f"trap 'echo saved; exit 0' TERM; echo $$ > {number}; kill -STOP $$; while :; do sleep 0.05; done"
    launcher = 'trap "kill -TERM \\$child; wait \\$child; exit 0" TERM; sh -c "$0" & child=$!; wait'

    def is_stopped() -> bool:
        told = number.read_text().strip() if number.exists() else ""
        stat = proc_stat.read(int(told)) if told else None
        return stat is not None and stat.state == "T"

    for job, command in {"own": ["sh", "-c", ending], "below": ["sh", "-c", launcher, ending]}.items():
        number.unlink(missing_ok=True)
        run(agent, job, command, grace_s=60.0)
        wait_until(is_stopped, "it to stop itself")
        begun = time.monotonic()
        agent.stop(job)
        assert agent.streams(job)["0.out"] == b"saved\n"
        assert time.monotonic() - begun < 20


def test_a_graceful_stop_lets_a_rank_finish_its_work(agent: Conversation) -> None:
    command = ["sh", "-c", "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"]
    run(agent, "graceful", command, grace_s=60.0)
    _wait_for_log(agent, "graceful", "ready\n")
    agent.stop("graceful")
    assert agent.streams("graceful")["0.out"] == b"ready\nsaved\n"
    assert agent.status("graceful")["reason"] == "stopped"


def test_a_launcher_whose_ranks_have_all_ended_is_not_waited_for(agent: Conversation) -> None:
    # As torchrun does, which hears of no signal while it waits for the other nodes.
    rank = f"RANK=$rank {PYTHON} $DTTUI_PAYLOAD/rank.py $DTTUI_PAYLOAD/train.py"
    launcher = f"trap '' TERM; for rank in 4 5; do {rank}; done; echo waits; while :; do sleep 0.1; done"
    prepared = agent.prepare("barrier")
    directory = prepared["directory"]
    env = {"DTTUI_LOGS": f"{directory}/logs", "DTTUI_PAYLOAD": prepared["payload"]}
    process = {"name": "launcher", "argv": ["sh", "-c", launcher], "cwd": directory, "env": env}
    files = [{"path": "payload/train.py", "text": "import os\nif os.environ['RANK'] == '5': os._exit(0)\n"}]
    agent.start("barrier", [], processes=[process], ranks=[4, 5], files=files, grace_s=600)
    wait_until(lambda: "launcher.out" in os.listdir(f"{directory}/logs")
               and b"waits" in Path(directory, "logs", "launcher.out").read_bytes(), "the ranks to end")  # fmt: skip
    agent.stop("barrier")
    status = agent.end_of("barrier")
    assert {item["name"]: item.get("exit_code", item.get("signal")) for item in status["exits"]} == {
        "4": 0,
        "5": 0,
        "launcher": signal.SIGKILL,
    }
    assert status["ranks_started"] == [4, 5]


def test_a_forced_stop_does_not_wait(agent: Conversation) -> None:
    run(agent, "forced", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"], grace_s=600)
    _wait_for_log(agent, "forced", "ready\n")
    agent.stop("forced", force=True)
    assert agent.end_of("forced")["exits"][0]["signal"] == signal.SIGKILL


def test_a_command_that_does_not_exist_is_reported_and_not_retried(agent: Conversation) -> None:
    run(agent, "missing", ["/no/such/program"])
    streams = agent.streams("missing")
    assert b"cannot start /no/such/program" in streams["0.err"]
    assert agent.status("missing")["exits"][0]["exit_code"] == 127


def test_a_killed_supervisor_leaves_nothing_and_is_reported_as_lost(agent: Conversation) -> None:
    run(agent, "orphan", ["sleep", "300"], ["sleep", "300"])
    wait_until(lambda: len(processes_with("DTTUI_JOB_ID=orphan")) == 2, "both ranks to run")
    os.kill(_supervisor(agent, "orphan"), signal.SIGKILL)
    status = agent.end_of("orphan")
    assert status["state"] == "lost"
    assert "supervisor" in status["reason"]
    assert processes_with("DTTUI_JOB_ID=orphan") == []


def test_a_killed_daemon_does_not_stop_the_job_and_the_next_one_knows_it(tmp_path: Path) -> None:
    with Conversation(tmp_path / "root", keep_daemon=True) as first:
        daemon = first.call("hello", {"versions": [1]})["pid"]
        run(
            first,
            "survivor",
            [
                "sh",
                "-c",
                "echo a; while [ ! -e /proc/self/nope ] && [ ! -e $0 ]; do sleep 0.05; done; echo b",
                str(tmp_path / "go"),
            ],
        )
        _wait_for_log(first, "survivor", "a\n")
        os.kill(daemon, signal.SIGKILL)
        first.child.wait(30)
    with Conversation(tmp_path / "root") as second:
        assert second.call("hello", {"versions": [1]})["pid"] != daemon
        assert second.status("survivor")["state"] == "running"
        (tmp_path / "go").touch()
        assert second.streams("survivor")["0.out"] == b"a\nb\n"
        assert second.status("survivor")["exits"][0]["exit_code"] == 0


def test_secrets_reach_the_process_and_no_file_on_the_host(agent: Conversation) -> None:
    run(agent, "secret", ["sh", "-c", "test ${#TOKEN} -eq 12"], secrets={"TOKEN": "hunter2-zeta"})
    assert agent.end_of("secret")["exits"][0]["exit_code"] == 0
    written = [path for path in agent.root.rglob("*") if path.is_file() and b"hunter2-zeta" in path.read_bytes()]
    assert written == []


def test_what_was_started_once_is_not_started_again(agent: Conversation, tmp_path: Path) -> None:
    marker = tmp_path / "runs"
    command = ["sh", "-c", 'echo x >> "$0"', str(marker)]
    run(agent, "once", command)
    agent.end_of("once")
    agent.start("once", [command])
    assert agent.end_of("once")["state"] == "ended"
    assert marker.read_text() == "x\n"


def _wait_for_log(agent: Conversation, job_id: str, text: str) -> None:
    path = agent.root / "jobs" / job_id / "0" / "logs" / "0.out"
    wait_until(lambda: path.exists() and path.read_text() == text, f"{path} to hold {text!r}")


def _supervisor(agent: Conversation, job_id: str) -> int:
    path = agent.root / "jobs" / job_id / "0" / "supervisor.json"
    return int(json.loads(path.read_text())["pid"])


def _running(command: str) -> bool:
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if Path("/proc", pid, "cmdline").read_text() == command:
                return True
        except OSError:
            continue
    return False


def test_a_stop_right_after_the_start_is_heard(agent: Conversation) -> None:
    for number in range(8):
        job_id = f"early-{number}"
        run(agent, job_id, ["sleep", "302"], ["sleep", "302"])
        agent.stop(job_id)
        assert agent.end_of(job_id)["reason"] == "stopped"
        assert processes_with(f"DTTUI_JOB_ID={job_id}") == []


def test_what_a_job_writes_into_its_own_files_never_breaks_the_status(agent: Conversation, tmp_path: Path) -> None:
    run(agent, "mess", ["sh", "-c", 'until [ -e "$0" ]; do sleep 0.05; done; exit 5', str(tmp_path / "go")])
    home = agent.root / "jobs" / "mess" / "0"
    (home / "failures" / "0.json").write_text('{"rank": 0, "time": NaN, "exit_code": 5, "error": "caf\\udce9", "x": 1}')
    (home / "failures" / "1.json").write_text('{"rank": "many"}')
    (home / "failures" / "2.json").write_text("[" * 100_000)
    (home / "failures" / "3.json").write_text('{"rank": 3, "time": 1, "exit_code": "three"}')
    (home / "ranks" / "x.json").write_text("{}")
    (home / "metrics.jsonl").mkdir()
    (home / "logs" / "7.out").symlink_to("/etc/passwd")
    (tmp_path / "go").touch()
    status = agent.end_of("mess")
    assert [(item["rank"], item.get("error")) for item in status["failures"]] == [(0, "caf?")]
    assert set(agent.streams("mess")) == {"0.out", "0.err"}


def test_a_long_traceback_on_every_rank_is_still_told(agent: Conversation) -> None:
    run(agent, "long", ["false"])
    failures = agent.root / "jobs" / "long" / "0" / "failures"
    body = [{"rank": rank, "time": 1.0, "exit_code": 1, "traceback": "汉" * 30_000} for rank in range(8)]
    (failures / "launcher.json").write_text(json.dumps(body))
    assert len(agent.end_of("long")["failures"]) == 8


def test_what_a_rank_used_is_told_with_how_it_ended(agent: Conversation) -> None:
    burn = "import time; x = b'x' * (100 << 20); [0 for _ in iter(lambda: time.process_time() < 0.3, False)]"
    run(agent, "busy", [PYTHON, "-c", burn], ["true"])
    status = agent.end_of("busy")
    (busy,) = (item for item in status["exits"] if item["name"] == "0")
    assert 0.2 < busy["user_cpu_s"] + busy["system_cpu_s"] < 5
    assert 100 <= busy["peak_memory_mib"] < 1000
    used = status["usage"]
    assert used["peak_memory_mib"] >= busy["peak_memory_mib"]
    assert used["user_cpu_s"] + used["system_cpu_s"] >= busy["user_cpu_s"] + busy["system_cpu_s"]


def test_a_moment_without_file_handles_costs_no_job(agent: Conversation, tmp_path: Path) -> None:
    wait_for = 'while [ ! -e "$0" ]; do sleep 0.05; done'
    run(agent, "scarce", ["sh", "-c", wait_for, str(tmp_path / "go")])
    wait_until((agent.root / "jobs/scarce/0/ranks/0.json").exists, "the rank to run")
    pid = _supervisor(agent, "scarce")
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    assert open_files(pid).count(str(agent.root / "jobs/scarce/0/supervisor.lock")) == 1
    began = _switches(pid)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        # It wakes to look at the memory after one second and after three.
        wait_until(lambda: _switches(pid) > began + 2, "the supervisor to look around", 30)
        assert agent.status("scarce")["state"] == "running"
        (tmp_path / "go").touch()
        wait_until(lambda: not processes_with("DTTUI_JOB_ID=scarce"), "the rank to end")
        assert agent.status("scarce")["state"] == "running", "it cannot write down how it ended"
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    status = agent.end_of("scarce")
    assert (status["state"], [item["exit_code"] for item in status["exits"]]) == ("ended", [0])


def _switches(pid: int) -> int:
    """Return how often a process has gone to sleep."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("voluntary_ctxt_switches")))


def test_a_sample_tells_the_local_rank(agent: Conversation) -> None:
    agent.prepare("local")
    env = {"DTTUI_JOB_ID": "local", "DTTUI_ATTEMPT": "0", "DTTUI_NODE_RANK": "0"}
    specs = [{"name": str(rank), "rank": rank, "argv": ["sleep", "320"], "cwd": "/", "env": env} for rank in (6, 4)]
    key = {"job_id": "local", "attempt": 0}
    agent.call("start", {"key": key, "node_rank": 0, "processes": specs, "ranks": [4, 6]})

    def ranks() -> list[tuple[int, int]]:
        reply = agent.call("telemetry", {"max_samples": 1, "wait_s": 5.0})
        return [(item["rank"], item["local_rank"]) for item in reply["samples"][-1]["ranks"].get("local", [])]

    assert wait_until(lambda: len(found := ranks()) == 2 and found, "a sample of both") == [(4, 0), (6, 1)]
    agent.stop("local", force=True)
    agent.end_of("local")
