"""Runs a rank's script or module as `__main__`: logs to the rank's own files, and a record of how it ended.

usage: rank.py SCRIPT [ARG ...] | rank.py -m MODULE [ARG ...]
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import fcntl
import importlib.machinery
import importlib.util
import json
import os
import re
import resource
import runpy
import sys
import time
import traceback
import types
from collections.abc import Callable

TRACEBACK_LIMIT = 16 * 1024
ERROR_LIMIT = 4 * 1024
PLACE = os.path.dirname(os.path.abspath(__file__))
"""Of this file and those beside it; Python takes `__file__` away before it calls what is to be called at the end."""
AGAIN = "… torchrun has started the ranks again: from here on by a new process …"
"""A line of a log, known to whoever shows it in other languages."""


def main(argv: list[str]) -> None:
    """Redirect, announce, run."""
    rank = os.environ["RANK"]
    home = os.path.dirname(os.environ["DTTUI_LOGS"])
    for name in os.environ.get("DTTUI_VARIABLES", "").split():  # Too long for a process to be started with.
        with open(os.path.join(home, "variables", name), encoding="utf-8") as stream:
            os.environ[name] = stream.read()
    may_restart = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
    _redirect(os.environ["DTTUI_LOGS"], rank, AGAIN if may_restart else "")
    record = {"pid": os.getpid(), "start_time": start_time()}
    if not may_restart:
        write(os.path.join(home, "ranks", f"{rank}.json"), record)
    else:
        _write_in_place_of_earlier(home, rank, {**record, **_place()})
    end_watch, end_measuring = begin_watching(home, rank, record["start_time"])
    pid = os.getpid()
    has_failed, code = False, 0

    def end_measured() -> None:
        if os.getpid() == pid and not end_measuring():
            sys.stdout.flush()
            sys.stderr.flush()
            leave(code)

    leave = os._exit
    atexit.register(end_measured)  # First, so that it is called last.

    def end_well() -> None:
        if os.getpid() == pid and not has_failed:
            end_watch()
            write_end(home, rank)

    at_the_end(end_well)
    sys.meta_path.append(_Collectives)
    try:
        _run(argv)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        has_failed = code != 0
        if code and os.getpid() == pid:
            keep_failure(home, rank, code, _clipped(f"SystemExit: {end.code}"), None)
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the user's code raises is to be recorded
        has_failed = True
        # The frames of this file would only stand in the reader's way.
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
            frames = frames.tb_next
        _leave_out(frames, "process_groups.py")
        _leave_out(frames, "communication.py")
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        if os.getpid() == pid:  # Else it is a child that the script forked, and not the rank.
            told, text = describe(error, frames)
            keep_failure(home, rank, code, told, text)
        sys.stdout.flush()
        # The script's own hook, where it has one: experiment trackers learn so that a run has failed.
        sys.excepthook(type(error), error.with_traceback(frames), frames)
        sys.stderr.flush()
        raise SystemExit(code) from None


def begin_watching(home: str, rank: str, started: int) -> tuple[Callable[[], None], Callable[[], bool]]:
    """Have the rank tell of its groups, where it stands and what it talks; return what ends the first and the last."""
    asked = _let_be_asked(os.path.join(home, "asked"), rank, started)
    measured, end_measuring = _measure_communication(int(rank))
    end_watch = _watch_groups(os.path.join(home, "ranks", f"{rank}.group.json"), asked, measured)
    # A crash in compiled code then leaves a traceback too, also that of a worker process started anew.
    faulthandler.enable()
    os.environ.setdefault("PYTHONFAULTHANDLER", "1")
    return end_watch, end_measuring


def write_end(home: str, rank: str) -> None:
    """Note that the rank has ended well."""
    write(os.path.join(home, "ranks", f"{rank}.ended.json"), {"time": time.time(), "local_rank": _local_rank()})


class _Collectives:
    """Finds `dttui_collectives`, which lies beside this file, where the script imports it and has none of its own."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Return where it is; `None` of any other module."""
        place = os.path.join(PLACE, "collectives")
        file = os.path.join(place, "__init__.py")
        if name != "dttui_collectives" or not os.path.exists(file):
            return None
        return importlib.util.spec_from_file_location(name, file, submodule_search_locations=[place])


