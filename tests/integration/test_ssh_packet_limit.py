"""No peer makes dttui hold more than a packet of 256 KiB, before or after the login, whatever lies between."""

from __future__ import annotations

import contextlib
import struct
import sys
import threading
from pathlib import Path

import paramiko
import pytest
from paramiko.auth_handler import AuthHandler

from dttui.errors import HostError, HostUnreachableError
from dttui.inventory.models import Environment
from dttui.transport.base import RemoteCommand
from dttui.transport.ssh.known_hosts import append, entry_name
from dttui.transport.ssh.transport import SshTransport
from tests.integration.hostile_peer import VERSION, announcing, flooding_peer, packet, peak_memory
from tests.integration.scripted_ssh_server import USER, Script, scripted_server
from tests.integration.ssh_fixtures import NOBODY, TIMEOUT_S, Person, configure
from tests.integration.sshd import Sshd
from tests.integration.test_ssh_routes import RELAY, bastion
from tests.waiting import until, wait_until

pytestmark = pytest.mark.sshd
__all__ = ["bastion"]

ROUTES = ("direct", "proxy-command", "jump")
MOST_BYTES = 6 * 1024 * 1024
"""What a connect may take besides packets: modules, keys, a thread or two."""
PACKET_BYTES = 256 * 1024
LIMIT = "262144"
ENDLESS_LINE = b"SSH-2.0-" + b"x" * 65528
BANNER_LINE = b"welcome " * 8191 + b"\n"


def at(port: int, config: Path, tmp_path: Path, route: str) -> Environment:
    """What listens on a port of this machine, by one of the routes."""
    relay = tmp_path / "relay.py"
    relay.write_text(RELAY)
    if route == "proxy-command":
        configure(
            config, f'Match host 127.0.0.1 exec "test %p = {port}"', f"  ProxyCommand {sys.executable} {relay} %h %p"
        )
    jump = {"proxy_jump": "bastion"} if route == "jump" else {}
    return Environment.model_validate({"name": "gpu1", "host": "127.0.0.1", "port": port, **jump})


async def refused(transport: SshTransport, environment: Environment) -> tuple[HostError, int]:
    with peak_memory() as peak, pytest.raises(HostError) as caught:
        await transport.connect(environment, NOBODY, TIMEOUT_S)
    return caught.value, peak[0]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("opening", [0x10000004, 0x7FFFFFFC, 0xFFFFFFFC, PACKET_BYTES + 4])
async def test_a_peer_that_announces_a_long_packet_before_the_login_is_cut_off_and_the_limit_named(
    bastion: Sshd, transport: SshTransport, ssh_config: Path, tmp_path: Path, route: str, opening: int
) -> None:
    with flooding_peer(announcing(opening)) as port:
        error, peak = await refused(transport, at(port, ssh_config, tmp_path, route))
    assert peak < MOST_BYTES, f"{peak / 1024**2:.0f} MiB"
    assert LIMIT in error.message
    assert isinstance(error, HostUnreachableError)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("line", [ENDLESS_LINE, ENDLESS_LINE[8:], BANNER_LINE], ids=["version", "line", "lines"])
async def test_a_greeting_without_an_end_is_cut_off_and_the_limit_named(
    bastion: Sshd, transport: SshTransport, ssh_config: Path, tmp_path: Path, route: str, line: bytes
) -> None:
    with flooding_peer(line, line.removeprefix(b"SSH-2.0-")) as port:
        error, peak = await refused(transport, at(port, ssh_config, tmp_path, route))
    assert peak < MOST_BYTES, f"{peak / 1024**2:.0f} MiB"
    assert LIMIT in error.message
    assert len(error.message) < 1000


async def test_a_packet_of_just_the_limit_is_read(transport: SshTransport, ssh_config: Path, tmp_path: Path) -> None:
    ignored = packet(b"\x02" + struct.pack(">I", 1000) + bytes(PACKET_BYTES - 24), 4)
    assert struct.unpack(">I", ignored[:4])[0] in range(PACKET_BYTES - 16, PACKET_BYTES + 1)
    with flooding_peer(VERSION + ignored + packet(b"\x01" + struct.pack(">II", 2, 3) + b"bye" + bytes(4))) as port:
        error, _peak = await refused(transport, at(port, ssh_config, tmp_path, "direct"))
    assert LIMIT not in error.message
    assert "Expecting packet" in error.message or "bye" in error.message


# After the login


