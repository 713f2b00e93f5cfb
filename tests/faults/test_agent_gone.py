"""An agent's directory removed under a running job, whole or in part: told as that, repaired, and stopped promptly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind

from dttui.services.jobs import JobDirectory
from tests.faults.leftovers import assert_nothing_is_left
from tests.faults.test_jobs_on_bad_links import launch, states_of, wait_for_node
from tests.integration.headless import dttui, result_of, shell_job
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.waiting import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

DEADLINE_S = 60.0
"""Of every wait for another state; a machine under load takes its time."""
STOP_S = 25.0
"""Of a stop, grace period and all; a host that cannot be reached is waited for twice as long."""
ROOT = "/var/tmp/dtagent-0"
SPEAKS = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.1; done"
ORPHANED = f"rm -rf {ROOT}; kill -9 $(pgrep -f 'dtagent [s]upervise')"


@pytest.fixture
def inventory(tmp_path_factory: pytest.TempPathFactory, deployed: Lab, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of hosts whose agents can be deployed anew from the wheels that they came from."""
    home = sorted(tmp_path_factory.getbasetemp().glob("deploy*"))[-1]
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return deployed.inventory(home / "again.yaml")


@pytest.fixture
def directory(inventory: Path, tmp_path: Path) -> Iterator[JobDirectory]:
    """Of a job whose two ranks print without end; others find the hosts as they were, whatever becomes of it."""
    directory = launch(inventory, shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, SPEAKS))
    wait_until(lambda: copy_of(directory).exists(), "the first lines", DEADLINE_S)
    try:
        yield directory
    finally:
        deploy(inventory)
        if not directory.is_over():
            dttui("stop", "--force", directory.job_id)


def copy_of(directory: JobDirectory) -> Path:
    return directory.logs(0, "gpu2") / "1.out"


def deploy(inventory: Path) -> None:
    done = dttui("agents", "deploy", "gpu2", "--inventory", inventory)
    assert done.returncode == 0, done.stderr


def ranks_on(host: Host, directory: JobDirectory) -> list[int]:
    mark = f"DTTUI_JOB_ID={directory.job_id}"
    done = host.run(["sh", "-c", f"grep -ls {mark} /proc/[0-9]*/environ"], check=False)
    return [int(path.split("/")[2]) for path in done.stdout.decode().split()]


def cut(host: Host) -> None:
    """Have every connection to a host ended, as by a short failure of the network."""
    sessions = [str(item.pid) for item in host.processes() if item.cmdline.startswith("sshd: root")]
    host.run(["kill", "-KILL", *sessions], check=False)


def assert_has_every_line_once(directory: JobDirectory) -> None:
    lines = copy_of(directory).read_text().splitlines()
    assert lines == [f"line {number}" for number in range(1, len(lines) + 1)]


@pytest.mark.parametrize(
    "removal",
    [
        pytest.param(f"rm -rf {ROOT}", id="all"),
        pytest.param(f"rm {ROOT}/current", id="current"),
        pytest.param(f"rm -rf {ROOT}/agents/*/bin", id="python"),
        pytest.param(f"rm {ROOT}/current; kill -9 $(pgrep -f 'dtagent [d]aemon')", id="daemon"),
    ],
)
def test_an_agent_that_is_gone_is_told_as_that_and_deployed_anew_under_the_running_job(
    deployed: Lab, inventory: Path, directory: JobDirectory, removal: str
) -> None:
    """Its host is not called silent; with the agent back no line is lost, and a stop ends the ranks within 25 s."""
    host = deployed["gpu2"]
    host.run(["sh", "-c", removal])
    cut(host)
    told = wait_for_node(directory, "gpu2", "agent_gone")
    assert "`dttui agents deploy gpu2`" in told.message
    status = dttui("status", directory.job_id)
    assert "`dttui agents deploy gpu2` brings it back" in status.stdout.splitlines()[0]
    assert len(ranks_on(host, directory)) > 0
    deploy(inventory)
    wait_for_node(directory, "gpu2", "running")
    length = copy_of(directory).stat().st_size
    wait_until(lambda: copy_of(directory).stat().st_size > length, "new lines", DEADLINE_S)
    stopped = dttui("stop", directory.job_id, deadline_s=STOP_S)
    assert stopped.returncode == 0, stopped.stderr
    assert [state.data["state"] for state in states_of(directory, "gpu2")][-1] == "stopped"
    assert directory.read_events()[-1].data == {"state": "CANCELLED", "exit_code": 103}
    assert_has_every_line_once(directory)
    assert_nothing_is_left(directory, deployed)


