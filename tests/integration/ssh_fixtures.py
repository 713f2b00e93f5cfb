"""What the tests of the SSH transport share: a server, a transport that must leave no thread, and a person."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from dttui.transport.base import ByteStream, Prompt
from dttui.transport.ssh.transport import SshTransport
from tests.integration.sshd import Sshd, running_sshd
from tests.waiting import until

TIMEOUT_S = 20.0


class Person:
    """Answers by kind of question, in order; nobody is there for what has no answer."""

    def __init__(self, **answers: list[str | None]) -> None:
        self.answers = {kind: list(values) for kind, values in answers.items()}
        self.asked: list[Prompt] = []

    async def ask(self, prompt: Prompt) -> str | None:
        self.asked.append(prompt)
        left = self.answers.get(prompt.kind.name.lower(), [])
        return left.pop(0) if left else None


NOBODY = Person()


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    with running_sshd(tmp_path / "sshd") as server:
        yield server


@pytest.fixture
def ssh_config(tmp_path: Path) -> Path:
    """Stands instead of the person's own configuration, which ssh finds without regard to $HOME."""
    path = tmp_path / "ssh_config"
    path.write_text(f"Match all\nUserKnownHostsFile {tmp_path / 'user_known_hosts'}\nGlobalKnownHostsFile /dev/null\n")
    return path


@pytest_asyncio.fixture
async def transport(ssh_config: Path) -> AsyncIterator[SshTransport]:
    before = threading.active_count()
    made = SshTransport(ssh_config)
    yield made
    await made.close()
    await until(lambda: threading.active_count() <= before, "all threads have ended")


async def read_all(stream: ByteStream) -> bytes:
    """Return what comes until the end."""
    data = b""
    while part := await stream.read():
        data += part
    return data


ECHO = """
import os
while data := stdin.read(65536):
    while data:
        data = data[os.write(1, data):]
"""
"""A program for the bootstrap that writes what it reads."""


async def echoed(stream: ByteStream, data: bytes) -> bytes:
    """Return what `ECHO` makes of the data, which is written while that is read, and that it has ended well."""

    async def send() -> None:
        await stream.write(data)
        await stream.write_eof()

    sending = asyncio.create_task(send())
    received = await read_all(stream)
    await sending
    assert (await stream.wait())[0] == 0
    return received


def configure(config: Path, *lines: str) -> None:
    """Add lines to an ssh configuration, before what holds for all hosts: the first value counts."""
    head, rest = config.read_text().split("Match all\n")
    config.write_text(head + "".join(f"{line}\n" for line in lines) + "Match all\n" + rest)