def _leave_out(frames: types.TracebackType | None, name: str) -> None:
    """Take the frames of a file beside this one out of a traceback."""
    beside = os.path.join(PLACE, name)
    while frames is not None:
        while frames.tb_next is not None and frames.tb_next.tb_frame.f_code.co_filename == beside:
            frames.tb_next = frames.tb_next.tb_next
        frames = frames.tb_next


def _place() -> dict[str, int]:
    """Return where torchrun has put this rank, which numbers anew whenever it starts workers again."""
    names = {
        "local_rank": "LOCAL_RANK",
        "local_world_size": "LOCAL_WORLD_SIZE",
        "world_size": "WORLD_SIZE",
        "restarts": "TORCHELASTIC_RESTART_COUNT",
        "port": "MASTER_PORT",
    }
    return {key: int(os.environ[name]) for key, name in names.items()}


def _write_in_place_of_earlier(home: str, rank: str, body: dict[str, int]) -> None:
    """Write a rank's record, and remove what an earlier process of the same local rank left, whatever rank it was.

    All ranks of a node do so at once, and what one removes may be the name that another writes.
    """
    ranks, failures = os.path.join(home, "ranks"), os.path.join(home, "failures")
    lock = os.open(ranks, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for folder in (ranks, failures):
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                if re.fullmatch(r"\d+(\.ended|\.group)?\.json", name) and _local_rank_in(path) == body["local_rank"]:
                    with contextlib.suppress(OSError):
                        os.unlink(path)
        write(os.path.join(ranks, f"{rank}.json"), body)
    finally:
        os.close(lock)


def _watch_groups(path: str, *hooks: dict[str, Callable[[object], None]]) -> Callable[[], None]:
    """Have it noted which process groups the script forms, where the file beside this one is there that does it.

    Returns what is to be called at a good end. Hooks are called with modules once those were imported.
    """
    with contextlib.suppress(Exception):  # It is for those who watch; the script is to run without it as well.
        end: Callable[[], None] = _beside("process_groups").watch(path, _local_rank(), *hooks)
        return end
    return lambda: None


def _let_be_asked(folder: str, rank: str, start_time: int) -> dict[str, Callable[[object], None]]:
    """Have the rank tell where it stands to whoever asks; return module → what is to be called with it."""
    with contextlib.suppress(Exception):  # As above.
        hooks: dict[str, Callable[[object], None]] = _beside("stacks").prepare(folder, rank, start_time)
        return hooks
    return {}


def _measure_communication(rank: int) -> tuple[dict[str, Callable[[object], None]], Callable[[], bool]]:
    """Have the share of communication measured, where the job says so; return hooks as above, and what ends it."""
    told = os.environ.get("DTTUI_MEASURE_COMMUNICATION") == "1" and os.environ.get("DTTUI_METRICS")
    with contextlib.suppress(Exception):  # As above.
        if told:
            world_size = int(os.environ.get("WORLD_SIZE", "1"))
            hooks: dict[str, Callable[[object], None]]
            hooks, end = _beside("communication").prepare(told, rank, world_size)
            return hooks, end
    return {}, lambda: True


def _beside(name: str) -> types.ModuleType:
    """Return a file beside this one as a module; not by a name that the script might import."""
    path = os.path.join(PLACE, f"{name}.py")
    loader = importlib.machinery.SourceFileLoader(f"dttui_{name}", path)
    module = types.ModuleType(loader.name)
    loader.exec_module(module)
    return module


def _local_rank() -> int | None:
    told = os.environ.get("LOCAL_RANK", "")
    return int(told) if told.isdigit() else None


def _local_rank_in(path: str) -> object:
    with contextlib.suppress(OSError, ValueError, AttributeError), open(path) as stream:
        return json.load(stream).get("local_rank")
    return None


def at_the_end(call: Callable[[], None]) -> None:
    """Call when the process ends by itself: after the script's own exit handlers, or where it passes them by."""
    atexit.register(call)
    leave = os._exit

    def leave_at_once(status: int) -> None:
        if status == 0:
            call()
        leave(status)

    os._exit = leave_at_once  # type: ignore[assignment]  # it never comes back either


def describe(error: BaseException, frames: types.TracebackType | None) -> tuple[str, str]:
    """Return the last lines of the traceback, which say what it was, and all of it."""
    try:
        text = "".join(traceback.format_exception(type(error), error, frames))
        return _clipped("".join(traceback.format_exception_only(type(error), error)).strip()), text
    except BaseException as failure:  # noqa: BLE001 - an exception that cannot even be printed, or no memory to do so
        name = type(error).__name__
        return name, f"{name}, which cannot be printed: {type(failure).__name__}\n"


def _clipped(told: str) -> str:
    return told[:ERROR_LIMIT]


def _run(argv: list[str]) -> None:
    """Run the target as Python itself would."""
    if argv[0] == "-m":
        sys.argv = argv[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = argv
    script = os.path.abspath(argv[0])
    sys.path[0] = os.path.dirname(os.path.realpath(script))
    with open(script, "rb") as stream:
        # Not with the __future__ imports of this file.
        code = compile(stream.read(), script, "exec", dont_inherit=True)
    module = types.ModuleType("__main__")
    module.__file__ = script
    module.__loader__ = importlib.machinery.SourceFileLoader("__main__", script)
    module.__dict__["__builtins__"] = __builtins__
    # Stays in place, unlike with runpy.run_path: pickled classes and worker processes look it up.
    sys.modules["__main__"] = module
    exec(code, module.__dict__)  # noqa: S102 - running the user's script is the purpose


def _redirect(logs: str, rank: str, mark: str) -> None:
    """Point stdout and stderr at the rank's files, also for libraries that write to the descriptors.

    A mark is a line between what an earlier process of the rank wrote and what this one will.
    """
    for descriptor, stream in ((1, "out"), (2, "err")):
        redirect(descriptor, os.path.join(logs, f"{rank}.{stream}"), mark)


def redirect(descriptor: int, path: str, mark: str = "") -> None:
    """Point a descriptor at a file, to whose end it writes."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if mark and os.fstat(opened).st_size:
        os.write(opened, f"{mark}\n".encode())
    os.dup2(opened, descriptor)
    os.close(opened)


def keep_failure(home: str, rank: str, code: int, error: str, text: str | None) -> None:
    """Keep what happened for dttui, and for torchrun in the form it expects."""
    now = time.time()
    clipped = text[-TRACEBACK_LIMIT:] if text else None
    body = {"rank": int(rank), "exit_code": code, "time": now, "error": error, "traceback": clipped}
    body["memory_limit_mib"] = _memory_limit_mib()
    body["local_rank"] = _local_rank()
    write(os.path.join(home, "failures", f"{rank}.json"), body)
    error_file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if error_file and text:
        extra = {"py_callstack": clipped, "timestamp": str(int(now))}
        write(error_file, {"message": {"message": error, "extraInfo": extra}})


def _memory_limit_mib() -> int | None:
    """Return the least of the limits on this process's memory: its own, and those of its cgroup and the ones above."""
    limits = [limit for limit in resource.getrlimit(resource.RLIMIT_AS)[:1] if limit != resource.RLIM_INFINITY]
    try:
        with open("/proc/self/cgroup") as stream:
            inner = next((line.strip()[3:] for line in stream if line.startswith("0::/")), "/")
        folder = os.path.normpath("/sys/fs/cgroup" + inner)
        while folder.startswith("/sys/fs/cgroup"):
            path = os.path.join(folder, "memory.max")
            if os.path.exists(path):
                with open(path) as stream:
                    limits += [int(word) for word in [stream.read().strip()] if word.isdigit()]
            folder = os.path.dirname(folder)
    except (OSError, ValueError, MemoryError):
        pass  # What is not told is not known.
    return min(limits) >> 20 if limits else None


def write(path: str, body: object) -> None:
    """Write JSON so that it is there whole or not at all; a full disk must not hide the real error."""
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "w") as stream:
            json.dump(body, stream)
        os.rename(temporary, path)
    except OSError as error:
        sys.stderr.write(f"dttui: cannot write {path}: {error}\n")


def start_time() -> int:
    """Return this process's start in clock ticks since boot."""
    with open("/proc/self/stat", "rb") as stream:
        return int(stream.read().rpartition(b") ")[2].split()[19])


if __name__ == "__main__":
    main(sys.argv[1:])
