"""Sending a working directory to hosts: named by the content of its files, so that only what a host lacks is sent."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.preparation import PushRequest, WorkReply, WorkRequest
from dtagent.protocol.rpc import MAX_PUSH_BYTES, ErrorCode
from dtagent.protocol.tree import MAX_TREE_BYTES, TreeEntry, digest_of, encode_tree

from dttui.errors import AgentError, UsageError
from dttui.i18n import _
from dttui.rpc.client import AgentClient
from dttui.workdir.selection import UploadFile

INLINE_BYTES = 32 * 1024
"""A list of files up to this comes along with the question; a longer one is pushed where the host has not got it."""
FIRST_PUSH_BYTES = 64 * 1024
PUSH_S = 0.25
"""How long one part may take on its way, so that a heartbeat never waits long behind it."""
PARTS_UNDER_WAY = 2
"""The next part is on its way while the host takes one."""
WORK_TIMEOUT_S = 160.0
PUSH_TIMEOUT_S = 60.0
MAX_ROUNDS = 40
"""Times that a host may ask for more: each time for files that it had not asked for before."""


@dataclass(frozen=True)
class Bundle:
    """The files of a working directory as they were when this was made."""

    text: str
    """The list, as `tree.encode_tree` writes it."""
    digest: str
    sources: dict[str, UploadFile]
    """Content → a file that has it."""
    size: int
    """Bytes of all files."""
    count: int


def make_bundle(files: tuple[UploadFile, ...]) -> Bundle:
    """Read all files and name them by their content. Blocking.

    Raises:
        UsageError: one cannot be read, or their list is too long.
    """
    entries = []
    sources = {}
    for file in files:
        digest = _hash(file)
        entries.append(TreeEntry(file.relative, digest, file.size, file.executable))
        sources[digest] = file
    text = encode_tree(entries)
    if len(text.encode()) > MAX_TREE_BYTES:
        raise UsageError(
            _("the names of {count} files are too long together to be sent").format(count=len(files)),
            _("Put the data on the hosts, name it in .gitignore, or make workdir an absolute path there."),
        )
    return Bundle(text, digest_of(text), sources, sum(file.size for file in files), len(files))


async def send(
    client: AgentClient, key: AttemptKey, bundle: Bundle, on_progress: Callable[[int, int], None] = lambda *_: None
) -> int:
    """Have a host fill the attempt's `work`; return the bytes of files that had to be sent for it.

    Args:
        client: the host's agent.
        key: of an attempt that is prepared there.
        bundle: the files.
        on_progress: told how many bytes were sent, and how many are still missing.

    Raises:
        HostError: the host cannot be reached, or its agent does not take the files as it should.
        UsageError: a file changed meanwhile.
    """
    raw = bundle.text.encode()
    text = bundle.text if len(raw) <= INLINE_BYTES else None
    request = WorkRequest(key, bundle.digest, len(raw), text)
    sent = 0
    for _round in range(MAX_ROUNDS):
        reply = await _fill(client, request)
        if reply.is_complete:
            return sent
        on_progress(sent, reply.missing_bytes)
        if reply.missing == [bundle.digest]:
            await _push(client, key, iter([raw]), lambda _count: None)
            continue
        unknown = [digest for digest in reply.missing if digest not in bundle.sources]
        if unknown or not reply.missing:
            break
        wanted = [bundle.sources[digest] for digest in reply.missing]
        before, left = sent, reply.missing_bytes

        def tell(count: int, before: int = before, left: int = left) -> None:
            on_progress(before + count, max(0, left - count))

        try:
            sent += await _push(client, key, _contents(wanted), tell)
        except AgentError as error:
            if error.code != ErrorCode.WRONG_STATE:
                raise
            # Its agent was started anew, and no longer knows what it asked for.
    raise AgentError(
        client.name,
        _("{host}: the agent asks for files again and again").format(host=client.name),
        _("Upgrade the agent: dttui agents deploy {host}").format(host=client.name),
    )


async def _fill(client: AgentClient, request: WorkRequest) -> WorkReply:
    try:
        return await client.call("work", request, WorkReply, WORK_TIMEOUT_S)
    except AgentError as error:
        if error.code == ErrorCode.UNKNOWN_METHOD:
            raise AgentError(
                client.name,
                _("{host}: the agent is too old to take files").format(host=client.name),
                _("Upgrade the agent: dttui agents deploy {host}").format(host=client.name),
                code=error.code,
            ) from error
        raise


async def _push(client: AgentClient, key: AttemptKey, data: Iterator[bytes], on_sent: Callable[[int], None]) -> int:
    """Send a stream of bytes, a few parts at a time so that no stage of the way is idle; return how many there were."""
    parts = PartSize()
    under_way: deque[asyncio.Task[int]] = deque()
    rest = bytearray()
    given = taken = 0
    is_read = False
    try:
        while True:
            while len(rest) < parts.part_bytes and not is_read:
                piece = next(data, None)
                is_read = piece is None
                rest += piece or b""
            if rest and len(under_way) < PARTS_UNDER_WAY:
                part = bytes(rest[: parts.part_bytes])
                del rest[: len(part)]
                under_way.append(asyncio.create_task(_push_part(client, key, given, part, parts)))
                given += len(part)
                await asyncio.sleep(0)  # It goes out before the next part is read.
            elif under_way:
                taken = await asyncio.shield(under_way[0])
                del under_way[0]
                on_sent(taken)
            else:
                return taken
    finally:
        # Not cancelled: half a request would break the link.
        await asyncio.gather(*under_way, return_exceptions=True)


async def _push_part(client: AgentClient, key: AttemptKey, offset: int, part: bytes, parts: PartSize) -> int:
    """Send one part; return how many bytes the host has with it."""
    began = time.monotonic()
    brings = part if client.takes_bytes else b""
    request = PushRequest(key, offset, "" if brings else base64.b64encode(part).decode())
    try:
        taken = await client.call("push", request, int, PUSH_TIMEOUT_S, brings)
    except AgentError as error:
        if error.code == ErrorCode.INVALID_PARAMS:
            raise UsageError(
                _("a file changed while it was sent to {host}").format(host=client.name),
                _("Launch again once nothing writes to the working directory."),
            ) from error
        raise
    size = offset + len(part)
    if taken != size:
        raise AgentError(
            client.name,
            _("{host}: the agent does not take the files: it has {length} of {size} bytes").format(
                host=client.name, length=taken, size=size
            ),
            _("Upgrade the agent: dttui agents deploy {host}").format(host=client.name),
        )
    parts.note(len(part), time.monotonic() - began)
    return taken


class PartSize:
    """How large a part may be, as the answers to those before it tell."""

    def __init__(self) -> None:
        self.part_bytes = FIRST_PUSH_BYTES

    def note(self, size: int, seconds: float) -> None:
        """Take note of how long a part took."""
        fitting = size * PUSH_S / max(seconds, 1e-6)
        self.part_bytes = int(min(max(fitting, FIRST_PUSH_BYTES / 4), 2 * self.part_bytes, MAX_PUSH_BYTES))


def _contents(files: list[UploadFile]) -> Iterator[bytes]:
    """Yield the bytes of files, of each as many as it had: what was appended since stays here."""
    for file in files:
        left = file.size
        with file.open() as stream:
            while left:
                data = stream.read(min(left, MAX_PUSH_BYTES))
                if not data:
                    raise UsageError(_("{path} became shorter while it was sent").format(path=file.path))
                left -= len(data)
                yield data


def _hash(file: UploadFile) -> str:
    found = hashlib.sha256()
    for data in _contents([file]):
        found.update(data)
    return found.hexdigest()
