"""The preflight of the job that is being composed: the same board as while it is launched, and nothing is started."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import ClassVar

from dtagent.protocol.events import Event, EventKind
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button

from dttui.errors import DttuiError
from dttui.i18n import _, ngettext
from dttui.jobs import IGNORABLE, Board, Cell, Changed, Check, JobView, board_widths
from dttui.planning import Plan
from dttui.sanitize import clean
from dttui.spec import Finding
from dttui.timestamps import elapsed_s
from dttui.tui.checks import check_notes, show_checks, waited_for
from dttui.tui.commands import N_
from dttui.tui.resting import every
from dttui.tui.screens.page import Page
from dttui.tui.symbols import duration
from dttui.tui.widgets.check_board import CheckBoard
from dttui.tui.widgets.key_bar import KeyBar
from dttui.tui.widgets.prose import Prose
from dttui.tui.widgets.title_bar import TitleBar

SHOW_S = 0.25

Checker = Callable[[frozenset[str], Changed], Awaitable[Board]]
"""Runs a preflight that ignores errors of some codes, and tells what changes on its board."""


class ChecksScreen(Page[frozenset[str]]):
    """Checks once when it is shown, and again when asked to; gives back the codes of errors to be ignored."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,c", "back", N_("back"), id="checks.back", tooltip=N_("Go back to the job")),
        Binding("r", "again", N_("check again"), id="checks.again", tooltip=N_("Check all hosts once more")),
        Binding("i", "ignore", N_("ignore"), id="checks.ignore", tooltip=N_("Ignore these errors, at the launch too")),
        Binding(
            "b", "bench", N_("measure links"), id="checks.bench", tooltip=N_("Measure the links between the hosts")
        ),
    ]

    def __init__(self, plan: Plan, checker: Checker, ignored: frozenset[str], bench: Callable[[], object]) -> None:
        """Check.

        Args:
            plan: of the job.
            checker: checks its hosts.
            ignored: codes of errors that do not count.
            bench: shows what measures the links between them.
        """
        super().__init__()
        self._bench = bench
        self._plan = plan
        self._checker = checker
        self._ignored = ignored
        self._view = JobView("")
        self._board: Board | None = None
        self._has_news = False
        self._is_checking = False
        self._began_at = 0.0
        """Unix time."""

    def compose(self) -> ComposeResult:
        """Lay out the board, and what there is to say below it."""
        yield TitleBar(self._title)
        with VerticalScroll(id="checks-scroll"):
            yield CheckBoard(board_widths, id="checks-board")
            yield Prose(id="checks-notes")
        with Horizontal(id="checks-actions"):
            yield Button(_("Measure links"), id="bench", action="screen.bench", compact=True)
        yield KeyBar()

    def on_mount(self) -> None:
        """Begin to check."""
        self.fill()
        self.query_one("#checks-scroll").focus()
        every(self, SHOW_S, self._show_news)
        self._check()

    def fill(self) -> None:
        """Show what is known."""
        self.query_one("#checks-actions").display = len(self._plan.nodes) > 1
        self._has_news = True
        self._show_news()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to check again once it is done, to ignore errors where such may be, and to measure between hosts."""
        if action == "again":
            return not self._is_checking
        if action == "bench":
            return len(self._plan.nodes) > 1
        return action != "ignore" or bool(self._ignorable)

    def action_back(self) -> None:
        """Leave; what is still being checked is given up."""
        self.dismiss(self._ignored)

    def action_again(self) -> None:
        """Check once more."""
        self._check()

    def action_ignore(self) -> None:
        """Ignore the errors that a person may know better about, and check again."""
        self._ignored |= self._ignorable
        self._check()

    def action_bench(self) -> None:
        """Show what was measured between the hosts, or measure it."""
        self._bench()

    @work(exclusive=True)
    async def _check(self) -> None:
        self._board, self._view, self._is_checking = None, JobView(""), True
        self._began_at = time.time()
        self._view.set_plan(self._plan)
        self._has_news = True
        self._show_news()
        try:
            self._board = await self._checker(self._ignored, self._changed)
            self._view.findings = list(_events(self._board.findings))
        except DttuiError as error:
            self.notify(clean(error.message), severity="error", markup=False)
        self._is_checking = False
        self._has_news = True
        self._show_news()

    def _changed(self, name: str, cells: Mapping[Check, Cell]) -> None:
        self._view.checks.setdefault(name, {}).update(cells)
        self._has_news = True

    def _show_news(self) -> None:
        if not self._has_news:
            if self._is_checking:
                self.query_one(TitleBar).show(self._title, self.summary())
            return
        self._has_news = False
        show_checks(self.query_one(CheckBoard), self._view)
        self.query_one("#checks-notes", Prose).show(self.notes())
        self.query_one(TitleBar).show(self._title, self.summary())
        self.refresh_bindings()

    def notes(self) -> Content:
        """What is beside the board."""
        notes = check_notes(self._view)
        if not self._ignorable:
            return notes
        hint = _("i ignores, at the launch too: {codes}").format(codes=", ".join(sorted(self._ignorable)))
        return Content("\n").join([notes, Content(""), Content.styled(hint, "$muted")])

    def summary(self) -> Content:
        """What the checks come to."""
        if self._board is None:
            return Content.styled(self._under_way() if self._is_checking else _("not checked"), "$muted")
        count = len(self._board.errors)
        if count:
            told = ngettext("{count} error", "{count} errors", count).format(count=count)
            return Content.styled(told, "$finding-error")
        return Content.styled(_("nothing forbids a launch"), "$state-succeeded")

    def _under_way(self) -> str:
        """Return for how long it has been checked, and who is waited for."""
        told = _("checking for {span}").format(span=duration(elapsed_s(self._began_at)))
        return " · ".join(filter(None, (told, waited_for(self._view))))

    @property
    def _ignorable(self) -> frozenset[str]:
        errors = self._board.errors if self._board is not None else ()
        return frozenset(finding.code for finding in errors) & IGNORABLE

    @property
    def _title(self) -> Content:
        return Content.assemble(("dttui ", "bold"), (_("checks"), "bold $primary"), "  ", clean(self._plan.job_name))


def _events(findings: Iterable[Finding]) -> Iterable[Event]:
    for number, finding in enumerate(findings):
        yield Event(number, time.time(), EventKind.FINDING, finding.message, data=finding.event_data)
