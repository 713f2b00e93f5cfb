"""The logs of a job on its screen: what a person chooses is read, searched, gone to by time, and saved."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from textual import on, work

from dttui.errors import DttuiError
from dttui.i18n import _, ngettext, sentences
from dttui.jobs import JobDirectory, JobView, PastLogs, parse_since, save_lines
from dttui.spec import with_hint
from dttui.tui.log_feed import LogFeed, Takes
from dttui.tui.messages import LogChosen, LogSaveWanted, LogTimeChosen
from dttui.tui.rows import line
from dttui.tui.screens.dialogs import PathDialog
from dttui.tui.widgets.log_panel import LogPanel, LogSource

SAVED = ".log"
MOST_LOOKS = 16
"""At once, for what was there at the choice: each brings about 1 MiB of a file."""


class JobLogs(LogPanel):
    """The panel, and what fills it.

    Args:
        directory: of the job.
        view: returns the job as it is known now.
        past: what has the logs of an attempt and node as they were at the time of a replay; `None` for a job as it is.
        id: of the widget.
    """

    def __init__(
        self,
        directory: JobDirectory,
        view: Callable[[], JobView],
        past: Callable[[int, str, Takes], PastLogs] | None,
        *,
        id: str,
    ) -> None:
        super().__init__(id=id)
        self._directory = directory
        self._job = view
        self._past = past
        self.merges_nodes = past is None
        self._feed: LogFeed | None = None
        self._counted: LogFeed | None = None
        """Whose earlier lines are being counted, or were."""
        self._choice: LogChosen | None = None

    def read(self) -> None:
        """Show what is new."""
        self.offer_logs()
        if self._feed is not None and self.attempt is None and self._feed.attempt != self._job().attempt:
            self.reopen()
        if self._feed is None or self._choice is None:
            return
        if self._feed.poll(self.processes(self._choice.node)):
            self.grown()
        if self._feed.uncounted is not None and self._counted is not self._feed:
            self._counted = self._feed
            self._count(self._feed)

    def reopen(self) -> None:
        """Read the log anew that was chosen."""
        if self._choice is not None:
            self._feed = LogFeed(self._directory, self._job(), self._choice, self._past)
            self.show(self._feed.store)

    def offer_logs(self) -> None:
        """Offer the nodes of the job, and what writes logs there."""
        self.offer(
            [
                LogSource(
                    name,
                    line(node.plan.name),
                    node.logged_ranks,
                    tuple(process.name for process in node.plan.processes if process.rank is None),
                )
                for name, node in self._job().nodes.items()
            ]
        )

    @work(exclusive=True, group="log-count")
    async def _count(self, feed: LogFeed) -> None:
        await self._count_all(feed)
        if feed is self._counted and feed.uncounted is not None:  # The file was replaced meanwhile.
            self._counted = None

    async def _count_all(self, feed: LogFeed) -> None:
        if (pages := feed.uncounted) is not None:
            take = await asyncio.to_thread(pages.count_earlier)
            if feed is self._feed and (earlier := take()):
                self.grown(earlier)

    @on(LogChosen)
    def _chosen(self, event: LogChosen) -> None:
        event.stop()
        self._choice, self.attempt = event, event.attempt
        self.reopen()
        for _look in range(MOST_LOOKS):  # Of a job that is over nobody looks again.
            before = self._feed.store.end if self._feed is not None else 0
            self.read()
            if self._feed is None or self._feed.store.end == before:
                break
        if event.moment is not None and self._feed is not None:
            self._go_to(self._feed, event.moment, from_end=True)

    @on(LogTimeChosen)
    def _time_chosen(self, event: LogTimeChosen) -> None:
        event.stop()
        try:
            moment = parse_since(event.text, time.time(), _("time"))
        except DttuiError as error:
            self.notify(line(with_hint(error.message, error.hint)), severity="error", markup=False)
            return
        if self._feed is not None:
            self._go_to(self._feed, moment, from_end=False)

    @work(exclusive=True, group="log-time")
    async def _go_to(self, feed: LogFeed, moment: float, *, from_end: bool) -> None:
        await self._count_all(feed)
        found = await asyncio.to_thread(feed.store.at_time, moment)
        if found is None:
            has_times = await asyncio.to_thread(feed.store.at_time, 0.0) is not None
            told = [
                _("No line carries a time from then on.") if has_times else _("No line of this log carries a time.")
            ]
            told += [_("Its end is shown.")] if from_end else []
            self.notify(sentences(told), severity="warning", markup=False)
        elif feed is self._feed:
            self.view.go_to(found)

    @on(LogSaveWanted)
    def _save_wanted(self, event: LogSaveWanted) -> None:
        event.stop()
        if self._feed is not None and self._choice is not None:
            parts = (self._directory.job_id, self._choice.node, self._choice.stream)
            name = "-".join(part.replace("/", "_") for part in parts if part) + SAVED
            self._save(self._feed, os.path.abspath(name))

    @work(group="log-save")
    async def _save(self, feed: LogFeed, suggested: str) -> None:
        text = _("The lines that are shown are written to")
        path = await self.app.push_screen_wait(PathDialog(_("Save the log"), text, _("Save"), suggested))
        if not path or feed is not self._feed:
            return
        await self._count_all(feed)
        try:
            count = await asyncio.to_thread(save_lines, feed.store, path, self.view.numbers())
        except DttuiError as error:
            self.notify(line(with_hint(error.message, error.hint)), severity="error", markup=False)
            return
        told = ngettext("{count:,} line saved in {path}", "{count:,} lines saved in {path}", count)
        self.notify(line(told.format(count=count, path=path)), markup=False)
