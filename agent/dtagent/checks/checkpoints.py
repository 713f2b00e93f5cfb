"""Has the checkpoints of a job looked for, each directory by a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess

from dacite import DaciteError, from_dict

from dtagent.calls import Workers
from dtagent.errors import RpcError
from dtagent.facts.interpreters import FloodError, marked_object, run_bounded
from dtagent.locations import own_python
from dtagent.protocol import sentences
from dtagent.protocol.checkpoints import (
    MAX_COMPLETE,
    MAX_DIRECTORIES,
    MAX_SEARCH_S,
    CheckpointsOf,
    CheckpointsReply,
    CheckpointsRequest,
)
from dtagent.protocol.rpc import ErrorCode

LIMIT_S = MAX_SEARCH_S + 10.0
"""Of the call: longer than a search may take, so that it is told which directory did not answer."""
MAX_SEARCHES = 8
"""Under way; those that hang count."""
_MARK = "dtagent-checkpoints "
_LATE_S = 2.0


class Checkpoints:
    """Answers for one daemon."""

    def __init__(self) -> None:
        self._searches = Workers("search", MAX_SEARCHES)

    async def newest(self, request: CheckpointsRequest) -> CheckpointsReply:
        """Look for checkpoints. Raises RpcError with too many directories, or for one that is not absolute."""
        if len(request.directories) > MAX_DIRECTORIES:
            said = sentences.TOO_MANY_PATHS(count=len(request.directories), limit=MAX_DIRECTORIES)
            raise RpcError(ErrorCode.INVALID_PARAMS, said)
        for path in (*request.directories, *request.unwanted):
            if not os.path.isabs(path) or "\0" in path:
                raise RpcError(ErrorCode.INVALID_PARAMS, sentences.NOT_ABSOLUTE(path=repr(path)))
        looking = (self._look(directory, request) for directory in request.directories)
        return CheckpointsReply(list(await asyncio.gather(*looking)))

    async def _look(self, directory: str, request: CheckpointsRequest) -> CheckpointsOf:
        seconds = min(max(request.seconds, 1.0), MAX_SEARCH_S)
        most = min(max(request.most, 1), MAX_COMPLETE)
        verify_s = min(max(request.verify_s, 0.0), seconds / 2)
        wanted = {"directory": directory, "unwanted": request.unwanted, "most": most, "seconds": seconds}
        text = json.dumps(wanted | {"verify_s": verify_s})
        try:
            return await asyncio.wait_for(self._searches.run(lambda: search(text, seconds)), seconds + _LATE_S)
        except asyncio.TimeoutError:
            return _silent(seconds)


def search(text: str, seconds: float) -> CheckpointsOf:
    """Run the search that a text asks for; blocks for as long as it does, on a disk that hangs longer than it may."""
    argv = [own_python(), "-I", "-m", "dtagent.checkpoints", _MARK, text]
    try:
        _code, output, errors = run_bounded(argv, seconds)
    except subprocess.TimeoutExpired:
        return _silent(seconds)
    except (FloodError, OSError) as error:
        return CheckpointsOf(detail=sentences.SEARCH_FAILED(error=str(error)))
    told = marked_object(output, _MARK)
    try:
        return from_dict(CheckpointsOf, told or {"detail": None})
    except DaciteError:
        last = errors.strip().rpartition("\n")[2][:200]
        return CheckpointsOf(detail=sentences.SEARCH_FAILED(error=last))


def _silent(seconds: float) -> CheckpointsOf:
    return CheckpointsOf(detail=sentences.SEARCH_SILENT(seconds=f"{seconds:g}"))
