"""Jobs that run under dttui and agents of before `services` was sorted into rooms: today's read, stop and upgrade them.

That version is had from the repository's own history, and runs by an interpreter of its own that finds nothing newer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dttui import jobs
from dttui.fleet.deployment.deploy import deploy_all
from dttui.fleet.deployment.outcomes import Deployment, Outcome
from dttui.fleet.deployment.wheel_source import WheelSource
from dttui.fleet.deployment.wheels import Requirement, build_agent_wheel
from dttui.transport.local import LocalTransport
from tests.integration.deploy_fixtures import Nobody, deploy_here, here
from tests.integration.headless import DEADLINE_S, dttui_here, result_of, shell_job, wait_for_state
from tests.processes import end_daemons, processes_like
from tests.waiting import wait_until

BEFORE = "cd5409e5~1"
REPOSITORY = Path(__file__).parents[2]


@dataclass
class Before:
    """A job that runs under the version of before, on this machine."""

    job: str
    inventory: Path
    root: Path
    """The agent's."""
    stop: Path
    """Once it is there, the job's rank ends by itself."""

    @property
    def directory(self) -> str:
        """The job's on the login node, an argument of the processes that control it."""
        return str(jobs.find(self.job).path)

    def lines(self) -> list[str]:
        """Return what the rank has printed, as `logs` tells it."""
        return [line.split()[-1] for line in dttui_here("logs", self.job).stdout.splitlines()]


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the packages of before, and an interpreter that has them and what they need."""
    revision = ["git", "-C", str(REPOSITORY), "archive", BEFORE, "dttui", "agent"]
    packed = subprocess.run(revision, capture_output=True, check=False)
    if packed.returncode != 0:
        (pytest.fail if os.environ.get("DTTUI_REQUIRE_LAB") == "1" else pytest.skip)(
            f"the history does not go that far back: {packed.stderr.decode().strip()[:200]}"
        )
    directory = tmp_path_factory.mktemp("before")
    subprocess.run(["tar", "-x", "-C", directory], input=packed.stdout, check=True)
    venv.create(directory / "venv", symlinks=True)
    site = directory / f"venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/before.pth"
    site.write_text(f"{directory}\n{directory / 'agent'}\n{sysconfig.get_path('purelib')}\n")
    return directory


@pytest.fixture
def before(code: Path, wheelhouse: Path, requirements: tuple[Requirement, ...], tmp_path: Path) -> Iterator[Before]:
    python, root, inventory = code / "venv/bin/python", tmp_path / "root", tmp_path / "inventory.json"
    agent = build_agent_wheel(requirements, code / "agent/dtagent")
    asyncio.run(deploy_here(root, WheelSource(wheelhouse, requirements, agent)))
    environment = {"name": "here", "host": "localhost", "local": True, "agent_root": str(root), "python": str(python)}
    inventory.write_text(json.dumps({"environments": [environment]}))
    stop = tmp_path / "stop"
    job = shell_job(tmp_path, {"here": 0}, f"echo first; while [ ! -e {stop} ]; do sleep 0.1; done; echo last")
    command = [str(python), "-m", "dttui", "--apply", str(job), "--inventory", str(inventory), "--detach"]
    started = subprocess.run(command, cwd=code, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert started.returncode == 0, started.stderr
    found = Before(started.stdout.strip(), inventory, root, stop)
    wait_for_state(found.job, "RUNNING")
    assert processes_like(str(python), found.directory)
    yield found
    stop.touch()
    dttui_here("stop", found.job, "--force")
    end_daemons(str(root))


def test_a_running_job_is_read_and_stopped(before: Before) -> None:
    shown = result_of(dttui_here("status", before.job, "--output", "json"))
    assert (shown["state"], [node["state"] for node in shown["nodes"]]) == ("RUNNING", ["running"])
    wait_until(lambda: before.lines() == ["first"], "what the rank prints", DEADLINE_S)
    stopped = dttui_here("stop", before.job)
    assert stopped.returncode == 0, stopped.stderr
    assert result_of(dttui_here("status", before.job, "--output", "json"))["state"] == "CANCELLED"


def test_its_agent_is_upgraded_and_its_controller_replaced_while_it_runs(
    before: Before, wheelhouse: Path, source: WheelSource
) -> None:
    (upgraded,) = asyncio.run(
        deploy_all([here(before.root)], LocalTransport(), Nobody(), source=source, only_upgrade=True)
    )
    assert isinstance(upgraded, Deployment)
    assert upgraded.outcome is Outcome.UPGRADED
    agents = dttui_here("agents", "status", "--inventory", before.inventory)
    assert "1 running" in agents.stdout, agents.stderr
    for controller in processes_like(before.directory):
        with contextlib.suppress(ProcessLookupError):  # What one has just forked looks like it until its exec.
            os.kill(controller, signal.SIGKILL)
    before.stop.touch()
    followed = dttui_here("attach", before.job)
    assert followed.returncode == 0, followed.stderr
    assert result_of(dttui_here("status", before.job, "--output", "json"))["state"] == "SUCCEEDED"
    assert before.lines() == ["first", "last"]
