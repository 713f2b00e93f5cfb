"""The hosts of the inventory: how each is, what agent it has, who uses it; and what can be done about that."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from dttui.app import EnvironmentState, EnvironmentStatus, Fleet
from dttui.i18n import _, ngettext
from dttui.tui.commands import N_
from dttui.tui.environment_filter import completions, parse_filter
from dttui.tui.filter_terms import marks_told
from dttui.tui.host_rows import HOST_SORTS, agent_words, host_details, host_order, host_row
from dttui.tui.host_work import HostAction, HostTask, HostWork
from dttui.tui.messages import EnvironmentHighlighted, EnvironmentToggled, ImportWanted
from dttui.tui.resting import every
from dttui.tui.screens.dialogs import ChoiceDialog
from dttui.tui.screens.host_questions import question_of
from dttui.tui.screens.page import Page
from dttui.tui.widgets.cells import linked
from dttui.tui.widgets.host_list import HostColumnChosen, HostTable
from dttui.tui.widgets.host_row import HostRow
from dttui.tui.widgets.key_bar import KeyBar
from dttui.tui.widgets.prose import Prose
from dttui.tui.widgets.term_suggester import TermSuggester
from dttui.tui.widgets.title_bar import TitleBar

FOLLOW_S = 0.25
AGES_S = 2.0
"""How often is told anew how long ago something was."""


class HostDetails(Prose):
    """All that is known of the host under the cursor."""

    hangs = True

    def on_resize(self) -> None:
        """Break the lines anew for the new width."""
        self.refresh()


class HostsScreen(Page[None]):
    """Looks at the fleet and at what is done on hosts a few times a second."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", N_("filter"), id="hosts.filter", tooltip=N_("Show only hosts with these words")),
        Binding("d", "act('deploy')", N_("deploy"), id="hosts.deploy", tooltip=N_("Bring the agent to hosts")),
        Binding("u", "act('upgrade')", N_("upgrade"), id="hosts.upgrade", tooltip=N_("Upgrade the agent on hosts")),
        Binding(
            "x",
            "act('remove')",
            N_("remove agent"),
            id="hosts.remove",
            tooltip=N_("Take the agent off hosts; asks first"),
        ),
        Binding(
            "t", "act('trust')", N_("trust"), id="hosts.trust", tooltip=N_("Look at the keys of hosts; trust them")
        ),
        Binding("c", "act('doctor')", N_("doctor"), id="hosts.doctor", tooltip=N_("Find what is wrong with hosts")),
        Binding("r", "act('look')", N_("look again"), id="hosts.look", tooltip=N_("Reach hosts, look at their agents")),
        Binding("i", "import", N_("import"), id="hosts.import", tooltip=N_("Add hosts of a file to the inventory")),
        Binding("s", "sort(1)", N_("sort"), id="hosts.sort", tooltip=N_("Sort by the next column")),
        Binding("S", "reverse", N_("reverse"), show=False, id="hosts.reverse", tooltip=N_("Sort the other way round")),
        Binding(
            "A",
            "mark_shown",
            N_("mark shown"),
            show=False,
            id="hosts.mark-shown",
            tooltip=N_("Mark all hosts that are shown, or unmark them where all are"),
        ),
        Binding("enter", "details", N_("details"), show=False, id="hosts.details", tooltip=N_("Scroll the details")),
        Binding("escape", "back", N_("back"), id="hosts.back", tooltip=N_("Go back; what is under way goes on")),
    ]
    AUTO_FOCUS = "#host-table"

    def __init__(self, fleet: Fleet, host_work: HostWork, inventory: str | None, *, id: str) -> None:
        """Show hosts.

        Args:
            fleet: their live state.
            host_work: what is done on them.
            inventory: the file that lists them; `None` for the embedded cluster.
            id: of the screen.
        """
        super().__init__(id=id)
        self._fleet = fleet
        self._work = host_work
        self._inventory = inventory
        self._rows: dict[str, tuple[EnvironmentStatus, HostTask | None, HostRow]] = {}
        """The row of a host, and of what it was made."""
        self._detailed: tuple[EnvironmentStatus, HostTask | None] | None = None
        """Of what the details were made."""
        self._marked: set[str] = set()
        self._sort, self._is_reversed = "", False

    def compose(self) -> ComposeResult:
        """Lay out list and details."""
        yield TitleBar(self._title)
        suggester = TermSuggester(lambda text: completions(text, [row for _status, _task, row in self._rows.values()]))
        hint = _("filter: words, or gpu:A100 zone:… free>=4 state:idle kind:…; → completes")
        yield Input(id="host-words", compact=True, placeholder=hint, suggester=suggester)
        yield Static(id="host-caption")
        with Container(id="hosts-body"):
            yield HostTable(self._row_of, id="host-table")
            with VerticalScroll(id="host-about"):
                yield HostDetails(id="host-details")
        yield Prose(id="hosts-empty")
        yield KeyBar()

    def on_mount(self) -> None:
        """Show the hosts, and follow them."""
        self.fill()
        every(self, FOLLOW_S, self._follow)
        every(self, AGES_S, self._tell_ages)

    def fill(self) -> None:
        """Show the hosts as they are."""
        self._rows.clear()
        self._arrange()
        self._mark(self._marked)
        self._sum_up()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what there is something to do with."""
        if action in ("filter", "act", "sort", "reverse", "mark_shown", "details"):
            return bool(self._fleet.statuses)
        return self._inventory is not None if action == "import" else True

    # --- what a person does -------------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        """Go to the filter."""
        self._filter.display = True
        self._filter.focus()

    def action_sort(self, step: int) -> None:
        """Sort by the next column."""
        self._sort = HOST_SORTS[(HOST_SORTS.index(self._sort) + step) % len(HOST_SORTS)]
        self._is_reversed = False
        self._arrange()

    def action_reverse(self) -> None:
        """Sort the other way round."""
        self._is_reversed = not self._is_reversed
        self._arrange()

    def action_mark_shown(self) -> None:
        """Mark all that are shown; where all are, unmark them."""
        shown = set(self._table.shown)
        self._mark(self._marked - shown if shown <= self._marked else self._marked | shown)

    def action_details(self) -> None:
        """Go to the details, to scroll them, or back."""
        about = self.query_one("#host-about")
        (self._table if about.has_focus else about).focus()

    def action_back(self) -> None:
        """Go back to the list, drop the filter, then the marks; then leave."""
        if self._filter.has_focus or self._filter.value:
            self._filter.value = ""
            self._table.focus()
            self._arrange()
        elif not self._table.has_focus and self._fleet.statuses:
            self._table.focus()
        elif self._marked:
            self._mark(set())
        else:
            self.app.pop_screen()

    def action_import(self) -> None:
        """Add hosts to the inventory."""
        self.post_message(ImportWanted())

    @work(group="host-question", exclusive=True)
    async def action_act(self, name: str) -> None:
        """Do something on the marked hosts, or that under the cursor; ask first where it changes them."""
        action, chosen = HostAction(name), self._chosen
        if not chosen:
            return
        question = question_of(action, chosen)
        if question is not None:
            dialog = ChoiceDialog(question.title, question.text, question.choices)
            if await self.app.push_screen_wait(dialog) != action.value:
                return
        begun = self._work.begin(action, [status.environment for status in chosen])
        left = len(chosen) - len(begun)
        if left:
            text = ngettext(
                "On {count} of the hosts something else is under way; it is left out.",
                "On {count} of the hosts something else is under way; they are left out.",
                left,
            )
            self.notify(text.format(count=left), severity="warning", markup=False)
        self._mark(set())
        self._follow()

    @on(EnvironmentToggled)
    def _toggled(self, event: EnvironmentToggled) -> None:
        self._mark(self._marked ^ set(event.keys))

    @on(HostColumnChosen)
    def _column_chosen(self, event: HostColumnChosen) -> None:
        self._is_reversed = not self._is_reversed if event.name == self._sort else False
        self._sort = event.name
        self._arrange()

    @on(EnvironmentHighlighted)
    def _highlighted(self) -> None:
        self.query_one("#host-about").scroll_home(animate=False)
        self._show_details()

    @on(Input.Changed, "#host-words")
    def _filtered(self) -> None:
        self._arrange()

    @on(Input.Submitted, "#host-words")
    def _filter_done(self) -> None:
        self._table.focus()
        self.call_after_refresh(self._arrange)

    # --- what is shown ------------------------------------------------------------------------------------------------

    @property
    def _table(self) -> HostTable:
        return self.query_one(HostTable)

    @property
    def _filter(self) -> Input:
        return self.query_one("#host-words", Input)

    @property
    def _chosen(self) -> list[EnvironmentStatus]:
        """The marked hosts, or that under the cursor."""
        statuses, highlighted = self._fleet.statuses, self._table.highlighted
        if self._marked:
            return [status for key, status in statuses.items() if key in self._marked]
        return [statuses[highlighted]] if highlighted in statuses else []

    def _row_of(self, key: str) -> HostRow:
        """Return the row of a host as it now is."""
        if not self._is_made(key):
            status, task = self._now(key)
            self._rows[key] = status, task, host_row(status, task, time.time())
        return self._rows[key][2]

    def _is_made(self, key: str) -> bool:
        """Whether the row of a host is of what is known of it now."""
        status, task = self._now(key)
        made = self._rows.get(key)
        return made is not None and made[0] is status and made[1] is task

    def _now(self, key: str) -> tuple[EnvironmentStatus, HostTask | None]:
        return self._fleet.statuses[key], self._work.tasks.get(key)

    def _follow(self) -> None:
        """Draw anew what has changed of what can be seen."""
        changed = {key for key in self._table.in_view if not self._is_made(key)}
        if changed:
            self._table.repaint(changed)
        key = self._table.highlighted
        if key is not None and self._detailed != self._now(key):
            self._show_details()

    def _tell_ages(self) -> None:
        """Tell how long ago things were, and no more what was done a while ago."""
        for key in [key for key, (_status, task, _row) in self._rows.items() if task is not None]:
            del self._rows[key]
        self._table.widen(map(self._row_of, self._table.in_view))
        self._table.refresh()
        self._show_details()
        self._sum_up()

    def _arrange(self) -> None:
        self._filter.display = bool(self._filter.value) or self._filter.has_focus
        wanted = parse_filter(self._filter.value)
        rows = {key: self._row_of(key) for key in self._fleet.statuses}
        order = host_order(rows, wanted, self._sort, is_reversed=self._is_reversed)
        self._table.widen(rows.values())
        self._table.show(order)
        self._table.sort_by(self._sort, is_reversed=self._is_reversed)
        self._caption(len(order), wanted.problem)
        has_hosts = bool(rows)
        self.query_one("#hosts-body").display = has_hosts
        self.query_one("#hosts-empty").display = not has_hosts
        if not has_hosts:
            self.query_one("#hosts-empty", Prose).show(Content.styled(self._emptiness, "$muted"))
        self._show_details()

    @property
    def _emptiness(self) -> str:
        if self._inventory is None:
            return _("There are no hosts.")
        text = _("The inventory {path} has no hosts yet. i imports those of ~/.ssh/config or of another file.")
        return text.format(path=self._inventory)

    def _mark(self, marked: Collection[str]) -> None:
        self._marked = set(marked)
        self._table.mark(self._marked)
        self._caption(len(self._table.shown), parse_filter(self._filter.value).problem)

    def _caption(self, shown: int, problem: str) -> None:
        parts = []
        if self._marked:
            parts.append(Content.styled(marks_told(self._marked, self._table.shown), "$ticked"))
        if shown < len(self._fleet.statuses):
            few = _("{shown} of {total} shown").format(shown=shown, total=len(self._fleet.statuses))
            parts.append(Content.styled(few, "$warning"))
            parts.append(linked(Content.styled(_("esc shows all"), "$muted"), "screen.back"))
        if problem:
            parts.append(Content.styled(f"⚠ {problem}", "$warning"))
        caption = self.query_one("#host-caption", Static)
        caption.display = bool(parts)
        caption.update(Content("  ").join(parts))

    def _show_details(self) -> None:
        key = self._table.highlighted
        details = self.query_one(HostDetails)
        if key is None:
            self._detailed = None
            details.show(Content.styled(_("No host has these words."), "$muted"))
            return
        self._detailed = status, task = self._now(key)
        details.show(host_details(status, task, self._work.checkups.get(key)))

    def _sum_up(self) -> None:
        self.query_one(TitleBar).show(self._title, summary(self._fleet.statuses, self._work.under_way))

    @property
    def _title(self) -> Content:
        return Content.assemble(("dttui ", "bold"), (_("hosts"), "bold $primary"))


def summary(statuses: Mapping[str, EnvironmentStatus], under_way: int) -> Content:
    """Return how many hosts there are, and of how many something has to be known."""
    count = len(statuses)
    parts = [Content(ngettext("{count} host", "{count} hosts", count).format(count=count))]
    kinds: list[tuple[Callable[[EnvironmentStatus], bool], str]] = [
        (lambda status: status.state is EnvironmentState.NO_AGENT, _("{count} without agent")),
        (lambda status: status.is_away and status.state is not EnvironmentState.NO_AGENT, _("{count} not usable")),
        (
            lambda status: bool(status.agent_version) and agent_words(status)[0] != status.agent_version,
            _("{count} of other version"),
        ),
    ]
    for test, text in kinds:
        found = sum(map(test, statuses.values()))
        if found:
            parts.append(Content.styled(text.format(count=found), "$warning"))
    if under_way:
        parts.append(Content.styled(_("{count} at work").format(count=under_way), "$state-starting"))
    return Content(" · ").join(parts)