def server_of(monkeypatch: pytest.MonkeyPatch) -> list[paramiko.Transport]:
    """The server's ends of the connections that the scripted server takes."""
    ends: list[paramiko.Transport] = []
    original = paramiko.Transport.start_server

    def starting(self: paramiko.Transport, *arguments: object, **options: object) -> None:
        ends.append(self)
        original(self, *arguments, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(paramiko.Transport, "start_server", starting)
    return ends


def known(port: int, host_key: object, environment: Environment, tmp_path: Path) -> Environment:
    append(tmp_path / "known", entry_name("127.0.0.1", port), host_key)  # type: ignore[arg-type]  # a HostKey
    return environment.model_copy(update={"known_hosts": str(tmp_path / "known"), "user": USER})


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("cipher", "mac"),
    [
        ("aes128-gcm@openssh.com", "hmac-sha2-256"),
        ("aes128-ctr", "hmac-sha2-256-etm@openssh.com"),
        ("aes128-ctr", "hmac-sha2-256"),
    ],
)
async def test_a_server_that_sends_a_long_packet_after_the_login_is_cut_off_and_the_limit_named(
    bastion: Sshd,
    transport: SshTransport,
    ssh_config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    route: str,
    cipher: str,
    mac: str,
) -> None:
    ends = server_of(monkeypatch)
    configure(ssh_config, f"Ciphers {cipher}", f"MACs {mac}")
    with scripted_server(Script(["password"])) as server:
        environment = known(server.port, server.host_key, at(server.port, ssh_config, tmp_path, route), tmp_path)
        connection = await transport.connect(environment, Person(password=["right"]), TIMEOUT_S)
        large = paramiko.Message(b"\x02" + struct.pack(">I", 8 << 20) + bytes(8 << 20))
        sending = threading.Thread(target=_try_sending, args=(ends[-1], large))
        sending.start()
        await until(lambda: not connection.link.is_alive, "the connection is cut")
        with pytest.raises(HostUnreachableError, match=LIMIT):
            await connection.run(RemoteCommand.BOOTSTRAP)
        await connection.close()
        sending.join()


def _try_sending(end: paramiko.Transport, message: paramiko.Message) -> None:
    with contextlib.suppress(EOFError, OSError, paramiko.SSHException):  # Cut off in the middle.
        end.packetizer.send_message(message)


# Packets that say they hold more than they do


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_list_of_extensions_that_never_ends_is_an_error(
    is_late: bool, transport: SshTransport, ssh_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection may have ended for that before the login begins."""
    original = paramiko.Transport._parse_newkeys  # type: ignore[attr-defined]  # noqa: SLF001 - a server that cheats

    def telling(self: paramiko.Transport, message: paramiko.Message) -> None:
        original(self, message)
        if self.server_mode:
            self._send_message(paramiko.Message(b"\x07\xff\xff\xff\xff"))  # type: ignore[attr-defined]

    begin = paramiko.Transport.auth_none

    def begin_late(self: paramiko.Transport, username: str) -> list[str]:
        wait_until(lambda: not self.is_active(), "the connection to have ended")
        return begin(self, username)

    monkeypatch.setattr(paramiko.Transport, "_parse_newkeys", telling)
    if is_late:
        monkeypatch.setattr(paramiko.Transport, "auth_none", begin_late)
    with scripted_server(Script(["password"])) as server:
        environment = known(server.port, server.host_key, at(server.port, ssh_config, tmp_path, "direct"), tmp_path)
        with pytest.raises(HostUnreachableError, match="says it holds more"):
            await transport.connect(environment, Person(password=["right"]), TIMEOUT_S)


@pytest.mark.parametrize("count", [0xFFFFFFFF, 33])
async def test_questions_without_an_end_are_an_error_and_nobody_is_asked(
    transport: SshTransport, ssh_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    def asking(self: AuthHandler, _query: object) -> None:
        message = paramiko.Message(b"\x3c" + bytes(12) + struct.pack(">I", count))
        message.packet.seek(0, 2)
        for _each in range(min(count, 33)):
            message.add_string("Code: ").add_boolean(True)
        self.transport._send_message(message)  # type: ignore[attr-defined]  # noqa: SLF001 - as above

    monkeypatch.setattr(AuthHandler, "_interactive_query", asking)
    script = Script(["keyboard-interactive"])
    with scripted_server(script) as server:
        environment = known(server.port, server.host_key, at(server.port, ssh_config, tmp_path, "direct"), tmp_path)
        person = Person(one_time_code=["1"] * 40)
        with pytest.raises(HostError, match=r"says it holds more|33 questions at once"):
            await transport.connect(environment, person, TIMEOUT_S)
        assert person.asked == []
