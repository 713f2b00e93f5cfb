"""One client of the daemon: limits of size, time and memory, with methods that misbehave on purpose."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import json
import os
import select
import socket
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from dtagent.calls import Later, Method, Workers
from dtagent.daemon import client_connection as connection_module
from dtagent.daemon.attempt_calls import AttemptLocks
from dtagent.daemon.client_connection import MAX_CALLS, MAX_LARGE_FRAMES, ClientConnection, LargeFrames
from dtagent.errors import RpcError
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import StartRequest
from dtagent.protocol.logs import FollowRequest
from dtagent.protocol.preparation import PrepareRequest, PushRequest, UploadRequest
from dtagent.protocol.probes import ReachRequest
from dtagent.protocol.rpc import MAX_FRAME_BYTES, MAX_PUSH_BYTES, ErrorCode, encode

from tests.waiting import until

DEADLINE_S = 30.0
KEY = {"job_id": "x", "attempt": 0}
PREPARE = {
    "key": KEY,
    "node_rank": 0,
    "python": "sh",
    "master_address": "localhost",
    "reserve_port": True,
    "cuda_slots": 0,
}


class Client:
    """Frames over a socket; nothing is read but what is asked for."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, method: str, params: object = None, number: object = 1) -> None:
        """Send one call."""
        self.writer.write(json.dumps({"id": number, "method": method, "params": params or {}}).encode() + b"\n")

    async def receive(self) -> Any:
        """Return the next frame; `None` at the end."""
        line = await asyncio.wait_for(self.reader.readline(), DEADLINE_S)
        return json.loads(line) if line else None

    async def ask(self, method: str, params: object = None) -> Any:
        """Send and receive."""
        self.send(method, params)
        return await self.receive()


class Daemon:
    """A socket with connections behind it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.methods: dict[str, Method] = {"ping": Method(None, self._ping)}
        self.large_frames = LargeFrames()
        self._clients: list[Client] = []

    async def _ping(self, _: None) -> str:
        return "pong"

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client."""
        await ClientConnection(reader, writer, self.methods, self.large_frames).serve()

    async def client(self, limit: int = 8 * MAX_FRAME_BYTES) -> Client:
        """Connect."""
        found = Client(*await asyncio.open_unix_connection(self.path, limit=limit))
        self._clients.append(found)
        return found

    async def close(self) -> None:
        """Hang up."""
        for client in self._clients:
            client.writer.close()
            with contextlib.suppress(ConnectionError):
                await client.writer.wait_closed()


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    found = Daemon(tmp_path / "s")
    server = await asyncio.start_unix_server(found.accept, found.path)
    yield found
    await found.close()
    server.close()
    await server.wait_closed()


async def test_calls_that_hang_are_told_and_hold_no_slot(daemon: Daemon) -> None:
    release = threading.Event()
    workers = Workers("hanging", 2)

    async def hang(_: None) -> bool:
        return await workers.run(release.wait)

    daemon.methods["facts"] = Method(None, hang, limit_s=0.2)
    client = await daemon.client()
    for number in range(MAX_CALLS + 8):
        client.send("facts", number=number)
    replies = [await client.receive() for _ in range(MAX_CALLS + 8)]
    assert {reply["error"]["code"] for reply in replies} == {ErrorCode.TIMED_OUT}
    assert "facts: not done within 0.2 s" in replies[0]["error"]["message"]
    assert {reply["id"] for reply in replies} == set(range(MAX_CALLS + 8))
    assert (await client.ask("ping"))["result"] == "pong"
    assert sum(thread.name == "hanging" for thread in threading.enumerate()) == 2
    release.set()
    await until(lambda: not any(thread.name == "hanging" for thread in threading.enumerate()), "the threads to end")
    daemon.methods["facts"] = Method(None, hang)
    assert (await client.ask("facts"))["result"] is True


async def test_an_attempt_whose_call_hangs_holds_up_no_other() -> None:
    locks = AttemptLocks(patience_s=0.1)
    with locks.hold(None, AttemptKey("a", 0)):
        with locks.hold(AttemptKey("b", 0)):
            pass
        for keys in ((AttemptKey("a", 0),), (None, AttemptKey("b", 0))):
            with pytest.raises(RpcError) as caught:
                await asyncio.to_thread(locks.hold(*keys).__enter__)
            assert caught.value.code is ErrorCode.BUSY
    key = AttemptKey("a", 0)
    with locks.hold(None, key):
        pass
    kept = weakref.ref(key)
    del key
    assert kept() is None, "one is kept for every attempt that was ever named"


