"""A terminal that goes away without a signal: what was shown on it ends, and the job goes on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dttui import jobs
from dttui.errors import ExitCode
from tests.integration.headless import dttui, shell_job
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.waiting import wait_until

DEADLINE_S = 60.0
END_S = 30.0
"""Generous; it takes well below 2 s."""
HUNG_UP = 128 + signal.SIGHUP


class Window:
    """A pseudo-terminal, which no process has as its controlling one: nobody is sent a signal when it is closed."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        os.set_blocking(self._ours, False)
        self._shown = bytearray()

    def shows(self, text: str) -> bool:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._ours, 1 << 16):
                self._shown.extend(data)
        return text.encode() in self._shown

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def close(self) -> None:
        for descriptor in (self._ours, self.theirs):
            with contextlib.suppress(OSError):
                os.close(descriptor)


@pytest.fixture
def windows() -> Iterator[Callable[[], Window]]:
    opened: list[Window] = []

    def make() -> Window:
        opened.append(Window())
        return opened[-1]

    yield make
    for window in opened:
        window.close()


@contextlib.contextmanager
def shown_in(
    *arguments: str | Path, reads: Window, writes: Window, module: str = "dttui", ignores_hangup: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command on one terminal, or two."""

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    child = subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        stdin=reads.theirs,
        stdout=writes.theirs,
        stderr=writes.theirs,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
        preexec_fn=ignore if ignores_hangup else None,
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("gone", ["both", "keyboard", "picture"])
@pytest.mark.parametrize("ignores_hangup", [False, True])
def test_the_screen_ends_when_its_terminal_has_gone_without_a_signal(
    windows: Callable[[], Window], tmp_path: Path, gone: str, ignores_hangup: bool
) -> None:
    """Ended in 2 s (10 on a busy machine); nothing is left."""
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("environments: []\n")
    keyboard, picture = windows(), windows()
    with shown_in(
        "tui", "--inventory", inventory, reads=keyboard, writes=picture, ignores_hangup=ignores_hangup
    ) as child:
        wait_until(lambda: picture.shows("No environments yet"), "the screen", DEADLINE_S)
        for window, name in ((keyboard, "keyboard"), (picture, "picture")):
            if gone in (name, "both"):
                window.close()
        assert child.wait(END_S) in (HUNG_UP, -signal.SIGHUP)


@pytest.mark.parametrize("gone", ["both", "picture"])
@pytest.mark.parametrize("ignores_hangup", [False, True])
def test_top_ends_when_its_terminal_has_gone_without_a_signal(
    windows: Callable[[], Window], tmp_path: Path, gone: str, ignores_hangup: bool
) -> None:
    """Ended in 2 s (10 on a busy machine); nothing is left."""
    keyboard, picture = windows(), windows()
    with shown_in(
        "top", "--root", tmp_path, module="dtagent", reads=keyboard, writes=picture, ignores_hangup=ignores_hangup
    ) as child:
        wait_until(lambda: picture.shows("CPU"), "the screen", DEADLINE_S)
        for window, name in ((keyboard, "keyboard"), (picture, "picture")):
            if gone in (name, "both"):
                window.close()
        assert child.wait(END_S) in (0, 1)


def follow_until_gone(window: Window, *arguments: str | Path) -> int:
    """Run a command until it shows a job that runs, close its terminal, and return its exit status."""
    with shown_in(*arguments, reads=window, writes=window) as child:
        wait_until(lambda: window.shows("tick") or window.shows("RUNNING"), "the job", DEADLINE_S)
        window.close()
        return child.wait(END_S)


def test_who_follows_a_job_leaves_with_the_terminal_and_the_job_goes_on(
    windows: Callable[[], Window], tmp_path: Path
) -> None:
    """Left in 2 s (10 on a busy machine); the job and its controller stay."""
    job = shell_job(tmp_path, {"pytorch-dev-env": 1}, "echo tick; until [ -e end ]; do sleep 0.2; done; touch ended")
    done = dttui("--demo", "--apply", job, "--detach")
    job_id = done.stdout.strip()
    followers = (["--demo", "--apply", job], ["attach", job_id], ["logs", job_id, "--follow"])
    assert [follow_until_gone(windows(), *arguments) for arguments in followers] == [
        ExitCode.NOT_FINISHED,
        ExitCode.NOT_FINISHED,
        -signal.SIGHUP,
    ]
    assert dttui("status", job_id).returncode == ExitCode.NOT_FINISHED
    assert dttui("stop", job_id).returncode == 0


def test_a_question_whose_terminal_has_gone_is_not_answered(windows: Callable[[], Window], tmp_path: Path) -> None:
    """Given up in 2 s (10 on a busy machine); what was asked about stays."""
    window = windows()
    job = shell_job(tmp_path, {"pytorch-dev-env": 1}, "true")
    assert dttui("--demo", "--apply", job).returncode == 0
    kept = list(jobs.list_jobs())
    with shown_in("remove", kept[0].job_id, reads=window, writes=window, ignores_hangup=True) as child:
        wait_until(lambda: window.shows("[yes/no]"), "the question", DEADLINE_S)
        window.close()
        assert child.wait(END_S) != 0
    assert list(jobs.list_jobs()) == kept
