"""What agents say of the job's own command: told once a time, taken back, and an end where the job wants that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from dtagent.protocol.events import Event, EventKind, JobState
from dtagent.protocol.health import Health

from dttui import jobs
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.health import HealthWatch, Unhealthy
from dttui.engine.nodes.node_run import NodeRun
from dttui.jobs.disturbances import KINDS, trouble_of
from dttui.jobs.event_log import EventLog
from dttui.planning.health import HealthPolicy

SAID = "gpu1 is unhealthy: check --queue exited with 3: no batch"
ILL = Health(False, 100.0, exit_code=3, line="no batch")
WELL = Health(True, 200.0, exit_code=0)


class Watched:
    """Two nodes, what their agents say, and the watch over them."""

    def __init__(self, *, restarts: bool = False) -> None:
        self.directory = jobs.create("x")
        self.said: dict[str, Any] = {}
        self.nodes = [
            SimpleNamespace(name=name, is_over=False, silent_since=None, status=None, here=lambda moment: moment)
            for name in ("gpu1", "gpu2")
        ]
        self.policy = HealthPolicy(
            name="check --queue", every_s=30, timeout_s=10, failures=3, start_period_s=0, restarts=restarts
        )
        self.take_over()

    def take_over(self) -> None:
        """Let another controller watch, which finds what was told."""
        log, told = AttemptLog(EventLog(self.directory.events), 0), self.directory.read_events()
        self.watch = HealthWatch(self.policy, log, told)

    def look(self, *said: Health | None, is_running: bool = True) -> Unhealthy | None:
        for node, health in zip(self.nodes, said, strict=False):
            node.status = SimpleNamespace(health=health)
        return self.watch.look(cast("list[NodeRun]", self.nodes), is_running=is_running)

    def told(self) -> list[Event]:
        return self.directory.read_events(EventKind.HEALTH)

    def headline(self) -> str:
        return trouble_of(JobState.RUNNING, self.directory.read_events(*KINDS), 300.0)


def test_an_unhealthy_host_is_told_once_and_taken_back() -> None:
    job = Watched()
    assert job.look(None, WELL) is None
    assert job.told() == []
    for _ in range(3):
        assert job.look(ILL, WELL) is None
    (event,) = job.told()
    assert (event.node, event.message, event.data["severity"]) == ("gpu1", SAID, "warning")
    assert (event.data["since"], event.data["exit_code"], event.data["line"]) == (100.0, 3, "no batch")
    assert job.headline() == SAID
    job.look(ILL, ILL)
    assert job.headline() == f"{SAID}; 2 hosts are unhealthy"
    job.look(WELL, WELL)
    assert [event.data["severity"] for event in job.told()] == ["warning", "warning", "info", "info"]
    assert job.headline() == ""


@pytest.mark.parametrize(
    ("health", "what"),
    [
        (Health(False, 1, timed_out=True), "check --queue took longer than 10 s"),
        (Health(False, 1, signal=11), "check --queue was ended by signal 11"),
        (Health(False, 1, error="check: No such file"), "check --queue could not be started: check: No such file"),
        (Health(False, 1, exit_code=2, line="\x1b[2Jtwo\x07"), "check --queue exited with 2: two"),
    ],
)
def test_how_it_failed_is_told(health: Health, what: str) -> None:
    job = Watched()
    job.look(health)
    assert job.told()[0].message == f"gpu1 is unhealthy: {what}"


def test_a_host_for_which_the_job_is_to_start_again_ends_the_attempt() -> None:
    job = Watched(restarts=True)
    found = job.look(WELL, ILL)
    assert found is not None
    assert (found.node, found.message) == ("gpu2", SAID.replace("gpu1", "gpu2"))
    assert (job.told()[0].data["severity"], job.told()[0].data["restarts"]) == ("error", True)
    job.take_over()  # The one before it may not have come to end it.
    assert job.look(WELL, ILL) is not None


def test_nothing_counts_before_all_ranks_run_nor_of_a_host_that_is_silent_or_over() -> None:
    job = Watched(restarts=True)
    assert job.look(ILL, ILL, is_running=False) is None
    job.nodes[0].silent_since, job.nodes[1].is_over = 150.0, True
    assert job.look(ILL, ILL) is None
    assert job.told() == []
    job.nodes[0].silent_since = None
    assert job.look(ILL, ILL) is not None


def test_another_controller_tells_it_not_again_and_takes_it_back() -> None:
    job = Watched()
    job.look(ILL)
    job.take_over()
    assert job.look(ILL) is None
    job.look(WELL)
    assert [event.data["severity"] for event in job.told()] == ["warning", "info"]
