"""Jobs of shell lines that `recovery` starts again, what is asked of their events, and the hosts that they run on."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from dtagent.protocol.events import Event, EventKind

from dttui import jobs, locations
from dttui.inventory import load_inventory
from dttui.inventory.demo import demo_inventory
from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.launch.local_plan import make_local_plan
from dttui.launch.submit import submit
from dttui.planning.submission import Submission
from dttui.spec import load_document
from tests.integration.headless import DEADLINE_S, dttui, shell_job
from tests.lab.hosts import Lab
from tests.processes import ended_agents as ended_agents
from tests.waiting import wait_until

ONE, TWO, THREE = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
STEPS = (
    'echo began; if [ "$DTTUI_ATTEMPT" = 0 ]; then n=100000; i=0; else n=60; i=30; fi; '
    'while [ $i -lt $n ]; do i=$((i+1)); echo "{\\"step\\": $i}" >> "$DTTUI_METRICS"; sleep 0.1; done'
)
"""Counts steps without end in the first attempt; later ones go on at 31, and end."""


def launched(
    directory: Path, inventory: Inventory, nodes: dict[str, int], command: str, **recovery: Any
) -> JobDirectory:
    """Launch a job of shell lines with a section `recovery`, and leave it to its controller."""
    return submitted(shell_job(directory, nodes, command), inventory, **recovery)


def submitted(path: Path, inventory: Inventory, **recovery: Any) -> JobDirectory:
    """Do the same with a job's file."""
    document = yaml.safe_load(path.read_text())
    document["distributed_training"]["recovery"] = recovery
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    submission = Submission(load_document(path).job, inventory, path.parent)
    plan = make_local_plan(submission)
    assert plan.errors == (), plan.errors
    return submit(submission, plan, expects_client=False)


def ended(directory: JobDirectory, deadline_s: float = DEADLINE_S) -> list[Event]:
    """Wait for the end of a job; return its events, of which the last one is the outcome, once."""
    wait_until(directory.is_over, "the job to end", deadline_s)
    events = directory.read_events()
    assert [event.kind for event in events].count(EventKind.OUTCOME) == 1
    assert [event.seq for event in events] == list(range(len(events)))
    return events


def told(events: Sequence[Event]) -> list[tuple[int | None, str]]:
    return [(event.attempt, str(event.data["state"])) for event in events if event.kind is EventKind.JOB_STATE]


def restarts(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.data.get("state") == "RESTARTING"]


def comebacks(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.kind is EventKind.RESTARTED]


def findings(events: Sequence[Event]) -> list[tuple[str, str]]:
    return [(event.data["code"], event.data["subject"]) for event in events if event.kind is EventKind.FINDING]


def wait_for_step(directory: JobDirectory, step: int) -> None:
    def reached() -> bool:
        return directory.metrics.exists() and f'"step": {step},' in directory.metrics.read_text().replace("}", ",")

    wait_until(reached, f"step {step}: {told(directory.read_events())}", DEADLINE_S)


def demo() -> Inventory:
    return demo_inventory(locations.demo_root(), locations.shipped("examples"), sys.executable)


@pytest.fixture
def lab(deployed: Lab) -> Iterator[Lab]:
    yield deployed
    deployed.restore()
    for job in jobs.list_jobs():
        if not job.state.is_final:  # Of a test that failed: the next one wants the hosts.
            dttui("stop", job.job_id, "--force")


def on_hosts(lab: Lab, tmp_path: Path) -> Inventory:
    return load_inventory(lab.inventory(tmp_path / "inventory.yaml"))


def replacing(tmp_path: Path) -> dict[str, Any]:
    checkpoint = {"dir": "/tmp/checkpoints", "shared": True}
    return {"on_node_failure": "replace", "spares": ["gpu3"], "heartbeat_s": 5, "checkpoint": checkpoint}


def processes_of(lab: Lab, name: str, directory: JobDirectory) -> list[int]:
    mark = f"DTTUI_JOB_ID={directory.job_id}\0".encode()
    found = []
    proc = Path(f"/proc/{lab[name].pid}/root/proc")
    for entry in proc.iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if mark in environment:
                found.append(int(entry.name))
    return found
