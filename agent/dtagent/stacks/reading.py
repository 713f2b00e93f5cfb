"""Asks each rank of an attempt here, and what runs below it, where it stands: by the best way that it offers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from dtagent.locations import AttemptFiles, rank_of
from dtagent.protocol import sentences
from dtagent.protocol.said import Said
from dtagent.protocol.stacks import (
    MOST_CHILDREN,
    MOST_NAME,
    MOST_RANKS,
    CallTimesReply,
    GroupCalls,
    ProcessStacks,
    RankStacks,
    RankTimes,
    StacksReply,
    StacksRequest,
    Thread,
)
from dtagent.stacks import dumps, ways
from dtagent.stacks.ways import NoAnswerError
from dtagent.system import proc_stat, untrusted_files
from dtagent.system.processes import ProcessId
from dtagent.system.system_facts import or_none

AT_ONCE = 8
STOPPED = "Tt"
UNINTERRUPTIBLE = "D"


def read(files: AttemptFiles, request: StacksRequest) -> StacksReply:
    """Return where the ranks stand that were asked for; of one whose process is gone, that it is."""
    known, wanted = _wanted(files, request)
    children = proc_stat.children_of(or_none(proc_stat.read_all) or {})
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="stacks") as pool:
        return StacksReply(list(pool.map(lambda rank: _rank(files, rank, known[rank], children), wanted)))


def read_times(files: AttemptFiles, request: StacksRequest) -> CallTimesReply:
    """Return when the ranks that were asked for called their newest collectives; without those that do not say."""
    known, wanted = _wanted(files, request)
    found = []
    for rank in wanted:
        stat = _process_of(known[rank])
        if stat is not None and stat.state not in STOPPED and _offered(files, rank, ProcessId.of(stat)):
            with contextlib.suppress(NoAnswerError, ValueError):
                answer = ways.ask_server(files.asked / f"{rank}.sock", "fr_trace_json")
                found.append(RankTimes(rank, dumps.times_of_recorder(answer)))
    return CallTimesReply(found)


def processes_of(files: AttemptFiles) -> list[int]:
    """Return the pids of the ranks of an attempt that are alive here."""
    found = (_process_of(path) for path in files.ranks.glob("*.json") if rank_of(path) is not None)
    return [stat.pid for stat in found if stat is not None]


def _wanted(files: AttemptFiles, request: StacksRequest) -> tuple[dict[int, Path], list[int]]:
    """Return the records of all ranks here, and the ranks that were asked for."""
    known = {rank: path for path in files.ranks.glob("*.json") if (rank := rank_of(path)) is not None}
    return known, sorted(known if request.ranks is None else known.keys() & set(request.ranks))[:MOST_RANKS]


def _process_of(record: Path) -> proc_stat.ProcessStat | None:
    """Return the process of a rank; `None` where it is gone."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        body = untrusted_files.read_object(record)
        stat = proc_stat.read(int(body["pid"]))
        if stat is not None and stat.start_time == body["start_time"] and stat.is_alive:
            return stat
    return None


def _rank(files: AttemptFiles, rank: int, record: Path, children: Mapping[int, list[int]]) -> RankStacks:
    stat = _process_of(record)
    if stat is None:
        return RankStacks(rank, None, has_ended=(files.ranks / f"{rank}.ended.json").exists())
    offered = _offered(files, rank, ProcessId.of(stat))
    socket, dump = files.asked / f"{rank}.sock", files.asked / f"{rank}.dump"
    by_signal = offered.get("signal") if isinstance(offered.get("signal"), int) else None
    own = _process(stat, files, by_signal, dump, socket)
    below = []
    for pid in proc_stat.descendants(children, [stat.pid])[:MOST_CHILDREN]:
        child = or_none(lambda pid=pid: proc_stat.read(pid))  # type: ignore[misc]  # mypy cannot infer such a lambda
        if child is not None and child.is_alive:
            below.append(_process(child, files, by_signal, dump, None))
    groups: list[GroupCalls] = []
    if offered and own.state not in STOPPED:
        with contextlib.suppress(NoAnswerError, ValueError):
            groups = dumps.of_recorder(ways.ask_server(socket, "fr_trace_json"))
    return RankStacks(rank, own, children=below, groups=groups)


def _offered(files: AttemptFiles, rank: int, process: ProcessId) -> dict[str, Any]:
    """Return what a rank has told of how it can be asked; nothing where another process has."""
    with contextlib.suppress(OSError, ValueError):
        told = untrusted_files.read_object(files.asked / f"{rank}.json")
        if (told.get("pid"), told.get("start_time")) == (process.pid, process.start_time):
            return told
    return {}


def _process(
    stat: proc_stat.ProcessStat, files: AttemptFiles, by_signal: int | None, dump: Path, socket: Path | None
) -> ProcessStacks:
    pid = stat.pid
    found = ProcessStacks(pid, stat.state, _command(pid), _wait_channel(pid))
    is_stopped = stat.state in STOPPED
    asked: list[tuple[str, Callable[[], list[Thread]]]] = [
        ("py-spy", lambda program=program: ways.ask_py_spy(program, pid, may_pause=stat.state in "SR"))  # type: ignore[misc]  # as above
        for program in ways.py_spies(pid, files.tools)
    ]
    if not is_stopped:
        if by_signal is not None and stat.state != UNINTERRUPTIBLE:
            asked.append(("faulthandler", lambda: _threads(ways.ask_by_signal(ProcessId.of(stat), by_signal, dump))))
        # Last: it takes the lock of Python's, and has no answer where a library holds that.
        if socket is not None and socket.exists():
            asked.append(("torch", lambda: _threads(ways.ask_server_for_stacks(socket))))
    reasons: list[Said] = []
    for source, ask in asked:
        try:
            return replace(found, source=source, threads=ask())
        except NoAnswerError as error:
            reasons.append(error.said)
    return replace(found, detail=_told(reasons))


def _told(reasons: list[Said]) -> str:
    """Return why nothing could read a stack, as much as has room; empty where nothing was tried."""
    kept: list[Said] = []
    for reason in reasons:
        if kept and len("; ".join([*kept, reason])) > MOST_NAME:
            break
        kept.append(reason)
    return sentences.STACK_UNREAD(reasons=kept) if kept else ""


def _threads(text: str) -> list[Thread]:
    threads = dumps.of_faulthandler(text)
    if not threads:
        raise NoAnswerError(sentences.STACK_NOT_IN_ANSWER())
    return threads


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()[:MOST_NAME]
    return ""


def _wait_channel(pid: int) -> str:
    """Return what the kernel says a process waits for; empty where it does not, or may not be asked."""
    with contextlib.suppress(OSError):
        told = Path(f"/proc/{pid}/wchan").read_text(errors="replace").strip()
        return "" if told == "0" else told[:MOST_NAME]
    return ""
