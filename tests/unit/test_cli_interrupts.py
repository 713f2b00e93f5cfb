"""Interrupts of a job that is followed, against a controller that only listens and ends the job when told to."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind

from dttui.cli import run
from dttui.cli.arguments import make_parser
from dttui.services import jobs
from dttui.services.jobs import EventLog, JobDirectory
from tests.integration.headless import shell_job

Stops = list[bool]


class Listener:
    """A controller that starts late, and ends its job after so many requests to stop."""

    def __init__(self, directory: JobDirectory, enough: int) -> None:
        self.directory = directory
        self.stops: Stops = []
        self._enough = enough
        self._lock = os.open(directory.lock, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._client, self.directory.socket)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            message = json.loads(line)
            if message["method"] == "stop":
                self.stops.append(message["force"])
                if len(self.stops) == self._enough:
                    log = EventLog(self.directory)
                    log.add(EventKind.JOB_STATE, "stopped", data={"state": "CANCELLED"})
                    log.add(EventKind.OUTCOME, "stopped", data={"state": "CANCELLED", "exit_code": 103})
                    os.close(self._lock)
        writer.close()


@pytest.fixture
async def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Listener]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = Listener(jobs.create("x"), enough=1)
    yield made


@pytest.mark.parametrize("presses", [1, 2])
async def test_an_interrupt_before_the_controller_is_there_is_sent_once_it_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    listener: Listener,
    presses: int,
) -> None:
    pressed = asyncio.Event()

    def submit(*_arguments: object, **_options: object) -> JobDirectory:
        for _press in range(presses):
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
        asyncio.get_running_loop().call_later(0.1, pressed.set)
        return listener.directory

    monkeypatch.setattr(run, "submit", submit)
    job = shell_job(tmp_path, {"pytorch-dev-env": 1}, "true")
    applying = asyncio.ensure_future(run.apply(make_parser().parse_args(["--demo", "--apply", str(job)])))
    await pressed.wait()
    server = await listener.serve()
    assert await asyncio.wait_for(applying, 10) == 103
    server.close()
    assert listener.stops == [presses > 1]
    told = capsys.readouterr()
    assert "press Ctrl-C again" in told.err
    assert ("forcing" in told.err) == (presses > 1)
    assert "CANCELLED" in told.out


async def test_a_job_that_ends_with_its_controller_at_once_is_shown_to_its_end(
    listener: Listener, capsys: pytest.CaptureFixture[str]
) -> None:
    server = await listener.serve()
    options = make_parser().parse_args(["--output", "jsonl", "stop", listener.directory.job_id])
    assert await asyncio.wait_for(run.stop(options), 10) == 0
    server.close()
    assert [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()] == ["job_state", "outcome"]
