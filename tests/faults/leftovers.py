"""What a job may leave behind, and looking that it left nothing: processes, controllers, sockets, bridges, attempts."""

from __future__ import annotations

import functools

from dtagent.protocol.events import EventKind

from dttui.jobs import JobDirectory
from tests.agent.conversation import processes_with
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.processes import processes_like
from tests.waiting import wait_until

DEADLINE_S = 30.0


def assert_nothing_is_left(directory: JobDirectory, lab: Lab | None = None, bridges_s: float = DEADLINE_S) -> None:
    """The job has an outcome; its processes, its controller with its socket, and all bridges to hosts are gone.

    Args:
        directory: the job.
        lab: the hosts it ran on, whose processes count among those of this machine.
        bridges_s: how long bridges may stay; one whose client went without a word ends itself after a minute.
    """
    assert_nothing_runs(directory, lab, bridges_s)
    assert directory.read_events()[-1].kind is EventKind.OUTCOME


def assert_nothing_runs(directory: JobDirectory, lab: Lab | None = None, bridges_s: float = DEADLINE_S) -> None:
    """Nothing of a job runs or listens; of its events nothing is said. As above."""
    wait_until(
        lambda: not processes_like("dttui.engine", str(directory.path)),
        "the controller to end",
        DEADLINE_S,
    )
    assert not directory.socket.exists(), "the controller's socket is left"
    assert processes_with(f"DTTUI_JOB_ID={directory.job_id}\0") == [], "processes of the job are left"
    for host in lab.values() if lab is not None else ():
        try:
            wait_until(functools.partial(_is_let_go, host), f"the bridges and ports on {host.name} to go", bridges_s)
        except AssertionError as error:
            connections = host.run(["cat", "/proc/net/tcp"]).stdout.decode()
            raise AssertionError(f"{error}; {_bridges(host)}, {_ports(host)}:\n{connections}") from None


def _is_let_go(host: Host) -> bool:
    """Whether no bridge runs on a host and nothing listens in the usual range of the master's port."""
    return not _bridges(host) and not _ports(host)


def _bridges(host: Host) -> list[str]:
    return [f"{process}" for process in host.processes() if "dtagent connect" in process.cmdline]


def _ports(host: Host) -> list[int]:
    rows = [line.split() for line in host.run(["cat", "/proc/net/tcp"]).stdout.decode().splitlines()[1:]]
    listening = [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"]
    return [port for port in listening if 29500 <= port <= 29999]
