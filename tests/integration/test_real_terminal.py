"""The screen in a real terminal: tmux types the keys and reads what is shown, from ticking boxes to the end of a job."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.headless import example_job
from tests.waiting import wait_until

DEADLINE_S = 90.0


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, directory: Path, columns: int, rows: int) -> None:
        self._tmux = ["tmux", "-S", str(directory / "tmux"), "-f", "/dev/null"]
        self._size = ["-x", str(columns), "-y", str(rows)]

    def start(self, *arguments: str | Path) -> None:
        """Run dttui in the window."""
        command = shlex.join([sys.executable, "-m", "dttui", *map(str, arguments)])
        self._run("new-session", "-d", *self._size, f"{command}; echo left with $?; cat")

    def press(self, *keys: str) -> None:
        """Type keys as tmux names them."""
        self._run("send-keys", *keys)

    def screen(self) -> str:
        """Return what is shown now."""
        return self._run("capture-pane", "-p")

    def wait_for(self, text: str) -> str:
        """Wait until a text is shown; return the screen."""
        try:
            return wait_until(lambda: shown if text in (shown := self.screen()) else "", text, DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(f"{text!r} did not come; the screen is\n{self.screen()}") from error

    def close(self) -> None:
        """End the server and what runs in it."""
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True, timeout=30)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([*self._tmux, *arguments], check=True, capture_output=True, text=True, timeout=30)
        return done.stdout


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        reason = "needs tmux: apt install tmux"
        pytest.fail(reason) if os.environ.get("DTTUI_REQUIRE_LAB") == "1" else pytest.skip(reason)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    opened = Terminal(tmp_path, 120, 40)
    yield opened
    opened.close()


@pytest.mark.torch
def test_boxes_are_ticked_a_job_is_launched_and_followed_to_its_end(terminal: Terminal, tmp_path: Path) -> None:
    job = example_job(tmp_path, {}, "--steps", "20", "--log-every", "5")
    job.write_text(job.read_text() + "  resources: {gpu: {count: 1}}\n")
    terminal.start("tui", job, "--demo")
    terminal.wait_for("idle")
    assert "0 of 3 ticked" in terminal.screen()
    terminal.press("Space")
    terminal.wait_for("1 of 3 ticked")
    assert "Master" not in terminal.screen()
    terminal.press("Down", "Space")
    shown = terminal.wait_for("2 of 3 ticked")
    assert "★ pytorch-dev-env" in shown
    terminal.press("Down", "Space", "m")
    terminal.wait_for("★ nlp-research-lab")
    terminal.press("C-l")
    terminal.wait_for("RUNNING")
    shown = terminal.wait_for("SUCCEEDED")
    assert "★ nlp-research-lab" in shown
    assert "step 20" in shown
    terminal.press("2")
    terminal.wait_for("world size 3")
    terminal.press("C-q")
    terminal.wait_for("left with 0")
