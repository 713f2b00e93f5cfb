"""Hosts reached by a command that is not there, ends, hangs, is killed or frozen, or leads to what was restarted."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from dttui.fleet import live
from dttui.fleet.live import Fleet
from dttui.fleet.states import EnvironmentState
from dttui.inventory.models import Environment
from dttui.jobs import JobDirectory
from dttui.transport.base import Nobody
from dttui.transport.routes import Transports
from tests.faults.leftovers import assert_nothing_is_left
from tests.faults.test_jobs_on_bad_links import GATED, LINES, launch, let_go, states_of, wait_for_node
from tests.faults.test_login_node import kill_controller
from tests.integration.headless import dttui, result_of, shell_job, wait_for_state
from tests.integration.test_exec_lab import NAMESPACES, OF_SSH
from tests.lab.hosts import Lab
from tests.processes import controller_of, parent_of, processes_like
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("lab of bad links")]

DEADLINE_S = 60.0
SILENCE_S = 30.0
"""Within which silence has to become `unknown`."""


class Ways:
    """The commands that reach the hosts of a lab, and what is wrong with them."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self._lab, self._directory = lab, directory
        directory.mkdir()

    def inventory(self, *names: str) -> Path:
        """Write an inventory in which these hosts are reached by a command, and the others by SSH."""
        fields: dict[str, object] = {}
        for name in names:
            path = self._directory / name
            path.write_text(
                f'#!/bin/sh\n[ ! -e {path}.down ] || {{ echo "Error: {name} is not running" >&2; exit 1; }}\n'
                f'exec nsenter --target "$(cat {path}.pid)" {" ".join(NAMESPACES)} -- "$@"\n'
            )
            path.chmod(0o755)
            self.find(name)
            address = self._lab[name].address
            fields[name] = {"exec": [str(path)], "address": address, **dict.fromkeys(OF_SSH)}
        return self._lab.inventory(self._directory / "inventory.yaml", **fields)

    def find(self, name: str) -> None:
        """Let the command reach the host as it was started last."""
        (self._directory / f"{name}.pid").write_text(str(self._lab[name].pid))

    def end(
        self, name: str, number: signal.Signals, directory: JobDirectory, others_than: Collection[int] = ()
    ) -> list[int]:
        """Send a signal to the commands by which a job's controller reaches a host; return their process groups.

        Those that were killed before may be there for a moment yet, and are left out.
        """
        controller = controller_of(directory.path)
        target = str(self._lab[name].pid)
        found = []
        for pid in processes_like("nsenter", target):
            if parent_of(pid) == controller and pid not in others_than:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)
                    found.append(pid)
        return found

    def close(self, name: str) -> None:
        """Have the command say from now on that there is no such host."""
        (self._directory / f"{name}.down").touch()

    def open(self, name: str) -> None:
        """Undo `close`."""
        (self._directory / f"{name}.down").unlink()


