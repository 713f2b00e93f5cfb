"""Status, upgrade and removal of agents: over real SSH on isolated hosts with a job that runs, and on this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import dtagent
import pytest
from dtagent.protocol.warm_start import WarmReply, WarmRequest

from dttui import jobs
from dttui.errors import AgentError, HostError, RefusedError
from dttui.fleet.deployment.deploy import agent_digest, deploy_all
from dttui.fleet.deployment.outcomes import AgentRemoval, Deployment, Outcome
from dttui.fleet.deployment.remove import remove_all
from dttui.fleet.deployment.wheel_source import WheelSource
from dttui.inventory.models import Environment
from dttui.rpc.client import AgentClient
from dttui.transport.local import LocalTransport
from tests.agent.conversation import processes_with
from tests.fake_transport import FakeTransport
from tests.integration.deploy_fixtures import PROBE, Nobody, answering, deploy_far, here, is_gone, names
from tests.integration.headless import dttui, dttui_here, shell_job
from tests.processes import controller_of, processes_like
from tests.waiting import PATIENCE_S, until, wait_until

ROOT = "/var/tmp/dtagent-0"


@pytest.fixture
def running_job(tmp_path: Path) -> Iterator[str]:
    """A job with a file that is sent, on the first environment of the embedded cluster; its agent is left alone."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data.txt").write_text("sent")
    job_file = shell_job(tmp_path, {"pytorch-dev-env": 1}, "exec sleep 600", workdir="work")
    started = dttui_here("--demo", "--apply", job_file, "--detach")
    assert started.returncode == 0, started.stderr
    job = started.stdout.strip()
    yield job
    dttui_here("stop", job, "--force")
    wait_until(lambda: processes_with(f"DTTUI_JOB_ID={job}") == [], "the job to be gone", 60)


def test_removal_by_force_stops_the_job_and_leaves_checkpoints_alone_until_told(running_job: str) -> None:
    root = Path(os.environ["DTTUI_DEMO_ROOT"], "pytorch-dev-env")
    attempt = root / "jobs" / running_job / "0"
    (attempt / "checkpoints" / "model.pt").write_text("weights")
    arguments = ("agents", "remove", "pytorch-dev-env", "--demo")

    assert any((root / "store").iterdir())
    controller = controller_of(jobs.find(running_job).path)
    os.kill(controller, signal.SIGKILL)  # It would bring the agent back, which is here whatever is removed.
    unasked = dttui_here(*arguments)
    refused = dttui_here(*arguments, "--yes", "--output", "jsonl")
    forced = dttui_here(*arguments, "--yes", "--force", "--jobs", "--output", "jsonl")
    left = [path for path in root.rglob("*") if path.is_file()]
    emptied = dttui_here(*arguments, "--yes", "--jobs", "--checkpoints", "--output", "jsonl")

    assert (unasked.returncode, unasked.stdout) == (2, "")
    assert "--yes" in unasked.stderr
    assert (refused.returncode, json.loads(refused.stdout)["outcome"]) == (2, "refused")
    assert forced.returncode == 0, forced.stderr
    row = json.loads(forced.stdout)
    assert (row["stopped"], row["jobs_removed"], row["kept"]) == ([running_job], 1, [str(root / "jobs")])
    assert processes_with(f"DTTUI_JOB_ID={running_job}") == []
    assert left == [attempt / "checkpoints" / "model.pt"]
    assert (emptied.returncode, json.loads(emptied.stdout)["kept"]) == (0, [])
    assert not root.exists()


