"""The log of a job's events: a line of JSON each, written by the controller alone and read by everyone."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dtagent.protocol.events import Event, EventKind
from dtagent.protocol.rpc import FrameError, decode, to_wire

from dttui.files import cut_torn_line
from dttui.i18n import Message, msg, recipes, retell, retell_within
from dttui.jobs.backlog import Backlog
from dttui.jobs.decoding import taken
from dttui.redaction import Redaction
from dttui.rpc.text_bounds import bounded, cut
from dttui.timestamps import SteadyClock

NO_ROOM = "no-room-here"
"""Code of a finding on the login node's disk: as a warning, that it takes nothing; else, that it does so again."""
SECRETS_AWAITED = "secrets-awaited"
"""Code of a finding on values that an attempt waits for: as a warning, that it does; else, that they are known."""
QUEUED = "queued"
"""In the data of a job's state where it waits for its hosts: since when its person asked, how many come before."""
STANDING = frozenset({NO_ROOM, SECRETS_AWAITED})
"""Codes of findings that say why a job stands still until another one takes them back."""
BLOCK_BYTES = 64 * 1024
"""How much is read at once where a file is read from its end."""
MOST_BYTES = 64_000_000
"""Of all events of a job. A sound job of 1,000 nodes makes 2 MB; what is written beyond is bounded by its ranks."""
EVENTS_FULL = "events-full"
"""Code of the finding that says so."""
_ALWAYS = frozenset({EventKind.JOB_STATE, EventKind.RANK_FAILED, EventKind.OUTCOME})
_BAD_RECIPE = (LookupError, ValueError, TypeError, AttributeError)


