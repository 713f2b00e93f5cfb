"""The agent in hostile and unlucky surroundings: others' files in its place, two users, few file handles."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dtagent.daemon import server
from dtagent.errors import RootError
from dtagent.locations import file_system_of, secure_root, socket_path

from tests.agent.conversation import Conversation
from tests.waiting import wait_until

USERS = (60101, 60102)
"""Nobody's uids."""


def connect(root: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-I", "-m", "dtagent", "connect", "--root", str(root)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )


def test_a_root_that_others_could_write_to_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(0o770)
    done = connect(root)
    assert done.returncode == 1
    assert b"others could write" in done.stderr


@pytest.mark.parametrize(("mode", "told"), [(0o755, "chmod 700"), (0o777, "choose another place"), (0o1777, "choose")])
def test_a_directory_that_is_open_to_others_is_refused_and_left_as_it_is(tmp_path: Path, mode: int, told: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(mode)
    with pytest.raises(RootError, match=told) as caught:
        secure_root(root)
    assert "remove" not in str(caught.value)
    assert stat.S_IMODE(root.stat().st_mode) == mode


def test_a_directory_of_other_things_is_refused_and_an_empty_one_or_the_agents_own_taken(tmp_path: Path) -> None:
    for name, content, is_taken in (("home", ".bashrc", False), ("empty", "", True), ("used", "jobs", True)):
        root = tmp_path / name
        root.mkdir(mode=0o700)
        if content:
            (root / content).mkdir()
        with contextlib.nullcontext() if is_taken else pytest.raises(RootError, match="holds other things"):
            secure_root(root)
        assert [path.name for path in root.iterdir()] == ([content] if content else [])


def test_a_root_below_a_directory_of_everybodys_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(RootError, match="others can exchange"):
        secure_root(tmp_path / "root")
    tmp_path.chmod(0o1777)
    secure_root(tmp_path / "root")


def test_a_root_anywhere_below_a_directory_of_everybodys_is_refused_and_that_one_named(tmp_path: Path) -> None:
    secure_root(tmp_path / "open/mine/root")
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(RootError, match=f"because {tmp_path}/open is open to them"):
        secure_root(tmp_path / "open/mine/root")
    (tmp_path / "way").symlink_to("open/mine")
    with pytest.raises(RootError, match=f"because {tmp_path}/open is open to them"):
        secure_root(tmp_path / "way/root")


@pytest.mark.lab
def test_a_root_by_way_of_another_users_link_is_refused(can_have_lab: None, open_directory: Path) -> None:
    secure_root(open_directory / "mine" / "root")
    for owner, led in (
        (0, contextlib.nullcontext()),
        (USERS[0], pytest.raises(RootError, match="others can exchange")),
    ):
        (open_directory / f"way{owner}").symlink_to("mine")
        os.chown(open_directory / f"way{owner}", owner, owner, follow_symlinks=False)
        with led:
            secure_root(open_directory / f"way{owner}" / "root")


def test_a_file_in_place_of_the_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").touch()
    done = connect(tmp_path / "root")
    assert done.returncode == 1
    assert done.stderr.startswith(b"dtagent: ")
    assert b"Traceback" not in done.stderr


def test_a_link_in_place_of_the_socket_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    root = secure_root(tmp_path / "root")
    socket_path(root).symlink_to(victim)
    with Conversation(root) as agent:
        assert agent.call("ping")
        assert stat.S_ISSOCK(socket_path(root).lstat().st_mode)
    assert victim.read_text() == "kept"


@pytest.mark.parametrize(("kind", "refused"), [("nfs4", True), ("fuse.sshfs", True), ("ext4", False), ("tmpfs", False)])
def test_a_network_file_system_is_told_by_the_deepest_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, refused: bool
) -> None:
    mountinfo = tmp_path / "mountinfo"
    here = str(tmp_path).replace("-", "\\055")  # As the kernel escapes spaces.
    mountinfo.write_text(
        f"20 1 0:19 / / rw - ext4 /dev/sda1 rw\n31 20 0:44 / {here} rw,relatime shared:1 - {kind} source rw\n"
    )
    assert file_system_of(tmp_path / "root", mountinfo) == kind
    monkeypatch.setattr("dtagent.locations.file_system_of", lambda path: file_system_of(path, mountinfo))
    with pytest.raises(RootError, match="network file system") if refused else contextlib.nullcontext():
        secure_root(tmp_path / "root")


def test_a_mount_point_is_known_by_its_name_whatever_letters_that_has(tmp_path: Path) -> None:
    mountinfo = tmp_path / "mountinfo"
    lines = [
        "20 1 0:19 / / rw - ext4 /dev/sda1 rw",
        "31 20 0:44 / /däta rw shared:1 - nfs4 server:/x rw",
        "32 20 0:45 / /数据\\040a\\134b rw - lustre server:/y rw",
        "33 20 0:46 / /\udcff rw - ceph server:/z rw",
        "half a line",
    ]
    mountinfo.write_bytes(os.fsencode("\n".join(lines)) + b"\n")
    assert [file_system_of(Path(name), mountinfo) for name in ("/däta/x", "/数据 a\\b/x", "/\udcff/x", "/data")] == [
        "nfs4",
        "lustre",
        "ceph",
        "ext4",
    ]


@pytest.mark.lab
def test_a_root_and_a_socket_of_another_user_are_refused(can_have_lab: None, open_directory: Path) -> None:
    other = open_directory / "other"
    other.mkdir(mode=0o700)
    os.chown(other, USERS[0], USERS[0])
    with pytest.raises(RootError, match=f"belongs to uid {USERS[0]}"):
        secure_root(other)
    root = secure_root(open_directory / "mine")
    with as_user(USERS[0], lambda: listen_at(open_directory / "planted.sock")):
        wait_until((open_directory / "planted.sock").exists, "the other's socket")
        (open_directory / "planted.sock").rename(socket_path(root))
        done = connect(root)
    assert done.returncode == 1
    assert f"uid {USERS[0]} listens on".encode() in done.stderr


@pytest.mark.lab
def test_two_users_each_have_a_daemon_that_the_other_cannot_touch(can_have_lab: None, open_directory: Path) -> None:
    roots = {uid: open_directory / f"dtagent-{uid}" for uid in USERS}
    with contextlib.ExitStack() as daemons:
        pids = {
            uid: daemons.enter_context(as_user(uid, lambda root=root: server.serve(root)))  # type: ignore[misc]  # mypy cannot tell a lambda's default
            for uid, root in roots.items()
        }
        for root in roots.values():
            wait_until(socket_path(root).exists, f"the daemon of {root}")
        first, second = USERS
        assert run_as(first, lambda: reach(roots[first], pids[first])) == 0b111
        assert run_as(second, lambda: reach(roots[first], pids[first])) == 0
        assert run_as(first, lambda: reach(roots[second], pids[second])) == 0


@pytest.mark.lab
def test_another_user_who_could_reach_the_socket_is_not_answered(can_have_lab: None, open_directory: Path) -> None:
    owner, other = USERS
    root = open_directory / f"dtagent-{owner}"
    with as_user(owner, lambda: server.serve(root)):
        wait_until(socket_path(root).exists, "the daemon to serve")
        root.chmod(0o755)
        socket_path(root).chmod(0o666)
        assert run_as(owner, lambda: greeted(root)) == 1
        assert run_as(other, lambda: greeted(root)) == 0
        assert greeted(root) == 1  # Root could do as it likes anyway.


def greeted(root: Path) -> int:
    """Return whether the daemon answers to this user."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(20)
        channel.connect(str(socket_path(root)))
        with contextlib.suppress(ConnectionError):
            channel.sendall(b'{"id": 0, "method": "hello", "params": {"versions": [1]}}\n')
            return int(b'"result"' in channel.recv(65536))
    return 0


def reach(root: Path, pid: int) -> int:
    """Return as bits whether this user can read the root, connect to its socket, and signal its daemon."""
    reached = 0
    with contextlib.suppress(PermissionError):
        list(root.iterdir())
        reached |= 1
    with contextlib.suppress(PermissionError), socket.socket(socket.AF_UNIX) as channel:
        channel.connect(str(socket_path(root)))
        reached |= 2
    with contextlib.suppress(PermissionError):
        os.kill(pid, 0)
        reached |= 4
    return reached


def listen_at(path: Path) -> int:
    made = path.with_suffix(".new")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(made))
        made.chmod(0o777)
        listener.listen()
        made.rename(path)
        signal.pause()
    return 0


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Give a place as /var/tmp is: every user may make files there, and none those of others go away."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o1777)
        yield Path(name)


@contextlib.contextmanager
def as_user(uid: int, act: Callable[[], int]) -> Iterator[int]:
    """Run a function in a child of another user, who may not be able to read this checkout; yield its pid."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.chdir("/")
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            status = act()
        finally:
            os._exit(status)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def run_as(uid: int, act: Callable[[], int]) -> int:
    with as_user(uid, act) as pid:
        return wait_until(lambda: ended(pid), "the other user's process to end") - 1


def ended(pid: int) -> int:
    """Return 1 + the exit status of a child that has ended, which stays a zombie; else 0."""
    done = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return 1 + done.si_status if done else 0


@pytest.mark.parametrize("handles", [32, 64])
def test_with_few_file_handles_the_agent_serves(tmp_path: Path, handles: int) -> None:
    with daemon_with(handles, tmp_path / "root") as agent:
        agent.prepare("few")
        agent.start("few", [["sh", "-c", "env -i setsid sleep 303 & exit 3"]])
        assert agent.end_of("few")["state"] == "ended"
        crowd = [Conversation(agent.root, keep_daemon=True) for _ in range(3)]
        assert agent.call("ping")
        for client in crowd:
            client.__exit__(None, None, None)


def test_with_too_few_file_handles_the_agent_says_so_and_starts_nothing(tmp_path: Path) -> None:
    with daemon_with(16, tmp_path / "root") as agent:
        agent.prepare("none")
        frame = {"key": {"job_id": "none", "attempt": 0}, "node_rank": 0, "processes": [], "ranks": []}
        reply = agent.ask("start", {**frame, "processes": [{"name": "0", "argv": ["true"], "cwd": "/"}]})
        assert "Too many open files" in reply["error"]["message"]
        assert agent.call("ping")


@contextlib.contextmanager
def daemon_with(handles: int, root: Path) -> Iterator[Conversation]:
    child = subprocess.Popen(
        [sys.executable, "-I", "-m", "dtagent", "daemon", "--root", str(root)],
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (handles, handles)),
    )
    try:
        wait_until(socket_path(root).exists, "the daemon to serve")
        with Conversation(root) as agent:
            yield agent
    finally:
        child.kill()
        child.wait()
