"""After a restart of the login node a job goes on without a person, or waits and says for what."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.jobs import JobDirectory
from dttui.launch.boot import is_brought_back
from tests.faults.test_login_node import kill_controller
from tests.integration.headless import dttui, dttui_here, result_of, shell_job, start_dttui
from tests.integration.test_ssh_login import ssh_agent
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.waiting import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

DEADLINE_S = 90.0
TOKEN = "horse-battery-staple"
TRAINING = """
    echo begun $DTTUI_ATTEMPT ${TOKEN:-none} >> /tmp/begun
    i=0; until [ -e /tmp/go ]; do i=$((i+1)); echo "{\\"step\\": $i}" >> $DTTUI_METRICS; sleep 0.1; done
    echo ended
"""
RECOVERY = {"on_node_failure": "restart", "max_restarts": 3}
CRONTAB = """#!/bin/sh
[ "$1" = -l ] && { cat "$HOME/crontab" 2>/dev/null || exit 1; exit; }
cat > "$HOME/crontab.new" && mv "$HOME/crontab.new" "$HOME/crontab"
"""


@pytest.fixture
def host(deployed: Lab) -> Host:
    deployed["gpu1"].run(["rm", "-f", "/tmp/begun", "/tmp/go"])
    return deployed["gpu1"]


@pytest.fixture
def cron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crontab of the test's own, at the seam to cron: its program."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "crontab").write_text(CRONTAB)
    (programs / "crontab").chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


def start(tmp_path: Path, inventory: Path, **run: object) -> JobDirectory:
    """Start a job that may be started again, and wait until it makes steps."""
    job = shell_job(tmp_path, {"gpu1": 1}, TRAINING, **run)
    text = job.read_text().replace("  dataset:", f"  recovery: {json.dumps(RECOVERY)}\n  dataset:")
    job.write_text(text)
    done = dttui("--apply", job, "--inventory", inventory, "--detach")
    assert done.returncode == 0, done.stderr
    directory = jobs.find(done.stdout.strip())
    wait_until(lambda: directory.metrics.exists() and directory.metrics.stat().st_size > 0, "steps", DEADLINE_S)
    return directory


def restart_login_node(directory: JobDirectory) -> None:
    """End what of the user's would end with the machine: the controller, and whoever it started."""
    kill_controller(directory)


@contextlib.contextmanager
def attached(directory: JobDirectory) -> Iterator[None]:
    """Have somebody attached inside, who leaves then; the job goes on."""
    with start_dttui("attach", directory.job_id) as following:
        try:
            yield
        finally:
            following.terminate()
            following.communicate(timeout=DEADLINE_S)


