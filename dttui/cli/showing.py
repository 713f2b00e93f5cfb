"""Showing at a terminal what is new of a job, until it is over. It waits for nothing itself, and needs no loop."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence

from dtagent.protocol.events import Event, EventKind

from dttui.app import JobFollower
from dttui.cli.printing import Printer
from dttui.errors import NotFinishedError
from dttui.i18n import _
from dttui.jobs import JobDirectory

POLL_S = 0.1


def show_new(follower: JobFollower, printer: Printer) -> float | None:
    """Print what is new; return after how many seconds to look again, `None` where nobody is left who would tell."""
    # Asked before reading: what a controller wrote last is read before it is missed.
    alive = follower.directory.has_controller()
    new = follower.poll()
    printer.events(in_order(new))
    printer.waits(*follower.view.stop_awaits())
    if not alive and not new:
        return None
    return 0.0 if new else POLL_S


def shown_to_the_end(follower: JobFollower, printer: Printer, *, is_new: bool = False) -> Iterator[float]:
    """Print events until the job is over and its controller gone, which may look at lost hosts after that.

    One that only waits for room on the disk, or for hosts that keep logs, is not waited for.

    Args:
        follower: of the job.
        printer: where it is printed.
        is_new: whether the controller was started to look at hosts, and does nothing else.

    Yields:
        How many seconds to wait before going on.

    Raises:
        NotFinishedError: the controller ended before the job.
    """
    pause_s: float | None = 0.0
    while pause_s is not None and (is_new or not (follower.is_over and follower.view.has_late_files)):
        pause_s = show_new(follower, printer)
        yield pause_s or 0.0
    if not follower.is_over:
        raise ended_first(follower.directory)


def in_order(events: Sequence[Event]) -> Iterator[Event]:
    """Yield what was read together as it happened, the outcome last: reports of metrics come from a file of their own.

    Clocks differ and can be set back, so neither file's own order is touched.
    """
    happened = [event for event in events if event.kind is not EventKind.METRIC]
    reports = [event for event in events if event.kind is EventKind.METRIC]
    return heapq.merge(happened, reports, key=lambda event: math.inf if event.kind is EventKind.OUTCOME else event.time)


def ended_first(directory: JobDirectory) -> NotFinishedError:
    """Return what is said where a controller ended before its job."""
    hint = _("See {path}.").format(path=directory.controller_log)
    if not directory.has_room():
        hint = _("There is no room in {path}: make some, and try again.").format(path=directory.path)
    return NotFinishedError(_("the controller of {id} ended before the job").format(id=directory.job_id), hint)
