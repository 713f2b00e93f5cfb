"""Old supervisors under a new agent: a job goes on through an upgrade, is stopped, and all is removed."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.linger import unit_text

from dttui.fleet.deployment.deploy import deploy_all
from dttui.fleet.deployment.outcomes import AgentRemoval, AgentStatus, Deployment, Outcome
from dttui.fleet.deployment.remove import remove_all
from dttui.fleet.deployment.status import status_all
from dttui.fleet.deployment.wheel_source import WheelSource
from dttui.inventory.models import Environment
from dttui.inventory.reader import load_inventory
from dttui.transport.routes import Transports
from tests.integration.deploy_fixtures import Nobody
from tests.integration.headless import dttui, shell_job, wait_for_state
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.waiting import wait_until

ROOT = "/var/tmp/dtagent-0"


SEVEN_LINES = (
    "for i in 1 2 3; do echo line $i; done; until [ -e /tmp/go ]; do sleep 0.1; done; "
    "for i in 4 5 6 7; do echo line $i; done; exec sleep 600"
)


@pytest.fixture(scope="module")
def lab2(can_have_lab: None) -> Iterator[Lab]:
    with Lab(["gpu1", "gpu2"], bare={"gpu1", "gpu2"}) as lab:
        yield lab


@pytest.mark.lab
async def test_a_job_goes_on_through_an_upgrade_and_can_be_stopped_and_all_be_removed(
    lab2: Lab, source: WheelSource, newer: WheelSource, tmp_path: Path
) -> None:
    """Every wait within 120 s; neither a process of an agent nor a file of it is left on the hosts."""
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
    assert isinstance(first, AgentRemoval)
    assert isinstance(second, AgentRemoval)
    assert (first.removed, first.jobs_removed, first.kept) == (True, 1, ())
    assert (second.removed, second.jobs_removed, second.kept) == (True, 0, ())
    assert lab2["gpu2"].run(["ls", units]).stdout == b"other.service\n"
    for host in lab2.values():
        assert host.run(["test", "-e", ROOT], check=False).returncode == 1
        wait_until(functools.partial(has_nothing_of_an_agent, host), "what its connection had there to end", 60)


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


def has_nothing_of_an_agent(host: Host) -> bool:
    return not any("dtagent" in item.cmdline for item in host.processes())


def _supervisors(lab: Lab) -> list[tuple[int, str]]:
    return [(item.pid, item.cmdline) for item in lab["gpu1"].processes() if " supervise " in item.cmdline]
