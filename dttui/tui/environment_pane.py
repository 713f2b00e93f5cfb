"""The left side of the compose screen: the fleet as a list that can be filtered and sorted, and details of one row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from dttui.i18n import _
from dttui.planning import Choice
from dttui.tui.commands import N_
from dttui.tui.environment_filter import completions, parse_filter
from dttui.tui.fleet_rows import FleetRows, only_reading_differs
from dttui.tui.gpu_lines import gpu_lines
from dttui.tui.messages import EnvironmentHighlighted, EnvironmentToggled
from dttui.tui.resting import every
from dttui.tui.rows import SORTS, GpusAsked, arranged, environment_detail
from dttui.tui.widgets.cells import linked
from dttui.tui.widgets.environment_list import EnvironmentList
from dttui.tui.widgets.prose import Prose
from dttui.tui.widgets.term_suggester import TermSuggester

if TYPE_CHECKING:
    from dttui.app import EnvironmentStatus, Fleet

REFRESH_S = 0.25
AGES_S = 20.0


@dataclass
class EnvironmentsChanged(Message):
    """More than the readings of some environments changed: their state, or what they are."""

    keys: Collection[str]


class EnvironmentPane(Vertical):
    """Looks at the fleet a few times a second, and passes on to the list what changed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("S", "reverse", N_("reverse"), show=False, id="list.reverse", tooltip=N_("Sort the other way round")),
        Binding(
            "A",
            "tick_shown",
            N_("tick shown"),
            show=False,
            id="list.tick-shown",
            tooltip=N_("Tick all that are shown, or untick them where all are"),
        ),
        Binding("escape", "show_all", N_("show all"), show=False, id="list.show-all", tooltip=N_("Drop the filter")),
    ]

    def __init__(self, fleet: Fleet, *, id: str) -> None:
        super().__init__(id=id)
        self._fleet = fleet
        self._rows = FleetRows()
        self._sort = 0
        self._is_reversed = False
        self._wanted = parse_filter("")

    def compose(self) -> ComposeResult:
        """Lay out caption, filter, list and details."""
        yield Static(id="list-caption")
        suggester = TermSuggester(lambda text: completions(text, self._rows.all().values()))
        hint = _("filter: words, or gpu:A100 zone:… free>=4 util<5 state:idle kind:…; → completes")
        yield Input(id="filter", compact=True, placeholder=hint, suggester=suggester)
        yield EnvironmentList(id="environments")
        yield Static(id="host-gpus")
        yield Prose(id="detail")

    def on_mount(self) -> None:
        """Show the fleet as it is, and follow it."""
        self._rows.see(dict(self._fleet.statuses))
        self._list.set_rows(self._rows)
        self._arrange()
        every(self, REFRESH_S, self._follow)
        every(self, AGES_S, self._list.repaint)

    def on_resize(self) -> None:
        """Head the list anew: a narrow screen has the word on its tab."""
        self.call_after_refresh(self._arrange)

    def mark(self, ticked: Sequence[str], master: str | None, choices: Sequence[Choice]) -> None:
        """Show what is ticked, and which GPUs the job asks of each.

        What the inventory lacks is listed for as long as it is ticked, so that it can be unticked.
        """
        strangers = tuple(key for key in ticked if key not in self._fleet.statuses)
        asked = {item.environment.name: GpusAsked(item.gpus_asked, item.ids_asked) for item in choices}
        changed = self._rows.ask(asked)
        if self._rows.list_strangers(strangers):
            self._list.set_rows(self._rows)
            self._arrange()
        self._list.update_rows(changed, changed)
        self._list.mark(ticked, master)
        if self._list.highlighted in changed:
            self._show_detail()

    def name_of(self, key: str) -> str:
        """Return what an environment is called."""
        return self._rows[key].name if key in self._rows else key

    def gpus_named(self, key: str) -> tuple[int, ...]:
        """Return the GPUs of an environment that the job names, where it is ticked."""
        return self._rows.asked_of(key).ids

    @property
    def seen(self) -> Mapping[str, EnvironmentStatus]:
        """What is shown of the fleet, which may be further."""
        return self._rows.statuses

    @property
    def highlighted(self) -> str | None:
        """Key of the environment under the cursor, where it is one of the fleet."""
        key = self._list.highlighted
        return key if key in self._fleet.statuses else None

    def sort_otherwise(self) -> None:
        """Sort in the next way."""
        self._sort, self._is_reversed = (self._sort + 1) % len(SORTS), False
        self._arrange()

    def action_reverse(self) -> None:
        """Sort the other way round."""
        self._is_reversed = not self._is_reversed
        self._arrange()

    def action_tick_shown(self) -> None:
        """Tick all that are shown; where all are, untick them."""
        shown, ticked = self._list.shown, self._list.ticked
        keys = tuple(key for key in shown if key not in ticked) or tuple(shown)
        if keys:
            self.post_message(EnvironmentToggled(keys))

    def begin_filter(self) -> None:
        """Go to the filter."""
        self._filter.display = True
        self._filter.focus()

    def focus_list(self) -> None:
        """Go back to the list; a filter stays."""
        self._list.focus()
        self.call_after_refresh(self._arrange)

    def point_at(self, key: str) -> None:
        """Put the cursor on an environment, whatever the filter hides."""
        if key not in self._list.shown:
            self._filter.value = ""
            self._arrange()
        if key in self._list.shown:
            self._list.action_go(list(self._list.shown).index(key))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to show all only where there is a filter."""
        return action != "show_all" or bool(self._filter.value) or self._filter.has_focus

    def action_show_all(self) -> None:
        """Drop the filter, and go back to the list."""
        self._filter.value = ""
        self.focus_list()

    @property
    def _filter(self) -> Input:
        return self.query_one("#filter", Input)

    @property
    def _list(self) -> EnvironmentList:
        return self.query_one(EnvironmentList)

    @on(EnvironmentHighlighted)
    def _highlighted(self) -> None:
        self._show_detail()

    @on(Input.Changed, "#filter")
    def _filtered(self, event: Input.Changed) -> None:
        event.stop()
        self._arrange()
        self.refresh_bindings()

    @on(Input.Submitted, "#filter")
    def _filter_done(self, event: Input.Submitted) -> None:
        event.stop()
        self._list.focus()

    def _follow(self) -> None:
        before = self.seen
        changed = self._rows.see(dict(self._fleet.statuses))
        if not changed:
            return
        reshaped = [
            key for key, status in changed.items() if key not in before or not only_reading_differs(before[key], status)
        ]
        self._list.update_rows(changed, reshaped)
        if self._list.highlighted in changed:
            self._show_detail()
        told = [key for key, status in changed.items() if _differs(status, before.get(key))]
        if told:
            self.post_message(EnvironmentsChanged(told))

    def _arrange(self) -> None:
        self._filter.display = bool(self._filter.value) or self._filter.has_focus
        name, label, _key = SORTS[self._sort]
        self._wanted = parse_filter(self._filter.value)
        order = arranged(self._rows.all(), self._wanted, name, is_reversed=self._is_reversed)
        self._list.show(order)
        self.query_one("#list-caption", Static).update(self._caption(label, len(order)))
        self._show_detail()

    def _caption(self, label: Callable[[], str], shown: int) -> Content:
        mark = " ↑" if self._is_reversed else ""
        order = Content.styled(_("sorted by {order}").format(order=label()) + mark, "$muted")
        caption = [linked(order, "screen.sort")]
        if not self.screen.has_class("-narrow"):
            caption.insert(0, Content.styled(_("Environments"), "bold"))
        if shown < len(self._rows):
            few = _("{shown} of {total} shown").format(shown=shown, total=len(self._rows))
            caption.append(Content.styled(few, "$warning"))
        if self._wanted.problem:
            caption.append(Content.styled(f"⚠ {self._wanted.problem}", "$warning"))
        if self._filter.value:
            caption.append(linked(Content.styled(_("esc shows all"), "$muted"), "screen.show_all"))
        return Content("  ").join(caption)

    def _show_detail(self) -> None:
        key = self._list.highlighted
        if key is None:
            lines = [(_("No environment has these words."), "muted")]
        elif key in self._fleet.statuses:
            lines = environment_detail(self._fleet.statuses[key])
        else:
            lines = [(_("The job names it, and the inventory has no such environment. Untick it."), "muted")]
        text = Content("\n").join(Content.styled(text, f"${colour}") for text, colour in lines)
        self.query_one("#detail", Prose).show(text)
        self._show_gpus(key if self.screen.has_class("-roomy") else None)

    def _show_gpus(self, key: str | None) -> None:
        """Show the GPUs of the host under the cursor."""
        shown = self.query_one("#host-gpus", Static)
        lines = Content("")
        if key is not None and key in self._fleet.statuses:
            status = self._fleet.statuses[key]
            ticked = None if status.environment.simulated else self.gpus_named(key)
            lines = gpu_lines(status, ticked)
            hint = _(" · G ticks them singly") if ticked is not None else ""
            shown.border_title = Content.assemble(self.name_of(key), (hint, "$muted"))
        shown.display = bool(lines)
        if not lines.is_same(shown.content if isinstance(shown.content, Content) else Content("")):
            shown.update(lines)


def _differs(status: EnvironmentStatus, before: EnvironmentStatus | None) -> bool:
    """Whether more than the readings changed, so that the plan may be another."""
    return before is None or (status.state, status.reason, status.facts) != (before.state, before.reason, before.facts)
