"""What attempts have saved, as events keep it and a person reads it."""

from __future__ import annotations

import time

import pytest
from dtagent.protocol.events import Event, EventKind

from dttui.jobs import JobView
from dttui.jobs.keep_requests import KeepRequests, parse_keep_requests
from dttui.jobs.saved_text import PLACES, saved_lines, saved_of
from dttui.words import moment
from tests.unit.jobs.test_follow import plan_for

NOW = time.time()
CHECKPOINTS = {"path": "/c", "kind": "checkpoints", "count": 2, "size_bytes": 3_000_000, "newest": NOW}
OUTPUT = {
    "path": "/w/out",
    "kind": "output",
    "count": 1,
    "size_bytes": 10,
    "newest": NOW,
    "is_whole": False,
    "goes_at": NOW + 7 * 86400,
}


def event(node: str, *places: dict[str, object], attempt: int = 0) -> Event:
    return Event(0, NOW, EventKind.SAVED, "", attempt=attempt, node=node, data={PLACES: list(places)})


def test_each_place_is_told_once_with_its_hosts_and_when_it_goes() -> None:
    saved = [item for node in ("a", "b") for item in saved_of(event(node, CHECKPOINTS, OUTPUT))]
    goes = moment((NOW + 7 * 86400) // 3600 * 3600)
    assert list(saved_lines(saved, "job-1")) == [
        f"saved: a, b:/c  2 files, 3 MB, newest {moment(NOW // 1)}; stays there until somebody removes it",
        f"saved: a, b:/w/out  at least 1 file, 10 B, newest {moment(NOW // 1)}; "
        f"may go from {goes} on, once newer jobs are there",
        "  → dttui fetch job-1 brings it here",
    ]
    assert list(saved_lines((), "job-1")) == []


@pytest.mark.parametrize(
    ("later", "goes_later", "lines"),
    [(1.5, 3.0, 2), (59.0, 3500.0, 2), (61.0, 0.0, 3), (0.0, None, 3), (0.0, 3700.0, 3)],
    ids=["a second", "a minute", "more than a minute", "of which one never goes", "more than an hour until they go"],
)
def test_hosts_that_end_at_about_the_same_time_are_told_together(
    later: float, goes_later: float | None, lines: int
) -> None:
    # Just before a minute and an hour end.
    end = NOW // 3600 * 3600 + 3599.5
    one = {**OUTPUT, "newest": end, "goes_at": end + 7 * 86400}
    goes_at = None if goes_later is None else end + 7 * 86400 + goes_later
    other = {**one, "newest": end + later, "goes_at": goes_at}
    assert len(list(saved_lines([*saved_of(event("a", one)), *saved_of(event("b", other))], "job-1"))) == lines


def test_of_many_places_the_first_are_told_and_the_others_counted() -> None:
    saved = saved_of(event("a", *({**OUTPUT, "path": f"/{number}"} for number in range(11))))
    lines = list(saved_lines(saved, "job-1"))
    assert len(lines) == 10
    assert lines[-2] == "… and 3 more places: dttui fetch job-1 --list"


def test_the_view_keeps_what_each_attempt_saved_and_takes_a_second_word_for_the_first() -> None:
    view = JobView("job-1")
    view.set_plan(plan_for("a", "b"))
    view.apply(event("a", CHECKPOINTS))
    view.apply(event("b", CHECKPOINTS))
    view.apply(event("a", OUTPUT, attempt=1))
    view.apply(event("a", CHECKPOINTS, OUTPUT, attempt=1))
    assert [(item.attempt, item.node, item.path) for item in view.saved] == [
        (0, "a", "/c"),
        (0, "b", "/c"),
        (1, "a", "/c"),
        (1, "a", "/w/out"),
    ]
    assert [line for line in view.places("/d") if line.startswith("saved: ")] != []


def test_the_newest_attempt_comes_first_and_of_a_place_its_newest_word() -> None:
    saved = [
        *saved_of(event("a", OUTPUT, {**CHECKPOINTS, "path": "/first"})),
        *saved_of(event("a", {**OUTPUT, "count": 5}, attempt=1)),
    ]
    lines = list(saved_lines(saved, "job-1"))
    assert lines[0].startswith("saved: a:/w/out  at least 5 files, ")
    assert lines[1].startswith("saved: a:/first  2 files, ")
    assert lines[1].endswith(" (--attempt 0)")
    assert len(lines) == 3


def test_what_each_host_was_told_later_counts_and_of_others_what_they_said() -> None:
    view = JobView("job-1")
    view.set_plan(plan_for("a", "b", "c"))
    for node in ("a", "b", "c"):
        view.apply(event(node, OUTPUT))
    assert [item.is_kept for item in view.kept_saved] == [False, False, False]
    view.keep_requests = parse_keep_requests(KeepRequests(keeps=False, hosts={"a": True, "b": False}).as_text())
    assert [item.is_kept for item in view.kept_saved] == [True, False, False]


@pytest.mark.parametrize("text", ["", "kept", "[]", '{"keeps": true}', '{"keeps": true, "hosts": 5}'])
def test_a_damaged_word_is_none(text: str) -> None:
    assert parse_keep_requests(text) is None


@pytest.mark.parametrize("places", [None, 5, [5], [{"path": 5}], [{"path": "/c"}]])
def test_a_torn_event_tells_nothing(places: object) -> None:
    view = JobView("job-1")
    view.set_plan(plan_for("a"))
    view.apply(Event(0, NOW, EventKind.SAVED, "", attempt=0, node="a", data={PLACES: places}))
    assert view.saved == ()
