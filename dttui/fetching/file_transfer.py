"""One file from a host: brought in parts into what is kept beside its place, verified by hash, and put there."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
import stat
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from dtagent.protocol.rpc import MAX_CHUNK_BYTES
from dtagent.protocol.saved import DIGEST_BYTES, DigestReply, ReadReply, ReadRequest

from dttui.errors import AgentError
from dttui.fetching.host_link import HostLink
from dttui.fetching.models import FetchedFile, FileOutcome, RemoteFile
from dttui.fetching.target import InTheWayError, Target
from dttui.i18n import _
from dttui.words import size_text

AHEAD = 4
"""Parts of a file that are asked for before the first of them is here: over a long way the link would be idle else."""
TRIES = 3
"""How often a part that is not the host's is brought again, and a file that was written to is looked at again."""
MOST_GROWTH_BYTES = DIGEST_BYTES
"""What is brought of a file beyond what it was when it was listed."""
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
                has_its_size = stat.S_ISREG(found.st_mode) and found.st_size == file.size_bytes
                if has_its_size and await self._is_the_same(file):
                    self._on_bytes(file, file.size_bytes)
                    return FetchedFile(file, FileOutcome.HERE)
                if not self._replaces:
                    return FetchedFile(file, FileOutcome.IN_THE_WAY, _("another file has its place"))
            with self._target.part(file.target) as part:
                seen, note = await self._bring(file, part)
                with self._target.writing():
                    os.utime(part, ns=(seen.time_ns, seen.time_ns))
                    await asyncio.to_thread(os.fsync, part)
                self._target.put_in_place(file.target, replaces=self._replaces)
            return FetchedFile(seen, FileOutcome.FETCHED, note)
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

    async def _bring(self, file: RemoteFile, part: int) -> tuple[RemoteFile, str]:
        """Fill a part until it is the host's file; return that as it was then, and what there is to say of it."""
        seen, counted = file, 0
        for _round in range(TRIES):
            size = os.fstat(part).st_size
            if size > seen.size_bytes:
                os.ftruncate(part, seen.size_bytes)
                size = seen.size_bytes
            self._on_bytes(file, size - counted)
            await self._copy(seen, part, size, seen.size_bytes)
            last, counted = await self._verify_all(seen, part), seen.size_bytes
            if (last.size, last.time_ns, last.inode) == (seen.size_bytes, seen.time_ns, seen.inode):
                note = _("it was written to since it was listed, and is here as it became")
                return seen, "" if seen == file else note
            if last.inode != file.inode or last.size < seen.size_bytes:
                raise ChangedError(_("it became another file while it was fetched; the same command fetches that one"))
            if last.size - file.size_bytes > MOST_GROWTH_BYTES:
                break
            # Written anew or appended to, of which only another look tells.
            seen = replace(seen, size_bytes=last.size, time_ns=last.time_ns)
        seen = replace(seen, size_bytes=counted)
        os.ftruncate(part, counted)
        if not await self._is_still(seen, part):
            raise ChangedError(_("it is being written to all the time; try again once that has ended"))
        return seen, _("it is being written to: here is its beginning, {size}").format(size=size_text(counted))

    async def _verify_all(self, file: RemoteFile, part: int) -> DigestReply:
        """See to it that a part is the host's file; return what that is like at the end."""
        replies = [await self._verify(file, part, *stretch) for stretch in _stretches(file.size_bytes)]
        return replies[-1]

    async def _is_still(self, file: RemoteFile, descriptor: int) -> bool:
        """Whether the host's file begins with what is here, all of it."""
        for start, end in _stretches(file.size_bytes):
            reply = await self._digest(file, start, end)
            if start != end and reply.sha256 != await asyncio.to_thread(_hash, descriptor, start, end):
                return False
        return True

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
                    await asyncio.to_thread(_write, part, data, at)
                self._on_bytes(file, len(data))
        finally:
            for _at, _count, task in asked:
                task.cancel()
            await asyncio.gather(*(task for _at, _count, task in asked), return_exceptions=True)

    async def _read(self, file: RemoteFile, start: int, count: int) -> bytes:
        """Return exactly so many bytes. Raises ChangedError where there are not so many any more."""
        async with self._link.reading:
            reply = await self._link.call("read_file", ReadRequest(file.source, start, count), ReadReply)
        try:
            data = base64.b64decode(reply.data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise self._nonsense() from error
        if len(data) > count:
            raise self._nonsense()
        if len(data) < count:
            raise ChangedError(_("it became shorter while it was fetched; the same command fetches that one"))
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
            return file.size_bytes == 0 or await self._is_still(file, here)
        finally:
            os.close(here)

    def _nonsense(self) -> AgentError:
        message = _("{host}: the agent's answer to {method} makes no sense")
        return AgentError(self._link.name, message.format(host=self._link.name, method="read_file"), code=0)


def _stretches(size: int) -> list[tuple[int, int]]:
    """Return the parts that a file is verified in, from where to where; of an empty one a single empty one."""
    starts = range(0, size, DIGEST_BYTES) or (0,)
    return [(start, min(start + DIGEST_BYTES, size)) for start in starts]


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
