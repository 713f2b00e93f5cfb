"""Talking to the controller of a job over its socket: stop it, answer what it asks; another where it has died."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from dtagent.protocol import rpc
from dtagent.protocol.events import EventKind

from dttui.errors import NotFinishedError
from dttui.i18n import _
from dttui.jobs import JobDirectory
from dttui.jobs.lost_nodes import lost_nodes, unfetched_nodes
from dttui.launch.starting import start_controller
from dttui.transport.base import Prompt, Prompter, PromptKind
from dttui.variables import variables

DIAL_DEADLINE_S = 60.0
"""A cold Python on a login node that many share takes its time."""
REPLY_DEADLINE_S = 20.0
STACKS_DEADLINE_S = 60.0
ATTEMPTS = 3
"""Controllers that may die before one has noted what it is asked."""


class ControllerClient:
    """One connection to a controller. While it is open, the controller's questions go to `prompter`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, prompter: Prompter | None) -> None:
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
                    raise NotFinishedError(
                        _("no controller watches job {id}").format(id=directory.job_id),
                        _("See {path}.").format(path=directory.controller_log),
                    ) from error
                await asyncio.sleep(0.02)
        client = cls(reader, writer, prompter)
        agent = variables().get("SSH_AUTH_SOCK", "")
        message = {"method": "attach", "prompts": prompter is not None, "agent_socket": agent}
        if secrets := await asyncio.to_thread(_secrets_here, directory, variables()):
            message["secrets"] = secrets  # Its socket is this user's alone.
        await client._send(message)
        return client

    async def stop(self, *, force: bool = False) -> bool:
        """Ask for the job to be stopped, with `force` without the grace period; return whether that was noted."""
        return await self._request({"method": "stop", "force": force}) is not None

    async def credentials(self) -> tuple[str, ...]:
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

    async def _request(self, message: dict[str, Any], deadline_s: float = REPLY_DEADLINE_S) -> dict[str, Any] | None:
        """Send something that is answered; return the answer, `None` where none came."""
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


def _secrets_here(directory: JobDirectory, known: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a job's secrets that the caller has: a controller that took over may not know them."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        names = json.loads(directory.plan.read_bytes()).get("secrets", [])
        return {name: known[name] for name in names if name in known}
    return {}


async def stop_job(directory: JobDirectory, *, force: bool, prompter: Prompter | None = None) -> None:
    """Have a job stopped by its controller or, where that has died, by a new one.

    Of a job that is over, the hosts that were lost are looked at again. Returns once the controller has noted what is
    asked, so that it will be done even if that one dies; the job's events tell the rest.

    Raises:
        NotFinishedError: no controller could be reached or started.
    """
    for _attempt in range(ATTEMPTS):
        ensure_controller(directory, expects_client=prompter is not None, looks_again=True)
        try:
            client = await ControllerClient.connect(directory, prompter)
        except NotFinishedError:
            if directory.is_over():
                return  # It ended by itself meanwhile.
            continue
        try:
            if await client.stop(force=force):
                return
        finally:
            await client.close()
    raise NotFinishedError(
        _("no controller watches job {id}").format(id=directory.job_id),
        _("See {path}.").format(path=directory.controller_log),
    )


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


def ensure_controller(directory: JobDirectory, *, expects_client: bool = False, looks_again: bool = False) -> bool:
    """Start a controller for a job whose own has died; return whether one was started.

    It starts nothing on the hosts: it finds out what has become of the job, and follows it.

    Args:
        directory: the job.
        expects_client: whether a client that can ask a person is about to attach.
        looks_again: also for a job that is over, so that it looks at the hosts that were lost, and fetches the logs
            that a forced stop left behind.

    Raises:
        NotFinishedError: none can be started here now.
    """
    if directory.has_controller() or not directory.launch.exists():
        return False
    if directory.is_over() and not (looks_again and _has_something_left(directory)):
        return False
    try:
        lock = directory.claim()
    except OSError:
        return False  # Another user's, or on a disk that is read-only: there is nothing to look at it with.
    if lock is None:
        return False  # Somebody else has just started one.
    try:
        start_controller(directory, lock, expects_client=expects_client)
    except OSError as fault:
        message = _("no controller of job {id} can be started: {reason}")
        raise NotFinishedError(
            message.format(id=directory.job_id, reason=fault.strerror or str(fault)),
            _("End processes of yours on this login node, or free memory there, and try again."),
        ) from fault
    return True


def _has_something_left(directory: JobDirectory) -> bool:
    events = directory.read_events(EventKind.NODE_STATE, EventKind.FINDING)
    return bool(lost_nodes(events) or unfetched_nodes(events))


async def _dial(directory: JobDirectory) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open the socket through a descriptor of its directory, whose path may be longer than a socket address allows."""
    descriptor = os.open(directory.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return await asyncio.open_unix_connection(
            f"/proc/self/fd/{descriptor}/{directory.socket.name}", limit=rpc.MAX_FRAME_BYTES
        )
    finally:
        os.close(descriptor)
