"""Status, upgrade and removal of agents: over real SSH on isolated hosts with a job that runs, and on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import dtagent
import pytest
from dtagent.linger import unit_text
from dtagent.protocol.jobs import WarmReply, WarmRequest

from dttui.errors import AgentError, HostError, RefusedError
from dttui.inventory.models import Environment
from dttui.inventory.reader import load_inventory
from dttui.services.agent import AgentClient
from dttui.services.agents.deploy import Deployment, HostProbe, Outcome, agent_digest, deploy_all
from dttui.services.agents.remove import Removal, remove_all
from dttui.services.agents.status import AgentStatus, status_all
from dttui.services.agents.wheel_source import WheelSource
from dttui.services.agents.wheels import Requirement, build_agent_wheel
from dttui.transport.fake import FakeTransport
from dttui.transport.local import LocalTransport
from dttui.transport.routes import Transports
from tests.agent.conversation import processes_with
from tests.integration.deploy_fixtures import PROBE, Nobody, answering, here, is_gone, names
from tests.integration.headless import dttui, shell_job, wait_for_state
from tests.lab.hosts import Lab
from tests.processes import processes_like
from tests.waiting import until, wait_until

ROOT = "/var/tmp/dtagent-0"
SEVEN_LINES = (
    "for i in 1 2 3; do echo line $i; done; until [ -e /tmp/go ]; do sleep 0.1; done; "
    "for i in 4 5 6 7; do echo line $i; done; exec sleep 600"
)


@pytest.fixture
def newer(wheelhouse: Path, requirements: tuple[Requirement, ...], tmp_path: Path) -> WheelSource:
    """The same agent with one module more."""
    package = Path(shutil.copytree(Path(dtagent.__file__).parent, tmp_path / "newer" / "dtagent"))
    (package / "extra.py").write_text("new = True\n")
    return WheelSource(wheelhouse, requirements, build_agent_wheel(requirements, package))


@pytest.fixture(scope="module")
def lab2(can_have_lab: None) -> Iterator[Lab]:
    with Lab(["gpu1", "gpu2"], bare={"gpu1", "gpu2"}) as lab:
        yield lab


@pytest.mark.lab
async def test_a_job_goes_on_through_an_upgrade_and_can_be_stopped_and_all_be_removed(
    lab2: Lab, source: WheelSource, newer: WheelSource, tmp_path: Path
) -> None:
    inventory = lab2.inventory(tmp_path / "inventory.yaml")
    environments = list(load_inventory(inventory).environments)
    transport = Transports()
    try:
        await _upgrade_under_a_job(environments, transport, inventory, lab2, source, newer, tmp_path)
        units = "/run/user/0/systemd/user"
        text = unit_text(Path(ROOT), Path(f"{units}/dtagent.service.env"), []).encode()
        lab2["gpu2"].run(
            [
                "sh",
                "-c",
                f"mkdir -p {units}; cd {units}; cat > dtagent.service; touch dtagent.service.env other.service",
            ],
            text,
        )
        (first, second) = await remove_all(environments, transport, Nobody(), jobs=True, checkpoints=True)
    finally:
        await transport.close()
    assert isinstance(first, Removal)
    assert isinstance(second, Removal)
    assert (first.removed, first.jobs_removed, first.kept) == (True, 1, ())
    assert (second.removed, second.jobs_removed, second.kept) == (True, 0, ())
    assert lab2["gpu2"].run(["ls", units]).stdout == b"other.service\n"
    for host in lab2.values():
        assert host.run(["test", "-e", ROOT], check=False).returncode == 1
        assert [item for item in host.processes() if "dtagent" in item.cmdline] == []


async def _upgrade_under_a_job(
    environments: list[Environment],
    transport: Transports,
    inventory: Path,
    lab: Lab,
    source: WheelSource,
    newer: WheelSource,
    tmp_path: Path,
) -> None:
    for outcome in await deploy_all(environments, transport, Nobody(), source=source):
        assert isinstance(outcome, Deployment)
        assert outcome.outcome is Outcome.INSTALLED
    started = dttui("--apply", shell_job(tmp_path, {"gpu1": 1}, SEVEN_LINES), "--inventory", inventory, "--detach")
    assert started.returncode == 0, started.stderr
    job = started.stdout.strip()
    (before,) = await status_all(environments[:1], transport, Nobody(), source=source)
    assert isinstance(before, AgentStatus)
    assert before.state == "up-to-date"
    assert before.seen.daemon is not None
    assert before.seen.protocols == [1]
    assert before.seen.logout_kills is False
    assert [(item.job, item.state) for item in before.seen.attempts] == [(job, "running")]
    supervisors = _supervisors(lab)

    (upgraded, other) = await deploy_all(environments, transport, Nobody(), source=newer, only_upgrade=True)

    assert isinstance(upgraded, Deployment)
    assert isinstance(other, Deployment)
    assert (upgraded.outcome, upgraded.running, other.running) == (Outcome.UPGRADED, (job,), ())
    assert _supervisors(lab) == supervisors
    (after,) = await status_all(environments[:1], transport, Nobody(), source=newer)
    assert isinstance(after, AgentStatus)
    assert after.seen.daemon is not None
    assert after.seen.daemon.pid != before.seen.daemon.pid
    assert after.seen.daemon.digest == after.seen.probe.current == upgraded.digest
    assert [(item.digest, item.in_use) for item in after.seen.others] == [(before.seen.probe.current, True)]
    again = await deploy_all(environments[:1], transport, Nobody(), source=newer, only_upgrade=True)
    assert [item.outcome for item in again if isinstance(item, Deployment)] == [Outcome.UP_TO_DATE]
    lab["gpu1"].run(["touch", "/tmp/go"])
    expected = [f"line {number}" for number in range(1, 8)]
    wait_until(lambda: dttui("logs", job, "--rank", "0").stdout.splitlines() == expected, "all lines", 60)
    refused = dttui("agents", "remove", "gpu1", "--inventory", inventory, "--yes")
    assert refused.returncode == 2
    assert refused.stdout.splitlines()[1:] == [
        f"gpu1  refused  –        jobs run there: {job}",
        "1 host: 1 refused",
    ]
    assert _supervisors(lab) == supervisors
    stopped = dttui("stop", job)
    assert stopped.returncode == 0, stopped.stderr
    wait_for_state(job, "CANCELLED")
    assert dttui("logs", job, "--rank", "0").stdout.splitlines() == expected
    assert _supervisors(lab) == []


def _supervisors(lab: Lab) -> list[tuple[int, str]]:
    return [(item.pid, item.cmdline) for item in lab["gpu1"].processes() if " supervise " in item.cmdline]


@pytest.fixture
def running_job(tmp_path: Path) -> Iterator[str]:
    """A job with a file that is sent, on the first environment of the embedded cluster; its agent is left alone."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data.txt").write_text("sent")
    job_file = shell_job(tmp_path, {"pytorch-dev-env": 1}, "exec sleep 600", workdir="work")
    started = dttui("--demo", "--apply", job_file, "--detach")
    assert started.returncode == 0, started.stderr
    job = started.stdout.strip()
    yield job
    dttui("stop", job, "--force")
    wait_until(lambda: processes_with(f"DTTUI_JOB_ID={job}") == [], "the job to be gone", 60)