async def test_nothing_is_done_for_a_client_before_it_has_said_hello(daemon: Daemon) -> None:
    daemon.methods["hello"] = daemon.methods["ping"]
    client = await daemon.client()
    assert (await client.ask("ping"))["error"]["code"] == ErrorCode.INVALID_REQUEST
    client.send("hello")
    client.send("ping", number=2)  # It need not wait for the answer.
    assert [(await client.receive())["result"] for _ in range(2)] == ["pong", "pong"]


async def test_a_notification_is_carried_out_and_not_answered(daemon: Daemon) -> None:
    heard = asyncio.Event()

    async def hear(_: None) -> bool:
        heard.set()
        return True

    daemon.methods["hear"] = Method(None, hear)
    client = await daemon.client()
    for method in ("hear", "no such method"):
        client.writer.write(json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n")
    assert (await client.ask("ping"))["result"] == "pong"
    await asyncio.wait_for(heard.wait(), DEADLINE_S)


@pytest.mark.parametrize(
    ("request_type", "params", "told"),
    [
        (AttemptKey, {"job_id": "x", "attempt": 10**18}, "attempt must be from 0 to 1000000"),
        (AttemptKey, {"job_id": "x", "attempt": -1}, "attempt must be from 0 to 1000000"),
        (FollowRequest, {"key": KEY, "offsets": {"0.out": -5}}, "offsets.0.out must be from 0"),
        (FollowRequest, {"key": KEY, "offsets": {"0.out": -(10**19)}}, "offsets.0.out is too large a number"),
        (PrepareRequest, PREPARE | {"port_range": [1024, 10**9]}, "port_range must be from"),
        (PrepareRequest, PREPARE | {"port_range": [655400, 655400]}, "port_range must be from"),
        (PrepareRequest, PREPARE | {"port_range": [0, 80]}, "port_range must be from 1"),
        (ReachRequest, {"targets": [{"address": "x", "port": 10**6, "token": "x"}]}, "port must be from 1 to 65535"),
    ],
)
async def test_numbers_that_mean_nothing_are_the_clients_fault(
    daemon: Daemon, request_type: type, params: dict[str, object], told: str
) -> None:
    ping = daemon.methods["ping"].call
    daemon.methods["any"] = Method(request_type, lambda _: ping(None))
    client = await daemon.client()
    client.writer.write(json.dumps({"id": 1, "method": "any", "params": params}).encode() + b"\n")
    error = (await client.receive())["error"]
    assert error["code"] == ErrorCode.INVALID_PARAMS
    assert told in error["message"]


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + 400 * "0", f"-{2**70}", "NaN", "Infinity"])
async def test_numbers_that_are_too_large_for_any_use_are_no_request(daemon: Daemon, number: str) -> None:
    client = await daemon.client()
    client.writer.write(b'{"id": 1, "method": "telemetry", "params": {"interval_s": %s}}\n' % number.encode())
    error = (await client.receive())["error"]
    assert error["code"] == ErrorCode.PARSE
    assert "is too large for a number" in error["message"] or "is not JSON" in error["message"]


async def test_an_answer_that_no_frame_holds_is_told_instead(daemon: Daemon) -> None:
    async def much(_: None) -> str:
        return "x" * MAX_FRAME_BYTES

    daemon.methods["much"] = Method(None, much)
    assert (await (await daemon.client()).ask("much"))["error"]["code"] == ErrorCode.TOO_LARGE


async def test_a_bulky_answer_is_encoded_on_a_thread_of_its_own(daemon: Daemon) -> None:
    threads: list[str] = []

    class Told(dict[str, int]):
        def items(self) -> Any:
            threads.append(threading.current_thread().name)
            return super().items()

    async def bulk(_: None) -> Later:
        async def make() -> Told:
            return Told(size=1)

        return make

    daemon.methods["follow"] = Method(None, bulk)
    assert (await (await daemon.client()).ask("follow"))["result"] == {"size": 1}
    assert threads
    assert all(name.startswith("encode") for name in threads)


async def test_a_client_that_has_hung_up_its_half_and_reads_nothing_is_let_go(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "LAST_WORD_S", 0.2)

    async def bulk(_: None) -> str:
        return "x" * 3_000_000

    daemon.methods["bulk"] = Method(None, bulk)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.connect(str(daemon.path))
        deaf.sendall(b'{"id": 1, "method": "bulk"}\n')
        await until(lambda: select.select([deaf], [], [], 0)[0], "the answer to begin")
        deaf.shutdown(socket.SHUT_WR)
        await asyncio.to_thread(_wait_for_the_end, deaf)


