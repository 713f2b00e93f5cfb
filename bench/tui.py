"""What the screen costs, in a real pseudo-terminal: `python bench/tui.py [--before DIR] [--only NAME …] [--rounds N]`.

Agents answer out of another process, whose cost does not count, nor does that of the way to it (`bench/tui_hosts.py`,
`bench/tui_subject.py`). `--before` names another checkout, which takes turns with this one: each figure is the median
of the rounds, and the last column tells how many times less this one takes. Shares of a core are of CPU time, times to
a frame of the clock: only on a quiet machine do these say what a person waits. `--check` exits with 1 where a figure of
this checkout is above what it may be.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.tui_hosts import facts_of  # noqa: E402 - of this checkout
from bench.tui_subject import COUNT, environment, name_of  # noqa: E402 - likewise
from dttui.fleet.last_known import keep_last_known  # noqa: E402 - likewise

ROWS, COLUMNS = 40, 120
DEADLINE_S = 90.0
THOUSAND = 1000
SETTLE_S = 5.0
"""Until what came with the start is over."""
KEYS = 30
KEY_PAUSE_S = 0.13
"""Between a frame and the next key."""
MIB = 1024 * 1024
SUBJECT, HOSTS = ROOT / "bench" / "tui_subject.py", ROOT / "bench" / "tui_hosts.py"

TARGETS = {
    "first frame: wall": ("s", 0.6),
    "first frame: CPU": ("s", None),
    "1,000 × 8 at 1 Hz: share of a core": ("%", 8.0),
    "1,000 × 8 at 1 Hz: to the terminal": ("kB/s", 20.0),
    "1,000 × 8 at 1 Hz: key to frame, p50": ("ms", None),
    "1,000 × 8 at 1 Hz: key to frame, p95": ("ms", 40.0),
    "1,000 × 8 at 1 Hz: memory": ("MiB", None),
    "1,000 × 8 at 1 Hz: growth of memory": ("MiB/min", None),
    **{
        f"10,000: {what}, {figure}": ("ms", most)
        for what in ("filter", "sort", "tick")
        for figure, most in (("p50", None), ("p95", 40.0), ("CPU, p50", None))
    },
    "run at 512 × 8: share of a core": ("%", 10.0),
    "run at 512 × 8: to the terminal": ("kB/s", 20.0),
    "run at 512 × 8: key to frame, p95": ("ms", None),
}
"""Figure → its unit, and what it may be at most."""
Figures = dict[str, float]


class Terminal:
    """The screen of a checkout in a terminal of its own."""

    def __init__(self, checkout: Path, arguments: list[str], home: Path) -> None:
        env = {
            **os.environ, "PYTHONPATH": f"{checkout}:{checkout / 'agent'}", "TERM": "xterm-256color", "LANG": "C.UTF-8",
            "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home / "config"),
            "COLORTERM": "truecolor", "DTTUI_LANG": "en",
        }  # fmt: skip
        self.began = time.monotonic()
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(checkout)
            os.execve(sys.executable, [sys.executable, *arguments], env)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.count = 0
        """Bytes that came so far."""
        self._text = ""

    def read(self, timeout_s: float) -> None:
        """Take what comes within a time."""
        if select.select([self._descriptor], [], [], timeout_s)[0]:
            try:
                data = os.read(self._descriptor, 1 << 16)
            except OSError:
                raise SystemExit(f"the screen has ended: {self._text[-2000:]}") from None
            self.count += len(data)
            self._text = (self._text + data.decode(errors="replace"))[-(1 << 18) :]

    def rest(self, seconds: float) -> None:
        """Take what comes for some time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.read(left)

    def wait(self, wanted: str) -> str:
        """Wait for a text that matches; return it."""
        deadline = time.monotonic() + DEADLINE_S
        while (found := re.search(wanted, self._text)) is None:
            if time.monotonic() > deadline:
                raise SystemExit(f"the screen does not show {wanted!r}: {self._text[-2000:]}")
            self.read(0.5)
        return found[0]

    def press(self, keys: str, wanted: str) -> tuple[float, float]:
        """Press keys; return milliseconds of clock and CPU until something is shown."""
        self._text = ""
        used, began = self.cpu_ns(), time.monotonic()
        os.write(self._descriptor, keys.encode())
        self.wait(wanted)
        return (time.monotonic() - began) * 1e3, (self.cpu_ns() - used) / 1e6

    def cpu_ns(self) -> int:
        """Return the CPU time of all threads so far."""
        return sum(
            int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{self.pid}/task").iterdir()
        )

    def memory_mib(self) -> float:
        """Return the memory that it alone has."""
        told = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        return sum(int(line.split()[1]) for line in told.splitlines() if line.startswith("Private_")) / 1024

    def close(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._descriptor)


