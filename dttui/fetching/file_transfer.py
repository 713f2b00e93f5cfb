"""One file from a host: brought in parts into what is kept beside its place, verified by hash, and put there."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
from collections import deque
from collections.abc import Callable

from dtagent.protocol.rpc import MAX_CHUNK_BYTES
from dtagent.protocol.saved import DIGEST_BYTES, DigestReply, ReadReply, ReadRequest

from dttui.errors import AgentError
from dttui.fetching.host_link import HostLink
from dttui.fetching.models import FetchedFile, FileOutcome, RemoteFile
from dttui.fetching.target import InTheWayError, Target
from dttui.i18n import _

AHEAD = 4
"""Parts that are asked for before the first of them is here: over a long way the link would be idle else."""
TRIES = 3
"""How often a part that is not the host's is brought again."""
HASHED_BYTES = 1024 * 1024


class ChangedError(Exception):
    """The file became another one meanwhile."""


class FileTransfer:
    """Brings files of one host.

    Args:
        link: to the host.
        target: where they go.
        replaces: whether a file that has the place of one makes way.
        on_bytes: hears of each file how many more bytes of it are here, or fewer where some were none of the host's.
    """

    def __init__(
        self, link: HostLink, target: Target, *, replaces: bool, on_bytes: Callable[[RemoteFile, int], None]
    ) -> None:
        self._link = link
        self._target = target
        self._replaces = replaces
        self._on_bytes = on_bytes

    async def fetch(self, file: RemoteFile) -> FetchedFile:
        """Bring a file, unless it is here already; return what has become of it.

        Raises:
            HostError: the host has fallen silent, or never answered.
            NoRoomError: the disk here is full.
        """
        try:
            found = self._target.status(file.target)
            if found is not None:
                if found.st_size == file.size_bytes and await self._is_the_same(file):
                    self._on_bytes(file, file.size_bytes)
                    return FetchedFile(file, FileOutcome.HERE)
                if not self._replaces:
                    return FetchedFile(file, FileOutcome.IN_THE_WAY, _("another file has its place"))
            with self._target.part(file.target) as part:
                note = await self._bring(file, part)
                with self._target.writing():
                    os.utime(part, ns=(file.time_ns, file.time_ns))
                    await asyncio.to_thread(os.fsync, part)
                self._target.put_in_place(file.target, replaces=self._replaces)
            return FetchedFile(file, FileOutcome.FETCHED, note)
        except InTheWayError as error:
            return FetchedFile(file, FileOutcome.IN_THE_WAY, error.strerror or "")
        except ChangedError as error:
            return FetchedFile(file, FileOutcome.CHANGED, str(error))
        except AgentError as error:
            if error.code is None:
                raise
            return FetchedFile(file, FileOutcome.FAILED, error.message)
        except OSError as error:
            return FetchedFile(file, FileOutcome.FAILED, error.strerror or str(error))

    async def _bring(self, file: RemoteFile, part: int) -> str:
        """Fill a part until it is the host's file; return what there is to say of that."""
        size = os.fstat(part).st_size
        if size > file.size_bytes:
            os.ftruncate(part, file.size_bytes)
            size = file.size_bytes
        self._on_bytes(file, size)
        await self._copy(file, part, size, file.size_bytes)
        last: DigestReply | None = None
        for start in range(0, file.size_bytes, DIGEST_BYTES) or (0,):
            last = await self._verify(file, part, start, min(start + DIGEST_BYTES, file.size_bytes))
        assert last is not None  # noqa: S101 - the loop goes round at least once
        if (last.size, last.time_ns, last.inode) == (file.size_bytes, file.time_ns, file.inode):
            return ""
        if last.inode == file.inode and last.size >= file.size_bytes:
            # What was appended meanwhile takes nothing from what it was when it was listed: that was verified.
            return _("it has grown since; it is as it was when it was listed")
        raise ChangedError(_("it became another file while it was fetched; the same command fetches that one"))

    async def _copy(self, file: RemoteFile, part: int, start: int, end: int) -> None:
        """Bring the bytes from one place to another, in order."""
        asked: deque[tuple[int, int, asyncio.Task[bytes]]] = deque()
        offset = start
        try:
            while offset < end or asked:
                while offset < end and len(asked) < AHEAD:
                    count = min(self._link.grant_bytes, MAX_CHUNK_BYTES, end - offset)
                    asked.append((offset, count, asyncio.create_task(self._read(file, offset, count))))
                    offset += count
                at, _count, task = asked.popleft()
                data = await task
                with self._target.writing():
                    _write(part, data, at)
                self._on_bytes(file, len(data))
        finally:
            for _at, _count, task in asked:
                task.cancel()
            await asyncio.gather(*(task for _at, _count, task in asked), return_exceptions=True)

    async def _read(self, file: RemoteFile, start: int, count: int) -> bytes:
        """Return exactly so many bytes. Raises ChangedError where there are not so many any more."""
        data = b""
        while len(data) < count:
            request = ReadRequest(file.source, start + len(data), count - len(data))
            reply = await self._link.call("read_file", request, ReadReply)
            try:
                more = base64.b64decode(reply.data, validate=True)
            except (binascii.Error, ValueError) as error:
                raise self._nonsense() from error
            if len(more) > count - len(data):
                raise self._nonsense()
            if not more:
                raise ChangedError(_("it became shorter while it was fetched; the same command fetches that one"))
            data += more
        return data

    async def _verify(self, file: RemoteFile, part: int, start: int, end: int) -> DigestReply:
        """See to it that a stretch is the host's, and bring it again where it is not."""
        for _try in range(TRIES):
            reply = await self._digest(file, start, end)
            if start == end or reply.sha256 == await asyncio.to_thread(_hash, part, start, end):
                return reply
            self._on_bytes(file, start - end)
            await self._copy(file, part, start, end)
        raise ChangedError(_("what came is not what the host has, however often; the same command tries again"))

    async def _digest(self, file: RemoteFile, start: int, end: int) -> DigestReply:
        reply = await self._link.call("digest_file", ReadRequest(file.source, start, max(1, end - start)), DigestReply)
        if reply.count < end - start:
            raise ChangedError(_("it became shorter while it was fetched; the same command fetches that one"))
        if reply.count > max(1, end - start):
            raise self._nonsense()
        return reply

    async def _is_the_same(self, file: RemoteFile) -> bool:
        """Whether the file that has the place is a plain one with the host's content."""
        try:
            here = self._target.open_file(file.target)
        except OSError:
            return False
        try:
            for start in range(0, file.size_bytes, DIGEST_BYTES):
                end = min(start + DIGEST_BYTES, file.size_bytes)
                if (await self._digest(file, start, end)).sha256 != await asyncio.to_thread(_hash, here, start, end):
                    return False
        finally:
            os.close(here)
        return True

    def _nonsense(self) -> AgentError:
        message = _("{host}: the agent's answer to {method} makes no sense")
        return AgentError(self._link.name, message.format(host=self._link.name, method="read_file"), code=0)


def _write(descriptor: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        count = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[count:], offset + count


def _hash(descriptor: int, start: int, end: int) -> str:
    found = hashlib.sha256()
    while start < end and (data := os.pread(descriptor, min(HASHED_BYTES, end - start), start)):
        found.update(data)
        start += len(data)
    return found.hexdigest()
