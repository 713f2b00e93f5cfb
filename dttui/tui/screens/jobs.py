"""All jobs of this login node."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import DataTable, Input, Static
from textual.widgets.button import ButtonVariant

from dttui import jobs
from dttui.app import App, RemovableJob
from dttui.errors import DttuiError
from dttui.i18n import _, ngettext
from dttui.jobs import JobSummary
from dttui.tui import symbols
from dttui.tui.commands import N_
from dttui.tui.messages import JobChosen
from dttui.tui.rows import line
from dttui.tui.screens.dialogs import ChoiceDialog
from dttui.tui.widgets.cells import fit
from dttui.tui.widgets.key_bar import KeyBar
from dttui.tui.widgets.title_bar import TitleBar
from dttui.words import listed, size_text

REFRESH_S = 2.0
MOST_NAMES = 4
"""Hosts that are named."""
NAME_WIDTH = 24
LEAST_REASON = 34
"""Cells of the column that tells why a job is in its state; all of it stands below the table."""


@dataclass
class JobsListed(Message):
    """The jobs were read."""

    jobs: list[JobSummary]


class JobTable(DataTable[Text]):
    """The table, whose Enter key is told to the person."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", N_("open"), id="jobs.open", tooltip=N_("Watch the job under the cursor")),
    ]


