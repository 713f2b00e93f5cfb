"""The daemon over its socket: versions, refusals, hostile frames, and who may come in."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conversation import Conversation
from tests.waiting import wait_until


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Conversation]:
    with Conversation(tmp_path / "root") as conversation:
        yield conversation


def test_hello_agrees_on_a_common_version_and_refuses_without_one(agent: Conversation) -> None:
    assert agent.call("hello", {"versions": [99, 1], "later": "field"})["version"] == 1
    for versions, remedy in (([99], "upgrade the agent"), ([0], "upgrade dttui"), ([], "upgrade dttui")):
        error = agent.ask("hello", {"versions": versions, "client": "dttui 9"})["error"]
        assert (error["code"], error["data"]["versions"]) == (1, [1])
        assert "speaks protocol versions [1]" in error["message"]
        assert f"dttui 9 speaks {versions}; {remedy}" in error["message"]


def test_a_newer_client_is_understood_as_far_as_its_calls_are_known(agent: Conversation) -> None:
    agent.prepare("newer", colour="blue", key={"job_id": "newer", "attempt": 0, "lane": 3})
    assert agent.call("status", {"job_id": "newer", "attempt": 0, "verbose": True})["state"] == "prepared"
    assert agent.ask("subscribe", {"to": "everything"})["error"]["code"] == -32601


def test_two_bridges_share_one_daemon(agent: Conversation) -> None:
    pid = agent.call("hello", {"versions": [1]})["pid"]
    with Conversation(agent.root, keep_daemon=True) as other:
        assert other.call("hello", {"versions": [1]})["pid"] == pid


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"nonsense\n", -32700),
        (b'{"a": NaN}\n', -32700),
        (b"[" * 100_000 + b"\n", -32700),
        (b"\xff\xfe\n", -32700),
        (b"[1]\n", -32600),
        (b'{"id": 1, "method": "format-disk"}\n', -32601),
        (b'{"id": 1, "method": ["x"]}\n', -32601),
        (b'{"id": 1, "method": "status", "params": [1]}\n', -32602),
        (b'{"id": 1, "method": "status", "params": {"job_id": 3, "attempt": "x"}}\n', -32602),
        (b'{"id": 1, "method": "status", "params": {"job_id": "../../etc", "attempt": 0}}\n', -32602),
        (b'{"id": 1, "method": "status", "params": {"job_id": "unknown", "attempt": 0}}\n', 2),
    ],
)
def test_a_bad_frame_gets_a_typed_error_and_the_daemon_lives_on(agent: Conversation, line: bytes, code: int) -> None:
    assert agent.ask_raw(line)["error"]["code"] == code
    assert agent.call("ping")["time"] == pytest.approx(time.time(), abs=60)


def test_a_client_that_did_not_say_hello_gets_nothing_else(tmp_path: Path) -> None:
    with Conversation(tmp_path / "root", greets=False) as agent:
        assert "the first call must be hello" in agent.ask("ping")["error"]["message"]
        assert agent.ask("hello", {"versions": [99]})["error"]["code"] == 1
        assert "the first call must be hello" in agent.ask("status", {"job_id": "x", "attempt": 0})["error"]["message"]
        agent.call("hello", {"versions": [1]})
        assert agent.call("ping")


def test_prepare_is_idempotent_and_reserves_a_port(agent: Conversation) -> None:
    first = agent.prepare("same")
    assert agent.prepare("same") == first
    assert 29500 <= first["master_port"] <= 29999
    assert first["interface"] == "lo"
    assert agent.prepare("other")["master_port"] != first["master_port"]


def test_prepare_refuses_what_the_host_does_not_have(agent: Conversation) -> None:
    key = {"job_id": "refused", "attempt": 0}
    base = {
        "key": key,
        "node_rank": 0,
        "python": sys.executable,
        "master_address": "127.0.0.1",
        "reserve_port": False,
        "port_range": [29500, 29500],
        "cuda_slots": 0,
    }
    long = "/" + "x" * 300
    assert f"there is no {long}" in agent.ask("prepare", {**base, "required_paths": [long]})["error"]["message"]
    assert "/no/dir" in agent.ask("prepare", {**base, "required_paths": ["/no/dir"]})["error"]["message"]
    assert "/no/python" in agent.ask("prepare", {**base, "python": "/no/python"})["error"]["message"]
    assert "2 GPUs are wanted" in agent.ask("prepare", {**base, "cuda_slots": 2})["error"]["message"]
    with socket.socket() as taken:
        taken.bind(("", 0))
        port = taken.getsockname()[1]
        reply = agent.ask("prepare", {**base, "reserve_port": True, "port_range": [port, port]})
    assert "is taken" in reply["error"]["message"]


def test_upload_goes_on_where_it_ended_and_stays_inside(agent: Conversation) -> None:
    agent.prepare("files")
    key = {"job_id": "files", "attempt": 0}

    def part(path: str, offset: int, data: bytes) -> dict[str, Any]:
        body = {"key": key, "path": path, "offset": offset, "data": base64.b64encode(data).decode()}
        return agent.ask("upload", body)

    assert part("a/b.txt", 0, b"one")["result"] == 3
    assert part("a/b.txt", 0, b"one")["result"] == 3  # Sent again: nothing is doubled.
    assert part("a/b.txt", 3, b"two")["result"] == 6
    assert (agent.root / "jobs/files/0/work/a/b.txt").read_bytes() == b"onetwo"
    for path in ("../x", "/etc/x", "a/../../x", ""):
        assert part(path, 0, b"x")["error"]["code"] == -32602


def test_telemetry_goes_on_after_the_last_sample_seen(agent: Conversation) -> None:
    first = agent.call("telemetry")["samples"][-1]
    second = agent.call("telemetry", {"after_seq": first["seq"], "wait_s": 10})["samples"]
    seqs = [sample["seq"] for sample in second]  # More than one where this process was held up.
    assert seqs
    assert seqs == [first["seq"] + number for number in range(1, len(seqs) + 1)]
    assert second[0]["memory_total_mib"] > 0
    # Two readings may follow each other at once where the machine was busy, and then tell no use of its CPUs.
    wait_until(lambda: agent.call("telemetry")["samples"][-1].get("cpu_percent") is not None, "the use of the CPUs")


def test_facts_name_the_host_and_why_there_are_no_gpus(agent: Conversation) -> None:
    facts = agent.call("facts", {"pythons": [sys.executable, "/no/python"]})
    assert facts["hostname"] == os.uname().nodename
    assert facts["gpus"] or facts["gpu_note"]
    assert facts["pythons"][0]["packages"]["torch"]
    assert "error" in facts["pythons"][1]


def test_the_root_and_the_socket_are_closed_to_others(agent: Conversation) -> None:
    agent.call("ping")
    assert stat.S_IMODE(agent.root.stat().st_mode) == 0o700
    assert stat.S_IMODE((agent.root / "agent.sock").stat().st_mode) == 0o600


def test_a_root_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    done = subprocess.run(
        [sys.executable, "-I", "-m", "dtagent", "connect", "--root", str(tmp_path / "link")],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert b"is not a directory" in done.stderr


def test_a_socket_path_longer_than_an_address_allows_works(tmp_path: Path) -> None:
    root = tmp_path / ("x" * 100) / ("y" * 100)
    with Conversation(root) as agent:
        assert agent.call("ping")


def test_the_daemon_ends_when_nobody_needs_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    child = subprocess.Popen(
        [sys.executable, "-I", "-m", "dtagent", "daemon", "--root", str(root), "--idle-exit", "0.5"],
        stderr=subprocess.DEVNULL,
    )
    assert child.wait(30) == 0


def test_a_daemon_that_was_stopped_for_longer_than_it_may_idle_still_serves_whoever_comes_back(tmp_path: Path) -> None:
    root = tmp_path / "root"
    child = subprocess.Popen(
        [sys.executable, "-I", "-m", "dtagent", "daemon", "--root", str(root), "--idle-exit", "5"],
        stderr=subprocess.DEVNULL,
    )
    wait_until((root / "agent.sock").exists, "the daemon to serve")
    child.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    # It knocks while the daemon stands still: a client may take longer to start than the daemon would wait for it.
    with Conversation(root, greets=False) as agent:
        wait_until(lambda: time.monotonic() - began > 6, "more than the idle time to pass")
        child.send_signal(signal.SIGCONT)
        assert agent.call("hello", {"versions": [1]})["pid"] == child.pid
    assert child.wait(30) == 0


LISTENS = """
import os, socket, sys
listen = socket.socket.listen
was_there = []
def told(self, *arguments):
    was_there.append(os.path.exists(sys.argv[-1] + "/agent.sock"))
    listen(self, *arguments)
