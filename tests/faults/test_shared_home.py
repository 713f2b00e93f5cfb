"""A job on hosts that share a home, are of one image, and whose usual place for the agent is another user's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dttui import jobs
from tests.integration.headless import dttui, shell_job
from tests.lab.fixtures import user_environment
from tests.lab.hosts import Lab
from tests.lab.shared import SHARED, share

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
DEADLINE_S = 60.0
USUAL = "/var/tmp/dtagent-0"
KEPT = f"{SHARED}/local"
"""What programs keep in a home; the rest of this machine's is too large to be copied, and the same on all hosts."""


@pytest.fixture
def hosts(can_have_lab: None) -> Iterator[Lab]:
    """Two hosts with root's home on one file system, where somebody else has the usual place."""
    with Lab(("gpu1", "gpu2"), user_python=user_environment()) as lab:
        share([*lab.values()])
        lab["gpu1"].run(["mkdir", KEPT])
        for host in lab.values():
            host.run(["sh", "-c", f"mkdir -p /root/.local && mount --bind {KEPT} /root/.local"])
            host.run(["sh", "-c", f"rm -rf {USUAL} && mkdir {USUAL} && chown 61001 {USUAL}"])
        yield lab


def test_each_host_has_an_agent_of_its_own_and_jobs_run_and_stop(hosts: Lab, tmp_path: Path) -> None:
    """Each verb within 60 s; nothing of one host's agent is lost as the other's is removed."""
    inventory = hosts.inventory(tmp_path / "inventory.yaml")
    done = dttui("agents", "deploy", "--inventory", inventory, deadline_s=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    kept = Path(f"/proc/{hosts['gpu1'].pid}/root{KEPT}/state/dtagent/roots")
    roots = [path.read_text().strip() for path in kept.iterdir()]
    assert len(set(roots)) == 2
    for host in hosts.values():
        there = [root for root in roots if not host.run(["test", "-e", root], check=False).returncode]
        assert len(there) == 1, "each has its own, and not the other's"
    job = shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, 'echo "$(hostname) $DTTUI_LOGS"; sleep 1')
    done = dttui("--apply", job, "--inventory", inventory, "--logs", "all", deadline_s=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    directory = jobs.find("last")
    written = [(directory.logs(0, name) / f"{rank}.out").read_text() for rank, name in enumerate(("gpu1", "gpu2"))]
    for line, name in zip(written, ("gpu1", "gpu2"), strict=True):
        shown, logs = line.split()
        assert shown == name
        assert any(logs.startswith(f"{root}/jobs/") for root in roots)
    assert len({line.split()[1].partition("/jobs/")[0] for line in written}) == 2

    job = shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, "sleep 600")
    started = dttui("--apply", job, "--inventory", inventory, "--new", "--detach", deadline_s=DEADLINE_S)
    assert started.returncode == 0, started.stderr
    stopped = dttui("stop", "last", "--force", deadline_s=DEADLINE_S)
    assert stopped.returncode == 0, stopped.stderr
    removed = dttui("agents", "remove", "gpu1", "--yes", "--inventory", inventory, deadline_s=DEADLINE_S)
    assert removed.returncode == 0, removed.stderr
    listed = dttui("envs", "--inventory", inventory, deadline_s=DEADLINE_S)
    assert "gpu2" in listed.stdout
    lines = {line.split()[1]: line for line in listed.stdout.splitlines() if line.split()[1:2]}
    assert "no agent" in lines["gpu1"]
    assert "no agent" not in lines["gpu2"]