@contextlib.contextmanager
def other_process(arguments: list[str], home: Path) -> Iterator[subprocess.Popen[str]]:
    """Run what makes hosts or jobs."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'agent'}", "XDG_STATE_HOME": str(home / "state")}
    process = subprocess.Popen([sys.executable, str(HOSTS), *arguments], env=env, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def said(process: subprocess.Popen[str]) -> str:
    """Return the next line of a process."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


class Hosts(NamedTuple):
    """A screen on hosts that answer."""

    terminal: Terminal
    own: Path
    told: Path

    def counts(self) -> tuple[int, int]:
        """Return the nanoseconds that the way to them has taken, and how many readings they have told."""
        own, told = (int.from_bytes(path.read_bytes(), sys.byteorder) for path in (self.own, self.told))
        return own, told


@contextlib.contextmanager
def on_hosts(checkout: Path, home: Path, hosts: int, interval_s: float) -> Iterator[Hosts]:
    """Show hosts of eight GPUs, once each has told its first reading, or most have had the time for it."""
    path, own, told = home / "hosts.sock", home / "own", home / "told"
    for file in (own, told):
        file.write_bytes(bytes(COUNT.size))
    with other_process(["agents", str(path), str(hosts), "8", str(interval_s), str(told)], home) as process:
        assert said(process) == "listening"
        terminal = Terminal(checkout, [str(SUBJECT), "agents", str(path), str(hosts), "8", str(own)], home)
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not select.select([process.stdout], [], [], 0)[0] and time.monotonic() < deadline:
                terminal.read(0.2)
            terminal.rest(SETTLE_S)
            yield Hosts(terminal, own, told)
        finally:
            terminal.close()


@contextlib.contextmanager
def on_silent_hosts(checkout: Path, home: Path, hosts: int) -> Iterator[Terminal]:
    """Show hosts that have not answered yet."""
    own = home / "own"
    own.write_bytes(bytes(COUNT.size))
    terminal = Terminal(checkout, [str(SUBJECT), "agents", "", str(hosts), "8", str(own)], home)
    try:
        terminal.wait(f"0 of {hosts} ticked")
        terminal.rest(SETTLE_S)
        yield terminal
    finally:
        terminal.close()


def quiet_share(terminal: Terminal, seconds: float) -> tuple[float, float]:
    """Return the share of a core and the kB a second of a screen to which nobody does anything."""
    began, used, count = time.monotonic(), terminal.cpu_ns(), terminal.count
    terminal.rest(seconds)
    took_s = time.monotonic() - began
    return (terminal.cpu_ns() - used) / 1e7 / took_s, (terminal.count - count) / 1e3 / took_s


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def first_frame(checkout: Path, home: Path, seconds: float) -> Figures:
    """Time the start until the hosts are shown as they were known last."""
    hosts = [environment(index, 8) for index in range(12)]
    os.environ["XDG_STATE_HOME"] = str(home / "state")
    keep_last_known((item, facts_of(index, 8)) for index, item in enumerate(hosts))
    listed = [f"  - {{name: {item.name}, host: {item.host}, port: 9, zone: {item.zone}}}\n" for item in hosts]
    inventory = home / "inventory.yaml"
    inventory.write_text("environments:\n" + "".join(listed))
    terminal = Terminal(checkout, ["-m", "dttui", "--inventory", str(inventory)], home)
    try:
        terminal.wait(name_of(len(hosts) - 1))
        wall_s = time.monotonic() - terminal.began
        return {"first frame: wall": wall_s, "first frame: CPU": terminal.cpu_ns() / 1e9}
    finally:
        terminal.close()


def thousand(checkout: Path, home: Path, seconds: float) -> Figures:
    """Show a thousand hosts that are read each second: what it takes, and how soon the cursor moves meanwhile."""
    what = "1,000 × 8 at 1 Hz: "
    with on_hosts(checkout, home, THOUSAND, 1.0) as hosts:
        terminal, before, (own_before, told_before) = hosts.terminal, hosts.terminal.memory_mib(), hosts.counts()
        used = terminal.cpu_ns()
        _share, rate = quiet_share(terminal, seconds)
        own, told = hosts.counts()
        # On a machine that leaves it too little time, fewer readings are asked for: what it would take of all counts.
        share = (terminal.cpu_ns() - used - (own - own_before)) / 1e7 / max(1, told - told_before) * THOUSAND
        growth = (terminal.memory_mib() - before) / seconds * 60
        times = []
        for index in range(1, KEYS + 1):  # Where the environment is stands in the detail of the one under the cursor.
            times.append(terminal.press("\x1b[B", rf"{name_of(index)}\.example\.org")[0])
            terminal.rest(KEY_PAUSE_S)
        return {
            f"{what}share of a core": share,
            f"{what}to the terminal": rate,
            f"{what}key to frame, p50": statistics.median(times),
            f"{what}key to frame, p95": p95(times),
            f"{what}memory": terminal.memory_mib(),
            f"{what}growth of memory": growth,
        }


