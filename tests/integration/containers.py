"""What tests of containers share, whichever engine runs them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from dttui import jobs
from tests.integration.headless import dttui

WAIT = 'echo "runs $RANK"; while :; do sleep 0.1; done'


def start(path: Path) -> str:
    """Start a job on the embedded cluster, and return its id; by a process, which may be another user's."""
    done = dttui("--demo", "--apply", path, "--detach")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def kill_a_supervisor(job: str) -> None:
    """Kill what watches over a node of a job there."""
    told = next(Path(os.environ["DTTUI_DEMO_ROOT"]).glob(f"**/jobs/{job}/0/supervisor.json"))
    os.kill(json.loads(told.read_text())["pid"], signal.SIGKILL)


def log_of(job: str, node: str, name: str) -> str:
    """Return the copy of a log; nothing where there is none yet."""
    path = jobs.find(job).logs(0, node) / name
    return path.read_text() if path.exists() else ""
