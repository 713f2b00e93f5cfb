"""A controller that starts when told to, and ends its job at the first request to stop."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog


class Listener:
    """It has the job's lock from the beginning, and its socket once it serves."""

    def __init__(self, directory: JobDirectory) -> None:
        self.directory = directory
        self.stops: list[bool] = []
        """Of each request, whether it was to be by force."""
        self.answers = True
        """Else it takes requests in, and does nothing."""
        self._lock = os.open(directory.lock, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._client, self.directory.socket)

    def end(self) -> None:
        """End the job, and with it."""
        log = EventLog(self.directory.events)
        log.add(EventKind.JOB_STATE, "stopped", data={"state": "CANCELLED"})
        log.add(EventKind.OUTCOME, "stopped", data={"state": "CANCELLED", "exit_code": 103})
        os.close(self._lock)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if message["method"] == "stop":
                    self.stops.append(message["force"])
                    if not self.answers:
                        continue
                    self.end()
                    writer.write(json.dumps({"method": "reply", "id": message["id"]}).encode() + b"\n")
        finally:  # Also where the test ends before its client has hung up.
            writer.close()


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    # Short: the path of a socket holds 107 bytes at most.
    monkeypatch.setenv("XDG_STATE_HOME", os.environ["DTTUI_DEMO_ROOT"])
    return Listener(jobs.create("x"))
