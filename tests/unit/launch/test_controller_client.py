"""The connection of a client to a controller."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dttui import jobs
from dttui.jobs import JobDirectory
from dttui.launch import control
from dttui.launch.control import ControllerClient

LIMIT_S = 30.0


async def test_who_gives_up_in_the_middle_of_a_greeting_hangs_up(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = jobs.create("job")
    begun, goes_on, has_hung_up = threading.Event(), threading.Event(), asyncio.Event()

    def slow(_directory: JobDirectory, *, prompts: bool) -> dict[str, Any]:
        begun.set()
        assert goes_on.wait(LIMIT_S)
        return {"method": "attach", "prompts": prompts}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        has_hung_up.set()
        writer.close()

    monkeypatch.setattr(control, "greeting", slow)
    server = await asyncio.start_unix_server(serve, directory.socket)
    connecting = asyncio.create_task(ControllerClient.connect(directory))
    assert await asyncio.to_thread(begun.wait, LIMIT_S)
    connecting.cancel()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await asyncio.wait_for(has_hung_up.wait(), LIMIT_S)
    server.close()
