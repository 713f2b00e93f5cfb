"""Listeners for probes and the probes themselves, over real sockets: what they tell apart, and what they refuse."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from dtagent.checks import probing
from dtagent.checks.checks import Checks, look
from dtagent.checks.probing import Listeners
from dtagent.checks.reach import reach
from dtagent.errors import RpcError
from dtagent.protocol.probes import (
    LOAD,
    MAX_PATHS,
    MAX_TARGETS,
    PING,
    TOTAL,
    HushRequest,
    ListenRequest,
    PathsRequest,
    Reached,
    ReachOutcome,
    ReachRequest,
    ReachTarget,
)
from dtagent.protocol.rpc import ErrorCode
from dtagent.system.interfaces import reserve_port

DEADLINE_S = 30.0


@pytest.fixture
async def listeners() -> AsyncIterator[Listeners]:
    found = Listeners()
    yield found
    found.close()
    for _turn in range(10):  # So that what was closed, or was only just coming in, is let go of.
        await asyncio.sleep(0)
    gc.collect()  # What nobody has closed is to be warned of here.


def a_token() -> str:
    return secrets.token_hex(32)


async def probe(target: ReachTarget, seconds: float = DEADLINE_S) -> Reached:
    return await asyncio.to_thread(reach, target, seconds)


@contextlib.contextmanager
def talker(answer: bytes) -> Iterator[int]:
    """Listen, and give one caller the answer; with none, take it in and say nothing."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(answer)
            connection.recv(1024)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        if answer:
            thread.start()
        yield int(server.getsockname()[1])
        if answer:
            thread.join(DEADLINE_S)


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1"])
async def test_a_probe_reaches_a_listener_and_measures_the_round_trip(listeners: Listeners, address: str) -> None:
    token = a_token()
    port = (await listeners.listen(ListenRequest(token, DEADLINE_S))).port
    began = time.monotonic()
    found = await probe(ReachTarget(address, port, token))
    assert found.outcome is ReachOutcome.REACHED
    assert found.round_trip_s is not None
    assert 0 < found.round_trip_s < time.monotonic() - began
    assert found.bytes_per_s is None
    assert found.interface is not None


async def test_a_listener_takes_a_free_port_of_its_range_and_leaves_it_free_for_the_job(listeners: Listeners) -> None:
    token = a_token()
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("", 0))
        first = int(taken.getsockname()[1])
        last = min(first + 3, 65535)
        port = (await listeners.listen(ListenRequest(token, DEADLINE_S, (first, last)))).port
        assert first < port <= last
        assert (await probe(ReachTarget("127.0.0.1", port, token))).outcome is ReachOutcome.REACHED
        await listeners.hush(HushRequest(token))
        held = reserve_port(port, port)
        assert held is not None, "the port lingers"
        held.close()


async def test_whoever_comes_in_as_a_listener_ends_is_let_go_of_at_once(listeners: Listeners) -> None:
    token = a_token()
    port = (await listeners.listen(ListenRequest(token, DEADLINE_S))).port
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as late:
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # It was accepted in this turn of the event loop, and has no protocol yet.
        await listeners.hush(HushRequest(token))
        late.settimeout(DEADLINE_S)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(late.recv, 1) == b""


async def test_a_range_without_a_free_port_is_refused(listeners: Listeners) -> None:
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("", 0))
        port = int(taken.getsockname()[1])
        with pytest.raises(RpcError, match="is taken") as refusal:
            await listeners.listen(ListenRequest(a_token(), DEADLINE_S, (port, port)))
    assert refusal.value.code is ErrorCode.REFUSED


async def test_two_listeners_at_once_know_their_own_probes(listeners: Listeners) -> None:
    one, other = a_token(), a_token()
    first = (await listeners.listen(ListenRequest(one, 10.0))).port
    second = (await listeners.listen(ListenRequest(other, 10.0))).port
    results = await asyncio.gather(
        probe(ReachTarget("127.0.0.1", first, one)),
        probe(ReachTarget("127.0.0.1", second, other)),
        probe(ReachTarget("127.0.0.1", second, one)),
    )
    assert [item.outcome for item in results] == [ReachOutcome.REACHED, ReachOutcome.REACHED, ReachOutcome.STRANGER]


