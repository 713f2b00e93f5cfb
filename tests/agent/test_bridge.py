"""The life of `dtagent connect`: it finds or starts the daemon, and never outlives its client, whatever is stuck."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from dtagent.protocol.rpc import MAGIC

from tests.agent.conversation import DEADLINE_S, Conversation
from tests.processes import open_files
from tests.waiting import wait_until

QUICK = """
import sys, dtagent.daemon.bridge as bridge
bridge.SILENCE_S = 1.5
from dtagent.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""The bridge, with a client that counts as gone sooner."""
KILLED = """
import os, select, signal, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
if os.fork():
    os.kill(os.getpid(), signal.SIGKILL)
select.select([0], [], [], 5)
"""
FLOOD_CALLS = 4000


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Conversation]:
    with Conversation(tmp_path / "root") as conversation:
        yield conversation


class Bridge:
    """A bridge whose client does what a test wants."""

    def __init__(self, root: Path, *program: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-I", *(program or ("-m", "dtagent")), "connect", "--root", str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.stdout.read(len(MAGIC)) == MAGIC

    def greet(self) -> None:
        """Say what has to come first."""
        self.stdin.write(b'{"id": 0, "method": "hello", "params": {"versions": [1]}}\n')
        self.stdin.flush()
        assert "result" in json.loads(self.stdout.readline())

    @property
    def stdin(self) -> IO[bytes]:
        assert self.child.stdin is not None
        return self.child.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self.child.stdout is not None
        return self.child.stdout

    def flood(self) -> None:
        """Ask for more than the pipes hold, and read nothing of it."""
        os.set_blocking(self.stdin.fileno(), False)
        for number in range(FLOOD_CALLS):
            frame = json.dumps({"jsonrpc": "2.0", "id": number, "method": "no such method" + "x" * 500}).encode()
            try:
                if os.write(self.stdin.fileno(), frame + b"\n") < len(frame):
                    return
            except (BlockingIOError, BrokenPipeError):  # Where this was held up, the bridge may have ended already.
                return

    def end(self) -> tuple[int, bytes]:
        """Wait for the bridge to end of itself; return its status and stderr."""
        wait_until(lambda: self.child.poll() is not None, "the bridge to end")
        self.stdin.close()
        self.stdout.close()
        assert self.child.stderr is not None
        with self.child.stderr as errors:
            return self.child.returncode, errors.read()


def test_a_bridge_that_nobody_reads_ends_without_being_written_to(agent: Conversation) -> None:
    bridge = Bridge(agent.root)
    bridge.stdout.close()
    assert bridge.end() == (0, b"")


def test_a_bridge_whose_output_is_stuck_notices_that_its_client_hung_up(agent: Conversation) -> None:
    bridge = Bridge(agent.root)
    bridge.flood()
    bridge.stdin.close()
    assert bridge.end() == (0, b"")
    assert agent.call("ping")


@pytest.mark.parametrize("is_flooded", [False, True])
def test_a_bridge_ends_when_its_client_is_silent_for_long(agent: Conversation, is_flooded: bool) -> None:
    bridge = Bridge(agent.root, "-c", QUICK)
    if is_flooded:
        bridge.flood()
    status, errors = bridge.end()
    assert status == 1
    assert b"no word from the client" in errors


def test_a_bridge_to_a_daemon_that_does_not_answer_ends_with_its_client(agent: Conversation) -> None:
    daemon = agent.call("hello", {"versions": [1]})["pid"]
    hung_up = Bridge(agent.root)
    os.kill(daemon, signal.SIGSTOP)
    try:
        silent = Bridge(agent.root, "-c", QUICK)
        silent.flood()
        assert silent.end()[0] == 1
        hung_up.stdin.close()
        assert hung_up.end() == (0, b"")
    finally:
        os.kill(daemon, signal.SIGCONT)


def test_a_bridge_ends_with_its_daemon_and_delivers_what_that_said_last(tmp_path: Path) -> None:
    with Conversation(tmp_path / "root", keep_daemon=True) as agent:
        daemon = agent.call("hello", {"versions": [1]})["pid"]
        os.kill(daemon, signal.SIGKILL)
        assert agent.child.wait(DEADLINE_S) == 0
    with Conversation(tmp_path / "root") as agent:
        bridge = Bridge(agent.root)
        bridge.greet()
        bridge.stdin.write(b'{"id": 1, "method": "shutdown"}\n')
        bridge.stdin.flush()
        assert json.loads(bridge.stdout.readline())["result"] == {"stopping": True}
        assert bridge.end() == (0, b"")
        assert agent.child.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("patience_s", [0.5, 60.0])
def test_a_bridge_that_finds_no_room_at_a_daemon_waits_no_longer_than_its_client_or_its_patience(
    tmp_path: Path, patience_s: float
) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as stuck, contextlib.ExitStack() as stack:
        stuck.bind(f"/proc/self/fd/{stack.enter_context(opened(root))}/agent.sock")
        stuck.listen(1)
        for _ in range(2):
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(stuck.getsockname())
        bridge = stack.enter_context(
            subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-c",
                    f"import dtagent.daemon.dialling as b; b.KNOCK_S = {patience_s}\n{CONNECT}",
                    root,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        assert bridge.stdin is not None
        assert bridge.stderr is not None
        if patience_s > 1:
            wait_until(lambda: knocks(bridge.pid), "the bridge to knock")
            bridge.stdin.close()
            assert (bridge.wait(DEADLINE_S), bridge.stderr.read()) == (0, b"")
        else:
            assert bridge.wait(DEADLINE_S) == 1
            assert b"the daemon has not taken a connection for 0.5 s" in bridge.stderr.read()


CONNECT = """
import sys
from dtagent.cli import main
sys.exit(main(["connect", "--root", sys.argv[1]]))
"""


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def knocks(pid: int) -> bool:
    """Whether a process has made a socket."""
    return any(path.startswith("socket:") for path in open_files(pid))


def test_a_file_in_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    (root / "agent.sock").write_text("kept")
    command = [sys.executable, "-I", "-m", "dtagent", "connect", "--root", str(root)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    assert done.returncode == 1
    assert b"is in the way" in done.stderr
    assert (root / "agent.sock").read_text() == "kept"


def test_many_bridges_at_once_start_one_daemon(tmp_path: Path) -> None:
    root = tmp_path / "root"
    bridges = [
        subprocess.Popen(
            [sys.executable, "-I", "-m", "dtagent", "connect", "--root", str(root), "--idle-exit", "60"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(6)
    ]
    pids = set()
    for child in bridges:
        request = b'{"id": 1, "method": "hello", "params": {"versions": [1]}}\n'
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(request)
        child.stdin.flush()
        assert child.stdout.readline() == MAGIC
        pids.add(json.loads(child.stdout.readline())["result"]["pid"])
    os.kill(pids.pop(), signal.SIGTERM)
    assert not pids
    for child in bridges:
        with child:
            assert child.wait(DEADLINE_S) == 0


def test_a_bridge_reaches_a_daemon_though_the_one_before_has_lost_its_socket(tmp_path: Path) -> None:
    """It is in the way of another only until it has noticed; the bridge does not give up before that."""
    root = tmp_path / "root"
    first = Bridge(root)
    (root / "agent.sock").unlink()
    second = Bridge(root)
    second.greet()
    first.end()  # With its daemon.
    assert second.child.poll() is None
    subprocess.run([sys.executable, "-I", "-m", "dtagent", "stop", "--root", str(root)], check=True, timeout=120)
    second.end()


def test_who_has_the_socket_of_a_daemon_that_was_killed_is_not_taken_for_one(tmp_path: Path) -> None:
    """A process that a daemon was just starting has it for a moment: here until the test ends, or for 5 s."""
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    with subprocess.Popen([sys.executable, "-c", KILLED, str(root / "agent.sock")], stdin=subprocess.PIPE) as killed:
        killed.wait(30)
        bridge = Bridge(root)
        bridge.greet()
        subprocess.run([sys.executable, "-I", "-m", "dtagent", "stop", "--root", str(root)], check=True, timeout=120)
        bridge.end()


def test_a_daemon_that_cannot_start_is_told_with_where_its_reason_is(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "agent.sock").mkdir(parents=True)
    root.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-I", "-m", "dtagent", "connect", "--root", str(root)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert b"is in the way: it is no socket" in done.stderr
    assert str(root / "daemon.err").encode() in done.stderr
    assert f"{root / 'agent.sock'} is in the way" in (root / "daemon.err").read_text()
    assert "Traceback" not in (root / "daemon.err").read_text()