class EventLog:
    """Appends to a job's events.jsonl. Only the controller has one; it goes on after what another one wrote.

    What a full disk does not take is kept until there is room, and that is told: no job ends because of it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.redaction = Redaction()
        """Finds what no event may hold."""
        cut_torn_line(path)
        first, newest = next(read_events(path), None), newest_event(path)
        self._next = newest.seq + 1 if newest is not None else 0
        self.clock = SteadyClock(newest.time if newest is not None else 0.0)
        """Of the events' times, each of which is that of the one before or later."""
        self._size = path.stat().st_size if path.exists() else 0
        self._is_full = self._size > MOST_BYTES * 0.95  # Another controller found no room for what came next.
        self.began_at: float | None = first.time if first is not None else None
        """Unix time of the first event."""
        self.backlog = Backlog(self._tell_room)
        """Takes the lines of the job's other files too."""

    def add(self, kind: EventKind, message: str, **fields: object) -> Event:
        """Write one event and return it; a new state of the job is on the disk by then, with all that came before.

        Where the disk is full, it is so once `flush` has returned true.
        """
        recipe = dict(message.recipe) if isinstance(message, Message) else {}
        if found := recipes(fields.get("data")):
            recipe["data"] = found
        made = {
            "seq": self._next,
            "time": self.clock.now(),
            "kind": kind,
            "message": str(message),
            "told": recipe or None,
        }
        event = taken(Event, self._bounded(self._without_secrets({**made, **fields})))
        line = json.dumps(to_wire(event), ensure_ascii=False)
        is_mark = event.data.get("code") == EVENTS_FULL
        size = len(line.encode(errors="replace")) + 1
        if kind not in _ALWAYS and not is_mark and (self._is_full or self._size + size > MOST_BYTES):
            self._leave_out()
            return event
        self._next += 1
        self._size += size
        self.began_at = self.began_at or event.time
        self.backlog.append(self._path, line, durable=kind in (EventKind.JOB_STATE, EventKind.OUTCOME))
        return event

    def every(self) -> Iterator[Event]:
        """Yield all events, those on the disk first."""
        yield from read_events(self._path)
        yield from filter(None, (parse_event(line.encode()) for line in self.unwritten()))

    def unwritten(self, since: int = 0) -> list[str]:
        """Return the lines of the events that are not on the disk, from the one of that number on."""
        kept = self.backlog.kept(self._path)
        return kept[max(0, since - (self._next - len(kept))) :]

    @property
    def end(self) -> int:
        """Number of the event that comes next."""
        return self._next

    def _bounded(self, made: dict[str, Any]) -> dict[str, Any]:
        """Cut the texts of an event that are longer than anybody reads."""
        told_of = bounded(made["told"])
        return {**made, "message": cut(made["message"]), "told": told_of, "data": bounded(made.get("data", {}))}

    def _leave_out(self) -> None:
        """Tell once that events are left out from here on."""
        if not self._is_full:
            self._is_full = True
            message = msg("there are {size} MB of events: only states, failures and the outcome are told from here on",
                           size=MOST_BYTES // 1_000_000)  # fmt: skip
            data = {"code": EVENTS_FULL, "severity": "warning", "subject": self._path.parent.name, "hint": ""}
            self.add(EventKind.FINDING, message, data=data)

    def _without_secrets(self, made: dict[str, Any]) -> dict[str, Any]:
        """Redact an event's texts: those that fill its message, and its data."""
        recipe = self.redaction.within(made["told"])
        message = retell(recipe) if recipe and "id" in recipe else self.redaction.text(made["message"])
        return {**made, "message": message, "told": recipe, "data": self.redaction.within(made.get("data", {}))}

    def flush(self) -> bool:
        """Write what could not be written before; return whether everything is on the disk."""
        return self.backlog.flush() and self.backlog.trouble is None

    def _tell_room(self) -> None:
        """Tell that the disk takes nothing, or that it does so again."""
        trouble = self.backlog.trouble
        message = msg("there is room on this disk again: what was kept in memory is written")
        hint: str = ""
        if trouble is not None:
            path, reason = trouble
            message = msg("{path} cannot be written: {reason}. What is to be written there is kept in memory",
                           path=str(path), reason=reason)  # fmt: skip
            hint = msg("Make room there: it is written then. The job goes on, and ends as it would.")
        severity = "info" if trouble is None else "warning"
        data = {"code": NO_ROOM, "severity": severity, "subject": self._path.parent.name, "hint": hint}
        self.add(EventKind.FINDING, message, data=data)


def message_of(event: Event) -> str:
    """Return what an event says, so that it can be told in another language where it is known what it was made of."""
    recipe = {name: value for name, value in (event.told or {}).items() if name != "data"}
    return Message.of(event.message, recipe) if "id" in recipe else event.message


def read_events(path: Path, *kinds: EventKind) -> Iterator[Event]:
    """Yield the events of a file, where there is one, all or those of some kinds; a torn line is left out."""
    marks = [_mark(kind) for kind in kinds] or [b""]
    with contextlib.suppress(FileNotFoundError), path.open("rb") as stream:
        for line in stream:
            event = parse_event(line) if any(mark in line for mark in marks) else None
            if event is not None and (not kinds or event.kind in kinds):
                yield event


def newest_event(path: Path, kind: EventKind | None = None) -> Event | None:
    """Return the last event of a file, or the last of a kind; only what comes after it is looked through."""
    mark = _mark(kind) if kind is not None else b""
    for line in _lines_from_the_end(path):
        if mark in line and (event := parse_event(line)) is not None and kind in (None, event.kind):
            return event
    return None


def hint_of(event: Event) -> str:
    """Return the hint of a finding likewise; empty where it has none."""
    hint, found = event.data.get("hint"), (event.told or {}).get("data")
    if not isinstance(hint, str):
        return ""
    for place in found if hint and isinstance(found, list) else ():
        if isinstance(place, list) and place[:1] == [["hint"]] and isinstance(place[-1], dict):
            return Message.of(hint, place[-1])
    return hint


def _mark(kind: EventKind) -> bytes:
    """Return what the line of an event of a kind holds, as the log writes it; its data may hold it all the same."""
    return f'"kind": "{kind.value}"'.encode()


def parse_event(line: bytes) -> Event | None:
    """Decode one line of events.jsonl, its messages in the reader's language; `None` where it is torn."""
    try:
        event = taken(Event, decode(line))
    except (FrameError, ValueError):
        return None
    if event.told is not None:
        with contextlib.suppress(*_BAD_RECIPE):
            retell_within(event.data, event.told.get("data"))
        with contextlib.suppress(*_BAD_RECIPE):
            return replace(event, message=retell(event.told))
    return event


def _lines_from_the_end(path: Path) -> Iterator[bytes]:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as stream:
        position = stream.seek(0, os.SEEK_END)
        rest: list[bytes] = []
        while position > 0:
            size = min(BLOCK_BYTES, position)
            position -= size
            stream.seek(position)
            first, *others = stream.read(size).split(b"\n")
            if others:
                others[-1] += b"".join(reversed(rest))
                rest = []
                yield from reversed(others)
            rest.append(first)
        yield b"".join(reversed(rest))
