"""Makes a rank of a Python process that a launcher of the script's own has started: torchrun, accelerate, deepspeed.

It is told apart by its environment, and announced and asked as `rank.py` does for those that dttui starts itself.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import json
import os
import sys
import types
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RANKS = "DTTUI_OWN_RANKS"
"""Names the first rank of this node and how many there are at most: `4:8`. Without it no process is looked at."""
LAUNCHER_LOG = "launcher"


def adopt(beside: Callable[[str], types.ModuleType]) -> None:
    """Announce this process as the rank that its environment says it is, unless it was started by one.

    Args:
        beside: returns a file beside this one as a module.
    """
    rank = rank_of_environment(os.environ)
    logs = os.environ.get("DTTUI_LOGS")
    if rank is None or logs is None or _is_helper():
        return
    home = os.path.dirname(logs)
    record = os.path.join(home, "ranks", f"{rank}.json")
    if _is_ancestor(record):
        return  # A worker of a data loader, or whatever else a rank starts.
    of_rank = beside("rank")
    # Its launcher may have started one before it.
    for earlier in (f"ranks/{rank}.ended.json", f"ranks/{rank}.group.json", f"failures/{rank}.json"):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(home, earlier))
    for descriptor, stream in ((1, "out"), (2, "err")):
        if _is_file(descriptor, os.path.join(logs, f"{LAUNCHER_LOG}.{stream}")):
            of_rank.redirect(descriptor, os.path.join(logs, f"{rank}.{stream}"))
    started = of_rank.start_time()
    place = {"local_rank": int(os.environ["LOCAL_RANK"])}
    port = os.environ.get("MASTER_PORT", "")
    place |= {"port": int(port)} if port.isdigit() else {}
    of_rank.write(record, {"pid": os.getpid(), "start_time": started, **place})
    _End(of_rank, home, str(rank), of_rank.begin_watching(home, str(rank), started)).look_out()


def rank_of_environment(environment: Any) -> int | None:
    """Return the rank by the place that an environment names, of those of this node; `None` for a process that is none.

    By its place and not by RANK: launchers may number ranks otherwise than dttui does, or those of each node by itself.
    Lightning gives no RANK to those that it starts.
    """
    first, _colon, count = environment.get(RANKS, "").partition(":")
    local = environment.get("LOCAL_RANK", "")
    if not (first.isdigit() and count.isdigit() and local.isdigit() and environment.get("WORLD_SIZE", "").isdigit()):
        return None
    return int(first) + int(local) if int(local) < int(count) else None


def _is_helper() -> bool:
    """Whether it is a process of multiprocessing's, whose parent may be a rank that nobody could know for one."""
    words = getattr(sys, "orig_argv", [])
    return any(word.startswith("from multiprocessing.") for word in words[1:4])


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


class _End:
    """Has a good end of this process noted, and an exception that nobody catches kept for dttui.

    With which code a process ends nobody can tell from within: where that may be another than 0, no end is noted.
    """

    def __init__(
        self,
        of_rank: types.ModuleType,
        home: str,
        rank: str,
        watching: tuple[Callable[[], None], Callable[[], bool]],
    ) -> None:
        self._of_rank, self._home, self._rank = of_rank, home, rank
        self._end_watch, self._end_measuring = watching
        self._pid, self._code = os.getpid(), 0
        self._hook, self._exit, self._leave = sys.excepthook, sys.exit, os._exit

    def look_out(self) -> None:
        """Hear of exceptions and exits from now on."""
        atexit.register(self._end_measured)  # First, so that it is called last.
        sys.excepthook, sys.exit = self._failed, self._exited  # type: ignore[assignment]  # it never comes back either
        for name in ("exit", "quit"):
            if hasattr(builtins, name):
                setattr(builtins, name, self._exited)
        self._of_rank.at_the_end(self._end_well)

    def _failed(self, kind: type[BaseException], error: BaseException, frames: types.TracebackType | None) -> None:
        self._keep(error)
        self._hook(kind, error, frames)

    def _keep(self, error: BaseException) -> None:
        if self._code == 0 and os.getpid() == self._pid:
            self._code = 130 if isinstance(error, KeyboardInterrupt) else 1
            with contextlib.suppress(Exception):
                told, text = self._of_rank.describe(error, error.__traceback__)
                self._of_rank.keep_failure(self._home, self._rank, self._code, told, text)

    def _exited(self, status: Any = None, /) -> None:
        if os.getpid() == self._pid and status not in (None, 0):
            self._code = status if isinstance(status, int) else 1
        self._exit(status)

    def _end_well(self) -> None:
        if os.getpid() != self._pid:
            return
        # A hook of the script's own may not have called the one before.
        error = getattr(sys, "last_value", None)
        if error is not None:
            self._keep(error)
        if self._code == 0 and not _raises_exits():
            self._end_watch()
            self._of_rank.write_end(self._home, self._rank)

    def _end_measured(self) -> None:
        if os.getpid() == self._pid and not self._end_measuring() and not _raises_exits():
            sys.stdout.flush()
            sys.stderr.flush()
            self._leave(self._code)


def _raises_exits() -> bool:
    """Whether the script raises SystemExit by itself, of which nothing tells with which code."""
    path = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    with contextlib.suppress(OSError, TypeError), open(path, encoding="utf-8", errors="replace") as stream:
        return "SystemExit" in stream.read()
    return False
