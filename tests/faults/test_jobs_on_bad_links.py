"""Jobs on isolated hosts whose links are cut, reset, narrow, frozen or lead through a jump host that dies."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.protocol.events import Event, EventKind

from dttui import jobs
from dttui.jobs import JobDirectory
from tests.agent.conversation import processes_with
from tests.faults.leftovers import assert_nothing_is_left
from tests.faults.proxy import Proxy
from tests.faults.servers import frozen, one_session_a_connection
from tests.integration.headless import dttui, result_of, shell_job, start_dttui, wait_for_state
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.waiting import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400), pytest.mark.xdist_group("lab of bad links")]
"""On hosts of their own: most of them wait, and others may compute meanwhile."""

DEADLINE_S = 60.0
"""Of every wait for another state; a machine under load takes its time."""
SILENCE_S = 30.0
"""Within which silence has to become `unknown`."""
FORCED_STOP_S = 30.0
"""Of which 8 for a host that does not answer to the force; without force it is waited for 45."""
GATED = "seq 1000; until [ -e /tmp/go ]; do sleep 0.1; done; seq 1001 2000; rm /tmp/go"
"""Prints, waits to be told, and prints again."""
LINES = [str(number) for number in range(1, 2001)]


@pytest.fixture
def proxied(deployed: Lab, tmp_path: Path) -> Iterator[tuple[Proxy, Path]]:
    """A link to gpu1 that can be broken, and an inventory that leads through it to that host alone."""
    gpu1 = deployed["gpu1"]
    with Proxy(gpu1.address, gpu1.ssh_port) as proxy:
        known_hosts = tmp_path / "known_hosts"
        known_hosts.write_text(f"{deployed.known_hosts.read_text()}[127.0.0.1]:{proxy.listens_at} {gpu1.host_key}\n")
        through = {"host": "127.0.0.1", "port": proxy.listens_at, "address": gpu1.address}
        yield (
            proxy,
            deployed.inventory(tmp_path / "inventory.yaml", known_hosts=str(known_hosts), gpu1=through),
        )


def launch(inventory: Path, job: Path) -> JobDirectory:
    """Start a job and leave it to its controller; return once all ranks run."""
    started = dttui("--apply", job, "--inventory", inventory, "--detach")
    assert started.returncode == 0, started.stderr
    directory = jobs.find(started.stdout.strip())
    wait_for_state(directory.job_id, "RUNNING")
    return directory


def states_of(directory: JobDirectory, node: str) -> list[Event]:
    return [event for event in directory.read_events() if event.kind is EventKind.NODE_STATE and event.node == node]


def wait_for_node(directory: JobDirectory, node: str, state: str) -> Event:
    """Wait until the newest thing said of a node is this state."""
    try:
        wait_until(lambda: states_of(directory, node)[-1].data["state"] == state, f"{node} to be {state}", DEADLINE_S)
    except AssertionError as error:
        said = "\n".join(f"{event.time:.1f} {event.node} {event.message}" for event in directory.read_events()[-12:])
        raise AssertionError(f"{error}; said of late:\n{said}") from None
    return states_of(directory, node)[-1]


def let_go(host: Host) -> None:
    host.run(["touch", "/tmp/go"])


def test_a_job_goes_on_through_a_link_that_was_cut_for_a_while(
    deployed: Lab, breakable_lab3: Lab, tmp_path: Path
) -> None:
    """Unknown within 30 s, while the rank prints on; with the cable back, the job ends well and nothing is left."""
    inventory = deployed.inventory(tmp_path / "inventory.yaml")
    directory = launch(inventory, shell_job(tmp_path, {"gpu1": 1}, GATED))
    began = time.time()
    breakable_lab3["gpu1"].cut()
    told = wait_for_node(directory, "gpu1", "unknown")
    assert told.time - began < SILENCE_S
    assert result_of(dttui("status", directory.job_id, "--output", "json"))["nodes"][0]["state"] == "unknown"
    let_go(deployed["gpu1"])
    breakable_lab3["gpu1"].heal()
    wait_for_state(directory.job_id, "SUCCEEDED")
    assert dttui("logs", directory.job_id, "--rank", "0").stdout.split() == LINES
    # Where the cable is back as our kernel gives the link up, the host is told nothing: a bridge ends itself after a
    # minute's silence.
    assert_nothing_is_left(directory, deployed, bridges_s=75.0)


def test_a_reset_is_got_over_and_no_byte_is_lost_or_doubled(
    deployed: Lab, proxied: tuple[Proxy, Path], tmp_path: Path
) -> None:
    """Two resets while logs flow; the job ends well within 60 s and leaves nothing."""
    proxy, inventory = proxied
    directory = launch(inventory, shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, GATED))
    copy = directory.logs(0, "gpu1") / "0.out"
    for _time in range(2):
        proxy.connections = 0
        wait_until(lambda: proxy.reset() >= 2, "a connection that stands to be reset", DEADLINE_S)
        wait_until(lambda: proxy.connections, "the controller to be back", DEADLINE_S)
    for host in (deployed["gpu1"], deployed["gpu2"]):
        let_go(host)
    wait_for_state(directory.job_id, "SUCCEEDED")
    assert copy.read_text().split() == LINES
    assert_nothing_is_left(directory, deployed)


def test_a_narrow_link_under_a_flood_of_logs_is_never_silent_and_stops_in_time(
    deployed: Lab, breakable_lab3: Lab, tmp_path: Path
) -> None:
    """At 1 Mbit/s each rank prints 0.8 MB: never `unknown`, and stopped by force within 30 s. Nothing is left."""
    inventory = deployed.inventory(tmp_path / "inventory.yaml")
    flood = "until [ -e /tmp/go ]; do sleep 0.1; done; rm /tmp/go; yes | head -c 800000; exec sleep 300"
    job = shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, flood)
    directory = launch(inventory, job)
    breakable_lab3["gpu1"].limit("1mbit")
    let_go(deployed["gpu1"])
    copy = directory.logs(0, "gpu1") / "0.out"
    wait_until(lambda: copy.exists() and copy.stat().st_size > 300_000, "some of the flood", DEADLINE_S)
    began = time.monotonic()
    stopped = dttui("stop", directory.job_id, "--force")
    assert stopped.returncode == 0, stopped.stderr
    assert time.monotonic() - began < SILENCE_S
    assert {event.data["state"] for event in states_of(directory, "gpu1")} & {"unknown", "lost"} == set()
    assert_nothing_is_left(directory, deployed)
    text = copy.read_bytes()
    assert set(text.replace(b"y\n", b"")) == set() or b"bytes of this log were not kept" in text


def test_a_host_that_takes_one_session_a_connection_runs_a_job_with_its_files(deployed: Lab, tmp_path: Path) -> None:
    """`MaxSessions 1`: within 60 s the job has run, its files were sent, and nothing is left."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code/said.txt").write_text("here\n")
    with one_session_a_connection(deployed["gpu2"]):
        inventory = deployed.inventory(tmp_path / "inventory.yaml")
        job = shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, "cat said.txt", workdir="code")
        done = dttui("--apply", job, "--inventory", inventory, "--output", "json", deadline_s=DEADLINE_S)
        assert done.returncode == 0, done.stderr
        directory = jobs.find(json.loads(done.stdout)["job_id"])
    assert [(directory.logs(0, f"gpu{rank + 1}") / f"{rank}.out").read_text() for rank in (0, 1)] == ["here\n"] * 2
    assert_nothing_is_left(directory, deployed)


