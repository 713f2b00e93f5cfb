"""A client of one agent: JSON-RPC over a byte stream, replies decoded strictly. Knows nothing of jobs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from dtagent.protocol import rpc, sentences
from dtagent.protocol.greeting import HelloReply, HelloRequest
from dtagent.protocol.jobs import NodeState
from dtagent.protocol.said import said_at_end
from pydantic import TypeAdapter, ValidationError

from dttui import __version__
from dttui.agent_words import agent_text, notice_in
from dttui.errors import AgentError, AgentGoneError, BrokenProtocolError, HostUnreachableError
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.rpc.answers import Answers, CheckedAnswer, Reads
from dttui.rpc.flow_control import FlowControl
from dttui.rpc.sample_rows import MOST_SAMPLES, WATCHED, ReceivedSample
from dttui.rpc.text_bounds import cut
from dttui.rpc.token_bucket import TokenBucket
from dttui.sanitize import clean
from dttui.timestamps import timestamp_or
from dttui.transport.base import ByteStream, Connection, Prompter, RemoteCommand, Transport
from dttui.transport.deadline import within

Reply = TypeVar("Reply")
Value = TypeVar("Value")
_FINAL = frozenset(state.value for state in NodeState if state.is_final)

_STUCK_BEFORE_CODES = "the daemon has not taken a connection"
"""How the bridge of an agent without codes begins to say that there is a daemon, which hangs."""
HELLO_TIMEOUT_S = 30.0
"""Long enough for a cold interpreter on a busy host with a slow disk."""
SAMPLE_BYTES = 1024
"""About one sample of a large host: what was missed keeps to the link's grant as logs do."""
TALK_BYTES_PER_S = 128 * 1024
"""What an agent may say each second beside logs: its status and samples are a few kB. Who says more is asked less."""
TALK_BURST_BYTES = 1024 * 1024
NEWS_PER_S = 4.0
"""How often it is asked for news that bring little, once there were many: each is looked at by all who want to know."""
NEWS_BURST = 40
NEWS_AFTER_END = 0.1
"""What an answer counts once all has ended, when only logs are still to come."""
LITTLE_BYTES = 4096
SAMPLES_PER_S = 2.0
"""Taken of one host, which takes one a second; after a silence those that it has kept."""
SAMPLES_BURST = 4000
DRIP_BYTES = 512
"""What is read of a frame at least, or it waits a moment for more: each read costs as much as a thousand bytes."""
DRIP_PAUSE_S = 0.02
PING_INTERVAL_S = 10.0
"""Between two, and for the answer: keeps the bridge, which ends after a minute of silence, and tells a dead link within
twice that, and so within the 30 s in which silence has to be told."""