async def test_each_method_has_its_own_limit_of_size(daemon: Daemon) -> None:
    async def take(request: UploadRequest) -> int:
        return len(request.data)

    ping = daemon.methods["ping"].call
    daemon.methods["status"] = Method(AttemptKey, lambda _: ping(None))
    daemon.methods["upload"] = Method(UploadRequest, take, max_bytes=300_000)
    client = await daemon.client()
    key = {"job_id": "x" * 70_000, "attempt": 0}
    reply = await client.ask("status", key)
    assert reply["error"]["code"] == ErrorCode.TOO_LARGE
    assert "the limit is 65536" in reply["error"]["message"]
    part = {"key": {"job_id": "x", "attempt": 0}, "path": "p", "offset": 0, "data": "x" * 200_000}
    assert (await client.ask("upload", part))["result"] == 200_000


async def test_bytes_that_a_request_brings_are_its_data_where_it_has_such(daemon: Daemon) -> None:
    async def take(request: PushRequest) -> int:
        assert isinstance(request.data, bytes)
        return len(request.data)

    daemon.methods["push"] = Method(PushRequest, take, max_bytes=2 * MAX_PUSH_BYTES)
    daemon.methods["upload"] = Method(UploadRequest, take, max_bytes=MAX_PUSH_BYTES)
    client = await daemon.client()
    key = {"job_id": "x", "attempt": 0}
    brought = bytes(range(256)) * 400
    for method in ("push", "upload", "ping", "push"):
        params = {"key": key, "offset": 0, "path": "p"}
        client.writer.write(encode({"id": method, "method": method, "params": params}, brought))
        answer = await client.receive()
        assert answer is not None
        if method == "push":
            assert answer["result"] == len(brought)
        elif method == "upload":
            assert "data must be str, not bytes" in answer["error"]["message"]
        else:
            assert answer["error"]["code"] == ErrorCode.TOO_LARGE


async def test_a_frame_beyond_all_limits_is_told_before_the_end(daemon: Daemon) -> None:
    client = await daemon.client()
    client.send("ping")
    client.writer.write(b"x" * (MAX_FRAME_BYTES + 100))
    answers = [await client.receive(), await client.receive()]
    assert {"id": 1, "jsonrpc": "2.0", "result": "pong"} in answers
    assert any("the limit is 4194304" in str(answer) for answer in answers)
    with contextlib.suppress(ConnectionError):
        assert await client.receive() is None


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"node_rank": 0, "processes": [], "ranks": []}, "key is missing"),
        ({"key": {"job_id": 7, "attempt": 0}, "node_rank": 0, "processes": [], "ranks": []}, "key.job_id must be str"),
        (
            {"key": {"job_id": "x", "attempt": 0}, "node_rank": 0, "processes": [{"name": 3}], "ranks": []},
            "processes.name must be str, not int",
        ),
        (
            {
                "key": {"job_id": "x", "attempt": 0},
                "node_rank": 0,
                "processes": [],
                "ranks": [],
                "secrets": ["hunter2"],
            },
            "secrets must be dict",
        ),
        (
            {
                "key": {"job_id": "x", "attempt": 0},
                "node_rank": 0,
                "processes": [],
                "ranks": [],
                "secrets": {"A": ["hunter2"]},
            },
            "secrets must be",
        ),
        ([1], "params must be an object, not list"),
    ],
)
async def test_what_does_not_fit_is_told_by_its_path_and_never_by_its_value(
    daemon: Daemon, params: object, told: str
) -> None:
    ping = daemon.methods["ping"].call
    daemon.methods["start"] = Method(StartRequest, lambda _: ping(None))
    error = (await (await daemon.client()).ask("start", params))["error"]
    assert error["code"] == ErrorCode.INVALID_PARAMS
    assert told in error["message"]
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, ErrorCode.REFUSED),
        (errno.EDQUOT, ErrorCode.REFUSED),
        (errno.EMFILE, ErrorCode.BUSY),
        (errno.EIO, ErrorCode.INTERNAL),
    ],
)
async def test_what_the_host_lacks_is_told(daemon: Daemon, number: int, code: ErrorCode) -> None:
    async def fail(_: None) -> None:
        raise OSError(number, os.strerror(number), "/var/tmp/x")

    daemon.methods["fail"] = Method(None, fail)
    assert (await (await daemon.client()).ask("fail"))["error"]["code"] == code


