"""Starting the controller of a job and talking to it over its socket: stop it, answer what it asks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from typing import Any

from dtagent.protocol import rpc
from dtagent.protocol.events import EventKind

from dttui.errors import NotFinishedError
from dttui.i18n import _
from dttui.services.jobs import JobDirectory
from dttui.transport.base import Prompt, Prompter, PromptKind

DIAL_DEADLINE_S = 20.0


class ControllerClient:
    """One connection to a controller. While it is open, the controller's questions go to `prompter`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, prompter: Prompter | None) -> None:
        self._writer = writer
        self._prompter = prompter
        self._answers: set[asyncio.Task[None]] = set()
        self._listener = asyncio.create_task(self._listen(reader))

    @classmethod
    async def connect(
        cls, directory: JobDirectory, prompter: Prompter | None = None, *, wait: bool = False
    ) -> ControllerClient:
        """Connect to a job's controller.

        Args:
            directory: the job.
            prompter: who answers the controller's questions; `None` when nobody does.
            wait: the controller is only just starting.

        Raises:
            NotFinishedError: no controller is there.
        """
        deadline = asyncio.get_running_loop().time() + (DIAL_DEADLINE_S if wait else 0.0)
        while True:
            try:
                reader, writer = await _dial(directory)
                break
            except OSError as error:
                if asyncio.get_running_loop().time() >= deadline:
                    raise NotFinishedError(
                        _("no controller watches job {id}").format(id=directory.job_id),
                        _("See {path}.").format(path=directory.controller_log),
                    ) from error
                await asyncio.sleep(0.02)
        client = cls(reader, writer, prompter)
        await client._send({"method": "attach", "prompts": prompter is not None})
        return client

    async def stop(self, *, force: bool = False) -> None:
        """Ask for the job to be stopped; with `force` at once, without the grace period."""
        await self._send({"method": "stop", "force": force})

    async def close(self) -> None:
        """Leave; the job goes on."""
        self._listener.cancel()
        for task in self._answers:
            task.cancel()
        await asyncio.gather(self._listener, *self._answers, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):
            self._writer.write(rpc.encode(message))
            await self._writer.drain()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ValueError, rpc.FrameError):
            while line := await reader.readline():
                message = rpc.decode(line)
                if message.get("method") == "prompt" and self._prompter is not None:
                    task = asyncio.create_task(self._answer(message))
                    self._answers.add(task)
                    task.add_done_callback(self._answers.discard)

    async def _answer(self, message: dict[str, Any]) -> None:
        if self._prompter is None:
            return
        prompt = Prompt(
            PromptKind(message["kind"]), message["host"], message["text"], message["secret"], message["fingerprint"]
        )
        answer = await self._prompter.ask(prompt)
        await self._send({"method": "answer", "id": message["id"], "value": answer})


async def stop_job(directory: JobDirectory, *, force: bool) -> None:
    """Have a job stopped by its controller or, where that has died, by a new one that does nothing else.

    Returns once that is asked; the job's events tell the rest. A host that wants a password or has a new key is
    given up by the new controller unless a client that can ask a person is attached to it.

    Raises:
        NotFinishedError: no controller could be reached or started.
    """
    is_orphan = not directory.has_controller()
    if is_orphan:
        start_controller(directory, stop_only=True)
    try:
        client = await ControllerClient.connect(directory, wait=True)
    except NotFinishedError:
        if any(event.kind is EventKind.OUTCOME for event in directory.read_events()):
            return  # It ended by itself meanwhile.
        raise
    try:
        if force or not is_orphan:
            await client.stop(force=force)
    finally:
        await client.close()


def start_controller(directory: JobDirectory, *, expects_client: bool = False, stop_only: bool = False) -> None:
    """Start the controller process of a job, detached from this terminal and session.

    Args:
        directory: the job.
        expects_client: whether a client that can ask a person is about to attach.
        stop_only: the controller is to end what another one left behind.
    """
    options = ["--expects-client"] * expects_client + ["--stop-only"] * stop_only
    descriptor = os.open(directory.controller_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with open(descriptor, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dttui.services.controller", str(directory.path), *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    # Where this process is still there at the controller's end, somebody has to take note of it.
    threading.Thread(target=process.wait, name="controller", daemon=True).start()


async def _dial(directory: JobDirectory) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open the socket through a descriptor of its directory, whose path may be longer than a socket address allows."""
    descriptor = os.open(directory.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return await asyncio.open_unix_connection(
            f"/proc/self/fd/{descriptor}/{directory.socket.name}", limit=rpc.MAX_FRAME_BYTES
        )
    finally:
        os.close(descriptor)
