"""The client of an agent, against agents that behave and agents that do not."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.logs import FollowReply
from dtagent.protocol.preparation import UploadRequest
from dtagent.protocol.rpc import MAGIC, MAX_NOISE_BYTES, ErrorCode
from dtagent.protocol.telemetry import TelemetryReply

from dttui.errors import AgentError, BrokenProtocolError, HostUnreachableError
from dttui.inventory.models import Environment
from dttui.rpc.client import AgentClient
from dttui.transport.base import Nobody
from tests.fake_transport import FakeConnection, FakeHost, FakeProcess, FakeStream, FakeTransport

pytestmark = pytest.mark.usefixtures("unhurried")

ENVIRONMENT = Environment(name="gpu1", host="gpu1")
HELLO = {"version": 1, "agent_version": "9", "hostname": "h", "pid": 1, "boot_id": "b", "time": 1000.0}
Answer = Callable[[str], object]


def agent(answer: Answer, before: bytes = b"") -> Callable[[FakeProcess], Awaitable[int]]:
    """Return a handler that answers each method with what `answer` gives: a result, or raw bytes."""

    async def play(process: FakeProcess) -> int:
        await process.stdout.write(before + MAGIC)
        while line := await process.stdin.readline():
            frame = json.loads(line)
            given = HELLO if frame["method"] == "hello" else answer(frame["method"])
            if isinstance(given, bytes):
                await process.stdout.write(given)
            elif isinstance(given, dict) and "code" in given:
                await process.stdout.write(json.dumps({"id": frame["id"], "error": given}).encode() + b"\n")
            else:
                await process.stdout.write(json.dumps({"id": frame["id"], "result": given}).encode() + b"\n")
        return 0

    return play


async def connect(handler: Callable[[FakeProcess], Awaitable[int]]) -> AgentClient:
    return await AgentClient.connect(ENVIRONMENT, FakeTransport({"gpu1": FakeHost(handler)}), Nobody(), 5.0)


def stream_of(client: AgentClient) -> FakeStream:
    """Return the link below a client."""
    assert isinstance(client.connection, FakeConnection)
    (stream,) = client.connection.streams
    return stream


async def test_what_a_login_shell_prints_first_is_discarded() -> None:
    client = await connect(agent(lambda _: {"samples": []}, before=b"Welcome to gpu1!\n\x1b[2J" * 100))
    assert (await client.call("telemetry", None, TelemetryReply)).samples == []
    assert client.hello is not None
    assert client.hello.agent_version == "9"
    await client.close()


async def test_a_host_without_an_agent_gets_the_remedy() -> None:
    async def missing(process: FakeProcess) -> int:
        process.stderr += b"sh: 1: exec: /var/tmp/dtagent-0/current/bin/python: not found\n"
        return 127

    with pytest.raises(AgentError) as caught:
        await connect(missing)
    assert "dttui agents deploy gpu1" in caught.value.hint


async def test_an_agent_that_ends_at_once_is_quoted() -> None:
    async def broken(process: FakeProcess) -> int:
        process.stderr += b"dtagent: /var/tmp/dtagent-0 belongs to uid 7\x1b]52;c;eA==\x07\n"
        return 1

    with pytest.raises(AgentError, match="belongs to uid 7") as caught:
        await connect(broken)
    assert "\x1b" not in caught.value.message


async def test_a_shell_that_prints_without_end_is_cut_off() -> None:
    async def flood(process: FakeProcess) -> int:
        while await process.stdout.write(b"x" * 4096):
            pass
        return 0

    with pytest.raises(AgentError, match="without end"):
        await connect(flood)
    assert MAX_NOISE_BYTES < 1 << 20


@pytest.mark.parametrize("nonsense", [b"{]\n", b"\xff\n", b"[1]\n", b"[" * 50_000 + b"\n"])
async def test_an_agent_that_sends_nonsense_is_lost_and_says_why(nonsense: bytes) -> None:
    client = await connect(agent(lambda _: nonsense))
    with pytest.raises(HostUnreachableError, match="nonsense"):
        await client.call("ping", None, dict, 5.0)
    await client.close()


async def test_an_answer_of_another_shape_is_an_error_of_the_agent() -> None:
    client = await connect(agent(lambda _: {"samples": [{"seq": "many"}]}))
    with pytest.raises(AgentError, match="makes no sense"):
        await client.call("telemetry", None, TelemetryReply)
    await client.close()


async def test_an_agent_that_refuses_to_talk_leaves_nothing_running() -> None:
    async def play(process: FakeProcess) -> int:
        await process.stdout.write(MAGIC)
        while line := await process.stdin.readline():
            refusal = {"id": json.loads(line)["id"], "error": {"code": ErrorCode.VERSION, "message": "no"}}
            await process.stdout.write(json.dumps(refusal).encode() + b"\n")
        return 0

    transport = FakeTransport({"gpu1": FakeHost(play)})
    connection = await transport.connect(ENVIRONMENT, Nobody(), 5.0)
    before = asyncio.all_tasks()
    with pytest.raises(AgentError, match="no common version"):
        await AgentClient.over(connection)
    assert {task.get_name() for task in asyncio.all_tasks() - before} == set()
    await connection.close()


@pytest.mark.parametrize("state", [[], {}, 7, None])
async def test_a_state_that_is_no_word_is_an_error_of_the_agent(state: object) -> None:
    client = await connect(agent(lambda _: {"status": {"state": state}, "chunks": []}))
    with pytest.raises(AgentError, match="makes no sense"):
        await client.call("follow", None, FollowReply)
    await client.close()


async def test_a_refusal_carries_its_code_and_its_words() -> None:
    client = await connect(agent(lambda _: {"code": 4, "message": "2 GPUs are wanted and 0 are free here"}))
    with pytest.raises(AgentError, match="2 GPUs are wanted") as caught:
        await client.call("prepare", None, dict)
    assert caught.value.code == 4
    await client.close()


NOBODYS = {
    "an id that was not given": b'{"id": 999, "result": {}}\n',
    "an id of tomorrow": b'{"id": 3, "result": {}}\n',
    "an id that is no number": b'{"id": "x", "result": {}}\n',
    "a truth for a number": b'{"id": true, "result": {}}\n',
    "no id": b'{"result": {}}\n',
    "a call of its own": b'{"jsonrpc": "2.0", "method": "ping", "params": {}}\n',
    "one answer three times": b'{"id": 1, "result": {}}\n' * 3,
    "more values than any answer has": b'{"id": 2, "result": [' + b"[]," * 60_000 + b"0]}\n",
}


@pytest.mark.parametrize("line", NOBODYS.values(), ids=NOBODYS.keys())
async def test_what_nobody_asked_for_ends_the_link_at_once(line: bytes) -> None:
    client = await connect(agent(lambda _: line))
    with pytest.raises(BrokenProtocolError, match="nonsense"):
        await client.call("ping", None, dict, 5.0)
    with pytest.raises(BrokenProtocolError):
        await client.call("ping", None, dict, 5.0)
    await client.close()


async def test_an_answer_that_comes_late_ends_nothing() -> None:
    async def late(process: FakeProcess) -> int:
        await process.stdout.write(MAGIC)
        waiting = []
        while line := await process.stdin.readline():
            frame = json.loads(line)
            if frame["method"] == "hello":
                await process.stdout.write(json.dumps({"id": frame["id"], "result": HELLO}).encode() + b"\n")
                continue
            waiting.append(frame["id"])
            for number in waiting if len(waiting) == 2 else ():
                await process.stdout.write(b'{"id": %d, "result": {}}\n' % number)
        return 0

    client = await connect(late)
    with pytest.raises(HostUnreachableError, match="no answer"):
        await client.call("status", None, dict, 0.2)
    assert await client.call("status", None, dict, 5.0) == {}
    await client.close()


async def test_no_text_of_an_agent_is_longer_than_two_kibibytes() -> None:
    long = "kernel é " * 2000
    client = await connect(agent(lambda _: {"kernel": long, "list": [{"reason": "x" * 10**6}], "traceback": long * 4}))
    told = await client.call("facts", None, dict, 5.0)
    assert len(told["kernel"].encode()) <= 2048
    assert told["kernel"].endswith("é …")
    assert len(told["list"][0]["reason"].encode()) <= 2048
    assert 8 * 1024 < len(told["traceback"].encode()) <= 16 * 1024
    assert told["traceback"].endswith(long[-100:])
    await client.close()


async def test_calls_under_way_end_when_the_link_does() -> None:
    transport = FakeTransport({"gpu1": FakeHost(agent(lambda _: b""))})
    client = await AgentClient.connect(ENVIRONMENT, transport, Nobody(), 5.0)
    call = asyncio.create_task(client.call("ping", None, dict, 30.0))
    await asyncio.sleep(0)
    await transport.cut("gpu1")
    with pytest.raises(HostUnreachableError):
        await call
    await client.close()


async def test_the_difference_of_the_clocks_is_known() -> None:
    client = await connect(agent(lambda _: {}))
    assert client.clock_offset_s < -1_000_000_000
    await client.close()


async def deaf(process: FakeProcess) -> int:
    await process.stdout.write(MAGIC)
    frame = json.loads(await process.stdin.readline())
    await process.stdout.write(json.dumps({"id": frame["id"], "result": HELLO}).encode() + b"\n")
    await asyncio.Event().wait()
    return 0


BIG = UploadRequest(AttemptKey("job", 0), "data", 0, "x" * 4_000_000)
"""The first of them fills the pipe, and the second is never written whole."""


async def test_an_agent_that_does_not_read_is_given_up_in_time() -> None:
    client = await connect(deaf)
    for _attempt in range(2):
        with pytest.raises(HostUnreachableError, match="no answer"):
            await asyncio.wait_for(client.call("upload", BIG, int, 0.2), 10)
    with pytest.raises(HostUnreachableError, match="stopped reading"):
        await client.call("ping", None, dict, 5.0)
    await client.close()


async def test_nothing_follows_a_request_that_was_cancelled_half_way() -> None:
    """What came after half a frame would be glued to it: the link is of no use, and says so at once."""
    client = await connect(agent(lambda _: {}))
    written, sending, never = bytearray(), asyncio.Event(), asyncio.Event()

    async def halfway(data: bytes) -> None:
        written.extend(data[:20])
        sending.set()
        await never.wait()

    stream_of(client).write = halfway  # type: ignore[method-assign]  # a pipe that fills at byte 20
    push = asyncio.create_task(client.call("push", None, dict, 5.0))
    waiting = asyncio.create_task(client.call("telemetry", None, dict, 5.0))
    await sending.wait()
    push.cancel()
    results = await asyncio.gather(push, waiting, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert isinstance(results[1], HostUnreachableError)
    with pytest.raises(HostUnreachableError, match="broken off"):
        await client.call("stop", None, dict, 5.0)
    assert len(written) == 20
    await client.close()


async def test_a_request_that_is_cancelled_before_its_turn_costs_no_link() -> None:
    client = await connect(agent(lambda _: {}))
    write, turn, sending = stream_of(client).write, asyncio.Event(), asyncio.Event()

    async def slow(data: bytes) -> None:
        sending.set()
        await turn.wait()
        await write(data)

    stream_of(client).write = slow  # type: ignore[method-assign]  # a link on which a push takes its time
    push = asyncio.create_task(client.call("push", None, dict, 5.0))
    await sending.wait()
    behind = asyncio.create_task(client.call("telemetry", None, dict, 5.0))
    await asyncio.sleep(0)
    behind.cancel()
    assert isinstance((await asyncio.gather(behind, return_exceptions=True))[0], asyncio.CancelledError)
    turn.set()
    assert await push == {}
    assert await client.call("stop", None, dict, 5.0) == {}
    await client.close()


async def test_an_agent_that_has_too_many_clients_is_quoted() -> None:
    async def full(process: FakeProcess) -> int:
        refusal = {"id": None, "error": {"code": 7, "message": "128 clients are connected already"}}
        await process.stdout.write(MAGIC + json.dumps(refusal).encode() + b"\n")
        await process.stdin.readline()
        return 0

    with pytest.raises(HostUnreachableError, match="128 clients are connected already"):
        await connect(full)


async def test_a_link_that_dies_in_a_write_is_told_once_and_by_the_call_alone() -> None:
    client = await connect(agent(lambda _: {}))
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))

    async def dies(data: bytes) -> None:
        await stream_of(client).close()
        raise HostUnreachableError("gpu1", "the link died")

    stream_of(client).write = dies  # type: ignore[method-assign]  # the moment in question takes a race otherwise
    with pytest.raises(HostUnreachableError, match="the link died"):
        await client.call("ping", None, dict, 5.0)
    gc.collect()
    assert complaints == []
    await client.close()


@pytest.mark.parametrize("turns", range(6))
async def test_a_call_that_is_cancelled_as_its_answer_comes_does_not_go_on(turns: int) -> None:
    """Else who follows a node for ever, answer by answer, goes on after he was told to end."""
    loop = asyncio.get_running_loop()
    client = await connect(agent(lambda _: {}))
    read, was_taken = stream_of(client).read, []

    def cancel(left: int) -> None:
        """As many turns of the loop after the answer has come."""
        if left:
            loop.call_soon(cancel, left - 1)
        else:
            was_taken.append(call.cancel())

    async def answered() -> bytes:
        data = await read()
        cancel(turns)
        return data

    stream_of(client).read = answered  # type: ignore[method-assign]  # the moment in question takes a race otherwise
    await client.call("ping", None, dict)  # It was waiting in the other.
    call = asyncio.create_task(client.call("telemetry", None, dict))
    await asyncio.wait({call})
    assert call.cancelled() == was_taken[0]
    assert turns or call.cancelled()
    await client.close()


async def test_of_an_agent_that_sends_more_samples_than_were_asked_for_none_is_checked_or_taken() -> None:
    samples = [{"seq": number, "time": 1.0} for number in range(3000)]
    client = await connect(agent(lambda _: {"samples": samples}))
    with pytest.raises(AgentError, match="makes no sense"):
        await client.telemetry(0, 0.0)
    await client.close()


async def test_what_is_told_of_a_call_in_vain_is_the_time_that_was_up() -> None:
    async def trickle(process: FakeProcess) -> int:
        await process.stdout.write(MAGIC)
        while line := await process.stdin.readline():
            frame = json.loads(line)
            if frame["method"] == "hello":
                await process.stdout.write(json.dumps({"id": frame["id"], "result": HELLO}).encode() + b"\n")
            for _ in range(200 if frame["method"] == "follow" else 0):
                await process.stdout.write(b" ")
                await asyncio.sleep(0.05)
        return 0

    client = await connect(trickle)
    with pytest.raises(HostUnreachableError, match=r"no answer within 0.2 s"):
        await client.call("ping", None, dict, 5.0, quiet_s=0.2)
    with pytest.raises(HostUnreachableError, match=r"no answer within 1.5 s"):
        await client.call("follow", None, dict, 1.5, quiet_s=1.0)
    await client.close()