async def test_nothing_is_said_to_whoever_does_not_show_the_token(
    listeners: Listeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "TOKEN_LIMIT_S", 0.1)
    port = (await listeners.listen(ListenRequest(a_token(), DEADLINE_S))).port
    for said in (b"", b"GET / HTTP/1.0\r\n\r\n", a_token().encode() + PING, b"x" * 4096):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        if not said:
            writer.write_eof()
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
        writer.close()


async def test_whoever_shows_nothing_is_dropped(listeners: Listeners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "TOKEN_LIMIT_S", 0.05)
    port = (await listeners.listen(ListenRequest(a_token(), DEADLINE_S))).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
    writer.close()


@pytest.mark.parametrize("said", [b"no such word", PING * (probing.MAX_PINGS + 1)])
async def test_a_probe_that_says_anything_else_is_dropped(listeners: Listeners, said: bytes) -> None:
    token = a_token()
    port = (await listeners.listen(ListenRequest(token, DEADLINE_S))).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(token.encode() + said)
    with contextlib.suppress(ConnectionResetError):
        assert len(await asyncio.wait_for(reader.read(), DEADLINE_S)) <= probing.MAX_PINGS
    writer.close()


async def test_a_listener_takes_in_no_more_than_it_was_told_to(listeners: Listeners) -> None:
    token = a_token()
    port = (await listeners.listen(ListenRequest(token, DEADLINE_S, load_bytes=1000))).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(token.encode() + LOAD + TOTAL.pack(10**6) + b"x" * 2000)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
    writer.close()


async def test_strangers_cannot_shut_a_probe_out_for_long(
    listeners: Listeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "MAX_STRANGERS", 2)
    monkeypatch.setattr(probing, "TOKEN_LIMIT_S", 0.05)
    token = a_token()
    port = (await listeners.listen(ListenRequest(token, DEADLINE_S))).port
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
    end = time.monotonic() + DEADLINE_S
    while (await probe(ReachTarget("127.0.0.1", port, token))).outcome is not ReachOutcome.REACHED:
        assert time.monotonic() < end
    for _reader, writer in silent:
        writer.close()


async def test_a_listener_is_gone_after_its_time(listeners: Listeners) -> None:
    token = a_token()
    port = (await listeners.listen(ListenRequest(token, 0.05))).port
    end = time.monotonic() + DEADLINE_S
    while (await probe(ReachTarget("127.0.0.1", port, token))).outcome is not ReachOutcome.REFUSED:
        assert time.monotonic() < end
    assert await listeners.hush(HushRequest(token)) == {"ended": False}


async def test_there_are_only_so_many_listeners_and_each_has_a_token_of_its_own(listeners: Listeners) -> None:
    token = a_token()
    await listeners.listen(ListenRequest(token, DEADLINE_S))
    for wrong in (token, "", "x", "-" * 64):
        with pytest.raises(RpcError, match="token"):
            await listeners.listen(ListenRequest(wrong, 10.0))
    with pytest.raises(RpcError, match="range"):
        await listeners.listen(ListenRequest(a_token(), DEADLINE_S, (0, 70000)))
    for _ in range(probing.MAX_LISTENERS - 1):
        await listeners.listen(ListenRequest(a_token(), DEADLINE_S))
    with pytest.raises(RpcError) as refusal:
        await listeners.listen(ListenRequest(a_token(), DEADLINE_S))
    assert refusal.value.code is ErrorCode.BUSY


async def test_the_bandwidth_is_measured_within_its_bounds(listeners: Listeners) -> None:
    token = a_token()
    port = (await listeners.listen(ListenRequest(token, DEADLINE_S, load_bytes=256 << 20))).port
    rates: list[float] = []
    while not any(rate > 1e7 for rate in rates):
        assert len(rates) < 8, rates  # One or two may be held up by whatever else runs here.
        found = await probe(ReachTarget("127.0.0.1", port, token, load_bytes=32 << 20, load_s=1.0))
        assert found.outcome is ReachOutcome.REACHED
        rates.append(found.bytes_per_s or 0.0)
    assert max(rates) < 1e11


