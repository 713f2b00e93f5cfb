"""`dtagent top` and `dtagent metrics`: telemetry on this host's own terminal, which is left as it was found."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from pathlib import Path

from dtagent import __version__
from dtagent.errors import AgentError
from dtagent.local import Source, open_source
from dtagent.prometheus import exposition
from dtagent.protocol.telemetry import HostFacts
from dtagent.top_view import LEAST_WIDTH, Look, render

REDRAW_S = 1.0
PIPED_COLUMNS = 100
_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_QUIT = (b"q", b"Q", b"\x03", b"\x04", b"\x1b")


def metrics(root: Path) -> int:
    """Print the newest sample as Prometheus text."""
    source = open_source(root)
    try:
        sys.stdout.write(exposition(source.sample(), source.facts(), __version__))
    finally:
        source.close()
    return 0


def top(root: Path) -> int:
    """Show the host until `q`; where stdout is no terminal, once."""
    screen = _Screen(root)
    try:
        if not sys.stdout.isatty():
            screen.show_once()
            return 0
        with _raw_terminal():
            screen.run()
    finally:
        screen.close()
    return 0


class _Screen:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._source: Source | None = None
        self._facts: HostFacts | None = None
        self._commands: dict[int, str] = {}

    def show_once(self) -> None:
        """Print one snapshot, whole and without escapes."""
        width = int(os.environ.get("COLUMNS") or PIPED_COLUMNS)
        print("\n".join(self._lines(Look(max(width, LEAST_WIDTH), None, False, _speaks_unicode()))))

    def run(self) -> None:
        """Draw until somebody wants to leave."""
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGWINCH, lambda *_: None)
        keys = [0] if sys.stdin.isatty() else []
        while True:
            began = time.monotonic()
            self._draw()
            # A new size is drawn at once.
            left_s = max(0.05, REDRAW_S - (time.monotonic() - began))
            ready, _, _ = select.select([*keys, wake_read], [], [], left_s)
            if wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
            if 0 in ready:
                typed = os.read(0, 64)
                if not typed or typed in _QUIT:
                    return

    def close(self) -> None:
        """Let go of the source."""
        if self._source is not None:
            self._source.close()

    def _draw(self) -> None:
        size = shutil.get_terminal_size()
        colour = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        look = Look(size.columns, max(size.lines, 2), colour, _speaks_unicode())
        try:
            lines = self._lines(look)
        except AgentError as error:
            # The daemon went; the next turn finds another, or reads by itself.
            self.close()
            self._source = None
            lines = [f" {error}"[: size.columns]]
        sys.stdout.write("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")
        sys.stdout.flush()

    def _lines(self, look: Look) -> list[str]:
        if self._source is None:
            self._source = open_source(self._root)
            self._facts = self._source.facts()
        sample = self._source.sample()
        if self._facts is None or (sample.gpus and not self._facts.gpus):
            self._facts = self._source.facts()
        return render(sample, self._facts, self._source.name, look, self._command)

    def _command(self, pid: int) -> str:
        if len(self._commands) > 4096:
            self._commands.clear()
        if pid not in self._commands:
            try:
                text = Path(f"/proc/{pid}/cmdline").read_bytes() or Path(f"/proc/{pid}/comm").read_bytes()
            except OSError:
                return ""
            self._commands[pid] = text[:4096].replace(b"\0", b" ").decode(errors="replace").strip()
        return self._commands[pid]


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Take the whole screen and single keys; give all back, however this ends."""
    before = termios.tcgetattr(0) if sys.stdin.isatty() else None

    def enter() -> None:
        if before is not None:
            tty.setcbreak(0)
        sys.stdout.write(_ENTER)
        sys.stdout.flush()

    def leave() -> None:
        with contextlib.suppress(OSError, termios.error):  # The terminal may be gone.
            if before is not None:
                termios.tcsetattr(0, termios.TCSADRAIN, before)
            sys.stdout.write(_LEAVE)
            sys.stdout.flush()

    def pause(*_: object) -> None:
        leave()
        signal.raise_signal(signal.SIGSTOP)
        enter()

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    signal.signal(signal.SIGTSTP, pause)
    enter()
    try:
        yield
    finally:
        leave()


def _speaks_unicode() -> bool:
    return "utf" in (sys.stdout.encoding or "").lower()
