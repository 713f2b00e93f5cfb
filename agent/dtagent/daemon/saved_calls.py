"""The calls by which what an attempt has written is told, listed and read: each on a thread, a few at once."""

from __future__ import annotations

from collections.abc import Callable

from dtagent.attempts import saved_files, saved_places
from dtagent.calls import Workers
from dtagent.locations import AttemptFiles
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.saved import (
    DigestReply,
    FilesReply,
    FilesRequest,
    ReadReply,
    ReadRequest,
    SavedReply,
    SavedRequest,
)

MAX_LOOKS = 8
"""Looks through directories under way; those that hang count."""
MAX_READS = 16
"""Parts of files that are read or hashed at once."""
LOOK_LIMIT_S = 40.0
READ_LIMIT_S = 60.0
"""For the hash of a part, on a slow disk."""


class SavedCalls:
    """Answers for one daemon.

    Args:
        named: names those of an attempt; raises RpcError where that can be none.
        left: does so, and raises RpcError where there is nothing of it.
    """

    def __init__(self, named: Callable[[AttemptKey], AttemptFiles], left: Callable[[AttemptKey], AttemptFiles]) -> None:
        self._named = named
        self._left = left
        self._looks = Workers("saved", MAX_LOOKS)
        self._reads = Workers("read", MAX_READS)

    async def saved(self, request: SavedRequest) -> SavedReply:
        """Tell what an attempt has written. Raises RpcError NO_SUCH_ATTEMPT."""
        files = self._left(request.key)
        return await self._looks.run(lambda: saved_places.look(files, request))

    async def files(self, request: FilesRequest) -> FilesReply:
        """List files; see `list_files`. Raises RpcError NO_SUCH_ATTEMPT, unless each path is told whole."""
        is_told_whole = bool(request.paths) and all(path.startswith("/") for path in request.paths)
        files = (self._named if is_told_whole else self._left)(request.key)
        return await self._looks.run(lambda: saved_files.list_files(files, request))

    async def read(self, request: ReadRequest) -> ReadReply:
        """Read a part of a file; see `saved_files.read`."""
        return await self._reads.run(lambda: saved_files.read(request))

    async def digest(self, request: ReadRequest) -> DigestReply:
        """Hash a part of a file; see `saved_files.digest`."""
        return await self._reads.run(lambda: saved_files.digest(request))
