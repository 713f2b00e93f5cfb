"""Standing SSH connections: new keys, floods, half packets, hostile sizes and frozen servers stop nobody else."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import paramiko
import pytest

from dttui.errors import HostUnreachableError
from dttui.transport.base import RemoteCommand
from dttui.transport.remote_commands import bootstrap_input
from dttui.transport.ssh import link as link_module
from dttui.transport.ssh import packets, threads
from dttui.transport.ssh.connection import SshConnection
from dttui.transport.ssh.packets import BoundedPacketizer
from dttui.transport.ssh.transport import SshTransport
from tests.integration.ssh_fixtures import ECHO, NOBODY, TIMEOUT_S
from tests.integration.sshd import Sshd, running_sshd
from tests.waiting import until

pytestmark = pytest.mark.sshd

HOSTILE_BLOCK = b"\x7f\xff\xff\xff" + bytes(12)


class Wire:
    """A TCP hop that a test looks into: it can hold back what the server says, and put words into its mouth."""

    def __init__(self) -> None:
        self.port = 0
        self.up_bytes = 0
        self.flows = asyncio.Event()
        self.flows.set()
        self.to_client: asyncio.StreamWriter | None = None

    async def carry(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.to_client = writer
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)

        async def down() -> None:
            while data := await server_reader.read(65536):
                for byte in range(0, len(data), 4096):
                    await self.flows.wait()
                    writer.write(data[byte : byte + 4096])

        carrying = asyncio.create_task(down())
        try:
            while data := await reader.read(65536):
                self.up_bytes += len(data)
                server_writer.write(data)
        except ConnectionError:
            pass
        finally:
            carrying.cancel()
            server_writer.close()
            writer.close()


@asynccontextmanager
async def wire_to(sshd: Sshd) -> AsyncIterator[Wire]:
    wire = Wire()
    server = await asyncio.start_server(lambda *ends: wire.carry(sshd.port, *ends), "127.0.0.1", 0)
    wire.port = server.sockets[0].getsockname()[1]
    sshd.known_hosts.write_text(sshd.known_hosts.read_text().replace(f":{sshd.port} ", f":{wire.port} "))
    async with server:
        yield wire


def readers() -> list[threading.Thread]:
    """Threads that read a connection, as paramiko has one each."""
    return [thread for thread in threading.enumerate() if isinstance(thread, paramiko.Transport)]


async def echoed(connection: SshConnection, data: bytes) -> bytes:
    stream = await connection.run(RemoteCommand.BOOTSTRAP)

    async def send() -> None:
        await stream.write(bootstrap_input(ECHO.encode(), None) + data)
        await stream.write_eof()

    sending = asyncio.create_task(send())
    received = b""
    while part := await stream.read():
        received += part
    await sending
    assert (await stream.wait())[0] == 0
    return received


def paramiko_of(connection: SshConnection) -> paramiko.Transport:
    return connection.link.transport


def socket_of(connection: SshConnection) -> socket.socket:
    sock = connection.link.sock
    assert isinstance(sock, socket.socket)
    return sock


def has_new_keys(connection: SshConnection) -> bool:
    """Whether keys were exchanged again: the session is named after the first exchange for ever."""
    transport = paramiko_of(connection)
    return bool(transport.session_id != transport.H)


async def test_a_standing_connection_has_one_thread_gives_signs_of_life_and_ends_with_its_thread(
    sshd: Sshd, transport: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "KEEPALIVE_S", 0.05)
    monkeypatch.setattr(packets, "IDLE_WAKE_S", 0.02)
    async with wire_to(sshd) as wire:
        connection = await transport.connect(sshd.environment(port=wire.port), NOBODY, TIMEOUT_S)
        assert paramiko_of(connection).agreed_on_strict_kex  # type: ignore[attr-defined]  # not in its stubs
        assert readers() == [paramiko_of(connection)]
        before = wire.up_bytes
        await until(lambda: wire.up_bytes - before > 500, "signs of life go out")
        assert await echoed(connection, b"word") == b"word"
        assert connection.link.is_alive
        await connection.close()
        assert readers() == []


@pytest.mark.parametrize("side", ["server", "client"])
async def test_keys_are_exchanged_again_under_load_both_ways_and_no_byte_is_lost(
    tmp_path: Path, transport: SshTransport, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    if side == "client":
        monkeypatch.setattr(BoundedPacketizer, "REKEY_BYTES", 300_000)
    with running_sshd(tmp_path / "sshd", {"RekeyLimit": "300K"} if side == "server" else {}) as sshd:
        connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
        blocks = [os.urandom(4_000_000), os.urandom(1_500_001), b"x"]
        assert await asyncio.gather(*(echoed(connection, block) for block in blocks)) == blocks
        assert has_new_keys(connection)
        await connection.close()


@pytest.mark.parametrize(
    "options",
    [
        {"Ciphers": "aes256-ctr", "MACs": "hmac-sha2-256"},
        {"Ciphers": "aes256-ctr", "MACs": "hmac-sha2-512-etm@openssh.com", "RekeyLimit": "300K"},
        {"Ciphers": "aes256-gcm@openssh.com", "KexAlgorithms": "diffie-hellman-group14-sha256"},
    ],
)
async def test_each_way_of_encryption_works(
    tmp_path: Path, transport: SshTransport, options: Mapping[str, str]
) -> None:
    with running_sshd(tmp_path / "sshd", options) as sshd:
        connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
        block = os.urandom(1_000_000)
        assert await echoed(connection, block) == block
        assert has_new_keys(connection) == ("RekeyLimit" in options)
        await connection.close()


async def test_half_a_packet_holds_up_its_own_connection_only(sshd: Sshd, transport: SshTransport) -> None:
    direct = await transport.connect(sshd.environment("direct"), NOBODY, TIMEOUT_S)
    async with wire_to(sshd) as wire:
        slow = await transport.connect(sshd.environment(port=wire.port), NOBODY, TIMEOUT_S)
        stream = await slow.run(RemoteCommand.BOOTSTRAP)
        await stream.write(bootstrap_input(b"print('x' * 200_000)", None))
        wire.flows.clear()
        reading = asyncio.create_task(stream.read())
        assert await echoed(direct, b"goes on") == b"goes on"
        wire.flows.set()
        received = await reading
        while part := await stream.read():
            received += part
        assert received == b"x" * 200_000 + b"\n"
        await slow.close()
    await direct.close()


async def test_a_packet_of_a_hostile_size_ends_its_connection_at_once(sshd: Sshd, transport: SshTransport) -> None:
    async with wire_to(sshd) as wire:
        connection = await transport.connect(sshd.environment(port=wire.port), NOBODY, TIMEOUT_S)
        stream = await connection.run(RemoteCommand.BOOTSTRAP)
        assert wire.to_client is not None
        wire.to_client.write(HOSTILE_BLOCK)
        assert await asyncio.wait_for(stream.read(), TIMEOUT_S) == b""
        assert await stream.wait() == (None, b"")
        with pytest.raises(HostUnreachableError):
            await connection.run(RemoteCommand.BOOTSTRAP)
        await connection.close()


async def test_a_frozen_server_that_takes_nothing_does_not_hold_up_the_event_loop(
    sshd: Sshd, transport: SshTransport
) -> None:
    connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
    streams = [await connection.run(RemoteCommand.BOOTSTRAP) for _ in range(4)]
    for pid in sshd.sessions():
        os.kill(pid, signal.SIGSTOP)
    data = bootstrap_input(b"print(len(stdin.read()))" + b"#" * 6_000_000, None)
    writing = [asyncio.create_task(stream.write(data)) for stream in streams]
    loop = asyncio.get_running_loop()
    sock = socket_of(connection)
    await until(lambda: not select.select([], [sock], [], 0)[1], "the network takes no more")
    turns_s = []
    for _ in range(20):
        began = loop.time()
        await asyncio.sleep(0)
        turns_s.append(loop.time() - began)
    assert median(turns_s) < 1.0  # One may be long for another reason: the machine stood still.
    # None was taken as written; where the machine is slow, some have been given up by now.
    assert all(isinstance(task.exception(), HostUnreachableError) for task in writing if task.done())
    await connection.close()
    for outcome in await asyncio.gather(*writing, return_exceptions=True):
        assert isinstance(outcome, HostUnreachableError)


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many connections may write at once, of a transport made afterwards."""
    monkeypatch.setattr(threads, "TRAFFIC_AT_ONCE", 4)
    return 4