def test_a_host_whose_sshd_freezes_keeps_no_stop_from_the_others(deployed: Lab, tmp_path: Path) -> None:
    """The other host hears `stop`, and then `kill`, at once; the frozen one hears it when it is back. None is left."""
    inventory = deployed.inventory(tmp_path / "inventory.yaml")
    job = shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, "trap '' TERM; while :; do sleep 0.1; done")
    directory = launch(inventory, job)
    with frozen(deployed["gpu1"]):
        stopping = start_dttui("stop", directory.job_id)
        wait_for_node(directory, "gpu2", "stopping")
        began = time.time()
        forced = dttui("stop", directory.job_id, "--force")
        took_s = time.time() - began
        _out, told = stopping.communicate(timeout=DEADLINE_S)
    assert re.search(r"\nwaiting for gpu1(, gpu2)?, until \d\d:\d\d:\d\d at the latest\n", told), told
    assert "\nwaiting for gpu1, until " in forced.stderr
    assert (forced.returncode, stopping.returncode) == (4, 4)
    assert "✗ not known to be stopped on gpu1, which could not be reached" in forced.stderr
    assert took_s < FORCED_STOP_S, forced.stderr
    ended = states_of(directory, "gpu2")[-1]
    assert ended.data["state"] == "stopped"
    lost = states_of(directory, "gpu1")[-1]
    assert lost.data["state"] == "lost"
    assert ended.time < lost.time  # It has not waited for the host that does not answer.
    again = dttui("stop", directory.job_id, "--force")
    assert again.returncode == 0, again.stderr
    wait_for_node(directory, "gpu1", "stopped")
    assert processes_with(f"DTTUI_JOB_ID={directory.job_id}\0") == []


def test_an_sshd_that_freezes_is_unknown_within_30_s_and_taken_up_again(deployed: Lab, tmp_path: Path) -> None:
    """Only missing answers tell, as TCP goes on; the other host is followed all the while. Nothing is left."""
    inventory = deployed.inventory(tmp_path / "inventory.yaml")
    directory = launch(inventory, shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, GATED))
    with frozen(deployed["gpu1"]) as began:
        told = wait_for_node(directory, "gpu1", "unknown")
        assert told.time - began < SILENCE_S + 2  # Of which two for a machine under load.
        assert abs(told.data["heard_at"] - began) < SILENCE_S
        assert states_of(directory, "gpu2")[-1].data["state"] == "running"
        let_go(deployed["gpu1"])
    let_go(deployed["gpu2"])
    wait_for_state(directory.job_id, "SUCCEEDED")
    assert (directory.logs(0, "gpu1") / "0.out").read_text().split() == LINES
    assert_nothing_is_left(directory, deployed)


def test_a_jump_host_that_dies_makes_the_hosts_behind_it_unknown_and_ends_nothing(
    deployed: Lab, breakable_lab3: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown within 30 s; with the jump host back, the job ends well and nothing is left."""
    config = tmp_path / "ssh_config"
    config.write_text(
        f"Host jump\n  HostName {deployed['gpu2'].address}\n  User root\n  IdentityFile {deployed.client_key}\n"
        f"Match all\n  UserKnownHostsFile {deployed.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
    )
    monkeypatch.setenv("DTTUI_SSH_CONFIG", str(config))
    inventory = deployed.inventory(tmp_path / "inventory.yaml", gpu1={"proxy_jump": "jump"})
    directory = launch(inventory, shell_job(tmp_path, {"gpu1": 1}, GATED))
    began = time.time()
    breakable_lab3["gpu2"].kill()
    told = wait_for_node(directory, "gpu1", "unknown")
    assert told.time - began < SILENCE_S
    let_go(deployed["gpu1"])
    breakable_lab3["gpu2"].start()
    wait_for_state(directory.job_id, "SUCCEEDED")
    assert (directory.logs(0, "gpu1") / "0.out").read_text().split() == LINES
    # A host that is gone says no word to what it was connected to.
    assert_nothing_is_left(directory, deployed, bridges_s=75.0)
