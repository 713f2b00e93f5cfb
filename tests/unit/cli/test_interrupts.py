"""Interrupts of a job that is followed, against a controller that only listens and ends the job when told to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import NoReturn

import pytest

from dttui.cli import apply, attach, dispatch, main, stopping
from dttui.cli.arguments import make_parser
from dttui.cli.printing import Printer
from dttui.errors import ExitCode
from dttui.jobs import JobDirectory
from dttui.launch import control
from dttui.launch.stop_request import unanswered
from tests.integration.headless import shell_job
from tests.unit.cli.job_listener import Listener
from tests.unit.cli.job_listener import listener as listener

LIMIT_S = 60.0


def test_a_host_that_starts_no_more_processes_gives_the_spare_controller_up_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> NoReturn:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("dttui.launch.starting.SpareController", refuse)
    assert main(["--apply", "no/job.yaml"]) == 2
    assert "no/job.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("presses", [1, 2])
async def test_an_interrupt_before_the_controller_is_there_is_sent_once_it_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    listener: Listener,
    presses: int,
) -> None:
    loop = asyncio.get_running_loop()
    told: list[str] = []
    pressed = asyncio.Event()

    def note(_printer: Printer, text: str) -> None:
        told.append(text)
        if sum("stopping" in line or "forcing" in line for line in told) == presses:
            pressed.set()
        elif "stopping" in text:
            loop.call_soon(os.kill, os.getpid(), signal.SIGINT)

    def submit(*_arguments: object, **_options: object) -> JobDirectory:
        os.kill(os.getpid(), signal.SIGINT)
        return listener.directory

    monkeypatch.setattr("dttui.launch.submit.submit", submit)
    monkeypatch.setattr(Printer, "note", note)
    job = shell_job(tmp_path, {"pytorch-dev-env": 1}, "true")
    applying = asyncio.ensure_future(apply.apply(make_parser().parse_args(["--demo", "--apply", str(job)])))
    await asyncio.wait_for(pressed.wait(), LIMIT_S)
    server = await listener.serve()
    assert await asyncio.wait_for(applying, LIMIT_S) == 103
    server.close()
    assert listener.stops == [presses > 1]
    assert any("press Ctrl-C again" in line for line in told)
    assert "CANCELLED" in capsys.readouterr().out


async def test_an_interrupt_that_the_controller_does_not_answer_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listener: Listener
) -> None:
    told: list[str] = []
    said = asyncio.Event()

    def note(_printer: Printer, text: str) -> None:
        told.append(text)
        if text.startswith("  → "):
            said.set()

    def submit(*_arguments: object, **_options: object) -> JobDirectory:
        os.kill(os.getpid(), signal.SIGINT)
        return listener.directory

    monkeypatch.setattr("dttui.launch.submit.submit", submit)
    monkeypatch.setattr(control, "REPLY_DEADLINE_S", 0.1)
    monkeypatch.setattr(Printer, "note", note)
    listener.answers = False
    job = shell_job(tmp_path, {"pytorch-dev-env": 1}, "true")
    server = await listener.serve()
    applying = asyncio.ensure_future(apply.apply(make_parser().parse_args(["--demo", "--apply", str(job)])))
    await asyncio.wait_for(said.wait(), LIMIT_S)
    vain = unanswered(listener.directory, os.getpid())
    assert told[-2:] == [f"⚠ {vain.message}", f"  → {vain.hint}"]
    listener.end()
    assert await asyncio.wait_for(applying, LIMIT_S) == 103
    server.close()


async def test_who_leaves_a_job_whose_controller_gives_no_sign_of_life_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, listener: Listener
) -> None:
    told: list[str] = []

    def note(_printer: Printer, text: str) -> None:
        if not told:
            os.kill(os.getpid(), signal.SIGINT)
        told.append(text)

    monkeypatch.setattr(Printer, "note", note)
    server = await listener.serve()
    os.utime(listener.directory.lock, (0, 0))
    options = make_parser().parse_args(["attach", listener.directory.job_id])
    following = attach.attach(options)
    assert asyncio.iscoroutine(following)
    assert await asyncio.wait_for(following, LIMIT_S) == ExitCode.NOT_FINISHED
    server.close()
    vain = unanswered(listener.directory, os.getpid())
    assert told[1:3] == [f"⚠ {vain.message}", f"  → {vain.hint}"]
    assert told[3].startswith("leaving; the job goes on")


async def test_a_job_that_ends_with_its_controller_at_once_is_shown_to_its_end(
    listener: Listener, capsys: pytest.CaptureFixture[str]
) -> None:
    server = await listener.serve()
    options = make_parser().parse_args(["--output", "jsonl", "stop", listener.directory.job_id])
    assert await asyncio.wait_for(asyncio.to_thread(stopping.stop, options), LIMIT_S) == 0
    server.close()
    assert [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()] == ["job_state", "outcome"]


def interrupt(*_arguments: object, **_options: object) -> NoReturn:
    raise KeyboardInterrupt


def test_an_interrupt_before_there_is_a_job_says_that_nothing_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dttui.launch.local_plan.make_local_plan", interrupt)
    job = str(shell_job(tmp_path, {"pytorch-dev-env": 1}, "true"))
    assert main(["--demo", "--apply", job]) == 103
    assert capsys.readouterr().err == "dttui: interrupted before there was a job: nothing was started\n"
    assert main(["--demo", "apply", job, "--output", "json"]) == 103
    assert json.loads(capsys.readouterr().out)["exit_code"] == 103


def test_an_interrupt_while_dttui_is_only_just_being_imported_leaves_no_stack_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dispatch, "run", interrupt)
    assert main(["ps"]) == 103
    assert capsys.readouterr().err == "dttui: interrupted before anything was done\n"


def test_an_interrupt_of_a_stop_says_how_to_learn_whether_it_was_heard(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dttui.launch.stop_request.stop_job", interrupt)
    assert main(["stop", listener.directory.job_id]) == 103
    assert f"whether it is stopped tells `dttui status {listener.directory.job_id}`" in capsys.readouterr().err
