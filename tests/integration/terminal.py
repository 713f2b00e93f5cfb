"""A real terminal for tests: tmux runs dttui, types keys and reads the screen."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until

DEADLINE_S = 90.0


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, directory: Path, columns: int, rows: int) -> None:
        self._directory = directory
        self._servers = 0
        self._tmux: list[str] = []
        self._size = ["-x", str(columns), "-y", str(rows)]

    def start(self, *arguments: str | Path) -> None:
        """Run dttui in the window of a new server."""
        self.run(sys.executable, "-m", "dttui", *arguments)

    def run(self, *command: str | Path) -> None:
        """Run a command in the window of a new server; one that is ending still holds its socket."""
        self._servers += 1
        self._tmux = ["tmux", "-S", str(self._directory / f"tmux{self._servers}"), "-f", "/dev/null"]
        self.tmux("new-session", "-d", *self._size, f"{shlex.join(map(str, command))}; echo left with $?; cat")

    def resize(self, columns: int, rows: int) -> None:
        """Have windows of another size from the next start on."""
        self._size = ["-x", str(columns), "-y", str(rows)]

    def press(self, *keys: str) -> None:
        """Type keys as tmux names them."""
        self.tmux("send-keys", *keys)

    def screen(self) -> str:
        """Return what is shown now."""
        return self.tmux("capture-pane", "-p")

    def colours(self) -> str:
        """Return the same with what its letters look like."""
        return self.tmux("capture-pane", "-p", "-e")

    def wait_for(self, text: str) -> str:
        """Wait until a text is shown; return the screen."""
        try:
            return wait_until(lambda: shown if text in (shown := self.screen()) else "", text, DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(f"{text!r} did not come; the screen is\n{self.screen()}") from error

    def close(self) -> None:
        """End the server and what runs in it."""
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True, timeout=120)

    def tmux(self, *arguments: str) -> str:
        """Run a command of tmux on it, and return what that prints."""
        # Not with what readline has put beside os.environ: COLUMNS and LINES of another terminal.
        env = dict(os.environ)
        done = subprocess.run(
            [*self._tmux, *arguments], check=True, capture_output=True, text=True, timeout=120, env=env
        )
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
