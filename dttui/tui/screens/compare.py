"""Several jobs side by side: loss and speed on one plot each, and the keys in which their configuration differs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from dttui import jobs
from dttui.i18n import _, ngettext
from dttui.jobs import Contrast, JobDirectory, JobEntry
from dttui.tui.commands import N_
from dttui.tui.compare_lines import compared_curves, difference_lines, differences_title, job_lines
from dttui.tui.rows import line
from dttui.tui.screens.page import Page
from dttui.tui.widgets.curve_plot import CurvePlot
from dttui.tui.widgets.key_bar import KeyBar
from dttui.tui.widgets.title_bar import TitleBar


class CompareScreen(Page[None]):
    """Reads the jobs once more each time it is asked to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "reload", N_("read again"), id="compare.reload", tooltip=N_("Read the jobs again, as they go on")),
        Binding("escape", "app.pop_screen", N_("back"), id="compare.back", tooltip=N_("Go back to the list of jobs")),
    ]

    def __init__(self, entries: Sequence[JobEntry]) -> None:
        """Compare these jobs, the first with the letter A."""
        super().__init__()
        self._entries = entries
        self._found: Contrast | None = None

    def compose(self) -> ComposeResult:
        """Lay out plots and tables."""
        yield TitleBar(Content.assemble(("dttui ", "bold"), (_("compare"), "bold $primary")))
        yield Static(id="compare-jobs")
        yield Static(_("Reading the jobs …"), id="compare-note")
        with Horizontal(id="compare-plots"):
            yield CurvePlot(id="compare-loss")
            yield CurvePlot(id="compare-speed")
        with VerticalScroll(id="compare-scroll"):
            yield Static(id="compare-differences")
        yield KeyBar()

    def on_mount(self) -> None:
        """Read the jobs."""
        self.query_one("#compare-scroll").focus()
        self.fill()
        self.action_reload()

    def fill(self) -> None:
        """Show what was read."""
        self.query_one("#compare-plots").display = False
        count = len(self._entries)
        told = ngettext("{count} job", "{count} jobs", count).format(count=count)
        title = Content.assemble(("dttui ", "bold"), (_("compare"), "bold $primary"))
        self.query_one(TitleBar).show(title, Content(told))
        self._show()

    def on_resize(self) -> None:
        """Give the columns what there is."""
        self.call_after_refresh(self._show)

    @work(group="jobs", exclusive=True)
    async def action_reload(self) -> None:
        """Read what the jobs' files say by now."""
        directories = [JobDirectory.of(entry.summary.job_id) for entry in self._entries]
        try:
            self._found = await asyncio.to_thread(jobs.contrast, directories)
        except OSError as fault:
            reason = _("{path} cannot be read: {reason}").format(path=fault.filename, reason=fault.strerror or fault)
            note = self.query_one("#compare-note", Static)
            note.display = True
            note.update(Content.styled(line(reason), "$finding-error"))
            return
        self._show()

    def _show(self) -> None:
        if self._found is None:
            return
        width = self.size.width - 3
        self.query_one("#compare-jobs", Static).update(job_lines(self._entries, self._found, width))
        self.query_one("#compare-differences", Static).update(difference_lines(self._found, width))
        self.query_one("#compare-scroll").border_title = Content(differences_title(self._found))
        loss, speed = compared_curves(self._found)
        for selector, told in (("#compare-loss", loss), ("#compare-speed", speed)):
            plot = self.query_one(selector, CurvePlot)
            plot.display = bool(told.curves.strokes)
            plot.show(Content(told.title), told.curves)
        has_curves = bool(loss.curves.strokes or speed.curves.strokes)
        self.query_one("#compare-plots").display = has_curves
        note = self.query_one("#compare-note", Static)
        note.display = not has_curves
        note.update(Content.styled(_("None of them has reported a loss or a speed by step."), "$muted"))
