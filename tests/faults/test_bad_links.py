"""A real sshd behind a link that drips, swallows, delays and resets: told in time, got over, and no thread stays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from dttui.errors import HostUnreachableError
from dttui.transport.base import RemoteCommand
from dttui.transport.remote_commands import bootstrap_input
from dttui.transport.ssh import connection as connection_module
from dttui.transport.ssh.transport import SshTransport
from tests.faults.proxy import Proxy
from tests.integration.ssh_fixtures import NOBODY, TIMEOUT_S
from tests.integration.sshd import Sshd
from tests.waiting import until

pytestmark = pytest.mark.sshd

ECHO = b"print('up', flush=True)\nwhile line := stdin.readline(): print(line.decode().strip(), flush=True)"
NOTICED_WITHIN_S = 20.0
"""After its own deadline; generous for a machine under load, and less than anything else takes to end it."""


@pytest.fixture
def link(sshd: Sshd) -> Iterator[Proxy]:
    """A link to the server, under which the server's key is known."""
    with Proxy("127.0.0.1", sshd.port) as proxy:
        kind, blob = sshd.host_key().read_text().split()[:2]
        sshd.known_hosts.write_text(f"[127.0.0.1]:{proxy.listens_at} {kind} {blob}\n")
        yield proxy


async def test_a_banner_that_drips_is_given_up_at_the_deadline(
    sshd: Sshd, link: Proxy, transport: SshTransport
) -> None:
    """At 5 s, of which it is told within 20 s more; the server has no session left, and no thread is."""
    link.down.piece_bytes, link.down.delay_s = 1, 1.0  # Some forty bytes are only the first line.
    began = time.monotonic()
    with pytest.raises(HostUnreachableError, match=r"no answer from gpu1 within 5 s, while exchanging keys"):
        await transport.connect(sshd.environment(port=link.listens_at), NOBODY, 5.0)
    assert time.monotonic() - began < 5.0 + NOTICED_WITHIN_S
    assert link.connections == 1
    await until(lambda: sshd.sessions() == [], "the server to be let go of")


async def test_many_who_drip_delay_nobody_else(sshd: Sshd, link: Proxy, transport: SshTransport) -> None:
    """Connected beside them while all of them still wait; no thread of any is left."""
    link.down.piece_bytes, link.down.delay_s = 1, 2.0
    dripping = [
        asyncio.create_task(transport.connect(sshd.environment(f"slow{number}", port=link.listens_at), NOBODY, 80.0))
        for number in range(20)
    ]
    await until(lambda: link.connections == 20, "all of them to be under way")
    kind, blob = sshd.host_key().read_text().split()[:2]
    sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {kind} {blob}\n")
    await (await transport.connect(sshd.environment("quick"), NOBODY, TIMEOUT_S)).close()
    assert not any(task.done() for task in dripping)
    for task in dripping:
        task.cancel()
    assert len(await asyncio.gather(*dripping, return_exceptions=True)) == 20


async def test_a_link_far_away_works(sshd: Sshd, link: Proxy, transport: SshTransport) -> None:
    """Within 20 s; no thread is left."""
    link.up.delay_s = link.down.delay_s = 0.1
    connection = await transport.connect(sshd.environment(port=link.listens_at), NOBODY, TIMEOUT_S)
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    await stream.write(bootstrap_input(b"print('there')"))
    assert await stream.read() == b"there\n"
    await connection.close()


@pytest.mark.parametrize("way", ["up", "down"])
async def test_a_link_cut_one_way_holds_no_command_beyond_its_deadline_and_heals(
    sshd: Sshd, link: Proxy, transport: SshTransport, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A command is given up within 21 s at a deadline of 1 s; no thread is left."""
    monkeypatch.setattr(connection_module, "COMMAND_TIMEOUT_S", 1.0)
    connection = await transport.connect(sshd.environment(port=link.listens_at), NOBODY, TIMEOUT_S)
    getattr(link, way).is_cut = True
    began = time.monotonic()
    with pytest.raises(HostUnreachableError, match="did not start a command within 1 s"):
        await connection.run(RemoteCommand.BOOTSTRAP)
    assert time.monotonic() - began < 1.0 + NOTICED_WITHIN_S
    link.heal()
    monkeypatch.undo()
    await (await transport.connect(sshd.environment(port=link.listens_at), NOBODY, TIMEOUT_S)).close()


async def test_a_cut_that_heals_in_time_loses_no_byte(sshd: Sshd, link: Proxy, transport: SshTransport) -> None:
    """Each wait within 20 s; no thread is left."""
    connection = await transport.connect(sshd.environment(port=link.listens_at), NOBODY, TIMEOUT_S)
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    await stream.write(bootstrap_input(ECHO))
    assert await stream.read() == b"up\n"
    sent = b"".join(b"line %d\n" % number for number in range(2000))
    link.cut()
    writing = asyncio.create_task(stream.write(sent))
    await asyncio.wait({writing}, timeout=0.5)
    link.heal()
    received = b""
    while len(received) < len(sent):
        received += await asyncio.wait_for(stream.read(), TIMEOUT_S)
    await writing
    assert received == sent
    await connection.close()


async def test_a_reset_ends_every_stream_at_once_and_the_next_connection_stands(
    sshd: Sshd, link: Proxy, transport: SshTransport
) -> None:
    """Told within 20 s; the server has no session left, and no thread is."""
    connection = await transport.connect(sshd.environment(port=link.listens_at), NOBODY, TIMEOUT_S)
    streams = [await connection.run(RemoteCommand.BOOTSTRAP) for _number in range(3)]
    for stream in streams:
        await stream.write(bootstrap_input(ECHO))
        assert await stream.read() == b"up\n"
    began = time.monotonic()
    assert link.reset() == 2
    assert [await asyncio.wait_for(stream.read(), NOTICED_WITHIN_S) for stream in streams] == [b""] * 3
    assert time.monotonic() - began < NOTICED_WITHIN_S
    with pytest.raises(HostUnreachableError, match="the connection to gpu1 is lost"):
        await connection.run(RemoteCommand.BOOTSTRAP)
    await connection.close()
    await (await transport.connect(sshd.environment(port=link.listens_at), NOBODY, TIMEOUT_S)).close()
    await until(lambda: sshd.sessions() == [], "the server to have no session left")


async def test_a_reset_in_the_middle_of_the_key_exchange_is_an_error_that_names_the_host(
    sshd: Sshd, link: Proxy, transport: SshTransport
) -> None:
    """Told within 20 s; no thread is left."""
    link.down.bytes_per_s, link.down.piece_bytes = 200.0, 16
    connecting = asyncio.create_task(transport.connect(sshd.environment(port=link.listens_at), NOBODY, TIMEOUT_S))
    await until(lambda: link.connections == 1, "the proxy to be reached")
    await asyncio.wait({connecting}, timeout=0.5)
    link.reset()
    with pytest.raises(HostUnreachableError) as caught:
        await asyncio.wait_for(connecting, NOTICED_WITHIN_S)
    assert caught.value.host == "gpu1"
    assert "127.0.0.1" in caught.value.message