def boot(line: str) -> None:
    """Run an entry of a crontab as cron does: with next to nothing in the environment."""
    assert line.startswith("@reboot ")
    bare = {"HOME": os.environ["HOME"], "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin", "LOGNAME": "root"}
    done = subprocess.run(
        ["/bin/sh", "-c", line.removeprefix("@reboot ")],
        env=bare, capture_output=True, text=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def kill_rank(host: Host) -> None:
    ranks = [item.pid for item in host.processes() if "DTTUI_METRICS" in item.cmdline and "until [" in item.cmdline]
    assert ranks
    # What one has just forked looks like it, and may be gone by now.
    host.run(["kill", "-KILL", *map(str, ranks)], check=False)


def oldest_rank(host: Host) -> bytes:
    """Return the pid of the rank, and not of what it has just forked."""
    return host.run(["pgrep", "-of", r"until \["]).stdout


def begun(host: Host) -> list[str]:
    return host.run(["cat", "/tmp/begun"]).stdout.decode().splitlines()


def outcome(directory: JobDirectory) -> str:
    wait_until(directory.is_over, "the end of the job", DEADLINE_S)
    return str(directory.read_events(EventKind.JOB_STATE)[-1].data["state"])


@pytest.mark.usefixtures("cron")
def test_an_entry_of_cron_brings_a_job_back_that_recovers_and_ends_without_anybody(
    deployed: Lab, host: Host, tmp_path: Path
) -> None:
    """Within 90 s another attempt runs, with its secret; a second restart begins none. Nothing is left."""
    (tmp_path / "secrets.env").write_text(f"# of the registry\nexport TOKEN='{TOKEN}'\n")
    (tmp_path / "secrets.env").chmod(0o600)
    inventory = deployed.inventory(tmp_path / "inventory.yaml")
    directory = start(tmp_path, inventory, secrets=["TOKEN"])
    assert begun(host) == [f"begun 0 {TOKEN}"]

    advised = result_of(dttui("doctor", "gpu1", "--inventory", inventory, "--output", "json"))["login"]
    (entry,) = (item for item in advised if item["code"] == "boot")
    assert entry["severity"] == "warning"
    for item in entry["commands"]:
        subprocess.run(["sh", "-c", item["command"]], check=True)
    assert is_brought_back()
    healthy = result_of(dttui("doctor", "gpu1", "--inventory", inventory, "--output", "json"))["login"]
    assert "boot" not in {item["code"] for item in healthy}
    (line,) = (Path(os.environ["HOME"]) / "crontab").read_text().splitlines()

    restart_login_node(directory)
    kill_rank(host)  # While nobody looks.
    boot(line)
    wait_until(lambda: len(begun(host)) == 2, "another attempt", DEADLINE_S)
    assert begun(host)[1] == f"begun 1 {TOKEN}"
    restart_login_node(directory)
    boot(line)
    wait_until(directory.has_controller, "a controller", DEADLINE_S)
    host.run(["touch", "/tmp/go"])
    assert outcome(directory) == "SUCCEEDED"
    assert len(begun(host)) == 2
    assert TOKEN not in directory.events.read_text()


def test_a_job_whose_secret_went_with_the_session_waits_for_it_and_takes_it_from_who_attaches(
    deployed: Lab, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 90 s it says what it waits for, and begins once it has that. Nothing is left."""
    monkeypatch.setenv("TOKEN", TOKEN)
    inventory = deployed.inventory(tmp_path / "inventory.yaml")
    directory = start(tmp_path, inventory, secrets=["TOKEN"])
    planned = dttui("plan", tmp_path / "job.yaml", "--inventory", inventory, "--output", "json")
    codes = {item["code"]: item["message"] for item in result_of(planned)["findings"]}
    assert "TOKEN" in codes["unattended"]

    restart_login_node(directory)
    monkeypatch.delenv("TOKEN")
    kill_rank(host)
    assert dttui("attach", "--all").returncode == 0
    (row,) = wait_until(lambda: [row for row in listed() if "waiting for" in row["reason"]], "the wait", DEADLINE_S)
    assert row["reason"] == "waiting for the values of TOKEN, which another attempt needs"
    assert row["state"] == "RESTARTING"
    assert len(begun(host)) == 1

    monkeypatch.setenv("TOKEN", TOKEN)
    with attached(directory):
        wait_until(lambda: len(begun(host)) == 2, "another attempt", DEADLINE_S)
    assert begun(host)[1] == f"begun 1 {TOKEN}"
    host.run(["touch", "/tmp/go"])
    assert outcome(directory) == "SUCCEEDED"
    assert TOKEN not in directory.events.read_text() + directory.controller_log.read_text()


def listed() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = json.loads(dttui_here("ps", "--output", "json").stdout)
    return rows


def test_a_job_that_takes_a_passphrase_waits_for_a_person_while_its_ranks_train_on(
    deployed: Lab, host: Host, tmp_path: Path
) -> None:
    """Within 90 s it says what it takes, and is followed once somebody brings it; its rank began once."""
    locked = tmp_path / "locked"
    locked.write_bytes(deployed.client_key.read_bytes())
    locked.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "pass", "-f", str(locked)], check=True)
    inventory = deployed.inventory(tmp_path / "inventory.yaml", identity_file=str(locked))
    with ssh_agent(deployed.client_key):
        planned = dttui("plan", shell_job(tmp_path, {"gpu1": 1}, "true"), "--inventory", inventory, "--output", "json")
        codes = {item["code"]: item["message"] for item in result_of(planned)["findings"]}
        assert "ssh-agent" in codes["unattended"]
        directory = start(tmp_path, inventory)

    restart_login_node(directory)
    rank = oldest_rank(host)
    assert dttui("attach", "--all").returncode == 0
    (row,) = wait_until(lambda: [row for row in listed() if row["state"] == "UNKNOWN"], "the wait", DEADLINE_S)
    wait_until(
        lambda: "passphrase" in str([event.message for event in directory.read_events(EventKind.NODE_STATE)][-1:]),
        "word of what it takes",
        DEADLINE_S,
    )
    assert oldest_rank(host) == rank
    assert row["job_id"] == directory.job_id
    with ssh_agent(deployed.client_key):
        with attached(directory):
            wait_until(
                lambda: [event.data["state"] for event in directory.read_events(EventKind.NODE_STATE)][-1] == "running",
                "the host",
                DEADLINE_S,
            )
        host.run(["touch", "/tmp/go"])
        assert outcome(directory) == "SUCCEEDED"
    assert len(begun(host)) == 1