socket.socket.listen = told
from dtagent.cli import main
sys.exit(main(sys.argv[1:]) or 7 * was_there[0])
"""
"""A daemon that exits with 7 where its socket was there before anybody could connect to it."""


def test_a_socket_that_is_there_can_be_connected_to(tmp_path: Path) -> None:
    """Who sees it might else be refused, and take the daemon for gone."""
    root = tmp_path / "root"
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", LISTENS, "daemon", "--root", str(root)], stderr=subprocess.DEVNULL
    )
    wait_until((root / "agent.sock").exists, "the daemon to serve")
    with Conversation(root) as agent:
        assert agent.call("hello", {"versions": [1]})["pid"] == child.pid
    assert child.wait(30) == 0
    assert [path.name for path in root.iterdir() if path.name.startswith("agent.sock")] == []


def test_a_daemon_whose_directory_was_removed_ends(tmp_path: Path) -> None:
    root = tmp_path / "root"
    child = subprocess.Popen(
        [sys.executable, "-I", "-m", "dtagent", "daemon", "--root", str(root)], stderr=subprocess.DEVNULL
    )
    wait_until((root / "agent.sock").exists, "the daemon to serve")
    shutil.rmtree(root)
    assert child.wait(30) == 0


def test_a_second_daemon_makes_way_and_says_so(agent: Conversation) -> None:
    agent.call("ping")
    done = subprocess.run(
        [sys.executable, "-I", "-m", "dtagent", "daemon", "--root", str(agent.root)],
        timeout=120,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 3
    assert f"a daemon serves {agent.root} already".encode() in done.stderr


def test_a_daemon_that_is_told_to_end_takes_its_socket_along_and_says_why(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with Conversation(root, keep_daemon=True) as agent, Conversation(root, keep_daemon=True):
        os.kill(agent.call("hello", {"versions": [1]})["pid"], signal.SIGTERM)
        assert agent.child.wait(20) == 0
    assert not (root / "agent.sock").exists()
    said = (root / "daemon.err").read_text()
    assert "dtagent ends: SIGTERM" in said
    assert "Traceback" not in said


def test_the_log_of_a_daemon_is_turned_over(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    (root / "daemon.err").write_bytes(b"old\n" * 300_000)
    with Conversation(root) as agent:
        assert agent.call("ping")
    assert "serves" in (root / "daemon.err").read_text()
    assert (root / "daemon.err").stat().st_size < 10_000
    assert (root / "daemon.err.1").stat().st_size == 1_200_000


def test_a_damaged_attempt_is_logged_once(agent: Conversation) -> None:
    agent.prepare("damaged")
    (agent.root / "jobs/damaged/0/prepared.json").write_text("{")
    for _ in range(3):
        assert agent.call("attempts") == []
    assert (agent.root / "daemon.err").read_text().count("cannot be read") == 1


def test_a_daemon_that_starts_again_at_once_numbers_its_samples_beyond_the_last(tmp_path: Path) -> None:
    def newest() -> int:
        with Conversation(tmp_path / "root") as agent:
            number = int(agent.call("telemetry")["samples"][0]["seq"])
            daemon = Path("/proc", str(agent.call("hello", {"versions": [1]})["pid"]))
        wait_until(lambda: not daemon.exists(), "the daemon to end")
        return number

    assert newest() < newest() < newest()


def test_readings_come_faster_while_a_client_asks_for_them_and_those_kept_do_not(agent: Conversation) -> None:
    kept = agent.call("telemetry")["samples"][-1]["seq"]
    live = [agent.call("telemetry", {"interval_s": 0.01})["samples"][0] for _ in range(12)]
    assert len({sample["seq"] for sample in live}) < 8, "several come between two that are kept"
    assert len({sample["time"] for sample in live}) == 12
    assert live[-1]["time"] - live[0]["time"] > 0.5, "ten a second, and those that are kept between them"
    rows = agent.call("telemetry", {"after_seq": kept, "wait_s": 5})["samples"]
    assert [row["seq"] for row in rows] == list(range(kept + 1, rows[-1]["seq"] + 1))
    # One a second: the first may have come up to a second late, and the next at its time.
    assert rows[-1]["time"] - rows[0]["time"] > len(rows) - 2.1


def test_the_bridge_imports_neither_pydantic_nor_psutil(agent: Conversation) -> None:
    seen = "sorted({'pydantic', 'psutil', 'asyncio'} & set(sys.modules))"
    code = f"import sys, dtagent.cli, dtagent.daemon.bridge; print({seen})"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "[]\n"


def test_the_bridge_ends_when_its_client_hangs_up(agent: Conversation) -> None:
    other = subprocess.Popen(
        [sys.executable, "-I", "-m", "dtagent", "connect", "--root", str(agent.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert other.stdin is not None
    other.stdin.close()
    wait_until(lambda: other.poll() is not None, "the bridge to end")


def test_calls_are_answered_while_a_follower_waits(agent: Conversation) -> None:
    agent.prepare("waiting")
    assert agent.child.stdin is not None
    assert agent.child.stdout is not None
    follow = {"key": {"job_id": "waiting", "attempt": 0}, "stamp": "", "wait_s": 5}
    stamp = agent.call("follow", follow)["stamp"]
    agent.child.stdin.write(
        json.dumps({"id": 900, "method": "follow", "params": {**follow, "stamp": stamp}}).encode() + b"\n"
    )
    agent.child.stdin.write(b'{"id": 901, "method": "ping"}\n')
    agent.child.stdin.flush()
    assert json.loads(agent.child.stdout.readline())["id"] == 901
    assert json.loads(agent.child.stdout.readline())["id"] == 900
