"""`events`: all that happened in a job, as its controller wrote it down."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator

from dtagent.protocol.events import Event, EventKind
from dtagent.protocol.rpc import to_wire

from dttui import jobs
from dttui.cli.printing import event_text, one_line, print_rows
from dttui.errors import ExitCode, UsageError
from dttui.i18n import _
from dttui.jobs import parse_since, read_events
from dttui.words import listed

MAX_NAMES = 12


def events(options: Namespace) -> int:
    """Print the events of a job, those that were asked for."""
    directory = jobs.find(options.job)
    since = parse_since(options.since, time.time()) if options.since is not None else 0.0
    kinds = [EventKind(name) for name in options.kind or ()]
    found = list(read_events(directory.events, *kinds))
    nodes = sorted({event.node for event in found if event.node is not None})
    if options.node is not None and options.node not in nodes:
        raise UsageError(
            _("no event of job {id} is of a node {node}").format(id=directory.job_id, node=options.node),
            _("There are events of {names}").format(names=listed(nodes, MAX_NAMES) or "–"),
        )
    found = [event for event in found if event.time >= since and options.node in (None, event.node)]
    if options.output != "human":
        print_rows([to_wire(event) for event in found], options.output)
        return ExitCode.OK
    for line in _lines(found):
        print(line)
    if not found:
        sys.stderr.write(_("no such events\n"))
    return ExitCode.OK


def _lines(events: list[Event]) -> Iterator[str]:
    """Yield a line for each event; before it the date and the attempt, where they are others than before."""
    day, attempt = "", 0
    for event in events:
        text = event_text(event)
        if not text:
            continue
        at = time.localtime(event.time)
        if (today := time.strftime("%F", at)) != day:
            day = today
            yield f"── {day}"
        if event.attempt not in (None, attempt):
            attempt = event.attempt
            yield "── " + _("attempt {number}").format(number=attempt)
        yield f"{time.strftime('%T', at)}  {one_line(text)}"
