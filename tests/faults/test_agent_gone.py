"""An agent's directory removed under a running job, whole or in part: told as that, repaired, and stopped promptly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind

from dttui.jobs import JobDirectory
from tests.faults.leftovers import assert_nothing_is_left
from tests.faults.test_jobs_on_bad_links import launch, states_of, wait_for_node
from tests.integration.headless import dttui, dttui_here, result_of, shell_job
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
REMOVALS = (
    {"gpu1": f"rm {ROOT}/current", "gpu2": f"until rm -rf {ROOT}; do sleep 0.1; done"},
    {
        "gpu1": f"rm {ROOT}/current; kill -9 $(pgrep -f 'dtagent [d]aemon')",
        "gpu2": f"rm -rf {ROOT}/agents/*/bin",
    },
)
"""One after the other, on two hosts at a time: the link to the version in use, all, the daemon too, its interpreter."""
ORPHANED = (
    "s=$(pgrep -f 'dtagent [s]upervise'); kill -STOP $s;"  # Else it may make its records anew before it is killed.
    f" until rm -rf {ROOT}; do sleep 0.1; done; kill -9 $s"
)


@pytest.fixture
def inventory(tmp_path_factory: pytest.TempPathFactory, deployed: Lab, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of hosts whose agents can be deployed anew from the wheels that they came from."""
    home = sorted(tmp_path_factory.getbasetemp().glob("deploy*"))[-1]
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return deployed.inventory(home / "again.yaml")


@pytest.fixture
def directory(deployed: Lab, inventory: Path, tmp_path: Path) -> Iterator[JobDirectory]:
    """Of a job whose two ranks print without end; others find the hosts as they were, whatever becomes of it."""
    directory = launch(inventory, shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, SPEAKS))
    wait_until(lambda: all(copy.exists() for copy in copies_of(directory)), "the first lines", DEADLINE_S)
    try:
        yield directory
    finally:
        lacking = [name for name in ("gpu1", "gpu2") if not has_agent(deployed[name])]
        if lacking:
            deploy(inventory, *lacking)
        if not directory.is_over():
            dttui("stop", "--force", directory.job_id)


def copies_of(directory: JobDirectory) -> list[Path]:
    return [directory.logs(0, "gpu1") / "0.out", directory.logs(0, "gpu2") / "1.out"]


def has_agent(host: Host) -> bool:
    return not host.run(["test", "-x", f"{ROOT}/current/bin/python"], check=False).returncode


def deploy(inventory: Path, *hosts: str) -> None:
    done = dttui_here("agents", "deploy", *hosts, "--inventory", inventory)
    assert done.returncode == 0, done.stderr


def ranks_on(host: Host, directory: JobDirectory) -> list[int]:
    mark = f"DTTUI_JOB_ID={directory.job_id}"
    done = host.run(["sh", "-c", f"grep -ls {mark} /proc/[0-9]*/environ"], check=False)
    return [int(path.split("/")[2]) for path in done.stdout.decode().split()]


def cut(host: Host) -> None:
    """Have every connection to a host ended, as by a short failure of the network."""
    sessions = [str(item.pid) for item in host.processes() if item.cmdline.startswith("sshd: root")]
    host.run(["kill", "-KILL", *sessions], check=False)


def wait_for_lines(directory: JobDirectory) -> None:
    """Wait for what comes of both ranks from now on."""
    sizes = {copy: copy.stat().st_size for copy in copies_of(directory)}
    wait_until(lambda: all(copy.stat().st_size > size for copy, size in sizes.items()), "new lines", DEADLINE_S)


def assert_ends_well(lab: Lab, directory: JobDirectory) -> None:
    """A stop ends the ranks within 25 s, every line has come once, and nothing is left."""
    stopped = dttui("stop", directory.job_id, deadline_s=STOP_S)
    assert stopped.returncode == 0, stopped.stderr
    assert {states_of(directory, name)[-1].data["state"] for name in ("gpu1", "gpu2")} == {"stopped"}
    assert directory.read_events()[-1].data == {"state": "CANCELLED", "exit_code": 103}
    for copy in copies_of(directory):
        lines = copy.read_text().splitlines()
        assert lines == [f"line {number}" for number in range(1, len(lines) + 1)], copy
    assert_nothing_is_left(directory, lab)


def test_an_agent_that_is_gone_is_told_as_that_and_deployed_anew_under_the_running_job(
    deployed: Lab, inventory: Path, directory: JobDirectory
) -> None:
    """In every way; its host is not called silent, and with the agent back no line is lost."""
    for removals in REMOVALS:
        for name, removal in removals.items():
            deployed[name].run(["sh", "-c", removal])
            cut(deployed[name])
        for name, removal in removals.items():
            told = wait_for_node(directory, name, "agent_gone")
            assert f"`dttui agents deploy {name}`" in told.message, removal
            assert len(ranks_on(deployed[name], directory)) > 0, removal
        status = dttui_here("status", directory.job_id)
        assert "`dttui agents deploy gpu1 gpu2` brings it back" in status.stdout.splitlines()[0]
        deploy(inventory, *removals)
        for name in removals:
            wait_for_node(directory, name, "running")
        wait_for_lines(directory)
    assert_ends_well(deployed, directory)


def test_a_part_of_the_directory_that_is_gone_is_made_anew_by_those_who_live(
    deployed: Lab, inventory: Path, directory: JobDirectory
) -> None:
    """Nobody has to do anything, and no line is lost."""
    host = deployed["gpu2"]
    host.run(["sh", "-c", f"rm -rf {ROOT}/jobs/*/0; until ls {ROOT}/jobs/*/0; do sleep 0.1; done"])
    wait_for_lines(directory)
    host.run(["rm", f"{ROOT}/agent.sock"])
    cut(host)
    wait_for_lines(directory)
    assert_ends_well(deployed, directory)


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
    diagnosed = result_of(dttui_here("diagnose", directory.job_id, "--output", "json"))
    assert (diagnosed["cause"]["code"], diagnosed["first_failure"]["node"]) == ("agent-gone", "gpu2")
    assert len(ranks_on(host, directory)) > 0
    deploy(inventory, "gpu2")
    again = dttui("stop", directory.job_id, deadline_s=STOP_S)
    assert again.returncode == 0, again.stderr
    assert states_of(directory, "gpu2")[-1].data["state"] == "stopped"
    assert ranks_on(host, directory) == []
    wait_until(lambda: not directory.has_controller(), "its controller to be done", DEADLINE_S)


def test_ranks_that_nobody_has_records_of_any_more_are_ended_by_their_marks(
    deployed: Lab, inventory: Path, directory: JobDirectory
) -> None:
    """Their supervisor is dead, too: within 60 s they have ended, and the job says what became of its records."""
    host = deployed["gpu2"]
    host.run(["sh", "-c", ORPHANED])
    cut(host)
    wait_for_node(directory, "gpu2", "agent_gone")
    deploy(inventory, "gpu2")
    wait_until(directory.is_over, "the job to end", DEADLINE_S)
    wait_until(lambda: not directory.has_controller(), "its controller to be done", DEADLINE_S)
    assert ranks_on(host, directory) == []
    failures = [event for event in directory.read_events() if event.kind is EventKind.RANK_FAILED]
    assert [event.node for event in failures] == ["gpu2"]
    assert "its records on this host were removed" in failures[0].message
    assert_nothing_is_left(directory, deployed)
