"""A host whose agent says what a test has it say."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

from dtagent.protocol.saved import (
    DigestReply,
    FilesReply,
    FilesRequest,
    LeftOut,
    ListedPlace,
    PlaceKind,
    ReadReply,
    ReadRequest,
)

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
        self.breaks = 0
        self.chunk = 1000
        self.reads: list[tuple[str, int]] = []
        self.spoil: Callable[[str, int, bytes], bytes] = lambda _path, _start, data: data
        """Makes what is read of what there is."""
        self.inode = INODE
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
        if method == "list_files":
            assert isinstance(request, FilesRequest)
            rows = self.rows[request.start : request.start + self.page]
            more = request.start + self.page < len(self.rows)
            return FilesReply(self.places, rows, more, self.is_whole, self.left_out)
        assert isinstance(request, ReadRequest)
        content = self.files[request.path]
        data = content[request.start : request.start + request.count]
        if method == "digest_file":
            return DigestReply(hashlib.sha256(data).hexdigest(), len(data), len(content), TIME_NS, self.inode)
        self.reads.append((request.path, request.start))
        sent = self.spoil(request.path, request.start, data)
        return ReadReply(base64.b64encode(sent).decode(), len(content), TIME_NS, self.inode)


def remote(content: bytes, target: str = "out/a", source: str = "/w/out/a") -> RemoteFile:
    """Return a file as it was listed when it had this content."""
    return RemoteFile("gpu1", source, target, len(content), TIME_NS, INODE)
