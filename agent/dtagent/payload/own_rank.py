"""Makes a rank of a Python process that a launcher of the script's own has started: torchrun, accelerate, deepspeed.

It is told apart by its environment, and announced and asked as `rank.py` does for those that dttui starts itself.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import json
import os
import sys
import traceback
import types
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PLACE = os.path.dirname(os.path.abspath(__file__))
RANKS = "DTTUI_OWN_RANKS"
"""Names the first rank of this node and how many there are at most: `4:8`. Without it no process is looked at."""
LAUNCHER_LOG = "launcher"


def adopt() -> None:
    """Announce this process as the rank that its environment says it is, unless it was started by one."""
    rank = rank_of_environment(os.environ)
    logs = os.environ.get("DTTUI_LOGS")
    if rank is None or logs is None:
        return
    home = os.path.dirname(logs)
    record = os.path.join(home, "ranks", f"{rank}.json")
    if _is_ancestor(record):
        return  # A worker of a data loader, or whatever else a rank starts.
    of_rank = _beside("rank")
    for descriptor, stream in ((1, "out"), (2, "err")):
        if _is_file(descriptor, os.path.join(logs, f"{LAUNCHER_LOG}.{stream}")):
            of_rank.redirect(descriptor, os.path.join(logs, f"{rank}.{stream}"))
    started = of_rank.start_time()
    local_rank = os.environ.get("LOCAL_RANK", "")
    place = {"local_rank": int(local_rank)} if local_rank.isdigit() else {}
    port = os.environ.get("MASTER_PORT", "")
    place |= {"port": int(port)} if port.isdigit() else {}
    of_rank.write(record, {"pid": os.getpid(), "start_time": started, **place})
    _tell_the_end(of_rank, home, str(rank), *of_rank.begin_watching(home, str(rank), started))


def rank_of_environment(environment: Any) -> int | None:
    """Return the rank that an environment names, of those that this node may have; `None` for a process that is none.

    Where it names another, launchers have numbered ranks otherwise, or each node's by itself: then it is by its place.
    """
    first, _colon, count = environment.get(RANKS, "").partition(":")
    if not (first.isdigit() and count.isdigit()):
        return None
    told, local = environment.get("RANK", ""), environment.get("LOCAL_RANK", "")
    if not environment.get("WORLD_SIZE", "").isdigit() or not local.isdigit():
        return None
    own = range(int(first), int(first) + int(count))
    if told.isdigit() and int(told) in own:
        return int(told)
    # Lightning starts all but the first of a node by itself, and gives them no RANK.
    return own[int(local)] if int(local) < len(own) else None


def _is_ancestor(record: str) -> bool:
    """Whether the process that a record names is one that this one descends from, or this one itself."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        with open(record) as stream:
            told = json.load(stream)
        pid = os.getpid()
        while pid > 1:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                fields = stat.read().rpartition(b") ")[2].split()
            if pid == told.get("pid"):
                return bool(int(fields[19]) == told.get("start_time"))
            pid = int(fields[1])
    return False


def _is_file(descriptor: int, path: str) -> bool:
    with contextlib.suppress(OSError):
        here, there = os.fstat(descriptor), os.stat(path)
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
    return False


def _tell_the_end(
    of_rank: types.ModuleType, home: str, rank: str, end_watch: Callable[[], None], end_measuring: Callable[[], bool]
) -> None:
    """Have a good end noted, and an exception that nobody catches kept for dttui."""
    pid, has_failed = os.getpid(), False
    before, leave = sys.excepthook, sys.exit

    def failed(kind: type[BaseException], error: BaseException, frames: types.TracebackType | None) -> None:
        nonlocal has_failed
        if os.getpid() == pid:
            has_failed = True
            with contextlib.suppress(Exception):
                text = "".join(traceback.format_exception(kind, error, frames))
                told = "".join(traceback.format_exception_only(kind, error)).strip()
                of_rank.keep_failure(home, rank, 130 if issubclass(kind, KeyboardInterrupt) else 1, told, text)
        before(kind, error, frames)

    def exited(status: Any = None, /) -> None:
        nonlocal has_failed
        # Nobody else can tell at the end with which code that is.
        has_failed = has_failed or (os.getpid() == pid and status not in (None, 0))
        leave(status)

    def end_well() -> None:
        if os.getpid() == pid:
            end_measuring()
            if not has_failed:
                end_watch()
                of_rank.write_end(home, rank)

    sys.excepthook, sys.exit = failed, exited  # type: ignore[assignment]  # it never comes back either
    of_rank.at_the_end(end_well)


def _beside(name: str) -> types.ModuleType:
    path = os.path.join(PLACE, f"{name}.py")
    loader = importlib.machinery.SourceFileLoader(f"dttui_{name}", path)
    module = types.ModuleType(loader.name)
    module.__file__ = path
    loader.exec_module(module)
    return module