def zombies_of(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if (state, parent) == ("Z", str(pid)):
            found.append(int(path.parent.name))
    return found


@pytest.fixture
def ways(breakable_lab3: Lab, deployed: Lab, tmp_path: Path) -> Ways:
    for host in deployed.values():
        host.run(["rm", "-f", "/tmp/go"])
    return Ways(deployed, tmp_path / "ways")


def at(name: str, words: Sequence[str]) -> Environment:
    return Environment(name=name, host=None, exec=tuple(words))


async def test_commands_that_fail_in_every_way_are_named_and_hold_up_no_other_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that end are told at once, those that hang at the deadline of 15 s; no process of any is left."""
    monkeypatch.setattr(live, "CONNECT_TIMEOUT_S", 15.0)
    bad = {
        "missing": (["no-such-program"], "cannot be started on this machine"),
        "ended": (["sh", "-c", "echo no such container >&2; exit 1", "#"], "no such container"),
        "deaf": (["sh", "-c", "sh </dev/null", "#"], "as if nothing had been written"),
        "noisy": (["yes"], "prints without end"),
        "terminal": (["script", "-qec", "sh", "/dev/null"], "terminal"),
        "closing": (["sh", "-c", "exec <&- >&-; sleep 600", "#"], "it said nothing"),
    }
    hanging = {
        f"hanging{number}": (["sh", "-c", "exec sleep 600", "#"], "gave no shell within 15 s") for number in range(40)
    }
    hosts = [at(name, words) for name, (words, _told) in {**hanging, **bad}.items()] + [at("good", ["env"])]
    transports = Transports()
    watched = Fleet(hosts, transports, Nobody())
    before = set(processes_of(os.getpid()))
    began = time.monotonic()
    watched.start()
    try:
        await watched.settle(DEADLINE_S)
    finally:
        await watched.close()
        await transports.close()
    assert time.monotonic() - began < DEADLINE_S
    for name, (_words, told) in {**hanging, **bad}.items():
        status = watched.statuses[name]
        assert (status.state, told in status.reason) == (EnvironmentState.UNREACHABLE, True), status
    assert watched.statuses["good"].state is EnvironmentState.NO_AGENT
    assert watched.statuses["good"].since <= min(watched.statuses[name].since for name in hanging)
    wait_until(lambda: set(processes_of(os.getpid())) <= before, "all commands to be gone", DEADLINE_S)


def processes_of(parent: int) -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if parent_of(int(path.name)) == parent]


@pytest.mark.lab
def test_commands_that_are_killed_under_a_job_are_started_again_and_no_byte_is_lost(
    ways: Ways, deployed: Lab, tmp_path: Path
) -> None:
    """Twice while logs flow, on one host beside one by SSH; the job ends well within 60 s. No zombie is left."""
    inventory = ways.inventory("gpu1")
    directory = launch(inventory, shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, GATED))
    controller = controller_of(directory.path)
    killed: list[int] = []
    for _time in range(2):
        killed.extend(
            wait_until(lambda: ways.end("gpu1", signal.SIGKILL, directory, killed), "a command to kill", DEADLINE_S)
        )
        wait_until(lambda: ways.end("gpu1", signal.SIGCONT, directory, killed), "the controller to be back", DEADLINE_S)
    wait_until(lambda: not zombies_of(controller), "no zombie", DEADLINE_S)
    for host in (deployed["gpu1"], deployed["gpu2"]):
        let_go(host)
    wait_for_state(directory.job_id, "SUCCEEDED")
    for rank, name in enumerate(("gpu1", "gpu2")):
        assert (directory.logs(0, name) / f"{rank}.out").read_text().split() == LINES
    assert_nothing_is_left(directory, deployed)


@pytest.mark.lab
def test_a_command_that_freezes_under_a_job_is_exchanged_for_another(ways: Ways, deployed: Lab, tmp_path: Path) -> None:
    """Only missing answers tell; the job ends well within 60 s, and what was frozen is gone by then."""
    directory = launch(ways.inventory("gpu1"), shell_job(tmp_path, {"gpu1": 1}, GATED))
    frozen = ways.end("gpu1", signal.SIGSTOP, directory)
    assert frozen
    let_go(deployed["gpu1"])
    wait_for_state(directory.job_id, "SUCCEEDED")
    assert (directory.logs(0, "gpu1") / "0.out").read_text().split() == LINES
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in frozen), "the frozen to be gone", DEADLINE_S)
    assert_nothing_is_left(directory, deployed)


@pytest.mark.lab
def test_a_host_that_its_command_does_not_find_is_unknown_with_its_words_and_taken_up_again(
    ways: Ways, deployed: Lab, tmp_path: Path
) -> None:
    """Unknown within 30 s, while the rank prints on; with the command well again, the job ends well."""
    directory = launch(ways.inventory("gpu1"), shell_job(tmp_path, {"gpu1": 1}, GATED))
    began = time.time()
    ways.close("gpu1")
    ways.end("gpu1", signal.SIGKILL, directory)
    told = wait_for_node(directory, "gpu1", "unknown")
    assert told.time - began < SILENCE_S
    assert result_of(dttui("status", directory.job_id, "--output", "json"))["nodes"][0]["state"] == "unknown"
    let_go(deployed["gpu1"])
    ways.open("gpu1")
    wait_for_state(directory.job_id, "SUCCEEDED")
    assert dttui("logs", directory.job_id, "--rank", "0").stdout.split() == LINES
    assert_nothing_is_left(directory, deployed)


@pytest.mark.lab
def test_a_controller_that_is_killed_leaves_no_command_and_the_next_one_goes_on(
    ways: Ways, deployed: Lab, tmp_path: Path
) -> None:
    """Its commands end with their stdin, within 60 s; the job ends well, and nothing is left."""
    directory = launch(ways.inventory("gpu1"), shell_job(tmp_path, {"gpu1": 1}, GATED))
    before = ways.end("gpu1", signal.SIGCONT, directory)
    assert before
    kill_controller(directory)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in before), "its commands to end", DEADLINE_S)
    let_go(deployed["gpu1"])
    attached = dttui("attach", directory.job_id, "--output", "json", deadline_s=DEADLINE_S)
    assert attached.returncode == 0, attached.stderr
    assert (directory.logs(0, "gpu1") / "0.out").read_text().split() == LINES
    assert_nothing_is_left(directory, deployed)


@pytest.mark.lab
def test_a_host_restarted_behind_its_command_fails_the_job_with_the_reason(
    ways: Ways, deployed: Lab, tmp_path: Path
) -> None:
    """Within 60 s of its return; the other node is ended too, and nothing is left."""
    directory = launch(ways.inventory("gpu1", "gpu2"), shell_job(tmp_path, {"gpu2": 1, "gpu1": 1}, "exec sleep 600"))
    deployed["gpu1"].kill()
    deployed["gpu1"].start()
    ways.find("gpu1")
    wait_for_state(directory.job_id, "FAILED")
    assert "the host was restarted" in states_of(directory, "gpu1")[-1].message
    assert states_of(directory, "gpu2")[-1].data["state"] == "stopped"
    assert_nothing_is_left(directory, deployed)
