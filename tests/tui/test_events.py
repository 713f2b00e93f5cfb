"""The events of a job: from each that a node is named by, a person comes to its log at that time."""

from __future__ import annotations

from datetime import datetime

import pytest
from dtagent.protocol.events import Event, EventKind, JobState
from textual.widgets import Select, TabbedContent

from dttui.jobs import JobView
from dttui.jobs.following import JobFollower
from dttui.tui.event_lines import log_of_event
from dttui.tui.messages import LogChosen
from dttui.tui.widgets.event_list import EventLines, EventList
from dttui.tui.widgets.log_view import LogView
from tests.tui import job_files
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.looking import look, screen_text, settle, text_of, toasts, until
from tests.tui.screens import CHOSEN

NODE = "nlp-research-lab"


@pytest.fixture
def view() -> JobView:
    writer = job_files.running(job(*CHOSEN), make_inventory())
    writer.second_attempt(JobState.RUNNING)
    follower = JobFollower(writer.directory)
    follower.poll()
    return follower.view


@pytest.mark.parametrize(
    ("event", "chosen"),
    [
        (Event(0, 9.0, EventKind.NODE_STATE, "", 1, NODE), LogChosen(NODE, None, None, 9.0)),
        (Event(0, 9.0, EventKind.STRAGGLER, "", 1, NODE, 13), LogChosen(NODE, "13.out", None, 9.0)),
        (Event(0, 9.0, EventKind.RANK_FAILED, "", 1, NODE, 13), LogChosen(NODE, "13.err", None, 9.0)),
        (Event(0, 9.0, EventKind.RANK_FAILED, "", 0, NODE, 13), LogChosen(NODE, "13.err", 0, 9.0)),
        (
            Event(0, 9.0, EventKind.JOB_STATE, "", data={"first_failure": {"node": NODE, "rank": 7, "time": 5.0}}),
            LogChosen(NODE, "7.err", None, 5.0),
        ),
    ],
)
def test_an_event_of_a_node_or_rank_leads_to_its_log_at_its_time(
    view: JobView, event: Event, chosen: LogChosen
) -> None:
    assert log_of_event(event, view) == chosen


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (Event(0, 9.0, EventKind.FINDING, "no dataset", data={"code": "x"}), "about no single node"),
        (Event(0, 9.0, EventKind.NODE_STATE, "", 0, "gone\x1b[2J"), "is no node of the job now"),
    ],
)
def test_an_event_that_leads_nowhere_says_why(view: JobView, event: Event, why: str) -> None:
    told = log_of_event(event, view)
    assert isinstance(told, str)
    assert why in told
    assert "\x1b" not in told


async def test_enter_goes_from_an_event_to_the_log_of_its_rank_at_its_time_and_from_a_finding_nowhere() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    writer.rank_failed(NODE, 13, "rank 13 broke")
    writer.finding("warning", "the job file says nothing of it")
    (broken,) = writer.directory.read_events(EventKind.RANK_FAILED)
    now = broken.time
    stamps = [datetime.fromtimestamp(now + 60 * minute).strftime("%Y-%m-%d %H:%M:%S") for minute in range(-60, 60)]
    writer.logs(NODE, "13.err", *(f"{stamp} line {number}" for number, stamp in enumerate(stamps)))
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await look(app, pilot)
        await pilot.press("3")
        await until(pilot, lambda: app.screen.query_one(EventList).has_focus, "keys are about the events")
        await pilot.press("enter")
        await settle(app, pilot)
        assert "about no single node" in toasts(app)[-1]
        assert app.screen.query_one(TabbedContent).active == "events"
        await pilot.press("up", "enter")
        log = app.screen.query_one(LogView)
        await until(pilot, lambda: log.at is not None, "the log is gone to")
        assert app.screen.query_one(TabbedContent).active == "logs"
        assert app.screen.query_one("#log-node", Select).value == NODE
        assert app.screen.query_one("#log-stream", Select).value == "13.err"
        assert log.shown_lines()[0].endswith("line 61")
        assert "standing still" in text_of(app, "#log-place")


async def test_a_click_on_an_event_of_an_earlier_attempt_shows_that_ones_log() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    writer.rank_failed(NODE, 13, "rank 13 broke")
    writer.logs(NODE, "13.err", "ValueError: of the first attempt")
    writer.second_attempt(JobState.RUNNING)
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await look(app, pilot)
        await pilot.press("3")
        await settle(app, pilot)
        shown = app.screen.query_one(EventLines)
        row = next(row for row, text in enumerate(shown.render().plain.splitlines()) if "rank 13 broke" in text)
        await pilot.click(EventLines, offset=(20, row))
        await until(pilot, lambda: "of the first attempt" in screen_text(app), "its log is on screen")
        assert text_of(app, "#log-place").startswith("attempt 0 · ")
        assert toasts(app)[-1] == "No line of this log carries a time. Its end is shown."
        await look(app, pilot)
        assert "of the first attempt" in screen_text(app), "the newest attempt does not take its place"
        app.screen.query_one("#log-stream", Select).value = "13.out"
        await until(pilot, lambda: "attempt" not in text_of(app, "#log-place"), "a choice is of the newest one")
