"""The screen where stderr is led to a file: it is painted on the terminal that is left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

from tests.waiting import wait_until

DEADLINE_S = 60.0


def test_the_screen_is_painted_on_the_terminal_and_errors_go_where_they_were_led(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("environments: []\n")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    os.set_blocking(ours, False)
    shown = bytearray()

    def shows(text: bytes) -> bool:
        with contextlib.suppress(BlockingIOError):
            shown.extend(os.read(ours, 1 << 16))
        return text in shown

    with (tmp_path / "errors").open("wb") as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", "dttui", "tui", "--inventory", str(inventory)],
            stdin=theirs,
            stdout=theirs,
            stderr=errors,
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,
        )
    try:
        wait_until(lambda: shows(b"No environments yet"), "the screen", DEADLINE_S)
        # Ctrl-Q, until it is heard: on a busy machine a screen is painted before it takes keys.
        wait_until(lambda: shows(b"") and os.write(ours, b"\x11") and child.poll() is not None, "the end", DEADLINE_S)
    finally:
        child.kill()
        child.wait()
        os.close(ours)
        os.close(theirs)
    assert child.returncode == 0
    assert (tmp_path / "errors").read_bytes() == b""
