"""The way to a host as ~/.ssh/config tells it: aliases, jump hosts, proxy commands."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dttui.errors import HostKeyError, HostUnreachableError
from dttui.transport.base import PromptKind, RemoteCommand
from dttui.transport.remote_commands import bootstrap_input
from dttui.transport.ssh.sockets import ProxyCommand
from dttui.transport.ssh.ssh_config import SshTarget
from dttui.transport.ssh.transport import SshTransport
from tests.integration.ssh_fixtures import NOBODY, TIMEOUT_S, Person, configure
from tests.integration.sshd import USER, Sshd, free_port, running_sshd
from tests.waiting import until, wait_until

pytestmark = pytest.mark.sshd

RELAY = """
import os, socket, sys, threading
link = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def up():
    while data := os.read(0, 65536):
        link.sendall(data)
    link.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := link.recv(65536):
    os.write(1, data)
"""


@pytest.fixture
def bastion(tmp_path: Path, ssh_config: Path) -> Iterator[Sshd]:
    """A second server, known and open to the person's configuration, to go through."""
    with running_sshd(tmp_path / "bastion") as server:
        configure(ssh_config, f"UserKnownHostsFile {server.known_hosts}", f"IdentityFile {server.client_key}")
        configure(ssh_config, "Host bastion", "HostName 127.0.0.1", f"Port {server.port}", f"User {USER}")
        yield server


async def works(transport: SshTransport, server: Sshd, **fields: object) -> str:
    connection = await transport.connect(server.environment("gpu1", **fields), NOBODY, TIMEOUT_S)
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    await stream.write(bootstrap_input(b"print('there')"))
    assert await stream.read() == b"there\n"
    await connection.close()
    return connection.address


async def test_an_alias_of_the_configuration_is_enough(sshd: Sshd, ssh_config: Path, transport: SshTransport) -> None:
    configure(ssh_config, "Host gpu", "HostName 127.0.0.1", f"Port {sshd.port}", f"User {USER}")
    configure(ssh_config, f"IdentityFile {sshd.client_key}", f"UserKnownHostsFile {sshd.known_hosts}")
    address = await works(transport, sshd, host="gpu", user=None, port=None, identity_file=None, known_hosts=None)
    assert address == "127.0.0.1"


async def test_the_inventory_wins_over_the_configuration(sshd: Sshd, ssh_config: Path, transport: SshTransport) -> None:
    configure(ssh_config, "Host gpu", "HostName 127.0.0.1", "Port 1", "User nobody")
    await works(transport, sshd, host="gpu")


async def test_a_host_key_alias_is_what_a_key_is_known_by(
    sshd: Sshd, ssh_config: Path, transport: SshTransport
) -> None:
    configure(ssh_config, "HostKeyAlias cluster-node")
    kind, blob = sshd.host_key().read_text().split()[:2]
    sshd.known_hosts.write_text(f"cluster-node {kind} {blob}\n")
    await works(transport, sshd)


async def test_a_host_behind_a_jump_host_is_reached_through_it(
    sshd: Sshd, bastion: Sshd, transport: SshTransport
) -> None:
    assert await works(transport, sshd, proxy_jump="bastion") == "127.0.0.1"
    assert await works(transport, sshd, proxy_jump=f"{USER}@127.0.0.1:{bastion.port}") == "127.0.0.1"
    assert bastion.log.count("Accepted publickey") == 2
    # The last one out closed the connection to the jump host.
    await until(lambda: re.search("Connection (closed|reset) by", bastion.log), "word of its end")


async def test_a_jump_host_of_the_configuration_is_used(
    sshd: Sshd, bastion: Sshd, ssh_config: Path, transport: SshTransport
) -> None:
    configure(ssh_config, "Host gpu", "HostName 127.0.0.1", "ProxyJump bastion")
    await works(transport, sshd, host="gpu")
    assert "Accepted publickey" in bastion.log


async def test_two_jump_hosts_in_a_row(
    sshd: Sshd, bastion: Sshd, ssh_config: Path, transport: SshTransport, tmp_path: Path
) -> None:
    with running_sshd(tmp_path / "inner") as inner:
        inner.authorize(bastion.client_key.with_suffix(".pub"))
        bastion.known_hosts.write_text(bastion.known_hosts.read_text() + inner.known_hosts.read_text())
        configure(ssh_config, "Host inner", "HostName 127.0.0.1", f"Port {inner.port}", "ProxyJump bastion")
        await works(transport, sshd, proxy_jump="inner")
        assert "Accepted publickey" in inner.log
        configure(ssh_config, "Host gpu", "HostName 127.0.0.1", f"ProxyJump bastion,127.0.0.1:{inner.port}")
        await works(transport, sshd, host="gpu")
        assert inner.log.count("Accepted publickey") == 2
        assert bastion.log.count("Accepted publickey") == 2


async def test_twenty_hosts_behind_one_jump_host_share_its_connection(
    sshd: Sshd, bastion: Sshd, transport: SshTransport
) -> None:
    environments = [sshd.environment(f"gpu{number}", proxy_jump="bastion") for number in range(20)]
    connections = await asyncio.gather(
        *(transport.connect(environment, NOBODY, TIMEOUT_S) for environment in environments)
    )
    assert bastion.log.count("Accepted publickey") == 1
    for connection in connections[:-1]:
        await connection.close()
    stream = await connections[-1].run(RemoteCommand.BOOTSTRAP)
    await stream.write(bootstrap_input(b"print('there')"))
    assert await stream.read() == b"there\n"
    await connections[-1].close()


