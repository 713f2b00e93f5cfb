"""What a preflight asks of a host beyond its facts: paths, listeners of others, frameworks. Each has a deadline."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dtagent.calls import Workers
from dtagent.checks.images import TIMEOUT_S, look_for
from dtagent.checks.reach import reach
from dtagent.checks.validation import clear_up, judge
from dtagent.errors import RpcError
from dtagent.protocol import sentences
from dtagent.protocol.probes import (
    MAX_LOAD_S,
    MAX_PATHS,
    MAX_TARGETS,
    ImageReply,
    ImageRequest,
    PathsReply,
    PathsRequest,
    PathState,
    Reached,
    ReachOutcome,
    ReachReply,
    ReachRequest,
    ReachTarget,
    ValidationReply,
    ValidationRequest,
)
from dtagent.protocol.rpc import ErrorCode
from dtagent.protocol.said import Said
from dtagent.system.units import MIB

MAX_SECONDS = 15.0
MAX_PROBES = 64
MAX_LOOKS = 64
"""Looks at paths under way; those that hang count."""
MAX_VALIDATIONS = 2
"""Each is an interpreter with a framework in it."""
MAX_VALIDATION_BYTES = 1024 * 1024
VALIDATION_LIMIT_S = 90.0

_Value = TypeVar("_Value")


class Checks:
    """Answers for one daemon, the only one of its root."""

    def __init__(self, root: Path) -> None:
        clear_up(root)
        self._root = root
        self._probes = Workers("probe", MAX_PROBES)
        self._looks = Workers("look", MAX_LOOKS)
        self._validations = Workers("verdict", MAX_VALIDATIONS)

    async def reach(self, request: ReachRequest) -> ReachReply:
        """Connect to the targets. Raises RpcError with too many."""
        if len(request.targets) > MAX_TARGETS:
            said = sentences.TOO_MANY_TARGETS(count=len(request.targets), limit=MAX_TARGETS)
            raise RpcError(ErrorCode.INVALID_PARAMS, said)
        seconds = _bounded(request.seconds)
        return ReachReply(list(await asyncio.gather(*(self._reach(target, seconds) for target in request.targets))))

    async def paths(self, request: PathsRequest) -> PathsReply:
        """Look at paths. Raises RpcError with too many, or for one that is not absolute."""
        if len(request.paths) + len(request.programs) > MAX_PATHS:
            count = len(request.paths) + len(request.programs)
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.TOO_MANY_PATHS(count=count, limit=MAX_PATHS))
        for path in request.paths:
            if not os.path.isabs(path) or "\0" in path:
                raise RpcError(ErrorCode.INVALID_PARAMS, sentences.NOT_ABSOLUTE(path=repr(path)))
        seconds = _bounded(request.seconds)
        asked = [*request.paths, str(self._root)]
        looking = asyncio.gather(*(self._look(path, seconds) for path in asked))
        searching = self._search(request.programs, request.search_path, seconds)
        (*found, root), missing = await asyncio.gather(looking, searching)
        return PathsReply(list(found), root, missing)

    async def image(self, request: ImageRequest) -> ImageReply:
        """Ask a container engine for an image. Raises RpcError for an engine that is none."""
        late = ImageReply(has_engine=True, detail=sentences.NO_ANSWER(seconds=f"{TIMEOUT_S:g}"))
        return await _within(self._looks, lambda: look_for(request), TIMEOUT_S + 2.0, late)

    async def validation(self, request: ValidationRequest) -> ValidationReply:
        """Ask frameworks about a job. Raises RpcError for a file without a name."""
        return await self._validations.run(lambda: judge(request, self._root))

    async def _reach(self, target: ReachTarget, seconds: float) -> Reached:
        limit_s = seconds + 1.0 + (MAX_LOAD_S if target.load_bytes > 0 else 0.0)
        late = Reached(ReachOutcome.UNRESOLVED, detail=sentences.NOT_LOOKED_UP(seconds=f"{limit_s:g}"))
        return await _within(self._probes, lambda: reach(target, seconds), limit_s, late)

    async def _search(self, programs: list[str], search_path: str | None, seconds: float) -> list[str] | None:
        if any("\0" in name for name in (*programs, search_path or "")):
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.PROGRAM_WITH_ZERO())

        def search() -> list[str] | None:
            return [name for name in programs if shutil.which(name, path=search_path) is None]

        return await _within(self._looks, search, seconds, None)

    async def _look(self, path: str, seconds: float) -> PathState:
        late = PathState(path, detail=sentences.NO_ANSWER(seconds=f"{seconds:g}"))
        return await _within(self._looks, lambda: look(path), seconds, late)


def look(path: str) -> PathState:
    """Tell what lies at an absolute path. Blocks for as long as its file system does."""
    try:
        os.stat(path)
        exists: bool | None = True
    except (FileNotFoundError, NotADirectoryError):
        exists = False
    except OSError as error:
        return PathState(path, detail=Said(error.strerror or str(error)))
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
