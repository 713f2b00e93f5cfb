"""All jobs of this login node: they are filtered, sorted and marked here, and from here one leads on to each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static
from textual.worker import Worker, get_current_worker

from dttui.app import App, RemovableJob
from dttui.errors import DttuiError
from dttui.i18n import _, ngettext
from dttui.jobs import JobDirectory, JobEntry
from dttui.spec import with_hint
from dttui.tui.commands import N_
from dttui.tui.filter_terms import marks_told
from dttui.tui.job_rows import GREATEST_FIRST, TERMS, arranged_jobs, by_id, counts, job_detail
from dttui.tui.messages import JobHighlighted, JobsSorted, JobToggled
from dttui.tui.resting import every
from dttui.tui.rows import line
from dttui.tui.screens.job_dialogs import removal_dialog
from dttui.tui.screens.page import Page
from dttui.tui.screens.rerun import Launcher, rerun
from dttui.tui.widgets.cells import linked
from dttui.tui.widgets.job_list import JobList
from dttui.tui.widgets.job_row import JobColumn, JobRow, column_name
from dttui.tui.widgets.key_bar import KeyBar
from dttui.tui.widgets.prose import Prose
from dttui.tui.widgets.term_suggester import TermSuggester
from dttui.tui.widgets.title_bar import TitleBar
from dttui.words import size_text

if TYPE_CHECKING:
    from dttui.tui.attachments import Attachments


REFRESH_S = 2.0
AGES_S = 20.0
REMEDY_S = 30.0
"""How long it is shown what is to be done."""
MOST_TOLD = 4
"""Of jobs that could not be removed."""


@dataclass
class JobsListed(Message):
    """Jobs were read."""

    jobs: Sequence[JobEntry]

    def can_replace(self, message: Message) -> bool:
        """Only the last of several looks matters."""
        return isinstance(message, JobsListed)


@dataclass
class JobsUnread(Message):
    """They could not be read."""

    why: str


class JobsScreen(Page[None]):
    """Lists them, the newest first; enter opens one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "slash",
            "filter",
            N_("filter"),
            id="jobs.filter",
            tooltip=N_("Show only some: by words, or terms such as state:failed loss<2 since:7d"),
        ),
        Binding("s", "sort", N_("sort"), id="jobs.sort", tooltip=N_("Sort by the next column")),
        Binding("S", "reverse", N_("reverse"), show=False, id="jobs.reverse", tooltip=N_("Sort the other way round")),
        Binding(
            "A",
            "mark_shown",
            N_("mark shown"),
            show=False,
            id="jobs.mark-shown",
            tooltip=N_("Mark all that are shown; where all are, take the marks away"),
        ),
        Binding(
            "c",
            "compare",
            N_("compare"),
            id="jobs.compare",
            tooltip=N_("Compare the marked jobs: what differs, and their curves"),
        ),
        Binding(
            "r",
            "restart",
            N_("restart"),
            id="jobs.restart",
            tooltip=N_("Let the job go on from its newest checkpoint, as another job; asks first"),
        ),
        Binding(
            "a",
            "again",
            N_("again"),
            id="jobs.again",
            tooltip=N_("Run the job once more from its beginning, as another job; asks first"),
        ),
        Binding(
            "p",
            "replay",
            N_("replay"),
            id="jobs.replay",
            tooltip=N_("Tell the job again from its beginning, at ten times its speed"),
        ),
        Binding(
            "x",
            "remove",
            N_("remove"),
            id="jobs.remove",
            tooltip=N_("Remove the marked jobs, or the one under the cursor; asks first"),
        ),
        Binding(
            "escape",
            "back",
            N_("back"),
            id="jobs.back",
            tooltip=N_("Show all jobs again, or go back; nothing is stopped"),
        ),
    ]

    def __init__(self, face: App, attachments: Attachments, launch: Launcher | None) -> None:
        """List them; `face` reads and removes them, and `launch` starts one once more."""
        super().__init__()
        self._face = face
        self._attachments = attachments
        self._launch = launch
        self._catalogue = face.screens.catalogue()
        self._entries: dict[str, JobEntry] = {}
        self._rows: Mapping[str, JobRow] = {}
        self._marked: set[str] = set()
        self._sort, self._is_reversed = JobColumn.BEGUN, True
        self._wanted = TERMS.parse("")
        self._reading: Worker[None] | None = None
        self._looks_again = False
        """Whether jobs were to be read while they were being read."""
        self._is_read = False
        self._trouble = ""
        """Why jobs could not be read."""

    def compose(self) -> ComposeResult:
        """Lay out filter, list and details."""
        yield TitleBar(_title())
        yield Static(id="jobs-caption")
        hint = _("filter: words, or state:failed framework:fsdp node:gpu1 loss<2 since:7d took>1h; → completes")
        suggester = TermSuggester(lambda text: TERMS.completions(text, self._rows.values()))
        yield Input(id="jobs-filter", compact=True, placeholder=hint, suggester=suggester)
        yield Prose(id="jobs-empty")
        yield JobList(id="jobs-list")
        yield Prose(id="jobs-detail")
        yield KeyBar()

    def on_mount(self) -> None:
        """Show what there is, and look again now and then."""
        self.fill()
        self._list.focus()
        every(self, REFRESH_S, self._look)
        every(self, AGES_S, lambda: self._list.refresh())

    def fill(self) -> None:
        """List what is known, and read it anew: why a job ended is told as it is read."""
        self._rows = by_id(self._entries.values(), {}, {})
        self._filter.display = bool(self._filter.value)
        self._show()
        self._look()

    def on_screen_resume(self) -> None:
        """Look at once: meanwhile much may have happened."""
        self._look()

    def action_filter(self) -> None:
        """Go to the filter."""
        self._filter.display = True
        self._filter.focus()

    def action_sort(self) -> None:
        """Sort by the next column."""
        columns = list(JobColumn)
        self._sort_by(columns[(columns.index(self._sort) + 1) % len(columns)])

    def action_reverse(self) -> None:
        """Sort the other way round."""
        self._is_reversed = not self._is_reversed
        self._show()

    @on(JobsSorted)
    def _heading_chosen(self, event: JobsSorted) -> None:
        column = JobColumn(event.column)
        if column is self._sort:
            self.action_reverse()
        else:
            self._sort_by(column)

    def _sort_by(self, column: JobColumn) -> None:
        self._sort, self._is_reversed = column, column in GREATEST_FIRST
        self._show()

    @on(JobToggled)
    def _toggled(self, event: JobToggled) -> None:
        self._marked ^= {event.job_id}
        self._show_marks()

    def action_mark_shown(self) -> None:
        """Mark all that are shown; where all are, take the marks away."""
        shown = set(self._list.shown)
        self._marked = self._marked - shown if shown <= self._marked else self._marked | shown
        self._show_marks()

    def action_compare(self) -> None:
        """Compare the marked jobs; with one mark, that job with the one under the cursor."""
        from dttui.tui.compare_lines import MOST_JOBS
        from dttui.tui.screens.compare import CompareScreen

        under = self._list.highlighted
        if len(self._marked) == 1 and under is not None:
            wanted = [*self._marked, *({under} - self._marked)]
        else:
            wanted = self._meant()
        if not 2 <= len(wanted) <= MOST_JOBS:
            text = _("Mark two to {most} jobs with space, then compare them.")
            self.notify(text.format(most=MOST_JOBS), severity="warning", markup=False)
            return
        entries = sorted(
            (self._entries[job_id] for job_id in wanted), key=lambda entry: entry.summary.started_at or 0.0
        )
        self.app.push_screen(CompareScreen(entries))

    def action_replay(self) -> None:
        """Tell the job under the cursor again."""
        from dttui.tui.screens.replay import USUAL_SPEED, ReplayScreen

        if self._list.highlighted is not None:
            directory = JobDirectory.of(self._list.highlighted)
            self.app.push_screen(ReplayScreen(directory, self._face, self._attachments, speed=USUAL_SPEED))

    def action_restart(self) -> None:
        """Let the job under the cursor go on from its newest checkpoint, once that is confirmed."""
        self._rerun(continues=True)

    def action_again(self) -> None:
        """Run the job under the cursor once more, once that is confirmed."""
        self._rerun(continues=False)

    def _rerun(self, *, continues: bool) -> None:
        if self._list.highlighted is not None:
            rerun(self.app, self._face, JobDirectory.of(self._list.highlighted), self._launch, continues=continues)

    def _tell(self, text: str) -> None:
        self.notify(line(text), severity="warning", markup=False, timeout=REMEDY_S)

    @work(group="remove", exclusive=True)
    async def action_remove(self) -> None:
        """Remove the marked jobs, or the one under the cursor, from this login node, once that is confirmed."""
        wanted = self._meant()
        if not wanted:
            return
        found, kept = await asyncio.to_thread(self._removable, wanted)
        if not found:
            self._tell(kept[0])
            return
        if await self.app.push_screen_wait(removal_dialog(found, kept)) != "remove":
            return
        gone, trouble = await asyncio.to_thread(self._remove, found)
        if gone:
            size = size_text(sum(item.size_bytes for item in gone))
            if len(gone) == 1:
                text = _("{id} removed, {size} freed").format(id=gone[0].job.job_id, size=size)
            else:
                text = _("{count} jobs removed, {size} freed").format(count=len(gone), size=size)
            self.notify(text, markup=False)
        for told in trouble[:MOST_TOLD]:
            self._tell(told)
        self._look()

    def _removable(self, names: Sequence[str]) -> tuple[list[RemovableJob], list[str]]:
        """Return what can be removed, and why each of the others cannot."""
        found: list[RemovableJob] = []
        kept: list[str] = []
        for name in names:
            try:
                found += self._face.removable([name])
            except DttuiError as error:
                kept.append(line(with_hint(error.message, error.hint)))
        return found, kept

    def _remove(self, removals: Sequence[RemovableJob]) -> tuple[list[RemovableJob], list[str]]:
        gone: list[RemovableJob] = []
        trouble: list[str] = []
        for removal in removals:
            try:
                self._face.remove(removal)
                gone.append(removal)
            except DttuiError as error:
                trouble.append(line(with_hint(error.message, error.hint)))
        return gone, trouble

    def _meant(self) -> list[str]:
        """Return the ids of the marked jobs in the order of the list, or of the one under the cursor."""
        if self._marked:
            return [job_id for job_id in self._rows if job_id in self._marked]
        return [self._list.highlighted] if self._list.highlighted is not None else []

    def action_back(self) -> None:
        """Leave the filter, or the screen."""
        if self._filter.display:
            self._filter.value = ""
            self._filter.display = False
            self._list.focus()
        else:
            self.app.pop_screen()

    @on(JobHighlighted)
    def _highlighted(self) -> None:
        self._show_detail()

    @on(Input.Changed, "#jobs-filter")
    def _filtered(self) -> None:
        self._show()

    @on(Input.Submitted, "#jobs-filter")
    def _filter_done(self) -> None:
        self._filter.display = bool(self._filter.value)
        self._list.focus()

    def on_jobs_listed(self, event: JobsListed) -> None:
        """Take over what was read, where any of it is new."""
        is_same = len(event.jobs) == len(self._entries)
        is_same = is_same and all(self._entries.get(entry.summary.job_id) is entry for entry in event.jobs)
        if is_same and self._is_read and not self._trouble:
            return
        self._is_read, self._trouble = True, ""
        self._rows = by_id(event.jobs, self._rows, self._entries)
        self._entries = {entry.summary.job_id: entry for entry in event.jobs}
        self._marked &= self._entries.keys()
        self._show()

    def on_jobs_unread(self, event: JobsUnread) -> None:
        """Say so."""
        self._is_read, self._trouble = True, event.why
        self._show()

    @property
    def _filter(self) -> Input:
        return self.query_one("#jobs-filter", Input)

    @property
    def _list(self) -> JobList:
        return self.query_one(JobList)

    def _look(self) -> None:
        if not self.is_current:
            return
        if self._reading is None or self._reading.is_finished:
            self._looks_again = False
            self._reading = self._read()
        else:
            self._looks_again = True

    @on(Worker.StateChanged)
    def _read_on(self, event: Worker.StateChanged) -> None:
        if event.worker is self._reading and event.worker.is_finished and self._looks_again:
            self._look()

    @work(thread=True, group="jobs")
    def _read(self) -> None:
        worker = get_current_worker()
        try:
            for entries in self._catalogue.looks():
                if worker.is_cancelled:
                    return
                self.post_message(JobsListed(entries))
        except OSError as fault:
            text = _("{path} cannot be read: {reason}")
            self.post_message(JobsUnread(text.format(path=fault.filename, reason=fault.strerror or fault)))

    def _show(self) -> None:
        self._wanted = TERMS.parse(self._filter.value)
        order = arranged_jobs(self._rows.values(), self._wanted, self._sort, is_reversed=self._is_reversed)
        self._list.show_jobs(self._rows, order, self._sort, is_reversed=self._is_reversed)
        self._list.display = bool(order)
        self.query_one("#jobs-detail").display = bool(order)
        empty = self.query_one("#jobs-empty", Prose)
        empty.display = not order
        empty.show(Content.styled(self._nothing(), "$muted"))
        count = len(self._rows)
        told = ngettext("{count} job", "{count} jobs", count).format(count=count) if self._is_read else ""
        self.query_one(TitleBar).show(_title(), Content(told))
        self._show_marks()
        self._show_detail()

    def _nothing(self) -> str:
        """Return what is said in place of the list."""
        if self._trouble:
            return line(self._trouble)
        if not self._is_read:
            return _("Reading the jobs of this login node …")
        if self._rows:
            return _("No job has these words. esc shows all.")
        text = _("No job has been launched from this login node yet.")
        return f"{text}\n" + _("esc goes back to compose one; ctrl+l launches it there.")

    def _show_marks(self) -> None:
        self._list.mark(self._marked)
        shown = self._list.shown
        caption = []
        if len(shown) < len(self._rows):
            few = _("{shown} of {total} shown").format(shown=len(shown), total=len(self._rows))
            caption.append(Content.styled(few, "$warning"))
        if self._marked:
            caption.append(Content.styled(marks_told(self._marked, shown), "bold $ticked"))
        if self._wanted.problem:
            caption.append(Content.styled(f"⚠ {self._wanted.problem}", "$warning"))
        if self._trouble and shown:
            caption.append(Content.styled(f"⚠ {line(self._trouble)}", "$warning"))
        caption += [
            Content.styled(f"{count} {state.word}", f"${state.colour}") for state, count in counts(self._rows.values())
        ]
        if self._rows:
            order = _("sorted by {order}").format(order=column_name(self._sort))
            told = Content.styled(f"{order} {'▾' if self._is_reversed else '▴'}", "$muted")
            caption.append(linked(told, "screen.sort"))
        self.query_one("#jobs-caption", Static).update(Content("   ").join(caption))

    def _show_detail(self) -> None:
        job_id = self._list.highlighted
        if job_id is None or job_id not in self._entries:
            return
        lines = job_detail(self._entries[job_id], self._rows[job_id])
        text = Content("\n").join(Content.styled(text, f"${colour}") for text, colour in lines)
        self.query_one("#jobs-detail", Prose).show(text)


def _title() -> Content:
    return Content.assemble(("dttui ", "bold"), (_("jobs"), "bold $primary"))
