"""CPU of verbs that look at a job that runs, and of the screen until hosts are on it: `python bench/startup.py [RUNS]`.

The verbs take turns with `import pydantic`, the yardstick, so that a busy machine makes all of them slower alike.
Another checkout is timed by `PYTHONPATH=/there:/there/agent`.
"""

from __future__ import annotations

import fcntl
import os
import pty
import resource
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.jobs.event_log import EventLog

YARDSTICK = ["-c", "import pydantic"]
HOST = "the-last-host"
INVENTORY = (
    f"environments:\n  - {{name: a, host: 127.0.0.1, port: 9}}\n  - {{name: {HOST}, host: 127.0.0.1, port: 9}}\n"
)
DEADLINE_S = 120.0


def cpu_s(arguments: list[str], env: dict[str, str]) -> float:
    """Return the CPU seconds of a Python with these arguments."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=env, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def frame_s(arguments: list[str], env: dict[str, str]) -> float:
    """Return the CPU seconds of a screen until the last host is on it."""
    process, terminal = pty.fork()
    if process == 0:
        os.execve(sys.executable, [sys.executable, *arguments], {**env, "TERM": "xterm-256color"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    shown, deadline = b"", time.monotonic() + DEADLINE_S
    try:
        while HOST.encode() not in shown:
            if time.monotonic() > deadline:
                raise SystemExit("the screen shows no hosts")
            if select.select([terminal], [], [], 0.01)[0]:
                shown += os.read(terminal, 65536)
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(terminal)


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "HOME": home, "XDG_STATE_HOME": f"{home}/state", "XDG_CONFIG_HOME": f"{home}/config"}
        inventory, empty = Path(home, "inventory.yaml"), Path(home, "empty.yaml")
        inventory.write_text(INVENTORY)
        empty.write_text("environments: []\n")
        job = Path(__file__).parent.parent / "examples" / "gpt" / "job.yaml"
        os.environ["XDG_STATE_HOME"] = env["XDG_STATE_HOME"]
        running = jobs.create("running")
        EventLog(running.events).add(EventKind.JOB_STATE, "all ranks run", data={"state": "RUNNING"})
        lock = running.claim()  # As its controller has it, until this process ends.
        assert lock is not None
        verbs = {
            "--version": ["--version"],
            "ps": ["ps"],
            "status": ["status", "running"],
            "logs": ["logs", "running"],
            "stop": ["stop", "running", "--dry-run"],
            "envs": ["envs", "--inventory", str(empty)],
            "validate": ["validate", str(job)],
        }
        times: dict[str, list[float]] = {name: [] for name in ("import pydantic", *verbs, "first frame")}
        for _run in range(runs):
            times["import pydantic"].append(cpu_s(YARDSTICK, env))
            for name, arguments in verbs.items():
                times[name].append(cpu_s(["-m", "dttui", *arguments], env))
            times["first frame"].append(frame_s(["-m", "dttui", "--inventory", str(inventory)], env))
    unit = statistics.median(times["import pydantic"])
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"{name:16} {middle * 1000:6.0f} ms  {middle / unit:5.1f} × import pydantic")


if __name__ == "__main__":
    main()