async def test_each_way_to_fail_has_its_own_word(listeners: Listeners) -> None:
    token = a_token()
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        refused = await probe(ReachTarget("127.0.0.1", int(unheard.getsockname()[1]), token))
    unresolved = await probe(ReachTarget("no-such-host.invalid", 29500, token))
    no_route = await probe(ReachTarget("255.255.255.255", 29500, token))
    with talker(b"SSH-2.0-hello\r\n") as port:
        stranger = await probe(ReachTarget("127.0.0.1", port, token))
    with talker(b"") as port:
        silent = await probe(ReachTarget("127.0.0.1", port, token), 0.2)
    found = [refused, unresolved, no_route, stranger, silent]
    assert [item.outcome for item in found] == [
        ReachOutcome.REFUSED,
        ReachOutcome.UNRESOLVED,
        ReachOutcome.NO_ROUTE,
        ReachOutcome.STRANGER,
        ReachOutcome.STRANGER,
    ]
    assert unresolved.detail
    assert refused.address == "127.0.0.1"


async def test_a_host_looks_for_programs_as_a_process_of_the_job_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").write_text("")
    (tmp_path / "own").write_text("")
    (tmp_path / "own").chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    checks = Checks(tmp_path)
    programs = ["own", str(tmp_path / "own"), str(tmp_path / "run"), "python9"]
    reply = await checks.paths(PathsRequest([], 5.0, programs, str(tmp_path)))
    assert reply.missing_programs == [str(tmp_path / "run"), "python9"]
    reply = await checks.paths(PathsRequest([], 5.0, programs))
    assert reply.missing_programs == ["own", str(tmp_path / "run"), "python9"]
    assert (await checks.paths(PathsRequest([]))).missing_programs == []
    with pytest.raises(RpcError, match="zero byte"):
        await checks.paths(PathsRequest([], 5.0, ["a\0b"]))


async def test_a_host_looks_at_its_paths_and_at_its_own_room(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    wanted = [str(tmp_path), str(tmp_path / "file"), str(tmp_path / "none/at/all"), str(tmp_path / "file/below")]
    reply = await Checks(tmp_path).paths(PathsRequest(wanted))
    assert [item.exists for item in reply.paths] == [True, True, False, False]
    assert [item.is_directory for item in reply.paths] == [True, False, None, None]
    assert [item.is_writable for item in reply.paths] == [True, True, True, False]
    assert all(item.free_mib is not None for item in reply.paths)
    assert reply.root is not None
    assert reply.root.path == str(tmp_path)


def test_a_path_that_may_not_be_looked_at_is_neither_there_nor_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("dtagent.checks.checks.os.stat", refuse)
    found = look(str(tmp_path))
    assert (found.exists, found.detail) == (None, "Permission denied")


async def test_a_path_that_hangs_costs_no_more_than_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()
    monkeypatch.setattr("dtagent.checks.checks.look", lambda path: is_over.wait(DEADLINE_S) and look(path))
    began = time.monotonic()
    reply = await Checks(tmp_path).paths(PathsRequest(["/mnt"], 0.1))
    is_over.set()
    assert time.monotonic() - began < DEADLINE_S / 2
    assert reply.paths[0].exists is None
    assert "0.1 s" in reply.paths[0].detail


async def test_too_much_at_once_is_refused(tmp_path: Path) -> None:
    checks = Checks(tmp_path)
    target = ReachTarget("127.0.0.1", 1, "")
    for attempt in (
        checks.paths(PathsRequest(["/x"] * (MAX_PATHS + 1))),
        checks.paths(PathsRequest(["relative"])),
        checks.reach(ReachRequest([target] * (MAX_TARGETS + 1))),
    ):
        with pytest.raises(RpcError) as refusal:
            await attempt
        assert refusal.value.code is ErrorCode.INVALID_PARAMS
