"""What is shown of the checks of a preflight, in the terminal and on the screen alike."""

from __future__ import annotations

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.i18n import msg, speaking
from dttui.jobs import Cell, Check, CheckStatus, board_widths, routes, shown_names, told_findings
from dttui.jobs.event_log import EventLog

OK, BAD = Cell(CheckStatus.OK, "0.2 ms"), Cell(CheckStatus.ERROR, "no way")


@pytest.mark.parametrize(
    ("language", "words"),
    [("en", "on 2 nodes (a, b): there is no /data"), ("zh", "2 个节点（a、b）：没有 /data")],
)
def test_what_events_say_of_several_nodes_alike_is_told_once_the_errors_first(language: str, words: str) -> None:
    directory = jobs.create("x")
    log = EventLog(directory.events)
    log.add(EventKind.FINDING, "late", data={"code": "clock", "severity": "warning", "subject": "c"})
    for name in ("a", "b", "b"):
        message = msg("{host}: there is no {path}", host=name, path="/data")
        log.add(EventKind.FINDING, message, data={"code": "path-missing", "severity": "error", "subject": name})
    with speaking(language):
        told = told_findings(directory.read_events(EventKind.FINDING))
        assert [(item.code, str(item.message)) for item in told] == [("path-missing", words), ("clock", "late")]


def test_where_there_are_too_many_rows_those_that_need_looking_at_are_shown() -> None:
    rows = {f"gpu{number}": {Check.REACH: BAD if number == 7 else OK} for number in range(9)}
    assert shown_names(rows, 9) == list(rows)
    assert shown_names(rows, 3) == ["gpu7", "gpu0", "gpu1"]


def test_a_route_is_told_once_something_is_known_of_it_and_of_no_job_of_one_node() -> None:
    rows = {
        "a": {Check.MASTER: Cell(CheckStatus.NONE, "itself"), Check.PEERS: OK},
        "b": {Check.MASTER: OK, Check.PEERS: Cell(CheckStatus.OK)},
        "c": {Check.MASTER: Cell(CheckStatus.PENDING)},
    }
    assert [(item.name, item.to_master, item.to_next) for item in routes(rows)] == [("b", "0.2 ms", "")]
    assert list(routes({"b": rows["b"]})) == []


@pytest.mark.parametrize(("width", "widths"), [(40, (8, 6)), (80, (14, 6)), (120, (32, 8)), (200, (32, 9))])
def test_a_board_is_as_wide_as_there_is_room(width: int, widths: tuple[int, int]) -> None:
    assert board_widths(30, width) == widths
    assert sum(widths) + widths[1] * (len(Check) - 1) <= max(width, 8 + 6 * len(Check))
