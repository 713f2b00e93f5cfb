"""`dtagent top` and `dtagent metrics`: telemetry on this host's own terminal, which is left as it was found."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import shutil
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from pathlib import Path

from dtagent import __version__
from dtagent.errors import DtagentError
from dtagent.protocol.facts import HostFacts
from dtagent.system.interfaces import interface_toward
from dtagent.telemetry.prometheus import exposition
from dtagent.terminal.sample_source import DaemonCalls, DaemonSource, OwnSource, SampleSource, open_source
from dtagent.terminal.terminal_text import TerminalTraits, cut, printable
from dtagent.terminal.top_view import LEAST_WIDTH, render

REDRAW_S = 1.0
SEARCH_S = 5.0
"""Between two looks for a daemon, where there was none."""
ROUTE_S = 30.0
"""Between two looks at where the default route leads."""
PIPED_COLUMNS = 100
_OUTSIDE = ("192.0.2.1", "2001:db8::1")
"""Addresses of nobody (RFC 5737, RFC 3849): asked for a route, not sent to."""
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
    """Show the host until `q`; where stdout is no terminal, or one that cannot draw, once."""
    screen = _Screen(root)
    try:
        if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
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
        self._source: SampleSource | None = None
        self._facts: HostFacts | None = None
        self._host = _Proc()
        self._search: threading.Thread | None = None
        self._search_at = 0.0
        self._found: queue.SimpleQueue[SampleSource] = queue.SimpleQueue()

    def show_once(self) -> None:
        """Print one snapshot, whole and without escapes."""
        width = shutil.get_terminal_size((PIPED_COLUMNS, 0)).columns  # By COLUMNS, where that is a number.
        print("\n".join(self._lines(TerminalTraits(max(width, LEAST_WIDTH), None, False, _speaks_unicode()))))

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
        colour = "NO_COLOR" not in os.environ
        look = TerminalTraits(size.columns, max(size.lines, 2), colour, _speaks_unicode())
        try:
            lines = self._lines(look)
        except DtagentError as error:
            # The daemon went; the next turn finds another, or reads by itself.
            self.close()
            self._source = None
            lines = [cut(printable(f" {error}; one moment"), size.columns)]
        sys.stdout.write("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")
        sys.stdout.flush()

    def _lines(self, look: TerminalTraits) -> list[str]:
        self._follow_daemon()
        if self._source is None:
            self._source = open_source(self._root)
            self._facts = self._source.facts()
        sample = self._source.sample()
        if self._facts is None or (sample.gpus and not self._facts.gpus):
            self._facts = self._source.facts()
        return render(sample, self._facts, self._source.name, look, self._host)

    def _follow_daemon(self) -> None:
        """Go over to a daemon that has come since; one that is stuck is waited for aside."""
        if not isinstance(self._source, OwnSource):
            return
        if not self._found.empty():
            self._source.close()
            self._source = self._found.get()
        elif time.monotonic() >= self._search_at and not (self._search and self._search.is_alive()):
            self._search_at = time.monotonic() + SEARCH_S
            self._search = threading.Thread(target=self._seek, daemon=True)
            self._search.start()

    def _seek(self) -> None:
        with contextlib.suppress(DtagentError, OSError):
            self._found.put(DaemonSource(DaemonCalls(self._root)))


class _Proc:
    """What this host knows of its processes and routes."""

    def __init__(self) -> None:
        self._commands: dict[int, list[str]] = {}
        self._interface: str | None = None
        self._route_at = float("-inf")

    def command_of(self, pid: int) -> list[str]:
        """Return a process's command line, empty where it is gone."""
        if len(self._commands) > 4096:
            self._commands.clear()
        if pid not in self._commands:
            try:
                text = Path(f"/proc/{pid}/cmdline").read_bytes() or Path(f"/proc/{pid}/comm").read_bytes()
            except OSError:
                return []
            self._commands[pid] = text[:4096].decode(errors="replace").strip("\0\n").split("\0")
        return self._commands[pid]

    def interface(self) -> str | None:
        """Return the network interface of the default route."""
        if time.monotonic() >= self._route_at:
            self._route_at = time.monotonic() + ROUTE_S
            found = (interface_toward(address)[0] for address in _OUTSIDE)
            self._interface = next((name for name in found if name is not None), None)
        return self._interface


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