class AgentClient:
    """One conversation with one agent."""

    def __init__(self, environment: Environment, connection: Connection, stream: ByteStream) -> None:
        self.environment = environment
        self.connection = connection
        self.hello: HelloReply | None = None
        self.clock_offset_s = 0.0
        """The host's clock minus ours."""
        self.flow_control = FlowControl()
        """Of the link."""
        self._stream = stream
        self._numbers = itertools.count(1)
        self._answers = Answers()
        self._talk = TokenBucket(TALK_BYTES_PER_S, TALK_BURST_BYTES)
        self._news = TokenBucket(NEWS_PER_S, NEWS_BURST)
        self._samples = TokenBucket(SAMPLES_PER_S, SAMPLES_BURST)
        self._next_at: dict[str, float] = {}
        """Method → when it may be called again, on the loop's clock."""
        self._sending = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._lost: HostUnreachableError | None = None
        self._heard_at = 0.0
        """When something came from the agent last, on the loop's clock."""

    @classmethod
    async def connect(
        cls, environment: Environment, transport: Transport, prompter: Prompter, timeout_s: float
    ) -> AgentClient:
        """Connect to a host, reach its agent and agree on a version.

        Raises:
            HostError: the host or its agent cannot be reached.
        """
        connection = await transport.connect(environment, prompter, timeout_s)
        try:
            return await cls.over(connection)
        except BaseException:
            await connection.close()
            raise

    @classmethod
    async def over(cls, connection: Connection) -> AgentClient:
        """Reach the agent over a connection there is; see `connect`. Closing the client closes the connection."""
        client = cls(connection.environment, connection, await connection.run(RemoteCommand.AGENT))
        try:
            await client._greet()
        except BaseException:
            await client.leave()
            raise
        return client

    @property
    def name(self) -> str:
        """The environment's."""
        return self.environment.name

    @property
    def takes_bytes(self) -> bool:
        """Whether requests may bring bytes along."""
        return self.hello is not None and self.hello.takes_bytes

    async def call(
        self,
        method: str,
        request: Any,
        reply: type[Reply],
        timeout_s: float = 30.0,
        brings: bytes = b"",
        quiet_s: float | None = None,
    ) -> Reply:
        """Ask the agent.

        Args:
            method: a method of the agent.
            request: a dataclass of dtagent.protocol, or what it is encoded to; or `None`.
            reply: what the answer is decoded to.
            timeout_s: how long to ask and to wait for the answer.
            brings: bytes that come along with the request, where the agent takes such.
            quiet_s: for how long nothing at all may come from the agent, where that is less.

        Raises:
            HostUnreachableError: the link is gone, or no answer came.
            AgentError: the agent refused; `code` is its reason.
        """
        if self._lost is not None:
            raise self._lost
        await self._take_turn(method)
        number = next(self._numbers)
        params = request if isinstance(request, str) else rpc.encode_value(rpc.to_wire(request or {}))
        message = rpc.encode_call(number, method, params, brings)
        was_sent = False

        async def exchange() -> tuple[dict[str, Any] | CheckedAnswer, int]:
            nonlocal was_sent
            was_sent = True
            await self._send(message)
            return await future

        future = self._answers.expect(number)
        try:
            in_time = within(exchange(), timeout_s)
            frame, size = await (in_time if quiet_s is None else self._unless_quiet(in_time, quiet_s))
        except asyncio.TimeoutError as error:
            raise self._no_answer(timeout_s) from error
        finally:
            self._answers.give_up(number, was_sent=was_sent)
        self._put_off(method, frame, size)
        return self._checked(method, frame, reply)

    def _checked(self, method: str, frame: dict[str, Any] | CheckedAnswer, reply: type[Reply]) -> Reply:
        """Return the reply in an answer. Raises AgentError where the agent refused, or makes no sense."""
        if isinstance(frame, CheckedAnswer):
            told: Reply = frame.reply
            return told
        if "error" in frame:
            raise self._refusal(method, frame["error"])
        try:
            return _adapter(reply).validate_python(frame.get("result"))
        except ValidationError as error:
            raise AgentError(
                self.name,
                _("{host}: the agent's answer to {method} makes no sense").format(host=self.name, method=method),
            ) from error

    def _no_answer(self, seconds: float) -> HostUnreachableError:
        message = _("{host}: no answer within {seconds:g} s").format(host=self.name, seconds=seconds)
        return HostUnreachableError(self.name, message)

    async def _unless_quiet(self, answer: Coroutine[Any, Any, Value], quiet_s: float) -> Value:
        """Await an answer while something comes from the agent. Raises HostUnreachableError once nothing has so long.

        Who was long in asking gives it two thirds of that all the same.
        """
        loop = asyncio.get_running_loop()
        least = loop.time() + quiet_s * 2 / 3
        task = asyncio.ensure_future(answer)
        try:
            while not task.done():
                left_s = max(self._heard_at + quiet_s, least) - loop.time()
                if left_s <= 0:
                    raise self._no_answer(quiet_s)
                await asyncio.wait({task}, timeout=left_s)
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def telemetry(self, after_seq: int | None, wait_s: float) -> list[ReceivedSample]:
        """Wait for samples after a number, with the fields of `WATCHED`; empty where none came in time.

        Raises:
            HostUnreachableError: the link is gone, or no answer came.
            AgentError: the agent refused.
        """
        if self._lost is not None:
            raise self._lost
        await self._take_turn("telemetry")
        most = min(max(1, self.flow_control.grant_bytes // SAMPLE_BYTES), MOST_SAMPLES)
        frame, size = await self._poll("telemetry", WATCHED.request(after_seq, wait_s, most), WATCHED.read, wait_s + 20)
        self._put_off("telemetry", frame, size)
        samples = WATCHED.received(self._checked("telemetry", frame, WATCHED.reply))
        self._delay("telemetry", self._samples.spend(len(samples)))
        return samples

    async def _poll(
        self, method: str, params: str, reads: Reads, timeout_s: float
    ) -> tuple[dict[str, Any] | CheckedAnswer, int]:
        """Ask as `call` does, but in a third of its time: thousands of hosts are asked this each second.

        While the request cannot be sent no time is kept: a link that takes nothing is told by the pings, which end it.
        """
        number = next(self._numbers)
        future = self._answers.expect(number, reads)
        timer = asyncio.get_running_loop().call_later(timeout_s, self._give_up, future, timeout_s)
        try:
            await self._send(rpc.encode_call(number, method, params))
            return await future
        finally:
            timer.cancel()
            self._answers.give_up(number, was_sent=True)

    def _give_up(self, future: asyncio.Future[tuple[dict[str, Any] | CheckedAnswer, int]], seconds: float) -> None:
        if not future.done():
            future.set_exception(self._no_answer(seconds))

    async def close(self) -> None:
        """End the conversation and the connection."""
        await self.leave()
        await self.connection.close()

    async def leave(self) -> None:
        """End the conversation; the connection stays."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._lose(_("{host}: the connection was closed").format(host=self.name))
        await self._stream.close()

    async def _send(self, message: bytes) -> None:
        async with self._sending:
            if self._lost is not None:
                raise self._lost
            try:
                await self._stream.write(message)
            except BaseException as error:
                # Half a frame may have gone out, and whatever followed it would be nonsense to the agent.
                cut = _("{host}: the agent stopped reading, or a request was broken off").format(host=self.name)
                self._lose(error.message if isinstance(error, HostUnreachableError) else cut)
                raise

    async def _greet(self) -> None:
        try:
            buffered = await within(self._skip_noise(), HELLO_TIMEOUT_S)
        except asyncio.TimeoutError as error:
            raise AgentError(self.name, _("{host}: the agent did not start").format(host=self.name)) from error
        self._tasks = [
            asyncio.create_task(self._receive(buffered)),
            asyncio.create_task(self._keep_alive()),
        ]
        before = time.time()
        request = HelloRequest(list(rpc.VERSIONS), f"dttui {__version__}")
        self.hello = await self.call("hello", request, HelloReply, HELLO_TIMEOUT_S)
        now = (before + time.time()) / 2
        self.clock_offset_s = timestamp_or(self.hello.time, now) - now

    async def _skip_noise(self) -> bytes:
        """Read up to the bridge's first line; return what came after it."""
        noise = b""
        while rpc.MAGIC not in noise:
            data = await self._stream.read()
            noise += data
            if len(data) < DRIP_BYTES and rpc.MAGIC not in noise:
                await asyncio.sleep(DRIP_PAUSE_S if data else 0.0)
            if not data:
                raise await self._missing(noise)
            if len(noise) > rpc.MAX_NOISE_BYTES + len(rpc.MAGIC):
                raise AgentError(
                    self.name,
                    _("{host}: the login shell prints without end").format(host=self.name),
                    _("Silence the shell's start-up files for non-interactive logins."),
                )
        return noise.partition(rpc.MAGIC)[2]

    async def _missing(self, noise: bytes) -> AgentError:
        with contextlib.suppress(asyncio.TimeoutError):
            status, stderr = await within(self._stream.wait(), 5.0)
            lines = clean((stderr or noise).decode(errors="replace")).strip().splitlines()
            remedy = _("Install it: dttui agents deploy {host}").format(host=self.name)
            if status in (126, 127):
                return AgentGoneError(
                    self.name, _("{host}: there is no agent on this host").format(host=self.name), remedy
                )
            reason = _("exit status {status}").format(status=status)
            is_gone = True
            if lines:
                said = said_at_end(lines[-1], noise.decode(errors="replace").splitlines())
                reason = agent_text(cut(said), notice_in({"notice": said.notice}))
                is_gone = said.code != sentences.DAEMON_STUCK.code and not said.startswith(_STUCK_BEFORE_CODES)
            words = _("{host}: the agent ended: {reason}").format(host=self.name, reason=reason)
            return AgentGoneError(self.name, words, remedy) if is_gone else AgentError(self.name, words)
        return AgentError(self.name, _("{host}: the agent did not start").format(host=self.name))

    async def _receive(self, buffered: bytes) -> None:
        reason = _("{host}: the connection ended").format(host=self.name)
        breaks_protocol = False
        frames = rpc.FrameReader()
        began = time.monotonic()
        data = buffered
        try:
            while True:
                for line in frames.feed(data):
                    self.flow_control.note(len(line), time.monotonic() - began)
                    began = time.monotonic()
                    refusal = self._answers.take(line)
                    if refusal is not None:  # It does not serve us, and hangs up.
                        reason = self._refusal("", refusal["error"]).message
                        return
                self._answers.check_pending(frames.pending_bytes)
                is_between = not frames.pending_bytes
                if len(data) < DRIP_BYTES and not is_between:
                    await asyncio.sleep(DRIP_PAUSE_S)
                data = await self._stream.read()
                if not data:
                    return
                self._heard_at = asyncio.get_running_loop().time()
                if is_between:
                    began = time.monotonic()
        except rpc.FrameError as error:
            breaks_protocol = True
            reason = _("{host}: the agent sent nonsense: {error}").format(host=self.name, error=cut(clean(str(error))))
        except HostUnreachableError as error:
            reason = error.message
        finally:
            self._lose(reason, breaks_protocol=breaks_protocol)
            if breaks_protocol:
                await self._stream.close()

    async def _take_turn(self, method: str) -> None:
        """Wait where an agent is asked often already; what nobody asks again and again is asked at once."""
        wait_s = self._next_at.get(method, 0.0) - asyncio.get_running_loop().time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
            if self._lost is not None:
                raise self._lost

    def _put_off(self, method: str, frame: dict[str, Any] | CheckedAnswer, size: int) -> None:
        """Let the next question wait for as long as an answer costs more than its share."""
        if method in ("follow", "telemetry"):
            logged, is_over = (
                (0, False) if isinstance(frame, CheckedAnswer) or method != "follow" else _log_bytes(frame)
            )
            self._delay(method, self._talk.spend(max(0, size - logged)))
            if logged < LITTLE_BYTES:
                self._delay(method, self._news.spend(NEWS_AFTER_END if is_over else 1))

    def _delay(self, method: str, seconds: float) -> None:
        due = asyncio.get_running_loop().time() + seconds
        self._next_at[method] = max(self._next_at.get(method, 0.0), due)

    def _lose(self, reason: str, *, breaks_protocol: bool = False) -> None:
        if self._lost is None:
            kind = BrokenProtocolError if breaks_protocol else HostUnreachableError
            self._lost = kind(self.name, reason)
        self._answers.end(self._lost)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(PING_INTERVAL_S)
            try:
                await self.call("ping", None, dict, PING_INTERVAL_S)
            except (HostUnreachableError, AgentError) as error:
                self._lose(error.message)
                await self._stream.close()  # Who is still sending is to hear of it.
                return

    def _refusal(self, method: str, error: Any) -> AgentError:
        body = error if isinstance(error, dict) else {}
        code = body.get("code") if isinstance(body.get("code"), int) else None
        message = agent_text(str(body.get("message", "")), notice_in(body.get("data")))
        if code == rpc.ErrorCode.VERSION:
            return AgentError(
                self.name,
                _("{host}: agent and dttui have no common version: {message}").format(host=self.name, message=message),
                _("Upgrade dttui on this login node.")
                if _is_newer(body.get("data"))
                else _("Upgrade the agent: dttui agents deploy {host}").format(host=self.name),
                code=code,
            )
        return AgentError(
            self.name,
            _("{host}: {message}").format(host=self.name, message=message or method),
            code=code,
        )


def _is_newer(data: Any) -> bool:
    """Whether an agent that shares no version with us told that it speaks newer ones only."""
    versions = data.get("versions") if isinstance(data, dict) else None
    numbers = [item for item in versions if isinstance(item, int)] if isinstance(versions, list) else []
    return bool(numbers) and min(numbers) > max(rpc.VERSIONS)


def _log_bytes(frame: dict[str, Any]) -> tuple[int, bool]:
    """Return how much of an answer to `follow` is bytes of logs, and whether all has ended there."""
    result = frame.get("result")
    told = result if isinstance(result, dict) else {}
    chunks, status = told.get("chunks"), told.get("status")
    data = (chunk.get("data") for chunk in chunks if isinstance(chunk, dict)) if isinstance(chunks, list) else ()
    state = status.get("state") if isinstance(status, dict) else None
    is_over = isinstance(state, str) and state in _FINAL
    return sum(len(item) for item in data if isinstance(item, str)), is_over


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _adapter(kind: type[Reply]) -> TypeAdapter[Reply]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]
