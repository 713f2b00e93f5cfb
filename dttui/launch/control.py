"""Talking to the controller of a job over its socket: stop it, answer what it asks; another where it has died."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

from dtagent.protocol import rpc

from dttui.errors import NotFinishedError
from dttui.i18n import _, retell_within
from dttui.jobs import JobDirectory
from dttui.launch.starting import ensure_controller
from dttui.launch.stop_request import (
    DIAL_DEADLINE_S,
    REPLY_DEADLINE_S,
    RETRY_S,
    address_of,
    controller_pid,
    greeting,
    no_controller,
    unanswered,
)
from dttui.transport.base import Prompt, Prompter, PromptKind

STACKS_DEADLINE_S = 60.0


class ControllerClient:
    """One connection to a controller. While it is open, the controller's questions go to `prompter`."""

    def __init__(
        self,
        directory: JobDirectory,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        prompter: Prompter | None,
    ) -> None:
        self._directory = directory
        self._writer = writer
        self._prompter = prompter
        self._answers: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listener = asyncio.create_task(self._listen(reader))

    @classmethod
    async def connect(cls, directory: JobDirectory, prompter: Prompter | None = None) -> ControllerClient:
        """Connect to a job's controller; wait for one that is only just starting.

        Args:
            directory: the job.
            prompter: who answers the controller's questions; `None` when nobody does.

        Raises:
            NotFinishedError: no controller is there.
        """
        deadline = asyncio.get_running_loop().time() + DIAL_DEADLINE_S
        while True:
            try:
                reader, writer = await _dial(directory)
                break
            except OSError as error:
                # It has its lock before it has its socket.
                if asyncio.get_running_loop().time() >= deadline or not directory.has_controller():
                    raise no_controller(directory) from error
                await asyncio.sleep(RETRY_S)
        client = cls(directory, reader, writer, prompter)
        try:
            await client._send(await asyncio.to_thread(greeting, directory, prompts=prompter is not None))
        except BaseException:  # As where a screen is left meanwhile.
            await client.close()
            raise
        return client

    async def stop(self, *, force: bool = False) -> bool:
        """Ask for the job to be stopped, with `force` without the grace period; return whether that was noted."""
        return await self._request({"method": "stop", "force": force}) is not None

    async def unanswered(self) -> NotFinishedError | None:
        """Return what is to be said where a stop was not noted; `None` where the controller has gone meanwhile."""
        if self._listener.done() or not self._directory.has_controller():
            return None
        return unanswered(self._directory, await asyncio.to_thread(controller_pid, self._directory))

    async def typed_kinds(self) -> tuple[str, ...]:
        """Return the kinds of prompts whose answers the controller's connections took, as in `PromptKind`."""
        reply = await self._request({"method": "credentials"}) or {}
        return tuple(str(kind) for kind in reply.get("kinds", ()))

    async def stacks(self, ranks: Sequence[int] | None) -> Any:
        """Return where ranks stand, as `stack_report` has it; `None` where the controller does not tell."""
        reply = await self._request({"method": "stacks", "ranks": ranks}, STACKS_DEADLINE_S)
        return reply.get("nodes") if reply is not None else None

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

    async def _request(self, message: dict[str, Any], deadline_s: float | None = None) -> dict[str, Any] | None:
        """Send something that is answered; return the answer, `None` where none came."""
        deadline_s = REPLY_DEADLINE_S if deadline_s is None else deadline_s
        number = next(self._numbers)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[number] = future
        try:
            await self._send({**message, "id": number})
            waiters: set[asyncio.Future[Any]] = {future, self._listener}
            await asyncio.wait(waiters, timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
            return future.result() if future.done() else None
        finally:
            del self._replies[number]

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ValueError, rpc.FrameError):
            while line := await reader.readline():
                message = rpc.decode(line)
                if message.get("method") == "prompt" and self._prompter is not None:
                    task = asyncio.create_task(self._answer(message))
                    self._answers.add(task)
                    task.add_done_callback(self._answers.discard)
                elif message.get("method") == "reply":
                    future = self._replies.get(message.get("id", 0))
                    if future is not None and not future.done():
                        future.set_result(message)

    async def _answer(self, message: dict[str, Any]) -> None:
        if self._prompter is None:
            return
        said = message.get("said")
        with contextlib.suppress(LookupError, ValueError, TypeError, AttributeError):
            retell_within(message, message.get("recipes"))  # In the language of who is asked.
        prompt = Prompt(
            PromptKind(message["kind"]),
            message["host"],
            message["text"] if said is not None else _("answer for the server"),
            message["secret"],
            message["fingerprint"],
            message.get("user", ""),
            # A controller of an older version does not tell the server's words from its own.
            said if said is not None else message["text"],
        )
        answer = await self._prompter.ask(prompt)
        await self._send({"method": "answer", "id": message["id"], "value": answer})


async def job_stacks(directory: JobDirectory, ranks: Sequence[int] | None, prompter: Prompter | None) -> Any:
    """Return where the ranks of a job stand, as its controller is told by the hosts and `stack_report` has it.

    Raises:
        NotFinishedError: there is no controller, or none of an attempt that has been started.
    """
    ensure_controller(directory, expects_client=prompter is not None)
    client = await ControllerClient.connect(directory, prompter)
    try:
        told = await client.stacks(ranks)
    finally:
        await client.close()
    if told is None:
        raise NotFinishedError(_("no ranks of job {id} run now").format(id=directory.job_id))
    return told


async def _dial(directory: JobDirectory) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    with address_of(directory) as address:
        return await asyncio.open_unix_connection(address, limit=rpc.MAX_FRAME_BYTES)
