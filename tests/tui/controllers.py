"""Who answers in the place of a job's controller, and writes down what it is asked."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.tui.job_files import JobWriter


@asynccontextmanager
async def controller(writer: JobWriter, *, answers: bool = True) -> AsyncIterator[list[dict[str, object]]]:
    """A controller's socket and lock; yields what its clients say, whether it answers them or not."""
    import fcntl

    said: list[dict[str, object]] = []

    async def serve(reader: asyncio.StreamReader, stream: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if message["method"] == "stop" and answers:
                    stream.write(json.dumps({"method": "reply", "id": message["id"]}).encode() + b"\n")
                said.append({name: message[name] for name in ("method", "force", "prompts") if name in message})
        finally:  # Also where the test ends before its client has hung up.
            stream.close()

    lock = os.open(writer.directory.lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.utime(lock, (time.time() + 3600, time.time() + 3600))  # It gives no further sign of life.
    directory = os.open(writer.directory.path, os.O_RDONLY)
    server = await asyncio.start_unix_server(serve, f"/proc/self/fd/{directory}/{writer.directory.socket.name}")
    try:
        yield said
    finally:
        server.close()
        os.close(directory)
        os.close(lock)
