"""Fixtures of the faults, from the modules that make them; the jobs of a test that failed are told, and end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Generator, Iterator

import pytest

from dttui import jobs
from tests.integration.deploy_fixtures import agent, newer, requirements, source, wheelhouse
from tests.integration.headless import dttui
from tests.integration.ssh_fixtures import ssh_config, sshd, transport
from tests.processes import processes_like

__all__ = ["agent", "newer", "requirements", "source", "ssh_config", "sshd", "transport", "wheelhouse"]

HAS_FAILED = pytest.StashKey[bool]()
MOST_EVENTS = 25
STOP_DEADLINE_S = 90.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell the newest events of each job beside what has failed: the jobs' directories go with the run."""
    failed = call.excinfo is not None and not isinstance(call.excinfo.value, pytest.skip.Exception)
    if failed and "XDG_STATE_HOME" in os.environ:
        item.stash[HAS_FAILED] = True
        for summary in jobs.list_jobs():
            told = [
                f"{event.time:.1f} {event.kind} {event.node or ''} {event.message} {dict(event.data)}"[:300]
                for event in jobs.find(summary.job_id).read_events()[-MOST_EVENTS:]
            ]
            item.add_report_section(call.when, f"events of {summary.job_id}", "\n".join(told))
    return (yield)


@pytest.fixture(autouse=True)
def ended_controllers(isolated_environment: None, request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that fails must not leave a controller that waits for its hosts for ever, nor ranks that hold GPUs."""
    state = os.environ["XDG_STATE_HOME"]
    yield
    if request.node.stash.get(HAS_FAILED, False):
        for summary in jobs.list_jobs():
            if not jobs.find(summary.job_id).is_over():
                with contextlib.suppress(Exception):
                    dttui("stop", summary.job_id, "--force", deadline_s=STOP_DEADLINE_S)
    for pid in processes_like("dttui.engine", state):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
