"""An SSH server in this process that asks for whatever a test wants: passwords, one-time codes, several factors."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_PARTIALLY_SUCCESSFUL,
    AUTH_SUCCESSFUL,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
)
from paramiko.server import InteractiveQuery

from dttui.transport.ssh.known_hosts import HostKey

USER = "alice"


@dataclass
class Script:
    """What it takes to get in."""

    factors: list[str] = field(default_factory=lambda: ["password"])
    """Methods in order; each but the last one is answered by `partial success`."""
    password: str = "right"
    prompts: list[tuple[str, bool]] = field(default_factory=lambda: [("Verification code: ", True)])
    answers: list[str] = field(default_factory=lambda: ["123456"])
    title: str = ""
    instructions: str = ""
    public_key: bytes = b""
    attempts: list[str] = field(default_factory=list)
    """What clients tried."""
    arrivals: int = 0
    """Clients that asked how they may log in."""


class _Server(paramiko.ServerInterface):
    def __init__(self, script: Script) -> None:
        self._script = script
        self._passed = 0

    def get_allowed_auths(self, username: str) -> str:
        return self._script.factors[self._passed]

    def check_auth_none(self, username: str) -> int:
        self._script.arrivals += 1
        return AUTH_FAILED

    def check_auth_password(self, username: str, password: str) -> int:
        return self._judge("password", password == self._script.password)

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return self._judge("publickey", key.asbytes() == self._script.public_key)

    def check_auth_interactive(self, username: str, submethods: str) -> int | InteractiveQuery:
        if self._script.factors[self._passed] != "keyboard-interactive":
            return AUTH_FAILED
        return InteractiveQuery(self._script.title, self._script.instructions, *self._script.prompts)

    def check_auth_interactive_response(self, responses: list[str]) -> int | InteractiveQuery:
        return self._judge("keyboard-interactive", list(responses) == self._script.answers)

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def _judge(self, method: str, right: bool) -> int:
        self._script.attempts.append(method)
        if not right or self._script.factors[self._passed] != method:
            return AUTH_FAILED
        self._passed += 1
        if self._passed < len(self._script.factors):
            return AUTH_PARTIALLY_SUCCESSFUL
        self._passed = 0
        return AUTH_SUCCESSFUL


@dataclass
class ScriptedServer:
    """Where it listens, and the key it shows."""

    port: int
    host_key: HostKey
    script: Script


@contextlib.contextmanager
def scripted_server(script: Script) -> Iterator[ScriptedServer]:
    """Serve connections on 127.0.0.1 while the block lasts."""
    key = paramiko.ECDSAKey.generate()
    transports: list[paramiko.Transport] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _address = listener.accept()
                except OSError:
                    return
                transport = paramiko.Transport(client)
                transport.add_server_key(key)
                transports.append(transport)
                with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
                    transport.start_server(server=_Server(script))

        thread = threading.Thread(target=serve, name="scripted-ssh-server")
        thread.start()
        try:
            yield ScriptedServer(listener.getsockname()[1], HostKey(key.get_name(), key.asbytes()), script)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for transport in transports:
                transport.close()
                transport.join(5)


def make_client_key(path: Path, passphrase: str | None = None) -> bytes:
    """Write a private key, without a passphrase unless told one; return its public half."""
    key = paramiko.ECDSAKey.generate()
    key.write_private_key_file(str(path), passphrase)
    return key.asbytes()
