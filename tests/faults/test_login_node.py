"""What the login node can do to a job: its controller killed beside a cut link, a restart, an ssh-agent that goes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.jobs import JobDirectory
from tests.faults.leftovers import assert_nothing_is_left
from tests.faults.login_node import after_restart, start_after_restart
from tests.faults.test_jobs_on_bad_links import launch, let_go, states_of, wait_for_node
from tests.integration.headless import dttui, result_of, shell_job, start_dttui
from tests.integration.test_ssh_login import ssh_agent
from tests.lab.hosts import Lab
from tests.processes import processes_like
from tests.waiting import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

DEADLINE_S = 60.0
"""Of every wait for another state; a machine under load takes its time."""
COUNTED = """
    echo begun >> /tmp/begun
    say() { i=$1; while [ $i -le $2 ]; do echo line $i; echo "{\\"step\\": $i}" >> $DTTUI_METRICS; i=$((i+1)); done; }
    say 1 200; until [ -e /tmp/go ]; do sleep 0.1; done; say 201 400; rm /tmp/go
"""
"""Tells lines and steps, waits to be told, and goes on."""
HOSTS = ("gpu1", "gpu2")


@pytest.fixture
def inventory(deployed: Lab, tmp_path: Path) -> Path:
    for name in HOSTS:
        deployed[name].run(["rm", "-f", "/tmp/begun", "/tmp/go"])
    return deployed.inventory(tmp_path / "inventory.yaml")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return shell_job(tmp_path, dict.fromkeys(HOSTS, 1), COUNTED)


def kill_controller(directory: JobDirectory) -> None:
    """Kill it, and what it has just forked: that looks like it until it is another program, or gone."""
    for pid in processes_like("dttui.engine", str(directory.path)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not directory.has_controller(), "the controller to be gone", DEADLINE_S)


def copy_of(directory: JobDirectory, rank: int) -> Path:
    return directory.logs(0, HOSTS[rank]) / f"{rank}.out"


def wait_for_half(directory: JobDirectory) -> None:
    """Wait until all that was said before the wait is here."""
    half = "".join(f"line {number}\n" for number in range(1, 201))
    wait_until(
        lambda: all((path := copy_of(directory, rank)).exists() and path.read_text() == half for rank in (0, 1)),
        "the first lines",
        DEADLINE_S,
    )
    wait_until(
        lambda: directory.metrics.exists() and directory.metrics.read_bytes().count(b"\n") == 400,
        "the first steps",
        DEADLINE_S,
    )


def assert_told_once(directory: JobDirectory, lab: Lab, bridges_s: float = DEADLINE_S) -> None:
    """The job ended well; every line and step is here once, each rank began once, and nothing is left."""
    assert [event.data["exit_code"] for event in directory.read_events() if event.kind is EventKind.OUTCOME] == [0]
    for rank, name in enumerate(HOSTS):
        assert copy_of(directory, rank).read_text().splitlines() == [f"line {number}" for number in range(1, 401)]
        assert lab[name].run(["cat", "/tmp/begun"]).stdout == b"begun\n"
    reports = (json.loads(line) for line in directory.metrics.read_text().splitlines())
    steps = Counter((report["rank"], report["step"]) for report in reports)
    assert steps == Counter((rank, step) for rank in (0, 1) for step in range(1, 401))
    assert [event.seq for event in directory.read_events()] == list(range(len(directory.read_events())))
    assert_nothing_is_left(directory, lab, bridges_s)


def test_a_controller_killed_beside_a_cut_link_is_followed_by_one_that_waits_for_the_host(
    breakable_lab3: Lab, inventory: Path, job: Path
) -> None:
    """The next one knows the other host within 30 s, and all once the link is healed. Nothing is told twice or left."""
    directory = launch(inventory, job)
    wait_for_half(directory)
    breakable_lab3["gpu1"].cut()
    kill_controller(directory)
    let_go(breakable_lab3["gpu2"])
    following = start_dttui("attach", directory.job_id, "--output", "json")
    wait_for_node(directory, "gpu2", "ended")
    breakable_lab3["gpu1"].heal()
    let_go(breakable_lab3["gpu1"])
    output, errors = following.communicate(timeout=DEADLINE_S)
    assert following.returncode == 0, errors
    assert json.loads(output)["state"] == "SUCCEEDED"
    assert not [event for event in directory.read_events() if event.data.get("state") in ("lost", "failed")]
    # Its kernel may give up to say good-bye over the cut link: a bridge ends itself after a minute's silence.
    assert_told_once(directory, breakable_lab3, bridges_s=75.0)


def test_after_a_restart_of_the_login_node_the_job_is_unknown_and_then_followed_to_its_end(
    deployed: Lab, inventory: Path, job: Path
) -> None:
    """`ps` says since when; `logs -f`, `status` and `attach` catch up within 60 s, over what the crash tore."""
    directory = launch(inventory, job)
    wait_for_half(directory)
    kill_controller(directory)
    # What was not on the disk yet when the power went.
    os.truncate(copy_of(directory, 0), copy_of(directory, 0).stat().st_size - 57)
    os.truncate(directory.metrics, directory.metrics.stat().st_size - 300)
    for path in (directory.events, directory.samples("gpu1")):
        with path.open("ab") as stream:
            stream.write(b'{"seq": 99, "ti')
    down_since = time.time() - 3600
    os.utime(directory.lock, (down_since, down_since))
    assert directory.socket.exists()
    disks = (Path(os.environ["HOME"]).parent, deployed.directory)

    listing = after_restart(disks, "ps", "--output", "json")
    assert listing.returncode == 0, listing.stderr
    listed = json.loads(listing.stdout)
    since = time.strftime("%F %T", time.localtime(down_since))
    assert [(row["job_id"], row["state"]) for row in listed] == [(directory.job_id, "UNKNOWN")]
    assert since in listed[0]["reason"]
    reading = start_after_restart(disks, "logs", directory.job_id, "-f", "--rank", "0")
    wait_until(directory.has_controller, "another controller", DEADLINE_S)
    attached = start_after_restart(disks, "attach", directory.job_id, "--output", "json")
    wait_until(lambda: states_of(directory, "gpu2")[-1].data["state"] == "running", "the hosts", DEADLINE_S)
    for name in HOSTS:
        let_go(deployed[name])
    output, errors = attached.communicate(timeout=DEADLINE_S)
    assert attached.returncode == 0, errors
    assert json.loads(output)["state"] == "SUCCEEDED"
    assert reading.communicate(timeout=DEADLINE_S)[0].splitlines() == [f"line {number}" for number in range(1, 401)]
    told = [event for event in directory.read_events() if event.data.get("state") == "UNKNOWN"]
    assert [event.data["since"] for event in told] == [pytest.approx(down_since, abs=1)]
    assert after_restart(disks, "status", directory.job_id).returncode == 0
    assert_told_once(directory, deployed)


def test_after_a_restart_of_the_login_node_a_job_can_be_stopped(deployed: Lab, inventory: Path, job: Path) -> None:
    """Within 60 s every host is clean."""
    directory = launch(inventory, job)
    kill_controller(directory)
    disks = (Path(os.environ["HOME"]).parent, deployed.directory)
    stopped = after_restart(disks, "stop", directory.job_id, "--force")
    assert stopped.returncode == 0, stopped.stderr
    assert directory.read_events()[-1].data == {"state": "CANCELLED", "exit_code": 103}
    assert_nothing_is_left(directory, deployed)


def test_without_the_ssh_agent_it_started_with_a_job_is_unknown_until_an_attach_brings_one(
    deployed: Lab, inventory: Path, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken connection is unknown at once and never a failure, nor is it to the controller after that one."""
    keyless = deployed.inventory(tmp_path / "keyless.yaml", identity_file=None)
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.2 22")
    with ssh_agent(deployed.client_key):
        started = dttui("--apply", job, "--inventory", keyless, "--detach")
    assert started.returncode == 0, started.stderr
    assert "⚠ the ssh-agent is forwarded and goes with this session" in started.stderr
    directory = jobs.find(started.stdout.strip())
    wait_for_half(directory)
    break_connections(deployed, "gpu1")
    remedy = f"`dttui attach {directory.job_id}` lets you answer, and brings the keys of your ssh-agent"
    wait_until(lambda: remedy in states_of(directory, "gpu1")[-1].message, "word of what it takes", DEADLINE_S)
    assert wait_for_node(directory, "gpu1", "unknown").message.startswith(deployed["gpu1"].address)
    assert states_of(directory, "gpu2")[-1].data["state"] == "running"  # Its connection is kept.
    kill_controller(directory)
    status = dttui("status", directory.job_id, "--output", "json")
    assert status.returncode == 101, status.stderr
    assert result_of(status)["state"] == "UNKNOWN"
    for name in HOSTS:
        let_go(deployed[name])
    with ssh_agent(deployed.client_key):
        attached = dttui("attach", directory.job_id, "--output", "json", deadline_s=DEADLINE_S)
    assert attached.returncode == 0, attached.stderr
    assert not [event for event in directory.read_events() if event.data.get("state") in ("lost", "failed", "FAILED")]
    assert_told_once(directory, deployed)


def break_connections(lab: Lab, name: str) -> None:
    """End the sshd of every session on a host."""
    sessions = [str(item.pid) for item in lab[name].processes() if item.cmdline.startswith("sshd: root")]
    assert sessions
    lab[name].run(["kill", "-KILL", *sessions], check=False)
