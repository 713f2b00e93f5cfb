"""What ranks print, among the states of their job: `apply` and `attach` show it as it comes."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import select
import sys
import time
from argparse import Namespace
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal

from dtagent.protocol.events import Event, EventKind, JobState

from dttui.app import JobFollower
from dttui.cli.printing import Printer
from dttui.errors import UsageError
from dttui.i18n import _
from dttui.jobs import (
    LAUNCHER,
    JobDirectory,
    JobView,
    LogFollower,
    LogLines,
    left_out_text,
    shown_line,
    watching,
    whole_line,
)
from dttui.words import listed

Ranks = Literal["all"] | tuple[int, ...]
"""Whose lines are wanted: of all processes, the launchers' too, or of ranks."""
LAST_LINES = 20
"""Of each file, of what was printed before somebody came."""
LOOK_S = 0.2
"""Between two looks at the files, of which a large job has thousands."""
MAX_NAMES = 8
WRITE_BYTES = select.PIPE_BUF
"""So many a pipe takes at once that can take anything."""


class RankPrinter(Printer):
    """Shows a job as it goes, and prints the lines of ranks to stdout, attempt after attempt, each of them once.

    A reader of stdout who is slow or stands still delays no state: lines stay in their files until there is room.

    Args:
        output: `human`, `json` or `jsonl`.
        ranks: whose lines.
        is_raw: whether also what is secret is shown.
    """

    def __init__(self, output: str, ranks: Ranks, *, is_raw: bool = False) -> None:
        super().__init__(output)
        self._ranks = ranks
        self._is_raw = is_raw
        self._follower: JobFollower | None = None
        self._last_lines: int | None = None
        self._attempt = 0
        self._reader: LogFollower | None = None
        self._look_at = 0.0
        self._allowance = watching()
        self._outlet = _Outlet()

    def follow(self, follower: JobFollower, *, last_lines: int | None = None) -> None:
        """Begin with the first attempt, or the newest, of whose files as they are now only so many lines are shown."""
        self._follower, self._last_lines = follower, last_lines
        self._attempt = 0 if last_lines is None else follower.view.attempt

    def events(self, events: Iterable[Event]) -> None:
        """Show events that came together, and what ranks printed: that of an attempt before what tells of its end."""
        if self._follower is None or not self._ranks:
            super().events(events)
            return
        try:
            self._show(self._follower, events)
        except BrokenPipeError:
            if not self._follower.is_over:
                text = _("leaving; the job goes on. `dttui stop {id}` ends it")
                self.note(text.format(id=self._follower.directory.job_id))
            raise

    def _show(self, follower: JobFollower, events: Iterable[Event]) -> None:
        told: list[Event] = []
        for event in events:
            is_next = event.attempt is not None and event.attempt > self._attempt
            if is_next or event.kind is EventKind.OUTCOME or _is_final(event):
                super().events(told)
                told, self._look_at = [], 0.0
                self._print_lines(follower, to_the_end=is_next or follower.is_over)
            if is_next:
                self._attempt, self._reader = event.attempt or 0, None
            told.append(event)
        super().events(told)
        self._print_lines(follower, to_the_end=follower.is_over)
        self._last_lines = None

    def summary(self, view: JobView, directory: JobDirectory) -> None:
        """Print the result, once all lines are out."""
        self._outlet.flush(waits=True)
        super().summary(view, directory)

    def _print_lines(self, follower: JobFollower, *, to_the_end: bool) -> None:
        view, now = follower.view, time.monotonic()
        has_room = self._outlet.flush()
        if view.plan is None or not (to_the_end or (has_room and now >= self._look_at)):
            return
        self._look_at = now + LOOK_S
        is_own = starts_own_ranks(view)
        if self._reader is None:
            wanted = () if self._ranks == "all" else processes_of(self._ranks, view)
            self._reader = LogFollower(
                follower.directory,
                self._attempt,
                takes=lambda process, _stream: self._ranks == "all" or process in wanted,
                last_lines=self._last_lines,
                redaction=None if self._is_raw else view.redaction(),
                allowance=self._allowance,
            )
        nodes = [
            name
            for name, node in view.nodes.items()
            if (to_the_end and not is_own) or self._ranks == "all" or not set(self._ranks).isdisjoint(node.logged_ranks)
        ]
        while found := self._reader.poll(nodes, to_the_end=to_the_end):
            text = "".join(f"{line}\n" for part in found for line in self._lines(part, view.job_id))
            if self._output == "jsonl":
                print(text, end="", flush=True)
            else:
                self.close_line()
                self._outlet.write(text)
            if not to_the_end:
                return

    def _lines(self, part: LogLines, job_id: str) -> Iterator[str]:
        notice = left_out_text(part.left_out, job_id) if part.left_out else ""
        if self._output == "jsonl":
            head = {"seq": -1, "time": time.time(), "kind": "log", "attempt": self._attempt}
            place = {"node": part.node, "rank": part.rank, "stream": part.stream}
            if notice:
                yield json.dumps({**head, **place, "line": notice, "left_out": part.left_out})
            for row in log_rows(part):
                yield json.dumps({**head, **row})
            return
        who = part.process if part.rank is not None else f"{part.node} {part.process}"
        label = "" if self._ranks != "all" and len(self._ranks) == 1 else f"[{who}] "
        if notice:
            yield label + notice
        for line in part.lines:
            yield label + shown_line(line)


