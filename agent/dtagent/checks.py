"""What a preflight asks of a host beyond its facts: paths, and the listeners of others. Each answer has a deadline."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dtagent.calls import Workers
from dtagent.errors import RpcError
from dtagent.protocol.probes import (
    MAX_LOAD_S,
    MAX_PATHS,
    MAX_TARGETS,
    PathsReply,
    PathsRequest,
    PathState,
    Reach,
    Reached,
    ReachReply,
    ReachRequest,
    ReachTarget,
)
from dtagent.protocol.rpc import ErrorCode
from dtagent.reach import reach

MIB = 1024 * 1024
MAX_SECONDS = 15.0
MAX_PROBES = 64
MAX_LOOKS = 64
"""Looks at paths under way; those that hang count."""

_Value = TypeVar("_Value")


class Checks:
    """Answers for one daemon."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._probes = Workers("probe", MAX_PROBES)
        self._looks = Workers("look", MAX_LOOKS)

    async def reach(self, request: ReachRequest) -> ReachReply:
        """Connect to the targets. Raises RpcError with too many."""
        if len(request.targets) > MAX_TARGETS:
            raise RpcError(ErrorCode.INVALID_PARAMS, f"{len(request.targets)} targets; the limit is {MAX_TARGETS}")
        seconds = _bounded(request.seconds)
        return ReachReply(list(await asyncio.gather(*(self._reach(target, seconds) for target in request.targets))))

    async def paths(self, request: PathsRequest) -> PathsReply:
        """Look at paths. Raises RpcError with too many, or for one that is not absolute."""
        if len(request.paths) > MAX_PATHS:
            raise RpcError(ErrorCode.INVALID_PARAMS, f"{len(request.paths)} paths; the limit is {MAX_PATHS}")
        for path in request.paths:
            if not os.path.isabs(path) or "\0" in path:
                raise RpcError(ErrorCode.INVALID_PARAMS, f"not an absolute path: {path!r}")
        seconds = _bounded(request.seconds)
        asked = [*request.paths, str(self._root)]
        *found, root = await asyncio.gather(*(self._look(path, seconds) for path in asked))
        return PathsReply(list(found), root)

    async def _reach(self, target: ReachTarget, seconds: float) -> Reached:
        limit_s = seconds + 1.0 + (MAX_LOAD_S if target.load_bytes > 0 else 0.0)
        late = Reached(Reach.UNRESOLVED, detail=f"not looked up within {limit_s:g} s")
        return await _within(self._probes, lambda: reach(target, seconds), limit_s, late)

    async def _look(self, path: str, seconds: float) -> PathState:
        late = PathState(path, detail=f"no answer within {seconds:g} s")
        return await _within(self._looks, lambda: look(path), seconds, late)


def look(path: str) -> PathState:
    """Tell what lies at an absolute path. Blocks for as long as its file system does."""
    try:
        os.stat(path)
        exists: bool | None = True
    except (FileNotFoundError, NotADirectoryError):
        exists = False
    except OSError as error:
        return PathState(path, detail=error.strerror or str(error))
    nearest = path
    while not os.path.lexists(nearest) and nearest != os.path.dirname(nearest):
        nearest = os.path.dirname(nearest)
    try:
        use = shutil.disk_usage(nearest)
        free, total = use.free // MIB, use.total // MIB
    except OSError:
        free, total = None, None
    # Beneath something that is no directory nothing can be made.
    can_hold = exists or os.path.isdir(nearest)
    is_writable = can_hold and os.access(nearest, os.W_OK)
    return PathState(path, exists, os.path.isdir(path) if exists else None, is_writable, free, total)


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.1), MAX_SECONDS)


async def _within(workers: Workers, act: Callable[[], _Value], limit_s: float, late: _Value) -> _Value:
    try:
        return await asyncio.wait_for(workers.run(act), limit_s)
    except asyncio.TimeoutError:
        return late