class JobsScreen(Screen[None]):
    """Lists them, the newest first; enter opens one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", N_("filter"), id="jobs.filter", tooltip=N_("Show only jobs with these words")),
        Binding("x", "remove", N_("remove"), id="jobs.remove", tooltip=N_("Remove the job, if it is over; asks first")),
        Binding("escape", "back", N_("back"), id="jobs.back", tooltip=N_("Go back; nothing is stopped")),
    ]

    def __init__(self, face: App) -> None:
        """List them; `face` removes one."""
        super().__init__()
        self._face = face
        self._jobs: dict[str, JobSummary] = {}
        self._cells: dict[str, tuple[Text, ...]] = {}

    def compose(self) -> ComposeResult:
        """Lay out the table."""
        yield TitleBar(Content.assemble(("dttui ", "bold"), (_("jobs"), "bold $primary")))
        yield Input(id="jobs-filter", compact=True, placeholder=_("filter: words of name, id, state or framework"))
        yield Static(id="jobs-empty")
        yield JobTable(id="jobs-table", cursor_type="row")
        yield Static(id="jobs-detail")
        yield KeyBar()

    def on_mount(self) -> None:
        """Show what there is, and look again now and then."""
        table = self.query_one(JobTable)
        for key, name, width in (
            ("state", _("state"), 12),
            ("name", _("name"), NAME_WIDTH),
            ("started", _("started"), 12),
            ("took", _("took"), 9),
            ("nodes", _("nodes"), 5),
            ("ranks", _("ranks"), 5),
            ("reason", _("reason"), LEAST_REASON),
        ):
            table.add_column(Text(name), width=max(width, cell_len(name)), key=key)
        self.query_one("#jobs-filter").display = False
        table.focus()
        self._read()
        self.set_interval(REFRESH_S, self._read)

    def on_resize(self) -> None:
        """Give the last column what the others leave."""
        table = self.query_one(JobTable)
        *others, reason = table.ordered_columns
        room = self.size.width - sum(column.get_render_width(table) for column in others) - 2 * table.cell_padding
        reason.width = max(LEAST_REASON, room - table.styles.scrollbar_size_vertical)
        table.refresh(layout=True)

    def action_filter(self) -> None:
        """Go to the filter."""
        field = self.query_one("#jobs-filter", Input)
        field.display = True
        field.focus()

    @work(group="remove", exclusive=True)
    async def action_remove(self) -> None:
        """Remove the job under the cursor from this login node, once that is confirmed."""
        table = self.query_one(JobTable)
        if not table.row_count:
            return
        job_id = str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)
        try:
            (found,) = await asyncio.to_thread(self._face.removable, [job_id])
            if await self.app.push_screen_wait(_removal_dialog(found)) == "remove":
                await asyncio.to_thread(self._face.remove, found)
                size = size_text(found.size_bytes)
                self.notify(_("{id} removed, {size} freed").format(id=job_id, size=size), markup=False)
                self._read()
        except DttuiError as error:
            self.notify(line(f"{error.message}. {error.hint}"), severity="warning", markup=False)

    def action_back(self) -> None:
        """Leave the filter, or the screen."""
        field = self.query_one("#jobs-filter", Input)
        if field.display:
            field.value = ""
            field.display = False
            self.query_one(JobTable).focus()
        else:
            self.app.pop_screen()

    @on(DataTable.RowSelected)
    def _selected(self, event: DataTable.RowSelected) -> None:
        if event.row_key.value is not None:
            self.post_message(JobChosen(event.row_key.value))

    @on(DataTable.RowHighlighted)
    def _highlighted(self, event: DataTable.RowHighlighted) -> None:
        job = self._jobs.get(event.row_key.value or "")
        if job is not None:
            parts = [job.job_id, line(job.framework), *([_("simulated GPUs")] if job.simulated_gpus else [])]
            first = " · ".join(parts)
            self.query_one("#jobs-detail", Static).update(Content.styled(f"{first}\n{line(job.reason)}", "$muted"))

    @on(Input.Changed, "#jobs-filter")
    def _filtered(self) -> None:
        self._show()

    @on(Input.Submitted, "#jobs-filter")
    def _filter_done(self) -> None:
        self.query_one(JobTable).focus()

    def on_jobs_listed(self, event: JobsListed) -> None:
        """Take over what was read."""
        self._jobs = {job.job_id: job for job in event.jobs}
        self._show()

    @work(thread=True, group="jobs", exclusive=True)
    def _read(self) -> None:
        self.post_message(JobsListed(jobs.list_jobs()))

    def _show(self) -> None:
        query = self.query_one("#jobs-filter", Input).value.casefold().split()
        wanted = {
            job.job_id: self._row(job) for job in self._jobs.values() if all(word in _searched(job) for word in query)
        }
        table = self.query_one(JobTable)
        if list(wanted) != list(self._cells):
            at = table.cursor_row
            table.clear()
            for job_id, cells in wanted.items():
                table.add_row(*cells, key=job_id)
            if wanted:  # An empty table tells of a row without a key.
                table.move_cursor(row=min(at, len(wanted) - 1), animate=False)
        else:
            columns = list(table.columns)
            for job_id, cells in wanted.items():
                for column, cell, before in zip(columns, cells, self._cells[job_id], strict=True):
                    if cell != before:
                        table.update_cell(job_id, column, cell)
        self._cells = wanted
        table.display = bool(wanted)
        self.query_one("#jobs-detail").display = bool(wanted)
        text = _("No job has these words.") if self._jobs else _("No job has been launched from this login node yet.")
        self.query_one("#jobs-empty", Static).display = not wanted
        self.query_one("#jobs-empty", Static).update(Content.styled(text, "$muted"))
        count = ngettext("{count} job", "{count} jobs", len(wanted)).format(count=len(wanted))
        title = Content.assemble(("dttui ", "bold"), (_("jobs"), "bold $primary"))
        self.query_one(TitleBar).show(title, Content(count))

    def _row(self, job: JobSummary) -> tuple[Text, ...]:
        colours = self.app.theme_variables
        state = symbols.job_state(job.state)
        return (
            Text(str(state), colours[state.colour]),
            self._called(job),
            Text(symbols.date_and_time(job.started_at) if job.started_at else ""),
            Text("" if job.took_s is None else symbols.clock(job.took_s)),
            Text(str(job.nodes), justify="right"),
            Text(str(job.world_size), justify="right"),
            Text(line(job.reason), colours["muted"]),
        )

    def _called(self, job: JobSummary) -> Text:
        """Return what it is called, and behind it, whatever has to be cut, that its GPUs are simulated."""
        name = line(job.name)
        if not job.simulated_gpus:
            return Text(name)
        mark = " " + _("sim")
        kept = fit(name, NAME_WIDTH - cell_len(mark)).rstrip()
        return Text.assemble(kept, (mark, f"italic {self.app.theme_variables['simulated']}"))


def _removal_dialog(found: RemovableJob) -> ChoiceDialog:
    told = [_("Its logs, events and telemetry go, {size}.").format(size=size_text(found.size_bytes))]
    told.append(_("What is on the hosts stays there, checkpoints too."))
    if found.lost:
        hosts = line(listed(found.lost, MOST_NAMES))
        told.append(_("What may still run on {hosts} can be ended from here no more.").format(hosts=hosts))
    choices: list[tuple[str, str, ButtonVariant]] = [("keep", _("Keep"), "primary"), ("remove", _("Remove"), "error")]
    title = _("Remove {id} from this login node?").format(id=found.job.job_id)
    return ChoiceDialog(title, "\n".join(told), choices)


def _searched(job: JobSummary) -> str:
    state = symbols.job_state(job.state)
    return f"{job.name} {job.job_id} {job.state.value} {state.word} {job.framework}".casefold()
