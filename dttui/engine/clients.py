"""The controller's clients, at the socket in the job's directory: who asks for a stop, watches, or can ask a person."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dtagent.protocol import rpc

from dttui.i18n import recipes
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.launch.login_session import take_agent
from dttui.transport.base import Prompt, PromptKind
from dttui.transport.deadline import within

LOG = logging.getLogger("dttui.controller")
MOST_UNREAD_BYTES = 16 << 20
"""Of a client that does not read what it is told."""
CLIENT_WAIT_S = 15.0
"""How long a question waits for a client that was said to come."""


@dataclass
class _Watcher:
    """A client that hears of events that are not on the disk."""

    writer: asyncio.StreamWriter
    next_seq: int
    """Number of the event that it is told next."""


@dataclass
class _Question:
    message: dict[str, Any]
    answer: asyncio.Future[str | None]
    writer: asyncio.StreamWriter | None = None
    """The client it was put to."""


class Clients:
    """Serves the socket; as a `Prompter` it puts questions to a client that can ask a person.

    Args:
        directory: of the job.
        log: of its events.
        stop: what a client's word to stop calls; true for by force.
        expects_one: whether a client that can ask a person is about to come.
    """

    def __init__(
        self, directory: JobDirectory, log: EventLog, stop: Callable[[bool], None], *, expects_one: bool
    ) -> None:
        self._directory = directory
        self._log = log
        self._stop = stop
        self._expects_one = expects_one
        self.retry: Callable[[], None] | None = None
        """Tries at once to reach hosts that are silent; called as a client comes."""
        self.take_secrets: Callable[[Mapping[str, str]], None] | None = None
        """Takes the values of secrets that a client brings."""
        self.stacks: Callable[[list[int] | None], Awaitable[list[Any] | None]] | None = None
        """Asks the hosts where ranks stand, of all or of some."""
        self._watchers: list[_Watcher] = []
        self._prompting: list[asyncio.StreamWriter] = []
        self._came = asyncio.Event()
        self._numbers = itertools.count(1)
        self._questions: dict[int, _Question] = {}
        self._attaching: set[asyncio.Task[None]] = set()
        self._typed: set[str] = set()
        """Kinds of what a person typed to let us in."""

    @property
    def prompting(self) -> int:
        """How many there are that can ask a person."""
        return len(self._prompting)

    async def serve(self) -> asyncio.Server:
        """Listen at the job's socket, for its user alone. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            self._directory.socket.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        descriptor = os.open(self._directory.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Through the descriptor, since the directory's path may be longer than a socket address allows.
            path = f"/proc/self/fd/{descriptor}/{self._directory.socket.name}"
            listener.bind(path)
            os.chmod(path, 0o600)  # Nobody can connect before it listens.
        except OSError:
            listener.close()
            raise
        finally:
            os.close(descriptor)
        return await asyncio.start_unix_server(self._client, sock=listener, limit=rpc.MAX_FRAME_BYTES)

    async def ask(self, prompt: Prompt) -> str | None:
        """Put a question to a client that can ask a person; `None` where there is none."""
        if not self._prompting and self._expects_one:
            with contextlib.suppress(asyncio.TimeoutError):
                await within(self._came.wait(), CLIENT_WAIT_S)
        if not self._prompting:
            return None
        number = next(self._numbers)
        message = {
            "method": "prompt",
            "id": number,
            "kind": prompt.kind.value,
            "host": prompt.host,
            "text": prompt.text,
            "secret": prompt.secret,
            "fingerprint": prompt.fingerprint,
            "user": prompt.user,
            "said": prompt.said,
            "recipes": recipes({"text": prompt.text}),
        }
        question = _Question(message, asyncio.get_running_loop().create_future())
        self._questions[number] = question
        try:
            self._put(question)
            return await question.answer
        finally:
            del self._questions[number]

    def tell_unwritten(self) -> None:
        """Tell who watches what the disk has not taken, each event once."""
        for watcher in list(self._watchers):
            for line in self._log.unwritten(watcher.next_seq):
                watcher.writer.write(rpc.encode({"method": "event", "line": line}))
            watcher.next_seq = self._log.end
            if watcher.writer.transport.get_write_buffer_size() > MOST_UNREAD_BYTES:
                self._watchers.remove(watcher)  # It is stopped, and will ask anew.
                watcher.writer.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self._take(rpc.decode(line), writer)
        except (rpc.FrameError, ConnectionError, ValueError, KeyError) as error:
            LOG.warning("client dropped: %s", error)
        except asyncio.CancelledError:
            pass  # The job is over and the loop is closing; there is nobody above to pass it on to.
        finally:
            self._forget(writer)
            writer.close()

    def _forget(self, writer: asyncio.StreamWriter) -> None:
        """Put what a client that left was asked to another one."""
        self._prompting = [other for other in self._prompting if other is not writer]
        self._watchers = [other for other in self._watchers if other.writer is not writer]
        for question in self._questions.values():
            if question.writer is writer and not question.answer.done():
                self._put(question)

    async def _attach(self, agent_socket: str, secrets: Mapping[str, str]) -> None:
        """Try silent hosts at once, with the ssh-agent of a client that came where there is no other."""
        if self.take_secrets is not None:
            self.take_secrets(secrets)
        await asyncio.to_thread(take_agent, agent_socket)  # An agent that is stuck answers late.
        if self.retry is not None:
            self.retry()

    async def _tell_stacks(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        ranks = message.get("ranks")
        wanted = [int(rank) for rank in ranks] if isinstance(ranks, list) else None
        nodes = await self.stacks(wanted) if self.stacks is not None else None
        writer.write(rpc.encode({"method": "reply", "id": message.get("id"), "nodes": nodes}))

    def _take(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        method = message.get("method")
        if method == "attach":
            if message.get("prompts"):
                self._prompting.append(writer)
                self._came.set()
            brought = message.get("secrets")
            secrets = {str(name): str(value) for name, value in brought.items()} if isinstance(brought, dict) else {}
            attaching = asyncio.create_task(self._attach(str(message.get("agent_socket", "")), secrets))
            self._attaching.add(attaching)
            attaching.add_done_callback(self._attaching.discard)
        elif method == "watch":
            watcher = _Watcher(writer, 0)
            self._watchers.append(watcher)
            self.tell_unwritten()
            writer.write(rpc.encode({"method": "told"}))
        elif method == "stop":
            self._stop(bool(message.get("force")))
            writer.write(rpc.encode({"method": "reply", "id": message.get("id")}))
        elif method == "stacks":
            asking = asyncio.create_task(self._tell_stacks(message, writer))
            self._attaching.add(asking)
            asking.add_done_callback(self._attaching.discard)
        elif method == "credentials":
            reply = {"method": "reply", "id": message.get("id"), "kinds": sorted(self._typed)}
            writer.write(rpc.encode(reply))
        elif method == "answer":
            question = self._questions.get(message["id"])
            if question is not None and not question.answer.done():
                question.answer.set_result(message["value"])
                if message["value"] is not None and question.message["kind"] != PromptKind.HOST_KEY.value:
                    self._typed.add(question.message["kind"])

    def _put(self, question: _Question) -> None:
        """Put a question to the client that came last; without one there is no answer."""
        if not self._prompting:
            question.answer.set_result(None)
            return
        question.writer = self._prompting[-1]
        question.writer.write(rpc.encode(question.message))
