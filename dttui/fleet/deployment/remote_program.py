"""Runs one of our programs on a host and brings back its answer. Knows nothing of what is asked or why."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import zlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from dtagent.protocol import places

from dttui.errors import AgentError, HostError, HostUnreachableError
from dttui.fleet.deployment.frame_program import MARK
from dttui.fleet.deployment.refusals import refused
from dttui.i18n import _
from dttui.sanitize import clean
from dttui.transport.base import ByteStream, Connection, RemoteCommand
from dttui.transport.remote_commands import NO_PYTHON_EXIT_STATUS, bootstrap_input

_FILES = (
    ("dtagent.protocol.places", Path(places.__file__)),
    *(
        (f"dttui.fleet.deployment.{name}", Path(__file__).with_name(f"{name}.py"))
        for name in (
            "root_program",
            "frame_program",
            "tool_program",
            "deploy_program",
            "manage_program",
            "doctor_program",
        )
    ),
)
"""By the names under which each is imported by those after it."""
_CHUNK_BYTES = 256 * 1024
_MAX_OUTPUT_BYTES = 1024 * 1024
"""What the login shell may print, and the program's answer, together."""


class Program(Enum):
    """What is pushed to a host and run there, by the standard library alone."""

    DEPLOYMENT = "deployment"
    """`probe`, `install` and `equip`."""
    AGENTS = "agents"
    """`inspect`, `retire` and `remove`."""
    DOCTOR = "doctor"
    """`examine`."""

    def text(self) -> bytes:
        """Return its source: the last of the files is the one that runs."""
        last = {
            Program.DEPLOYMENT: "deploy_program",
            Program.AGENTS: "manage_program",
            Program.DOCTOR: "doctor_program",
        }
        end = next(index for index, (name, _path) in enumerate(_FILES) if name.endswith(last[self]))
        return _packed(_FILES[: end + 1])


@functools.cache
def _packed(files: tuple[tuple[str, Path], ...]) -> bytes:
    """Return a program that runs the last of some files, packed: it goes over every link before anything else."""
    # One imports another, which is no file there: it is put where imports look first.
    parts = ["import sys, types"]
    *modules, (_name, main) = files
    for name, file in modules:
        parts.append(f"sys.modules[{name!r}] = module = types.ModuleType({name!r})")
        parts.append(f"exec({file.read_text()!r}, module.__dict__)")
    content = zlib.compress("\n".join([*parts, f"exec({main.read_text()!r})"]).encode(), 9)
    return b"import base64, zlib; exec(zlib.decompress(base64.b85decode(%r)))" % base64.b85encode(content)


@dataclass(frozen=True)
class Answer:
    """What the program said, and what it took."""

    result: dict[str, Any]
    sent_bytes: int


async def ask_host(
    connection: Connection,
    request: dict[str, Any],
    contents: Sequence[bytes] = (),
    on_step: Callable[[str], None] = lambda step: None,
    program: Program = Program.DEPLOYMENT,
) -> Answer:
    """Run a program with a request, followed by `contents` as they are.

    Raises:
        AgentError: the host has no Python that will do, or the program refused or broke.
        HostUnreachableError: the link is gone.
    """
    host = connection.environment.name
    start = bootstrap_input(program.text(), connection.environment.python)
    blobs = [start + json.dumps(request).encode() + b"\n", *contents]
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    # Beside the reading: a program that refuses does not read on, and its reason is what counts.
    writer = asyncio.create_task(_feed(stream, blobs))
    try:
        async with aclosing(_messages(host, stream)) as messages:
            async for message in messages:
                if "step" in message:
                    on_step(str(message["step"]))
                elif "refusal" in message:
                    raise refused(host, message)
                elif isinstance(message.get("result"), dict):
                    return Answer(message["result"], sum(map(len, blobs)))
        raise await _ended(host, stream, writer)
    finally:
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
        await stream.close()


async def _feed(stream: ByteStream, blobs: Sequence[bytes]) -> None:
    for blob in blobs:
        for start in range(0, len(blob), _CHUNK_BYTES):
            await stream.write(blob[start : start + _CHUNK_BYTES])
    await stream.write_eof()


async def _messages(host: str, stream: ByteStream) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the program's lines, leaving out whatever a login shell printed before and between them."""
    pending = b""
    received = 0
    while data := await stream.read():
        received += len(data)
        if received > _MAX_OUTPUT_BYTES:
            raise AgentError(
                host,
                _("{host}: the login shell prints without end").format(host=host),
                _("Silence the shell's start-up files for non-interactive logins."),
            )
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            if line.startswith(MARK):
                yield _decode(host, line[len(MARK) :])


def _decode(host: str, line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise AgentError(host, _("{host}: the host's answer makes no sense").format(host=host)) from error
    return message if isinstance(message, dict) else {}


async def _ended(host: str, stream: ByteStream, writer: asyncio.Task[None]) -> HostError:
    """Say why a program ended without an answer."""
    status, stderr = await stream.wait()
    lines = clean(stderr.decode(errors="replace")).strip().splitlines()
    said = lines[-1] if lines else ""
    if status == NO_PYTHON_EXIT_STATUS:
        found = said.partition("(found:")[2].rstrip(")").strip() or _("none")
        return AgentError(
            host,
            _("{host}: no Python 3.10 or later; found: {found}").format(host=host, found=found),
            _("Install one, in your home or for all, and name it in the inventory: python: /path/to/python3"),
        )
    if status is None:
        broken = writer.exception() if writer.done() and not writer.cancelled() else None
        if isinstance(broken, HostUnreachableError):
            return broken
        return HostUnreachableError(host, _("{host}: the connection ended before the answer").format(host=host))
    return AgentError(
        host,
        _("{host}: what was sent there ended with exit status {status}: {reason}").format(
            host=host, status=status, reason=said or _("it said nothing")
        ),
    )