def test_a_stop_without_the_agent_is_prompt_and_says_what_to_do_and_does_it_after_that(
    deployed: Lab, inventory: Path, directory: JobDirectory
) -> None:
    """Within 25 s it says that the agent is gone; once there is one again, the next stop ends the ranks."""
    host = deployed["gpu2"]
    host.run(["rm", "-rf", ROOT])
    wait_for_node(directory, "gpu2", "agent_gone")
    stopped = dttui("stop", directory.job_id, deadline_s=STOP_S)
    assert stopped.returncode == 4, stopped.stderr
    assert "✗ not known to be stopped on gpu2: the agent is gone there" in stopped.stderr
    assert "→ `dttui agents deploy gpu2` brings it back." in stopped.stderr
    assert "with ssh" not in stopped.stderr
    diagnosed = result_of(dttui("diagnose", directory.job_id, "--output", "json"))
    assert (diagnosed["cause"]["code"], diagnosed["first_failure"]["node"]) == ("agent-gone", "gpu2")
    assert len(ranks_on(host, directory)) > 0
    deploy(inventory)
    again = dttui("stop", directory.job_id, deadline_s=STOP_S)
    assert again.returncode == 0, again.stderr
    assert states_of(directory, "gpu2")[-1].data["state"] == "stopped"
    assert ranks_on(host, directory) == []
    wait_until(lambda: not directory.has_controller(), "its controller to be done", DEADLINE_S)


@pytest.mark.parametrize("removed", ["jobs/*/0", "agent.sock"])
def test_a_part_of_the_directory_that_is_gone_is_made_anew_by_those_who_live(
    deployed: Lab, inventory: Path, directory: JobDirectory, removed: str
) -> None:
    """Nobody has to do anything, no line is lost, and a stop ends the ranks within 25 s."""
    host = deployed["gpu2"]
    host.run(["sh", "-c", f"rm -rf {ROOT}/{removed}"])
    host.run(["sh", "-c", f"until ls {ROOT}/{removed}; do sleep 0.2; done"]) if removed != "agent.sock" else cut(host)
    length = copy_of(directory).stat().st_size
    wait_until(lambda: copy_of(directory).stat().st_size > length, "new lines", DEADLINE_S)
    stopped = dttui("stop", directory.job_id, deadline_s=STOP_S)
    assert stopped.returncode == 0, stopped.stderr
    assert states_of(directory, "gpu2")[-1].data["state"] == "stopped"
    assert directory.read_events()[-1].data == {"state": "CANCELLED", "exit_code": 103}
    assert_has_every_line_once(directory)
    assert_nothing_is_left(directory, deployed)


def test_ranks_that_nobody_has_records_of_any_more_are_ended_by_their_marks(
    deployed: Lab, inventory: Path, directory: JobDirectory
) -> None:
    """Their supervisor is dead, too: within 60 s they have ended, and the job says what became of its records."""
    host = deployed["gpu2"]
    host.run(["sh", "-c", ORPHANED])
    wait_for_node(directory, "gpu2", "agent_gone")
    deploy(inventory)
    wait_until(directory.is_over, "the job to end", DEADLINE_S)
    wait_until(lambda: not directory.has_controller(), "its controller to be done", DEADLINE_S)
    assert ranks_on(host, directory) == []
    failures = [event for event in directory.read_events() if event.kind is EventKind.RANK_FAILED]
    assert [event.node for event in failures] == ["gpu2"]
    assert "its records on this host were removed" in failures[0].message
    assert_nothing_is_left(directory, deployed)