def ten_thousand(checkout: Path, home: Path, seconds: float) -> Figures:
    """Filter, sort and tick ten thousand hosts."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with on_silent_hosts(checkout, home, 10_000) as terminal:
        terminal.press("/", "filter:")
        terminal.press("n", "n")
        for target in ("4711", "0815", "2718"):
            for index, key in enumerate(target):
                found["filter"].append(terminal.press(key, f"{10 ** (3 - index)} of 10000 shown"))
                terminal.rest(KEY_PAUSE_S)
            for index in range(3):
                found["filter"].append(terminal.press("\x7f", f"{10 ** (index + 1)} of 10000 shown"))
                terminal.rest(KEY_PAUSE_S)
            terminal.press("\x7f", "sorted by [^\x1b]+")
            terminal.rest(1.0)
        terminal.press("\x1b", "sorted by [^\x1b]+")
        terminal.rest(1.0)
        for _round in range(KEYS):
            found["sort"].append(terminal.press("s", "sorted by [^\x1b]+"))
            terminal.rest(KEY_PAUSE_S)
        terminal.rest(1.0)
        for index in range(1, KEYS + 1):
            found["tick"].append(terminal.press(" ", f"{index} of 10000 ticked"))
            terminal.rest(KEY_PAUSE_S)
            terminal.press("\x1b[B", r"n\d+\.example\.org")
            terminal.rest(KEY_PAUSE_S)
    figures: Figures = {}
    for what, times in found.items():
        walls, used = ([pair[place] for pair in times] for place in (0, 1))
        figures[f"10,000: {what}, p50"] = statistics.median(walls)
        figures[f"10,000: {what}, p95"] = p95(walls)
        figures[f"10,000: {what}, CPU, p50"] = statistics.median(used)
    return figures


def run_screen(checkout: Path, home: Path, seconds: float) -> Figures:
    """Watch a job of 512 nodes of eight ranks, of which each has a reading a second."""
    what = "run at 512 × 8: "
    with other_process(["job", "512", "8"], home) as process:
        job_id = said(process)
        assert said(process) == "ready"
        terminal = Terminal(checkout, [str(SUBJECT), "job", job_id], home)
        try:
            terminal.wait(name_of(2))
            terminal.rest(2 * SETTLE_S)
            share, rate = quiet_share(terminal, seconds)
            times = []
            for _round in range(KEYS // 2):
                for key, shown in (("3", "RUNNING|all ranks run"), ("1", "loss")):
                    times.append(terminal.press(key, shown)[0])
                    terminal.rest(KEY_PAUSE_S)
            return {
                f"{what}share of a core": share,
                f"{what}to the terminal": rate,
                f"{what}key to frame, p95": p95(times),
            }
        finally:
            terminal.close()


SCENES = {"first": first_frame, "thousand": thousand, "ten-thousand": ten_thousand, "run": run_screen}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout, to compare with")
    parser.add_argument("--only", nargs="+", choices=SCENES, default=list(SCENES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long a screen is watched; 600 for memory")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a figure is above what it may be")
    options = parser.parse_args()
    checkouts = {"before": options.before.resolve()} if options.before else {}
    checkouts["now"] = ROOT
    found: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in checkouts}
    for number in range(options.rounds):
        for scene in options.only:
            for name, checkout in checkouts.items():
                with tempfile.TemporaryDirectory(prefix="dttui-bench-") as home:
                    for figure, value in SCENES[scene](checkout, Path(home), options.seconds).items():
                        found[name][figure].append(value)
                print(f"round {number + 1}, {scene}, {name}: done", file=sys.stderr, flush=True)
    missed = []
    print(f"{'':46} {''.join(f'{name:>10}' for name in checkouts)}")
    for figure, (unit, most) in TARGETS.items():
        medians = [statistics.median(found[name][figure]) for name in checkouts if figure in found[name]]
        if not medians:
            continue
        told = "".join(f"{value:10.2f}" for value in medians)
        ratio = f"{medians[0] / medians[1]:8.1f} ×" if len(medians) > 1 and medians[1] > 0 else ""
        print(f"{figure:46} {told} {unit:7} {f'(at most {most:g})' if most else '':14}{ratio}")
        if most is not None and medians[-1] > most:
            missed.append(figure)
    if missed:
        print(f"above what it may be: {'; '.join(missed)}")
    sys.exit(1 if missed and options.check else 0)


if __name__ == "__main__":
    main()
