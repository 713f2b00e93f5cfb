"""Has the checkpoints of a job looked for, each directory by a process of its own, and old ones removed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from dacite import DaciteError, from_dict

from dtagent.calls import Workers
from dtagent.errors import RpcError
from dtagent.facts.interpreters import FloodError, marked_object, run_bounded
from dtagent.locations import own_python
from dtagent.protocol import sentences
from dtagent.protocol.checkpoints import (
    MAX_COMPLETE,
    MAX_DIRECTORIES,
    MAX_PARTS,
    MAX_SEARCH_S,
    CheckpointsOf,
    CheckpointsReply,
    CheckpointsRequest,
    DropReply,
    DropRequest,
    JoinReply,
    JoinRequest,
)
from dtagent.protocol.replication import STORE
from dtagent.protocol.rpc import ErrorCode

LIMIT_S = MAX_SEARCH_S + 10.0
"""Of the call: longer than a search may take, so that it is told which directory did not answer."""
MAX_SEARCHES = 8
"""Under way; those that hang count."""
_MARK = "dtagent-checkpoints "
_LATE_S = 2.0
Reply = TypeVar("Reply", CheckpointsOf, DropReply, JoinReply)


class Checkpoints:
    """Answers for one daemon."""

    def __init__(self) -> None:
        self._searches = Workers("search", MAX_SEARCHES)

    async def newest(self, request: CheckpointsRequest) -> CheckpointsReply:
        """Look for checkpoints. Raises RpcError with too many directories, or for one that is not absolute."""
        _check_paths(request.directories, request.unwanted)
        looking = (self._look(directory, request) for directory in request.directories)
        return CheckpointsReply(list(await asyncio.gather(*looking)))

    async def drop(self, request: DropRequest) -> DropReply:
        """Remove old ones. Raises RpcError with too many directories, or for one that is not absolute."""
        _check_paths([place.directory for place in request.written], request.spared)
        seconds = min(max(request.seconds, 1.0), MAX_SEARCH_S)
        return await self._done(json.dumps(asdict(request) | {"seconds": seconds}), seconds, DropReply)

    async def join(self, request: JoinRequest) -> JoinReply:
        """Make one of its parts. Raises RpcError for what is no directory of copies, and for paths as above."""
        _check_paths(request.parts, [request.store], MAX_PARTS)
        if not request.parts or ".." in request.store.split("/") or Path(request.store).parent.name != STORE:
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.NO_STORE(path=repr(request.store)))
        seconds = min(max(request.seconds, 1.0), MAX_SEARCH_S)
        return await self._done(json.dumps(asdict(request) | {"seconds": seconds}), seconds, JoinReply)

    async def _look(self, directory: str, request: CheckpointsRequest) -> CheckpointsOf:
        seconds = min(max(request.seconds, 1.0), MAX_SEARCH_S)
        most = min(max(request.most, 1), MAX_COMPLETE)
        verify_s = min(max(request.verify_s, 0.0), seconds / 2)
        wanted = {"directory": directory, "unwanted": request.unwanted, "most": most, "seconds": seconds}
        text = json.dumps(wanted | {"verify_s": verify_s, "parts": request.parts})
        return await self._done(text, seconds, CheckpointsOf)

    async def _done(self, text: str, seconds: float, kind: type[Reply]) -> Reply:
        try:
            return await asyncio.wait_for(self._searches.run(lambda: run(text, seconds, kind)), seconds + _LATE_S)
        except asyncio.TimeoutError:
            return _silent(seconds, kind)


def run(text: str, seconds: float, kind: type[Reply]) -> Reply:
    """Do what a text asks for; blocks for as long as it does, on a disk that hangs longer than it may."""
    argv = [own_python(), "-I", "-m", "dtagent.checkpoints", _MARK, text]
    try:
        _code, output, errors = run_bounded(argv, seconds)
    except subprocess.TimeoutExpired:
        return _silent(seconds, kind)
    except (FloodError, OSError) as error:
        return kind(detail=sentences.SEARCH_FAILED(error=str(error)))
    told = marked_object(output, _MARK)
    try:
        return from_dict(kind, told or {"detail": None})
    except DaciteError:
        last = errors.strip().rpartition("\n")[2][:200]
        return kind(detail=sentences.SEARCH_FAILED(error=last))


def _check_paths(directories: Sequence[str], more: Sequence[str], limit: int = MAX_DIRECTORIES) -> None:
    if len(directories) > limit:
        said = sentences.TOO_MANY_PATHS(count=len(directories), limit=limit)
        raise RpcError(ErrorCode.INVALID_PARAMS, said)
    for path in (*directories, *more):
        if not os.path.isabs(path) or "\0" in path:
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.NOT_ABSOLUTE(path=repr(path)))


def _silent(seconds: float, kind: type[Reply]) -> Reply:
    return kind(detail=sentences.SEARCH_SILENT(seconds=f"{seconds:g}"))
