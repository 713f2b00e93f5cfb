"""What goes wrong on the way to a host is said in plain words, in time, and leaves no thread behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dttui.errors import ExitCode, HostUnreachableError
from dttui.inventory.models import Environment
from dttui.transport.base import RemoteCommand
from dttui.transport.remote_commands import bootstrap_input
from dttui.transport.ssh.stream import ChannelStream
from dttui.transport.ssh.transport import SshTransport
from tests.integration.ssh_fixtures import NOBODY, TIMEOUT_S, configure
from tests.integration.sshd import Sshd, free_port, running_sshd
from tests.waiting import until

pytestmark = pytest.mark.sshd

STAY = b"import os, time\nsession = os.getppid()\nwhile os.getppid() == session != 1: time.sleep(0.05)"
"""A program that neither reads nor writes, until its SSH session is gone."""


async def unreachable(
    transport: SshTransport, environment: Environment, timeout_s: float = TIMEOUT_S
) -> HostUnreachableError:
    with pytest.raises(HostUnreachableError) as caught:
        await transport.connect(environment, NOBODY, timeout_s)
    assert caught.value.host == environment.name
    assert caught.value.exit_code is ExitCode.UNREACHABLE
    return caught.value


def at(port: int, **fields: object) -> Environment:
    return Environment.model_validate({"name": "gpu1", "id": "env-1", "host": "127.0.0.1", "port": port, **fields})


@contextlib.contextmanager
def listener(answer: bytes | None, hang_up: bool = True) -> Iterator[int]:
    """Something on a port that answers every connection with the same bytes; with `None` it does not even say that."""
    clients: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _address = server.accept()
                except OSError:
                    return
                clients.append(client)
                with contextlib.suppress(OSError):
                    client.sendall(answer or b"")
                    if hang_up:
                        client.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for client in clients:
                client.close()


async def test_a_name_that_does_not_resolve(transport: SshTransport) -> None:
    error = await unreachable(transport, at(22, host="no-such-host.invalid"))
    assert error.message.startswith("no host named no-such-host.invalid: ")
    assert "inventory" in error.hint


async def test_a_port_where_nothing_listens(transport: SshTransport) -> None:
    port = free_port()
    error = await unreachable(transport, at(port))
    assert error.message == f"gpu1 (127.0.0.1:{port}) refused the connection"
    assert "sshd" in error.hint


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n", "it said: HTTP/1.1 400 Bad Request / Server: x"),
        (b"220 mail\x1b[2J.example.org ESMTP\r\n", "it said: 220 mail.example.org ESMTP"),
    ],
)
async def test_something_that_is_no_ssh_server(transport: SshTransport, answer: bytes, said: str) -> None:
    with listener(answer) as port:
        error = await unreachable(transport, at(port))
    assert error.message == f"what answers on port {port} of 127.0.0.1 is no SSH server; {said}"


async def test_a_server_that_turns_connections_away(transport: SshTransport) -> None:
    with listener(b"Not allowed at this time\r\n") as port:
        error = await unreachable(transport, at(port))
    assert "turned the connection away: Not allowed at this time" in error.message


@pytest.mark.parametrize("answer", [b"", b"\xff\xfe\x00\n" * 3, b"SSH-2.0-x\r\n" + b"\xff" * 4096, b"SSH-1.5-old\r\n"])
async def test_nothing_a_server_sends_is_more_than_an_error(transport: SshTransport, answer: bytes) -> None:
    with listener(answer) as port:
        error = await unreachable(transport, at(port))
    assert "127.0.0.1" in error.message
    assert "Traceback" not in error.message


async def test_a_server_without_a_common_algorithm(tmp_path: Path, transport: SshTransport) -> None:
    with running_sshd(tmp_path / "sshd", {"Ciphers": "chacha20-poly1305@openssh.com"}) as server:
        error = await unreachable(transport, server.environment())
    assert "127.0.0.1 and dttui have no algorithm in common" in error.message


async def test_weak_algorithms_are_never_offered(tmp_path: Path, transport: SshTransport) -> None:
    with running_sshd(tmp_path / "sshd", {"Ciphers": "aes128-cbc,3des-cbc", "MACs": "hmac-sha1"}) as server:
        error = await unreachable(transport, server.environment())
    assert "no algorithm in common" in error.message


async def test_the_address_family_that_answers_is_used(sshd: Sshd, transport: SshTransport) -> None:
    # `localhost` is ::1 and 127.0.0.1 on most machines; the server listens on the latter only.
    kind, blob = sshd.host_key().read_text().split()[:2]
    sshd.known_hosts.write_text(f"[localhost]:{sshd.port} {kind} {blob}\n")
    connection = await transport.connect(sshd.environment(host="localhost"), NOBODY, TIMEOUT_S)
    assert connection.address == "127.0.0.1"
    await connection.close()


async def test_a_configuration_that_ssh_cannot_read(ssh_config: Path, transport: SshTransport) -> None:
    configure(ssh_config, "Nonsense yes")
    error = await unreachable(transport, at(22))
    assert "the ssh configuration for 127.0.0.1 cannot be read" in error.message
    assert "nonsense" in error.message


# Links that break


async def test_a_link_that_breaks_ends_its_streams(sshd: Sshd, transport: SshTransport) -> None:
    connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    await stream.write(bootstrap_input(b"print('up', flush=True)\nstdin.read()"))
    assert await stream.read() == b"up\n"
    reading = asyncio.create_task(stream.read())
    for pid in sshd.sessions():
        with contextlib.suppress(ProcessLookupError):  # One goes with the other.
            os.kill(pid, signal.SIGKILL)
    assert await reading == b""
    assert (await stream.wait())[0] is None
    with pytest.raises(HostUnreachableError, match="is lost"):
        await stream.write(b"x")
    with pytest.raises(HostUnreachableError, match="the connection to gpu1 is lost"):
        await connection.run(RemoteCommand.BOOTSTRAP)
    await stream.write_eof()
    await stream.close()
    await connection.close()


async def test_closing_while_everything_is_in_use_ends_it_all(sshd: Sshd, transport: SshTransport) -> None:
    connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
    streams = [await connection.run(RemoteCommand.BOOTSTRAP) for _number in range(3)]
    for stream in streams:
        await stream.write(bootstrap_input(STAY))
    busy = [asyncio.create_task(use_up(stream)) for stream in streams]
    await until(lambda: all(not stream.channel.send_ready() for stream in streams), "all are stuck in writing")
    await connection.close()
    await asyncio.wait_for(asyncio.gather(*busy), TIMEOUT_S)
    assert [await stream.read() for stream in streams] == [b""] * 3


async def use_up(stream: ChannelStream) -> None:
    """Read and write at once what neither ends."""
    reading = asyncio.create_task(stream.read())
    with contextlib.suppress(HostUnreachableError):
        await stream.write(b"x" * 8_000_000)
    assert await reading == b""
