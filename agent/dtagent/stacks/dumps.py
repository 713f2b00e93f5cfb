"""Reads what py-spy, faulthandler and torch's flight recorder say; a rank may have written anything in their place."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable
from typing import Any

from dtagent.protocol.stacks import (
    MOST_CALLS,
    MOST_FRAMES,
    MOST_GROUPS,
    MOST_NAME,
    MOST_THREADS,
    MOST_TIMES,
    OUTERMOST,
    Call,
    Frame,
    GroupCalls,
    GroupTimes,
    Thread,
)

MOST_LINE = 10**7
MOST_DIMENSIONS = 8
MOST_TENSORS = 4
MOST_MEMBERS = 4096
_HEAD = re.compile(r"(Current thread|Thread) 0x([0-9a-f]{1,16})(?: \[([^\]\n]{0,100})\])? \(most recent call first\):")
_FRAME = re.compile(r'  File "([^"\n]{0,4096})", line (\d{1,9}|\?\?\?) in (.{1,500})')


def of_pyspy(text: str, pid: int) -> list[Thread]:
    """Return the threads in the JSON of `py-spy dump`. Raises ValueError for what is none."""
    try:
        told = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    threads = []
    for item in _objects(told)[:MOST_THREADS]:
        frames = [
            Frame(_name(frame.get("name")), _name(frame.get("filename")), _line(frame.get("line")))
            for frame in _objects(item.get("frames"))
        ]
        name, number = item.get("thread_name"), item.get("os_thread_id")
        threads.append(Thread(_name(name), _clipped(frames), name == "MainThread" or number == pid))
    return _main_first(threads)


def of_faulthandler(text: str) -> list[Thread]:
    """Return the threads of one dump of faulthandler's; the main one is its last."""
    threads: list[Thread] = []
    frames: list[Frame] = []
    for line in text.split("\n"):
        if (head := _HEAD.fullmatch(line)) is not None:
            frames = []
            threads.append(Thread(_name(head[3] or head[2]), frames))
        elif threads and (frame := _FRAME.fullmatch(line)) is not None:
            number = int(frame[2]) if frame[2].isdigit() else None
            frames.append(Frame(_name(frame[3]), _name(frame[1]), _line(number)))
    found = [Thread(item.name, _clipped(item.frames)) for item in threads if item.frames]
    if found:
        found[-1] = Thread(found[-1].name, found[-1].frames, is_main=True)
    return _main_first(found)[:MOST_THREADS]


def of_recorder(text: str) -> list[GroupCalls]:
    """Return the collectives in torch's flight recorder. Raises ValueError for what is none of its dumps."""
    told = _recorded(text)
    config = {str(item.get("name", "")): item for item in _objects(_values(told.get("pg_config")))}
    status = told.get("pg_status")
    status = status if isinstance(status, dict) else {}
    calls: dict[tuple[str, str], list[Call]] = {}
    ids: dict[tuple[str, str], str] = {}
    for entry in _objects(told.get("entries")):
        if (found := _known_as(entry)) is None:
            continue
        key, number = found
        ids[key] = str(entry.get("pg_id"))
        calls.setdefault(key, []).append(_call(entry, number))
    groups = []
    for key, own in list(calls.items())[:MOST_GROUPS]:
        # The default group of gloo is configured without a name.
        known = config.get(key[0]) or (config.get("") if key[1] == "default_pg" else None) or {}
        state = status.get(ids[key])
        state = state if isinstance(state, dict) else {}
        done = max((call.number for call in own if call.is_done), default=None)
        groups.append(
            GroupCalls(
                *key,
                _members(known.get("ranks")),
                _natural(state.get("last_enqueued_collective")) or max(call.number for call in own),
                _natural(state.get("last_completed_collective")) or done,
                sorted(own, key=lambda call: call.number)[-MOST_CALLS:],
            )
        )
    return groups


def times_of_recorder(text: str) -> list[GroupTimes]:
    """Return when collectives were called, by torch's flight recorder. Raises ValueError for what is no dump of it."""
    times: dict[str, dict[int, float]] = {}
    for entry in _objects(_recorded(text).get("entries")):
        created = _natural(entry.get("time_created_ns"))
        if created and (found := _known_as(entry)) is not None:
            (group, _description), number = found
            times.setdefault(group, {})[number] = created / 1e9
    newest = {group: sorted(own.items())[-MOST_TIMES:] for group, own in list(times.items())[:MOST_GROUPS]}
    return [GroupTimes(group, [item[0] for item in own], [item[1] for item in own]) for group, own in newest.items()]


def _recorded(text: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(told, dict):
        raise ValueError("no object")
    return told


def _known_as(entry: dict[str, Any]) -> tuple[tuple[str, str], int] | None:
    """Return name and description of a collective's process group and its number there; `None` for anything else."""
    names = entry.get("process_group")
    number = _natural(entry.get("collective_seq_id"))
    if not isinstance(names, list) or len(names) != 2 or not number or entry.get("is_p2p") is not False:
        return None
    return (_name(names[0]), _name(names[1])), number


def _call(entry: dict[str, Any], number: int) -> Call:
    name = _name(entry.get("profiling_name")).rpartition(":")[2]
    sizes = entry.get("input_sizes")
    sizes = [
        [_natural(number) or 0 for number in size[:MOST_DIMENSIONS]]
        for size in (sizes if isinstance(sizes, list) else [])[:MOST_TENSORS]
        if isinstance(size, list)
    ]
    dtypes = entry.get("input_dtypes")
    dtypes = [_name(item) for item in (dtypes if isinstance(dtypes, list) else [])[:MOST_TENSORS]]
    is_done = entry.get("retired") is True or entry.get("state") == "completed"
    return Call(number, name, sizes, dtypes, is_done)


def _members(told: object) -> list[int]:
    """Return the ranks in `[0, 1, 2]`, which comes as text."""
    if isinstance(told, str):
        with contextlib.suppress(ValueError, RecursionError):
            told = json.loads(told)
    if not isinstance(told, list):
        return []
    return [number for item in told[:MOST_MEMBERS] if (number := _natural(item)) is not None]


def _clipped(frames: list[Frame]) -> list[Frame]:
    if len(frames) <= MOST_FRAMES:
        return frames
    return [*frames[: MOST_FRAMES - OUTERMOST], *frames[-OUTERMOST:]]


def _main_first(threads: Iterable[Thread]) -> list[Thread]:
    return sorted(threads, key=lambda thread: not thread.is_main)


def _values(told: object) -> object:
    return list(told.values()) if isinstance(told, dict) else told


def _objects(told: object) -> list[dict[str, Any]]:
    return [item for item in told if isinstance(item, dict)] if isinstance(told, list) else []


def _name(told: object) -> str:
    return told[-MOST_NAME:] if isinstance(told, str) else ""


def _line(told: object) -> int | None:
    number = _natural(told)
    return number if number is not None and number <= MOST_LINE else None


def _natural(told: object) -> int | None:
    if isinstance(told, str) and told.isascii() and told.isdigit() and len(told) <= 18:
        return int(told)
    return told if isinstance(told, int) and not isinstance(told, bool) and 0 <= told < 1 << 62 else None
