"""Following a job on the terminal, to its end."""

from __future__ import annotations

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.app import App
from dttui.cli.following import Interrupts, follow_job
from dttui.cli.printing import Printer
from dttui.cli.prompting import TerminalPrompter
from dttui.jobs.event_log import EventLog


@pytest.mark.timeout(30)  # It went round and round, and let nothing else run.
async def test_a_job_that_was_over_before_anybody_could_attach_is_told_and_left() -> None:
    directory = jobs.create("x")
    log = EventLog(directory.events)
    log.add(EventKind.JOB_STATE, "refused", data={"state": "FAILED", "exit_code": 5})
    log.add(EventKind.OUTCOME, "refused", data={"state": "FAILED", "exit_code": 5})
    follower, printer = App().follow(directory), Printer("human")
    await follow_job(follower, printer, Interrupts(printer, TerminalPrompter()))
    assert follower.is_over