async def test_the_end_of_a_jump_host_ends_what_goes_through_it_and_is_got_over(
    sshd: Sshd, bastion: Sshd, transport: SshTransport
) -> None:
    connection = await transport.connect(sshd.environment(proxy_jump="bastion"), NOBODY, TIMEOUT_S)
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    bastion.stop()
    assert await stream.read() == b""
    bastion.start()
    await works(transport, sshd, proxy_jump="bastion")
    await connection.close()


async def test_a_jump_host_that_cannot_be_reached_is_named(
    sshd: Sshd, ssh_config: Path, transport: SshTransport
) -> None:
    port = free_port()
    configure(ssh_config, "Host bastion", "HostName 127.0.0.1", f"Port {port}")
    environments = [sshd.environment(name, proxy_jump="bastion") for name in ("gpu1", "gpu2")]
    outcomes = await asyncio.gather(
        *(transport.connect(environment, NOBODY, TIMEOUT_S) for environment in environments), return_exceptions=True
    )
    for outcome, name in zip(outcomes, ("gpu1", "gpu2"), strict=True):
        assert isinstance(outcome, HostUnreachableError)
        assert outcome.message.startswith(f"jump host bastion: bastion (127.0.0.1:{port}) refused the connection")
        assert outcome.host == name


async def test_a_host_that_the_jump_host_cannot_reach_is_named(
    sshd: Sshd, bastion: Sshd, transport: SshTransport
) -> None:
    port = free_port()
    with pytest.raises(HostUnreachableError) as caught:
        await transport.connect(sshd.environment(port=port, proxy_jump="bastion"), NOBODY, TIMEOUT_S)
    assert caught.value.message.startswith(f"jump host bastion cannot reach 127.0.0.1 port {port}: ")


async def test_an_unknown_jump_host_is_asked_about_by_its_own_name(
    sshd: Sshd, bastion: Sshd, transport: SshTransport
) -> None:
    bastion.known_hosts.write_text("")
    environment = sshd.environment(proxy_jump="bastion")
    with pytest.raises(HostKeyError) as caught:
        await transport.connect(environment, NOBODY, TIMEOUT_S)
    assert caught.value.message.startswith("jump host bastion: the key of bastion is not known")
    assert "ssh bastion" in caught.value.hint
    person = Person(host_key=["yes"])
    await (await transport.connect(environment, person, TIMEOUT_S)).close()
    assert [(prompt.kind, prompt.host) for prompt in person.asked] == [(PromptKind.HOST_KEY, "bastion")]
    assert bastion.known_hosts.read_text() == ""


async def test_two_jump_hosts_that_name_each_other_are_an_error(
    sshd: Sshd, ssh_config: Path, transport: SshTransport
) -> None:
    configure(ssh_config, "Host a", "ProxyJump b", "Host b", "ProxyJump a")
    with pytest.raises(HostUnreachableError, match="more than 8 jump hosts on the way to gpu1"):
        await transport.connect(sshd.environment(proxy_jump="a"), NOBODY, TIMEOUT_S)


async def test_a_proxy_command_of_the_configuration_is_run(
    sshd: Sshd, ssh_config: Path, transport: SshTransport, tmp_path: Path
) -> None:
    relay = tmp_path / "relay.py"
    relay.write_text(RELAY)
    configure(ssh_config, "Host gpu", "HostName 127.0.0.1", f"ProxyCommand {sys.executable} {relay} %h %p")
    assert await works(transport, sshd, host="gpu") == "127.0.0.1"


@pytest.mark.parametrize(("command", "complaint"), [("false", "it said nothing"), ("/no/such/command %h", "not found")])
async def test_a_proxy_command_that_fails_is_an_error_with_its_words(
    sshd: Sshd, ssh_config: Path, transport: SshTransport, command: str, complaint: str
) -> None:
    configure(ssh_config, "Host gpu", f"ProxyCommand {command}")
    with pytest.raises(HostUnreachableError, match=f"the ProxyCommand of gpu ended .*{complaint}"):
        await transport.connect(sshd.environment(host="gpu"), NOBODY, TIMEOUT_S)


def test_a_proxy_command_that_has_no_place_for_its_stderr_is_an_error_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(HostUnreachableError, match="the ProxyCommand of gpu cannot be started: ") as raised:
        ProxyCommand(SshTarget("gpu", "gpu", proxy_command="sleep 600"))
    assert raised.value.__cause__ is not None
    assert set(os.listdir("/proc/self/fd")) <= before  # What nobody needs any more may be closed at any time.


def test_a_proxy_command_that_may_not_be_ended_is_let_go_of_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As sudo makes one: it is another user's, and no signal of ours reaches it."""

    def refuse(*_: object) -> None:
        raise PermissionError

    told = tmp_path / "pid"
    command = ProxyCommand(SshTarget("gpu", "gpu", proxy_command=f"sh -c 'echo $$ >{told}; exec sleep 600'"))
    wait_until(lambda: told.exists() and told.read_text().endswith("\n"), "the command to run", TIMEOUT_S)
    with monkeypatch.context() as patched:
        patched.setattr(os, "killpg", refuse)
        began = time.monotonic()
        command.end()
        assert time.monotonic() - began < TIMEOUT_S
    os.kill(int(told.read_text()), signal.SIGKILL)
    command.end()
    command.socket.close()