async def test_more_frozen_servers_than_may_write_at_once_hold_up_no_other_host(
    few_at_once: int, sshd: Sshd, transport: SshTransport
) -> None:
    direct = await transport.connect(sshd.environment("direct"), NOBODY, TIMEOUT_S)
    alive = set(sshd.sessions())
    count = 2 * few_at_once
    frozen = await asyncio.gather(
        *(transport.connect(sshd.environment(f"frozen-{number}"), NOBODY, TIMEOUT_S) for number in range(count))
    )
    streams = [await connection.run(RemoteCommand.BOOTSTRAP) for connection in frozen]
    for pid in set(sshd.sessions()) - alive:
        os.kill(pid, signal.SIGSTOP)
    for connection in frozen:
        socket_of(connection).setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    writing = [asyncio.create_task(stream.write(bytes(1_900_000))) for stream in streams]
    await until(
        lambda: not select.select([], [socket_of(connection) for connection in frozen], [], 0)[1], "none takes any more"
    )
    assert await asyncio.wait_for(echoed(direct, b"goes on"), TIMEOUT_S) == b"goes on"
    # None was taken as written; where the machine is slow, some have been given up by now.
    assert all(isinstance(task.exception(), HostUnreachableError) for task in writing if task.done())
    await asyncio.gather(*(connection.close() for connection in frozen))
    for outcome in await asyncio.gather(*writing, return_exceptions=True):
        assert isinstance(outcome, HostUnreachableError)
    await direct.close()
    assert readers() == []
