"""The fake keeps the same promises as the transports it stands for."""

from __future__ import annotations

import asyncio

import pytest

from dttui.errors import AuthenticationError, HostUnreachableError
from dttui.inventory.models import Environment
from dttui.transport.base import ByteStream, Connection, Prompt, RemoteCommand, Transport
from tests.fake_transport import WINDOW_BYTES, FakeHost, FakeProcess, FakeTransport

GPU = Environment(name="gpu one", host="gpu1.example.org")


class Nobody:
    async def ask(self, prompt: Prompt) -> str | None:
        return None


async def echo(process: FakeProcess) -> int:
    while data := await process.stdin.read():
        await process.stdout.write(data)
    process.stderr += b"bye"
    return 7


async def started(host: FakeHost) -> tuple[FakeTransport, Connection, ByteStream]:
    transport = FakeTransport({"gpu one": host})
    checked: Transport = transport
    connection = await checked.connect(GPU, Nobody(), 1.0)
    return transport, connection, await connection.run(RemoteCommand.AGENT)


async def test_a_handler_plays_a_command() -> None:
    transport, connection, stream = await started(FakeHost(echo, address="192.0.2.7"))
    assert (connection.address, connection.environment) == ("192.0.2.7", GPU)
    await stream.write(b"hello")
    assert await stream.read() == b"hello"
    await stream.write_eof()
    assert await stream.read() == b""
    assert await stream.wait() == (7, b"bye")
    with pytest.raises(HostUnreachableError):
        await stream.write(b"too late")
    await connection.close()
    assert transport.connections[0].closed


async def test_a_handler_reads_lines_and_counted_bytes() -> None:
    seen: list[bytes] = []

    async def handler(process: FakeProcess) -> int:
        seen.append(await process.stdin.readline())
        seen.append(await process.stdin.readexactly(4))
        seen.append(await process.stdin.readexactly(0))
        seen.append(await process.stdin.readline())
        seen.append(await process.stdin.readexactly(9))
        return 0

    _transport, connection, stream = await started(FakeHost(handler))
    await stream.write(b"one\nfo")
    await stream.write(b"urlast")
    await stream.write_eof()
    assert await stream.wait() == (0, b"")
    assert seen == [b"one\n", b"four", b"", b"last", b""]
    await connection.close()


async def test_a_writer_waits_for_its_reader() -> None:
    gate = asyncio.Event()

    async def handler(process: FakeProcess) -> int:
        await gate.wait()
        total = 0
        while data := await process.stdin.read():
            total += len(data)
        await process.stdout.write(b"%d" % total)
        return 0

    _transport, connection, stream = await started(FakeHost(handler))
    await stream.write(b"x" * WINDOW_BYTES)
    writing = asyncio.create_task(stream.write(b"y"))
    for _turn in range(20):
        await asyncio.sleep(0)
    assert not writing.done()
    gate.set()
    await writing
    await stream.write_eof()
    assert await stream.read() == b"%d" % (WINDOW_BYTES + 1)
    await connection.close()


async def test_failures_are_as_told() -> None:
    refused = AuthenticationError("gpu one", "no")
    with pytest.raises(AuthenticationError):
        await FakeTransport({"gpu one": FakeHost(echo, error=refused)}).connect(GPU, Nobody(), 1.0)
    with pytest.raises(HostUnreachableError, match="no answer from gpu one within"):
        await FakeTransport({"gpu one": FakeHost(echo, delay_s=1.0)}).connect(GPU, Nobody(), 0.01)
    with pytest.raises(HostUnreachableError):
        await FakeTransport({}).connect(GPU, Nobody(), 1.0)


async def test_a_cut_link_ends_streams_and_refuses_new_commands() -> None:
    transport, connection, stream = await started(FakeHost(echo))
    reading = asyncio.create_task(stream.read())
    await asyncio.sleep(0)
    await transport.cut("gpu one")
    assert await reading == b""
    assert (await stream.wait())[0] is None
    with pytest.raises(HostUnreachableError):
        await stream.write(b"x")
    with pytest.raises(HostUnreachableError):
        await connection.run(RemoteCommand.AGENT)
    await stream.close()
    await transport.close()


async def test_an_error_in_a_handler_is_not_lost() -> None:
    async def handler(process: FakeProcess) -> int:
        raise ValueError("a mistake in the test")

    _transport, connection, stream = await started(FakeHost(handler))
    with pytest.raises(ValueError, match="a mistake"):
        await stream.wait()
    await connection.close()