class _Outlet:
    """Stdout, written to as fast as its reader takes it, without waiting for that."""

    def __init__(self) -> None:
        self._stream = sys.stdout
        self._rest = bytearray()
        self._poller: select.poll | None = None
        if self._stream is not None:
            with contextlib.suppress(io.UnsupportedOperation):  # In a test it may be no file.
                descriptor = self._stream.fileno()
                self._poller = select.poll()
                self._poller.register(descriptor, select.POLLOUT)

    def write(self, text: str) -> None:
        """Write what there is room for, and keep the rest."""
        if self._stream is None:  # This process was started without one.
            return
        if self._poller is None:
            self._stream.write(text)
            return
        self._rest += text.encode(self._stream.encoding, "replace")
        self._stream.flush()
        self.flush()

    def flush(self, *, waits: bool = False) -> bool:
        """Write what was kept, as far as there is room, or all of it; return whether nothing is left."""
        while self._rest and self._poller is not None and self._poller.poll(None if waits else 0):
            # Whole lines, where it can be: on a terminal other words may come between.
            end = self._rest.rfind(b"\n", 0, WRITE_BYTES) + 1 or WRITE_BYTES
            try:
                del self._rest[: os.write(self._stream.fileno(), self._rest[:end])]
            except BlockingIOError:  # Somebody has made it one that does not wait.
                break
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                self._rest.clear()  # The terminal has gone; that is noticed elsewhere.
        return not self._rest


def chosen_ranks(options: Namespace) -> Ranks:
    """Return whose lines a person wants: rank 0's, where nothing was said and a person reads."""
    if options.logs is not None:
        ranks: Ranks = options.logs
        return ranks
    return (0,) if options.output == "human" else ()


def starts_own_ranks(view: JobView) -> bool:
    """Whether a job is a command that starts its ranks itself, once a node."""
    return any(node.plan.starts_own_ranks for node in view.nodes.values())


def processes_of(ranks: Iterable[int], view: JobView) -> set[str]:
    """Return the names of the processes whose logs have what ranks print.

    Of a command that trains itself, or pipes away what its ranks print, nothing else has lines.
    """
    return {*map(str, ranks), *([LAUNCHER] if starts_own_ranks(view) else [])}


def check_ranks(ranks: Ranks | None, known: Mapping[str, Collection[int]], job_id: str) -> None:
    """Raise UsageError where none of the nodes has one of the ranks; of no nodes nothing is known."""
    for rank in ranks or () if ranks != "all" and known else ():
        if not any(rank in of_node for of_node in known.values()):
            where = _("job {id}").format(id=job_id)
            if len(known) == 1:
                where = _("node {name} of job {id}").format(name=next(iter(known)), id=job_id)
            told = [f"{name} [{','.join(map(str, of_node))}]" for name, of_node in known.items()]
            raise UsageError(
                _("{where} has no rank {rank}").format(where=where, rank=rank),
                _("There are: {names}.").format(names=listed(told, MAX_NAMES)),
            )


def log_rows(part: LogLines) -> list[dict[str, object]]:
    """Return lines as data."""
    place = {"node": part.node, "rank": part.rank, "stream": part.stream}
    return [{**place, "line": whole_line(line)} for line in part.lines]


def _is_final(event: Event) -> bool:
    return event.kind is EventKind.JOB_STATE and JobState(event.data.get("state")).is_final
