"""SSH servers that say nothing, stop in the middle of a word or freeze: told in time, and no thread stays."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import paramiko
import pytest

from dttui.errors import HostUnreachableError
from dttui.transport.base import RemoteCommand
from dttui.transport.remote_commands import bootstrap_input
from dttui.transport.ssh import connection as connection_module
from dttui.transport.ssh.transport import SshTransport
from tests.integration.ssh_fixtures import NOBODY, TIMEOUT_S
from tests.integration.sshd import Sshd, free_port, running_sshd
from tests.integration.test_ssh_failures import at, listener, unreachable
from tests.waiting import until

pytestmark = pytest.mark.sshd

PATIENCE_S = 4.0
"""Of a connection: longer than a machine under load holds up what comes before the silence."""
NOTICED_WITHIN_S = 30.0
"""Of silence that nothing else ends; generous for a machine under load. The fixture looks for threads."""


async def test_a_host_that_takes_the_connection_and_says_nothing(transport: SshTransport) -> None:
    """After 4 s; no thread is left."""
    with listener(None, hang_up=False) as port:
        started = time.monotonic()
        error = await unreachable(transport, at(port), timeout_s=PATIENCE_S)
        assert time.monotonic() - started < NOTICED_WITHIN_S
    assert error.message == "no answer from gpu1 within 4 s, while exchanging keys"


async def test_a_host_that_stops_answering_in_the_middle_of_the_key_exchange(
    sshd: Sshd, transport: SshTransport
) -> None:
    """After 4 s; no thread is left."""
    with listener(b"SSH-2.0-OpenSSH_9.2\r\n", hang_up=False) as port:
        error = await unreachable(transport, at(port), timeout_s=PATIENCE_S)
    assert error.message == "no answer from gpu1 within 4 s, while exchanging keys"


async def test_a_host_that_freezes_does_not_hold_a_command_for_ever(
    sshd: Sshd, transport: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command is given up after 0.8 s, and what ran is at its end; no thread is left."""
    monkeypatch.setattr(connection_module, "COMMAND_TIMEOUT_S", 0.8)
    connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    await stream.write(bootstrap_input(b"print('up', flush=True)\nstdin.read()"))
    assert await stream.read() == b"up\n"
    for pid in sshd.sessions():
        os.kill(pid, signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(HostUnreachableError, match="did not start a command within 1 s"):
        await connection.run(RemoteCommand.BOOTSTRAP)
    assert time.monotonic() - started < NOTICED_WITHIN_S
    assert await stream.read() == b""


async def test_a_server_that_freezes_before_the_login(sshd: Sshd, transport: SshTransport) -> None:
    """After 0.8 s; it is reached again once it goes on. No thread is left."""
    assert sshd.process is not None
    sshd.process.send_signal(signal.SIGSTOP)
    error = await unreachable(transport, sshd.environment(), timeout_s=0.8)
    assert "no answer from gpu1 within 0.8 s" in error.message
    sshd.process.send_signal(signal.SIGCONT)
    await (await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)).close()


async def test_no_connect_that_fails_leaves_a_thread(tmp_path: Path, transport: SshTransport) -> None:
    """Each kind of failure, several at once; the fixture waits for the threads to end."""
    with (
        listener(None, hang_up=False) as silent,
        listener(b"") as mute,
        listener(b"SSH-2.0-OpenSSH_9.2\r\n", hang_up=False) as halfway,
        running_sshd(tmp_path / "sshd", {"Ciphers": "chacha20-poly1305@openssh.com"}) as incompatible,
    ):
        ports = [silent, mute, halfway, incompatible.port, free_port()] * 4
        outcomes = await asyncio.gather(
            *(transport.connect(at(port), NOBODY, 1.0) for port in ports), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [HostUnreachableError] * len(ports)
        await until(
            lambda: not [t for t in threading.enumerate() if isinstance(t, (paramiko.Transport, threading.Timer))],
            "no thread of paramiko's is left",
        )
