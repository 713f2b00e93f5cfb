"""A search of one directory, or a removal, as a process of its own, which what lies there can end, and nothing else.

What it reads was written by others: it takes no more memory and processor time than it is given here.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from dtagent.checkpoints.dropping import drop
from dtagent.checkpoints.joining import join
from dtagent.checkpoints.search import newest_complete
from dtagent.protocol import sentences
from dtagent.protocol.checkpoints import CheckpointsOf, DropReply, DropRequest, FoundCheckpoint, JoinReply, WrittenIn
from dtagent.protocol.rpc import to_wire
from dtagent.system.units import MIB

MEMORY_BYTES = 2048 * MIB
MOST_TOLD = 8
"""Of those that were passed over, the newest; of parts so many at least."""


def main(mark: str, text: str) -> None:
    """Search or remove as the text says, and print a line with the mark and what came of it."""
    request = json.loads(text)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seconds = int(request["seconds"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    with contextlib.suppress(OSError):
        os.nice(10)  # Of a rank that trains it takes nothing.
    print(mark + json.dumps(to_wire(do(request))))


def do(request: dict[str, Any]) -> CheckpointsOf | DropReply | JoinReply:
    """Search, remove, or join, as is asked for."""
    if "written" in request:
        return _dropped(request)
    return _joined(request) if "store" in request else _found(request)


def _found(request: dict[str, Any]) -> CheckpointsOf:
    try:
        unwanted, verify_s = frozenset(request["unwanted"]), float(request["verify_s"])
        search = newest_complete(Path(request["directory"]), unwanted, request["most"], verify_s)
    except OSError as error:
        return CheckpointsOf(detail=sentences.SEARCH_FAILED(error=error.strerror or str(error)))
    parts = search.parts[: max(MOST_TOLD, request["most"])] if request["parts"] else []
    return CheckpointsOf(search.complete, search.passed[:MOST_TOLD], parts=parts)


def _dropped(request: dict[str, Any]) -> DropReply:
    written = [WrittenIn(**place) for place in request["written"]]
    own = [FoundCheckpoint(**item) for item in request["own"]]
    return drop(DropRequest(written, request["spared"], own=own, step=request["step"]))


def _joined(request: dict[str, Any]) -> JoinReply:
    return join(Path(request["store"]), [Path(part) for part in request["parts"]])


if __name__ == "__main__":
    main(*sys.argv[1:])