def test_removal_by_force_stops_the_job_and_leaves_checkpoints_alone_until_told(running_job: str) -> None:
    root = Path(os.environ["DTTUI_DEMO_ROOT"], "pytorch-dev-env")
    attempt = root / "jobs" / running_job / "0"
    (attempt / "checkpoints" / "model.pt").write_text("weights")
    arguments = ("agents", "remove", "pytorch-dev-env", "--demo")

    assert any((root / "store").iterdir())
    unasked = dttui(*arguments)
    refused = dttui(*arguments, "--yes", "--output", "jsonl")
    forced = dttui(*arguments, "--yes", "--force", "--jobs", "--output", "jsonl")
    left = [path for path in root.rglob("*") if path.is_file()]
    emptied = dttui(*arguments, "--yes", "--jobs", "--checkpoints", "--output", "jsonl")

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
    done = dttui("agents", "status", "--inventory", inventory)
    assert done.returncode == 4, done.stderr
    header, first, second, third, total = done.stdout.splitlines()
    assert third.split()[:7] == ["down", "unreachable", "–", "–", "–", "–", "down"]
    assert header.split() == ["HOST", "STATE", "VERSION", "PYTHON", "DAEMON", "JOBS", "NOTE"]
    assert first.split()[:2] == ["here", "outdated"]
    assert f"{dtagent.__version__} (protocol 1)" in first
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
        client = await AgentClient.connect(here(host), LocalTransport(), Nobody(), 20)
        try:
            request = WarmRequest(sys.executable, {"PYTHONPATH": str(tmp_path)})
            return (await client.call("warm", request, WarmReply)).pid or 0
        finally:
            await client.close()

    first = await keep()
    assert first in processes_like("/", str(Path(dtagent.__file__).parent / "payload/warm.py"))
    row = dttui("agents", "status", "--inventory", inventory).stdout.splitlines()[1]
    assert re.search(r"keeps torch imported for warm starts: \d+ MiB", row)

    (upgraded,) = await deploy_all([here(host)], LocalTransport(), Nobody(), source=newer, only_upgrade=True)
    assert isinstance(upgraded, Deployment)
    await until(lambda: first not in processes_like("/"), "the upgrade to end it")

    second = await keep()
    (removed,) = await remove_all([here(host)], LocalTransport(), Nobody())
    assert isinstance(removed, Removal)
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
    (outcome,) = await remove_all([here(host)], LocalTransport(), Nobody())
    assert isinstance(outcome, Removal)
    assert outcome.removed
    assert is_gone(host)


async def test_what_is_not_ours_stays_and_is_named(host: Path) -> None:
    (host / "notes.txt").write_text("mine")
    (outcome,) = await remove_all([here(host)], LocalTransport(), Nobody())
    assert isinstance(outcome, Removal)
    assert outcome.kept == (str(host / "notes.txt"),)
    assert names(host) == {"notes.txt"}


def test_the_digest_tells_whether_an_agent_is_the_one_of_this_dttui(source: WheelSource, newer: WheelSource) -> None:
    probe = HostProbe(**PROBE)
    assert agent_digest(source, probe) != agent_digest(newer, probe)


def test_checkpoints_are_removed_only_along_with_the_jobs() -> None:
    done = dttui("agents", "remove", "--demo", "--yes", "--checkpoints")
    assert done.returncode == 2
    assert "--jobs" in done.stderr
