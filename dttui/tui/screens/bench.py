"""Measuring the links of the job that is being composed: how far it is, then its tables, curves and findings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import ClassVar

from rich.cells import cell_len
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from dttui.app import App, BenchReport
from dttui.compose import (
    USUAL_LARGEST,
    fastest_texts,
    fit_texts,
    kept_text,
    load_question,
    progress_text,
    unfinished_text,
)
from dttui.errors import DttuiError
from dttui.i18n import _, in_a_row, ngettext
from dttui.inventory import Environment
from dttui.jobs import JobDirectory
from dttui.planning import Plan, Submission
from dttui.sanitize import clean
from dttui.spec import Finding
from dttui.tui import symbols
from dttui.tui.bench_lines import (
    BenchSeries,
    bandwidth_curves,
    heading_line,
    legend,
    series_line,
    series_of,
    table,
)
from dttui.tui.bench_watch import Benches, BenchWatch
from dttui.tui.commands import N_
from dttui.tui.resting import every
from dttui.tui.rows import line
from dttui.tui.screens.dialogs import ChoiceDialog, Choices
from dttui.tui.screens.page import Page
from dttui.tui.widgets.cells import bar
from dttui.tui.widgets.curve_plot import CurvePlot
from dttui.tui.widgets.finding_list import FindingList
from dttui.tui.widgets.key_bar import KeyBar
from dttui.tui.widgets.title_bar import TitleBar

SHOW_S = 0.5
BAR_CELLS = 24
LEAST_BAR_CELLS = 6
PADDING = 1
"""Of a line, on each side."""
SCROLLBAR = 1

Start = Callable[[Submission, Plan], JobDirectory]


class BenchScreen(Page[None]):
    """Shows what was measured last between the hosts of a job, and measures anew once a person has agreed."""

    AUTO_FOCUS = "#bench-series"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "measure", N_("measure"), id="bench.measure", tooltip=N_("Measure the links, after a question")),
        Binding("x", "stop", N_("stop"), id="bench.stop", tooltip=N_("Stop measuring, after a question")),
        Binding("escape,b", "app.pop_screen", N_("back"), id="bench.back", tooltip=N_("Go back; a bench goes on")),
    ]

    def __init__(
        self,
        submission: Submission,
        plan: Plan,
        environments: Sequence[Environment],
        face: App,
        benches: Benches,
        start: Start,
    ) -> None:
        """Measure links.

        Args:
            submission: the job that measures.
            plan: of it, without errors.
            environments: that it measures.
            face: tells what was measured before.
            benches: those that go on beside the screens.
            start: starts a planned job.
        """
        super().__init__()
        self._submission = submission
        self._plan = plan
        self._environments = environments
        self._face = face
        self._benches = benches
        self._start = start
        self._hosts = [node.name for node in plan.nodes]
        self._report: BenchReport | None = None
        self._findings: Sequence[Finding] = ()
        self._kept = ""
        self._series: dict[str, BenchSeries] = {}
        self._drawn_in: tuple[int, ...] = ()
        """How many columns there were for what is on screen."""

    @property
    def _watch(self) -> BenchWatch | None:
        return self._benches.of_hosts(self._hosts)

    @property
    def is_measuring(self) -> bool:
        """Whether it is under way."""
        return self._watch is not None and not self._watch.is_over

    def compose(self) -> ComposeResult:
        """Lay out how far it is, what was found, and the series beside the curve and table of one."""
        yield TitleBar(self._title)
        yield Static(id="bench-status", markup=False)
        yield FindingList()
        with Horizontal(id="bench-body"):
            yield OptionList(id="bench-series", compact=True)
            with Vertical(id="bench-right"):
                yield CurvePlot(id="bench-plot")
                yield Static(id="bench-fit", markup=False)
                with VerticalScroll(id="bench-table-scroll"):
                    yield Static(id="bench-table")
        yield KeyBar()

    def on_mount(self) -> None:
        """Show what there is, once its parts are mounted; where there is nothing yet, ask whether to measure."""
        self.screen_layout_refresh_signal.subscribe(self, self._fit)
        self.call_after_refresh(self._open)
        self.call_after_refresh(every, self, SHOW_S, self.show_news)

    def fill(self) -> None:
        """Show what is known, in the words of the language chosen now."""
        if self._watch is None:
            self._open()
        self._drawn_in = ()
        self.show_news()
        self._show_report()

    def on_resize(self) -> None:
        """Show as much as there is room for."""
        self.call_after_refresh(self._show_report)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to measure what is not being measured, and to stop what is."""
        if action in ("measure", "stop"):
            return self.is_measuring == (action == "stop")
        return True

    @work(exclusive=True, group="bench")
    async def _open(self) -> None:
        if self._watch is None:
            try:
                kept = await asyncio.to_thread(self._face.bench.kept, self._environments)
            except DttuiError as error:
                self._tell(error)
                kept = None
            if kept is None:
                await self._ask()
                return
            self._report, self._findings = kept[0].report, kept[1]
            self._kept = kept_text(kept[0].measured_at, kept[0].report, kept[0].addresses, self._hosts)
        self.show_news()
        self._show_report()

    @work(exclusive=True, group="bench")
    async def action_measure(self) -> None:
        """Ask, and measure."""
        await self._ask()

    async def _ask(self) -> None:
        text = load_question(self._hosts, USUAL_LARGEST)
        choices: Choices = (("no", _("Do not measure"), "default"), ("yes", _("Measure"), "primary"))
        if await self.app.push_screen_wait(ChoiceDialog(_("Measure links"), clean(text), choices)) != "yes":
            self.show_news()
            return
        self.app.run_worker(self._begin(), group="benches")

    async def _begin(self) -> None:
        """Measure, on behalf of the app: what was started is followed although this screen is left meanwhile."""
        try:
            directory = await asyncio.to_thread(self._start, self._submission, self._plan)
        except DttuiError as error:
            self._tell(error)
            return
        self._benches.begin(self._hosts, directory)
        self._report, self._findings, self._kept = None, (), ""
        if self.is_running:
            self.call_later(self.show_news)  # It may be composed anew just now.
            self.call_later(self._show_report)

    @work(exclusive=True, group="bench-stop")
    async def action_stop(self) -> None:
        """Ask, and stop measuring."""
        watch = self._watch
        if watch is None or watch.is_over:
            return
        choices: Choices = (("no", _("Keep measuring"), "default"), ("yes", _("Stop"), "error"))
        text = _("Stop measuring? What was measured so far is kept.")
        if await self.app.push_screen_wait(ChoiceDialog(_("Measure links"), text, choices)) != "yes":
            return
        try:
            await watch.stop()
        except DttuiError as error:
            self._tell(error)
        else:
            self.notify(_("Asked to stop gracefully."), markup=False)

    @on(OptionList.OptionHighlighted)
    def _chosen(self) -> None:
        self._show_series()

    def show_news(self) -> None:
        """Show how far it is, and what has come."""
        watch = self._watch
        if watch is not None:
            if watch.ended is not None:
                kept, self._findings = watch.ended
                self._kept = kept_text(kept.measured_at, kept.report, kept.addresses, self._hosts)
            if watch.report is not self._report and watch.report is not None:
                self._report = watch.report
                self._show_report()
        self.query_one("#bench-status", Static).update(self.status())
        self.query_one(TitleBar).show(self._title, Content.styled(self._hosts_text, "$muted"))
        self.refresh_bindings()

    def status(self) -> Content:
        """How far it is, or when it was measured and how that ended."""
        watch, report = self._watch, self._report
        if self.is_measuring and watch is not None:
            state = symbols.job_state(watch.follower.view.state)
            head = Content.styled(f"{state} ", f"${state.colour}")
            if report is None or not report.total:
                return Content.assemble(head, (line(watch.follower.view.reason), "$muted"))
            text = f" {report.share:.0%} · {line(progress_text(report))}"
            room = self.size.width - 2 * PADDING - head.cell_length - cell_len(text)
            full, empty = bar(report.share, min(BAR_CELLS, max(LEAST_BAR_CELLS, room)))
            return Content.assemble(head, (full, "$gpu-busy"), (empty, "$gpu-track"), text)
        if watch is not None and watch.fault is not None:
            return Content.styled(line(f"{watch.fault.message} {watch.fault.hint}"), "$finding-error")
        if report is None:
            return Content.styled(_("Nothing was measured between these hosts yet: m measures."), "$muted")
        pieces = [Content(line(self._kept))]
        if watch is not None and watch.follower.view.went_wrong:
            view = watch.follower.view
            state = symbols.job_state(view.state)
            pieces.append(Content.styled(f"{state} {line(view.reason)}", f"${state.colour}"))
        if not report.is_whole:
            pieces.append(Content.styled(unfinished_text(), "$muted"))
        return Content(" · ").join(pieces)

    def _show_report(self) -> None:
        self.query_one(FindingList).show(self._findings)
        found = {series.key: series for series in series_of(self._report)} if self._report is not None else {}
        self._series = found
        options = self.query_one("#bench-series", OptionList)
        width = options.content_size.width - SCROLLBAR
        lines: list[Option] = []
        for heading, group in groupby(found.items(), lambda item: item[1].heading):
            lines.append(Option(heading_line(heading, width), disabled=True))
            lines += [Option(series_line(series, width), id=key) for key, series in group]
        before = options.highlighted_option
        chosen = before.id if before is not None and before.id in found else _first_slow(found)
        options.set_options(lines)
        if chosen is not None:
            options.highlighted = options.get_option_index(chosen)
        is_new = bool(lines) and not options.display
        for name in ("#bench-series", "#bench-right"):
            self.query_one(name).display = bool(lines)
        if is_new:
            options.focus()  # Hidden, it could not have it when the screen came.
        self._show_series()
        self._drawn_in = self._room()

    def _fit(self, _screen: Screen[None]) -> None:
        """Draw anew what was drawn before it was known how much room there is."""
        if self._report is not None and self._room() != self._drawn_in:
            self._show_report()

    def _room(self) -> tuple[int, ...]:
        """How many columns the list, the plot and the table have."""
        return tuple(self.query_one(name).size.width for name in ("#bench-series", CurvePlot, "#bench-table-scroll"))

    def _show_series(self) -> None:
        options = self.query_one("#bench-series", OptionList)
        chosen = options.highlighted_option
        series = self._series.get(chosen.id) if chosen is not None and chosen.id is not None else None
        if series is None or self._report is None:
            return
        self.query_one(CurvePlot).show(legend(), bandwidth_curves(series.rows))
        of_all = fastest_texts(self._report).get(series.op, "")
        text = fit_texts(self._report).get(series.where, "") if series.where else of_all
        self.query_one("#bench-fit", Static).update(line(text))
        self.query_one("#bench-fit").display = bool(text)
        width = self.query_one("#bench-table-scroll", VerticalScroll).content_size.width - SCROLLBAR
        self.query_one("#bench-table", Static).update(table(series.rows, width))

    def _tell(self, error: DttuiError) -> None:
        self.notify(clean(f"{error.message} {error.hint}".strip()), severity="error", markup=False)

    @property
    def _hosts_text(self) -> str:
        """Which hosts these are, or how many where the line has no room for all names."""
        names, count = line(in_a_row(self._hosts)), len(self._hosts)
        if cell_len(names) <= self.size.width - self._title.cell_length - 4 * PADDING:
            return names
        return ngettext("{count} host", "{count} hosts", count).format(count=count)

    @property
    def _title(self) -> Content:
        return Content.assemble(("dttui ", "bold"), (_("links"), "bold $primary"))


def _first_slow(found: dict[str, BenchSeries]) -> str | None:
    """Return where to begin: at what is slow, else at the first; `None` where there is nothing."""
    return next((key for key, series in found.items() if series.is_slow), next(iter(found), None))
