"""The `dtagent` command for a person at a shell: help, mistakes, and what the host lacks, each in one line."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from dtagent.errors import DtagentError
from dtagent.terminal import daemon_verbs

from tests.agent.conversation import Conversation
from tests.waiting import wait_until

DTAGENT = [sys.executable, "-I", "-m", "dtagent"]


def run(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    command = [*DTAGENT, *arguments]
    options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "stdout": subprocess.PIPE, **more}
    return subprocess.run(command, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload,no-any-return]  # options of a test


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["top", "--help"], ["daemon", "-h"], ["connect", "--help"]])
def test_help_is_a_result(arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: dtagent")


def test_help_names_the_usual_root() -> None:
    assert f"/var/tmp/dtagent-{os.getuid()}" in run("status", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "VERB"),
        (["nosuch"], "nosuch"),
        (["--bogus", "top"], "--bogus"),
        (["top", "extra"], "extra"),
        (["facts", "--jsn"], "--jsn"),
        (["top", "--root"], "expected one argument"),
        (["connect", "--root"], "expected one argument"),
        (["connect", "--bogus", "x"], "--bogus"),
        (["daemon", "--idle-exit", "abc"], "'abc' is no number of seconds"),
        (["daemon", "--idle-exit=-5"], "'-5' is no number of seconds"),
        (["daemon", "--idle-exit", "nan"], "'nan' is no number of seconds"),
        (["daemon", "--idle-exit", "0"], "'0' is no number of seconds"),
        (["connect", "--idle-exit", "0"], "'0' is no number of seconds"),
    ],
)
def test_what_was_wrong_is_said(arguments: list[str], told: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("verb", ["facts", "metrics", "top", "status"])
@pytest.mark.parametrize(("output", "told"), [("/dev/full", "No space left"), (None, "stdout is closed")])
def test_output_that_cannot_be_written_is_told_in_a_line(
    tmp_path: Path, verb: str, output: str | None, told: str
) -> None:
    redirection = f">{output}" if output else ">&-"
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "-", *DTAGENT, verb, "--root", str(tmp_path / "none")],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("dtagent: ")
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_connect_without_stdout_says_so() -> None:
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "-", *DTAGENT, "connect"], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"dtagent: stdin and stdout must be open: they lead to the client\n")


def test_a_daemon_without_standard_streams_keeps_its_lock(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with subprocess.Popen(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "-", *DTAGENT, "daemon", "--root", str(root)]
    ) as daemon:
        wait_until((root / "agent.sock").exists, "the daemon to serve")
        assert run("daemon", "--root", str(root)).returncode == 3
        assert run("stop", "--root", str(root)).returncode == 0
        assert daemon.wait(20) == 0


@pytest.mark.parametrize(("verb", "told"), [("daemon", "6 open files are not enough"), ("top", "Too many open files")])
def test_too_few_file_handles_are_told_in_a_line(tmp_path: Path, verb: str, told: str) -> None:
    done = run(
        verb,
        "--root",
        str(tmp_path / "root"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6)),
    )
    assert done.returncode == 1
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_width_that_is_no_number_is_no_width(tmp_path: Path) -> None:
    done = run("top", "--root", str(tmp_path / "none"), env={**os.environ, "COLUMNS": "abc"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "read here: no daemon runs in /" in done.stdout


class Served:
    """Stands in for the conversation with a daemon, which is any process here."""

    def __init__(self, process: subprocess.Popen[bytes], *, obeys: bool) -> None:
        self.hello = SimpleNamespace(pid=process.pid)
        self.close = lambda: None
        self.call = lambda *_: process.kill() if obeys else None


def test_a_stop_waits_for_the_process_and_says_where_another_daemon_came_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with subprocess.Popen(["sleep", "320"]) as process:
        monkeypatch.setattr(daemon_verbs, "END_S", 0.1)
        monkeypatch.setattr(daemon_verbs, "DaemonCalls", lambda _: Served(process, obeys=False))
        with pytest.raises(DtagentError, match=r"has not ended within 0\.1 s"):
            daemon_verbs.stop(tmp_path)
        monkeypatch.setattr(daemon_verbs, "END_S", 20.0)
        monkeypatch.setattr(daemon_verbs, "DaemonCalls", lambda _: Served(process, obeys=True))
        assert daemon_verbs.stop(tmp_path) == 0
    assert "has ended; another one serves by now" in capsys.readouterr().out
    os.close(lock)
    monkeypatch.setattr(daemon_verbs, "DaemonCalls", lambda _: Served(process, obeys=True))
    with pytest.raises(DtagentError, match="is not among the processes"):
        daemon_verbs.stop(tmp_path)


def test_status_and_stop_tell_of_the_daemon_and_start_none(tmp_path: Path) -> None:
    root = tmp_path / "root"
    at = ("--root", str(root))
    assert run("status", *at).returncode == 3
    assert not root.exists()
    with Conversation(root, keep_daemon=True) as agent:
        agent.prepare("held")
        agent.start("held", [["sleep", "300"]])
        pid = agent.call("hello", {"versions": [1]})["pid"]
        told = run("status", *at)
        assert told.returncode == 0
        assert f"serves {root}, pid {pid}" in told.stdout
        assert "job held, attempt 0 runs" in told.stdout
        stopped = run("stop", *at)
        assert (stopped.returncode, stopped.stderr) == (0, "")
        assert f"pid {pid}, has ended; jobs go on" in stopped.stdout
    assert "job held, attempt 0 runs" in run("status", *at).stdout
    assert "no daemon runs in" in run("stop", *at).stdout
    with Conversation(root) as agent:
        agent.stop("held", force=True)
        agent.end_of("held")