@pytest.mark.parametrize("number", [[1], {"a": 1}, True, 1.5])
async def test_an_id_that_is_none_is_refused(daemon: Daemon, number: object) -> None:
    client = await daemon.client()
    client.send("ping", number=number)
    reply = await client.receive()
    assert (reply["id"], reply["error"]["code"]) == (None, ErrorCode.INVALID_REQUEST)


async def test_calls_may_come_in_pieces_in_heaps_and_with_the_same_id(daemon: Daemon) -> None:
    client = await daemon.client()
    for piece in (
        b'{"id": 1, "meth',
        b'od": "ping"}\n{"id": 1, "method": "ping"}\n{"id":',
        b' "x", "method": "ping"}\n',
    ):
        client.writer.write(piece)
        await client.writer.drain()
    numbers = [(await client.receive())["id"] for _ in range(3)]
    assert sorted(map(str, numbers)) == ["1", "1", "x"]


async def test_a_client_that_does_not_read_holds_one_bulky_answer_and_is_dropped(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "SEND_LIMIT_S", 0.5)
    made = 0

    async def bulk(_: None) -> Later:
        async def make() -> str:
            nonlocal made
            made += 1
            return "x" * 1_000_000

        return make

    daemon.methods["follow"] = Method(None, bulk)
    other = await daemon.client()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.connect(str(daemon.path))
        deaf.sendall(b'{"id": 1, "method": "follow"}\n' * 3 * MAX_CALLS)
        await until(lambda: select.select([deaf], [], [], 0)[0], "the answer to begin")
        assert made == 1
        monkeypatch.setattr(connection_module, "SEND_LIMIT_S", DEADLINE_S)  # The others are not to be so quick.
        for _ in range(20):
            assert (await other.ask("ping"))["result"] == "pong"
        assert len((await other.ask("follow"))["result"]) == 1_000_000
        assert made == 2
        await asyncio.to_thread(_wait_for_the_end, deaf)
    assert made == 2


def _wait_for_the_end(deaf: socket.socket) -> None:
    """Wait without reading, since that would be what the client does not do."""
    poll = select.poll()
    poll.register(deaf, select.POLLRDHUP)
    assert poll.poll(DEADLINE_S * 1000)


class Counted(LargeFrames):
    """Counts what has been let in."""

    entered = 0

    async def enter(self) -> Callable[[], None]:
        leave = await super().enter()
        self.entered += 1
        return leave


async def test_large_frames_of_many_clients_take_turns_and_a_stuck_one_makes_way(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "FRAME_LIMIT_S", 0.5)
    daemon.large_frames = places = Counted()
    held = most = 0

    async def take(request: UploadRequest) -> int:
        nonlocal held, most
        held, most = held + 1, max(most, held + 1)
        await asyncio.sleep(0)
        held -= 1
        return len(request.data)

    daemon.methods["upload"] = Method(UploadRequest, take, max_bytes=MAX_FRAME_BYTES)
    stuck = [await daemon.client() for _ in range(MAX_LARGE_FRAMES)]
    for client in stuck:
        client.writer.write(b"x" * 300_000)
    await until(lambda: places.entered == MAX_LARGE_FRAMES, "the large frames to begin")
    monkeypatch.setattr(connection_module, "FRAME_LIMIT_S", DEADLINE_S)  # The others are not to be so quick.
    others = [await daemon.client() for _ in range(12)]
    part = {"key": {"job_id": "x", "attempt": 0}, "path": "p", "offset": 0, "data": "x" * 500_000}
    for client in others:
        client.send("upload", part)
    for client in stuck:
        assert "a frame that was not whole after" in (await client.receive())["error"]["message"]
    assert [(await client.receive())["result"] for client in others] == [500_000] * 12
    assert most <= MAX_LARGE_FRAMES


async def test_an_answer_that_json_cannot_hold_is_an_error(daemon: Daemon) -> None:
    async def strange(_: None) -> object:
        return {"set": {1}}

    daemon.methods["strange"] = Method(None, strange)
    assert (await (await daemon.client()).ask("strange"))["error"]["code"] == ErrorCode.INTERNAL


async def test_text_that_is_not_unicode_is_the_clients_fault(daemon: Daemon) -> None:
    async def take(request: UploadRequest) -> int:
        return len(base64.b64encode(request.path.encode()))

    daemon.methods["upload"] = Method(UploadRequest, take)
    client = await daemon.client()
    client.writer.write(
        b'{"id":1,"method":"upload","params":{"key":{"job_id":"x","attempt":0},"path":"\\ud800","offset":0,"data":""}}\n'
    )
    assert (await client.receive())["error"]["code"] == ErrorCode.PARSE