def test_status_starts_no_daemon_and_prints_a_row_a_host(host: Path, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.json"
    document = {"name": "here", "host": "localhost", "local": True, "agent_root": str(host)}
    empty = {**document, "name": "空的", "agent_root": str(tmp_path / "none")}
    down = {"name": "down", "host": "127.0.0.1", "port": 1}
    inventory.write_text(json.dumps({"environments": [document, empty, down]}))
    done = dttui_here("agents", "status", "--inventory", inventory)
    assert done.returncode == 4, done.stderr
    header, first, second, third, total = done.stdout.splitlines()
    assert third.split()[:7] == ["down", "unreachable", "–", "–", "–", "–", "down"]
    assert header.split() == ["HOST", "STATE", "VERSION", "PYTHON", "DAEMON", "JOBS", "NOTE"]
    assert first.split()[:2] == ["here", "outdated"]
    assert f"{dtagent.__version__} (protocol 1)" in first
    assert "of this version, but with other files than this dttui's: dttui agents upgrade" in first
    assert second.startswith("空的  no agent")
    assert total == "3 hosts: 1 outdated · 1 no agent · 1 unreachable"
    assert not (host / "agent.sock").exists()


async def test_what_is_kept_for_warm_starts_is_in_its_row_and_ends_with_upgrade_and_removal(
    host: Path, newer: WheelSource, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("import signal\nsignal.pause()\n")
    inventory = tmp_path / "inventory.json"
    document = {"name": "here", "host": "localhost", "local": True, "agent_root": str(host)}
    inventory.write_text(json.dumps({"environments": [document]}))

    async def keep() -> int:
        client = await AgentClient.connect(here(host), LocalTransport(), Nobody(), PATIENCE_S)
        try:
            request = WarmRequest(sys.executable, {"PYTHONPATH": str(tmp_path)})
            return (await client.call("warm", request, WarmReply)).pid or 0
        finally:
            await client.close()

    first = await keep()
    assert first in processes_like("/", str(Path(dtagent.__file__).parent / "payload/warm.py"))
    row = dttui("agents", "status", "--inventory", inventory).stdout.splitlines()[1]  # A loop runs here already.
    assert re.search(r"keeps torch imported for warm starts: \d+ MiB", row)

    (upgraded,) = await deploy_all([here(host)], LocalTransport(), Nobody(), source=newer, only_upgrade=True)
    assert isinstance(upgraded, Deployment)
    await until(lambda: first not in processes_like("/"), "the upgrade to end it")

    second = await keep()
    (removed,) = await remove_all([here(host)], LocalTransport(), Nobody())
    assert isinstance(removed, AgentRemoval)
    await until(lambda: second not in processes_like("/"), "the removal to end it")


async def test_a_newer_agent_is_replaced_only_where_that_is_allowed(source: WheelSource) -> None:
    newer = answering({"result": {**PROBE, "current": "0123456789abcdef", "version": "99.1"}})
    environment = Environment(name="far", host="192.0.2.1")

    (refused,) = await deploy_all(
        [environment], FakeTransport({"far": newer}), Nobody(), source=source, allow_downgrade=False
    )

    assert isinstance(refused, RefusedError)
    assert "99.1" in refused.message
    assert "--yes" in refused.hint


async def test_another_interpreter_of_jobs_in_the_inventory_makes_no_agent_outdated(source: WheelSource) -> None:
    conda = {"executable": "/opt/conda/bin/python", "python": "3.13.0", "has_venv": False}
    there = {"current": agent_digest(source, "x86_64"), "version": dtagent.__version__}
    done = await deploy_far(answering({"result": {**PROBE, **conda, **there}}), source)
    assert done.outcome is Outcome.UP_TO_DATE


async def test_upgrade_changes_nothing_where_there_is_no_agent(source: WheelSource, tmp_path: Path) -> None:
    (outcome,) = await deploy_all(
        [here(tmp_path / "root")], LocalTransport(), Nobody(), source=source, only_upgrade=True
    )
    assert isinstance(outcome, AgentError)
    assert "agents deploy here" in outcome.hint
    assert is_gone(tmp_path / "root")


@pytest.mark.parametrize("answer", [{"result": {}}, {"result": {"probe": {}, "attempts": "many"}}, {"refusal": "?"}])
async def test_a_host_that_answers_nonsense_is_told_and_nothing_is_removed(answer: dict[str, object]) -> None:
    transport = FakeTransport({"far": answering(answer)})
    (outcome,) = await remove_all([Environment(name="far", host="192.0.2.1")], transport, Nobody())
    assert isinstance(outcome, HostError)
    assert outcome.message.startswith("far: ")


async def test_removal_of_a_broken_agent_leaves_nothing(host: Path) -> None:
    (host / "current" / "bin" / "python").unlink()
    (host / "removed" / "job").mkdir(parents=True)  # What a daemon had only begun to remove.
    (outcome,) = await remove_all([here(host)], LocalTransport(), Nobody())
    assert isinstance(outcome, AgentRemoval)
    assert outcome.removed
    assert is_gone(host)


async def test_what_is_not_ours_stays_and_is_named(host: Path) -> None:
    (host / "notes.txt").write_text("mine")
    (outcome,) = await remove_all([here(host)], LocalTransport(), Nobody())
    assert isinstance(outcome, AgentRemoval)
    assert outcome.kept == (str(host / "notes.txt"),)
    assert names(host) == {"notes.txt"}


def test_the_digest_tells_whether_an_agent_is_the_one_of_this_dttui(source: WheelSource, newer: WheelSource) -> None:
    assert agent_digest(source, "x86_64") != agent_digest(newer, "x86_64")


def test_checkpoints_are_removed_only_along_with_the_jobs() -> None:
    done = dttui_here("agents", "remove", "--demo", "--yes", "--checkpoints")
    assert done.returncode == 2
    assert "--jobs" in done.stderr
