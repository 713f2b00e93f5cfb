"""What `attach` shows of what was told before it came."""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Callable

import pytest
from dtagent.protocol.events import Event, EventKind

from dttui import jobs
from dttui.cli import main
from dttui.cli.attach import LAST_EVENTS, recent
from dttui.cli.printing import Printer
from dttui.i18n import msg
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.left_to_do import LOG_REST
from dttui.jobs.view import FILES_LATE
from dttui.launch import control, starting


def event(seq: int, kind: EventKind, node: str = "") -> Event:
    data = {"code": "host-busy", "severity": "warning", "subject": node, "hint": "", "nodes": [node]} if node else {}
    message = msg("{host}: {reason}", host=node, reason="in use") if node else msg("so far")
    return Event(seq, 100.0, kind, message, data=data, told=message.recipe)


@pytest.mark.parametrize("later", [LAST_EVENTS - 1, LAST_EVENTS - 2])
def test_a_finding_on_three_nodes_is_not_told_as_one_of_the_last_node_alone(
    capsys: pytest.CaptureFixture[str], later: int
) -> None:
    first = event(0, EventKind.PROGRESS)
    findings = [event(seq, EventKind.FINDING, f"gpu{seq}") for seq in (1, 2, 3)]
    after = [event(4 + seq, EventKind.PROGRESS) for seq in range(later)]
    shown = recent([first, *findings, *after])
    assert shown == [*findings, *after]
    Printer("human").events(shown)
    assert "on 3 nodes (gpu1, gpu2, gpu3)" in capsys.readouterr().err


@pytest.mark.parametrize("count", [0, 1, LAST_EVENTS, LAST_EVENTS + 1, 100])
def test_of_other_events_the_newest_are_shown(count: int) -> None:
    events = [event(seq, EventKind.PROGRESS) for seq in range(count)]
    assert recent(events) == events[-LAST_EVENTS:]


def led(directory: JobDirectory) -> Callable[[], None]:
    """Have a controller lead a job; return how to let it go."""
    lock = directory.claim()
    assert lock is not None
    return functools.partial(os.close, lock)


def begun(directory: JobDirectory) -> None:
    directory.launch.write_text("{}")
    EventLog(directory.events).add(EventKind.JOB_STATE, msg("running"), data={"state": "RUNNING"})


def ended(directory: JobDirectory) -> None:
    state = {"state": "FAILED", "exit_code": 1}
    log = EventLog(directory.events)
    log.add(EventKind.JOB_STATE, msg("failed"), data={"state": "FAILED"})
    log.add(EventKind.OUTCOME, msg("failed"), data=state)


def lost(directory: JobDirectory) -> None:
    EventLog(directory.events).add(EventKind.NODE_STATE, msg("lost"), node="a", attempt=0, data={"state": "lost"})


def without_rest(directory: JobDirectory) -> None:
    data = {"code": LOG_REST, "severity": "warning", "subject": "a"}
    EventLog(directory.events).add(EventKind.FINDING, msg("not fetched"), data=data)


STATES: dict[str, tuple[Callable[[JobDirectory], object], ...]] = {
    "just made": (),
    "just made and led": (led,),
    "running and led": (begun, led),
    "running and unled": (begun,),
    "over": (begun, ended),
    "over and led": (begun, ended, led),
    "over with a lost host": (begun, lost, ended),
    "over with a lost host, and led": (begun, lost, ended, led),
    "over without all logs": (begun, without_rest, ended),
    "without what it was launched with, and over": (begun, lost, ended, lambda job: job.launch.unlink()),
}


@pytest.mark.parametrize("words", [("--all",), ("JOB",)], ids=str)
@pytest.mark.parametrize("state", STATES)
def test_a_dry_run_promises_what_attach_does(
    state: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = jobs.create("x")
    let_go = [back for step in STATES[state] if callable(back := step(directory))]
    started: list[str] = []

    def start(job: JobDirectory, lock: int, **_options: object) -> None:
        started.append(job.job_id)
        os.close(lock)

    monkeypatch.setattr(starting, "start_controller", start)
    monkeypatch.setattr(control, "DIAL_DEADLINE_S", 0.01)
    said = [word.replace("JOB", directory.job_id) for word in words]
    before = {path: path.stat().st_mtime_ns for path in directory.path.rglob("*")}
    assert main(["attach", *said, "--dry-run", "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = told if isinstance(told, list) else [told]
    assert (started, {path: path.stat().st_mtime_ns for path in directory.path.rglob("*")}) == ([], before)
    assert all(row["dry_run"] for row in rows)
    main(["attach", *said, "--timeout", "1s", "--output", "jsonl"])  # Else it follows who leads the job for ever.
    assert [row["job_id"] for row in rows if row["would_be_brought_back"]] == [*dict.fromkeys(started)]
    for back in let_go:
        back()


def test_a_later_look_at_what_an_earlier_controller_waited_for_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = jobs.create("x")
    begun(directory)
    without_rest(directory)
    ended(directory)
    EventLog(directory.events).add(EventKind.PROGRESS, msg("logs are fetched"), data={FILES_LATE: True})

    def start(_job: JobDirectory, lock: int, **_options: object) -> None:
        def look() -> None:
            EventLog(directory.events).add(EventKind.PROGRESS, msg("the rest was fetched"))
            os.close(lock)

        threading.Timer(0.5, look).start()

    monkeypatch.setattr(starting, "start_controller", start)
    assert main(["attach", directory.job_id]) == 1
    assert "the rest was fetched" in capsys.readouterr().err


def test_what_would_be_followed_again_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {
        "led": "followed as before",
        "left": "would be followed again",
        "bare": "no controller can be brought back",
    }
    directories = {name: jobs.create(name) for name in kinds}
    for name in ("led", "left"):
        begun(directories[name])
    let_go = led(directories["led"])
    assert main(["attach", "--all", "--dry-run"]) == 0
    of_all = capsys.readouterr().out
    for name, directory in directories.items():
        assert main(["attach", directory.job_id, "--dry-run"]) == 0
        told = f"{directory.job_id}: "
        assert kinds[name] in capsys.readouterr().out
        assert kinds[name] in next(line for line in of_all.splitlines() if line.startswith(told))
    assert not directories["left"].has_controller()
    let_go()
    for job in (directories["left"], directories["led"]):
        ended(job)
    lost(directories["led"])
    assert main(["attach", directories["left"].job_id, "--dry-run"]) == 0
    assert "is over; its end would be shown" in capsys.readouterr().out
    assert main(["attach", directories["led"].job_id, "--dry-run"]) == 0
    assert "would look again at hosts" in capsys.readouterr().out
