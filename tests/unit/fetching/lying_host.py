"""A host whose agent says what a test has it say."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable
from typing import Any

from dtagent.protocol.saved import (
    DigestReply,
    FilesReply,
    FilesRequest,
    KeepReply,
    LeftOut,
    ListedPlace,
    PlaceKind,
    ReadReply,
    ReadRequest,
)

from dttui.errors import AgentError, HostError
from dttui.fetching.host_link import HostLink
from dttui.fetching.models import RemoteFile

TIME_NS = 1_700_000_000_000_000_000
INODE = 7
Row = tuple[int, str, int, int, int]


class LyingHost(HostLink):
    """Answers from memory.

    Args:
        files: absolute path → content.
    """

    def __init__(self, files: dict[str, bytes] | None = None, name: str = "gpu1") -> None:
        self.files = files or {}
        self._called = name
        self.reading = asyncio.Semaphore(4)
        self.chunk = 1000
        self.reads: list[tuple[str, int]] = []
        self.spoil: Callable[[str, int, bytes], bytes] = lambda _path, _start, data: data
        """Makes what is read of what there is."""
        self.inode = INODE
        self.time_ns = TIME_NS
        self.before_digest: Callable[[LyingHost], None] = lambda _host: None
        """Happens on the host before a part is hashed."""
        self.sizes: Callable[[int], int] = lambda size: size
        """Makes what it says of a file's size of what that is."""
        self.after_page: Callable[[LyingHost], None] = lambda _host: None
        self.asked: list[tuple[str, ...]] = []
        """The paths of each question for files."""
        self.refusal_of_all: HostError | None = None
        self.refusal: AgentError | None = None
        """What it answers where nobody names paths."""
        self.places: list[ListedPlace] = []
        self.rows: list[Row] = []
        self.page = 10**6
        self.left_out = LeftOut()
        self.is_whole = True

    @property
    def name(self) -> str:
        return self._called

    @property
    def grant_bytes(self) -> int:
        return self.chunk

    async def close(self) -> None:
        return

    def lists(self, *names: str, place: str = "/w/out", called: str = "out", size: int = 3) -> LyingHost:
        """Have these files listed in one place."""
        self.places.append(ListedPlace(place, called, PlaceKind.OUTPUT))
        index = len(self.places) - 1
        self.rows += [(index, name, size, TIME_NS, INODE) for name in names]
        return self

    async def call(self, method: str, request: Any, reply: type[Any]) -> Any:
        if self.refusal_of_all is not None:
            raise self.refusal_of_all
        if method == "keep":
            return KeepReply(["/root/jobs/j/0"])
        if method == "list_files":
            assert isinstance(request, FilesRequest)
            self.asked.append(tuple(request.paths))
            if self.refusal is not None and not request.paths:
                raise self.refusal
            rows = self.rows[request.start : request.start + self.page]
            more = request.start + self.page < len(self.rows)
            reply_to_this = FilesReply(list(self.places), rows, more, self.is_whole, self.left_out)
            self.after_page(self)
            return reply_to_this
        assert isinstance(request, ReadRequest)
        if method == "digest_file":
            self.before_digest(self)
        content = self.files[request.path]
        data = content[request.start : request.start + request.count]
        if method == "digest_file":
            return DigestReply(
                hashlib.sha256(data).hexdigest(), len(data), self.sizes(len(content)), self.time_ns, self.inode
            )
        self.reads.append((request.path, request.start))
        sent = self.spoil(request.path, request.start, data)
        return ReadReply(base64.b64encode(sent).decode(), len(content), self.time_ns, self.inode)


def remote(content: bytes, target: str = "out/a", source: str = "/w/out/a") -> RemoteFile:
    """Return a file as it was listed when it had this content."""
    return RemoteFile("gpu1", source, target, len(content), TIME_NS, INODE)
