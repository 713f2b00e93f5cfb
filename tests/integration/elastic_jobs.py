"""Elastic jobs of the embedded cluster for tests: written, started, killed in parts, and read."""

from __future__ import annotations

import os
import re
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtagent.locations import AttemptFiles
from dtagent.protocol.events import Event, EventKind, Metric

from dttui import jobs
from dttui.jobs import JobDirectory
from dttui.jobs.following import JobFollower
from tests.integration import elastic_training
from tests.integration.gangs import ONE, THREE, TWO
from tests.integration.headless import dttui, result_of, write_job
from tests.processes import parent_of, processes_like
from tests.waiting import wait_until

DEADLINE_S = 120.0
WAIT_S = 12
"""For the last node of a round: longer than a busy machine makes of the time between their imports of torch."""
NODES = {ONE: 1, TWO: 1, THREE: 2}


def elastic_job(directory: Path, nodes: dict[str, int] = NODES, *, steps: int = 20, pause_s: float = 0.0) -> Path:
    (directory / "checkpoints").mkdir()
    shutil.copy(elastic_training.__file__, directory / "train.py")
    return write_job(
        directory,
        nodes,
        framework="pytorch-ddp",
        framework_options={"elastic": {"min_nodes": 2, "wait_s": WAIT_S}},
        run={"script": "train.py", "workdir": ".", "args": [str(steps), str(pause_s)]},
        recovery={"checkpoint": {"dir": str(directory / "checkpoints"), "shared": True}},
    )


@dataclass
class Running:
    """A job that trains, and has a checkpoint."""

    directory: JobDirectory

    def kill_launcher(self, node: str) -> None:
        files = AttemptFiles.of(Path(os.environ["DTTUI_DEMO_ROOT"], node), self.directory.job_id, 0)
        found = processes_like(str(files.payload / "torchrun.py"))
        (pid,) = (pid for pid in found if parent_of(pid) not in {None, *found})  # Not what it has just forked.
        os.kill(pid, signal.SIGKILL)

    def end(self, deadline_s: float) -> dict[str, Any]:
        """Return the job's document once it is over, which is to be within so many seconds."""
        done = dttui("attach", self.directory.job_id, "--output", "json", deadline_s=deadline_s)
        return result_of(done)

    def events(self, kind: EventKind) -> list[Event]:
        return [event for event in self.directory.read_events() if event.kind is kind]


def start(job: Path) -> Running:
    done = dttui("--demo", "--apply", job, "--detach", "--output", "json")
    assert done.returncode == 0, done.stderr
    directory = jobs.find(result_of(done)["job_id"])
    kept = job.parent / "checkpoints" / f"{elastic_training.CHECKPOINT_EVERY}.pt"
    wait_until(kept.exists, "a checkpoint", DEADLINE_S)
    return Running(directory)


def follower_of(directory: JobDirectory) -> tuple[JobFollower, list[Metric]]:
    """Read a job to its newest event."""
    follower, found = JobFollower(directory), []
    while events := follower.poll():
        found += [Metric(**event.data) for event in events if event.kind is EventKind.METRIC]
    return follower, found


def ranks_that_torch_told(running: Running, node: str) -> set[int]:
    """Return the ranks that a node's processes printed to be, each to the log that is told to be its own."""
    found = set()
    for path in running.directory.logs(0, node).glob("*.out"):
        told = set(re.findall(r"local rank \d+ is rank (\d+) of", path.read_text()))
        assert told <= {path.stem}
        found |= {int(rank) for rank in told}
    return found
