"""A job's logs: which node and which stream, the lines, and what is looked for in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, Label, Select, Static

from dttui.i18n import _, ngettext
from dttui.tui.commands import N_
from dttui.tui.log_lines import short_name
from dttui.tui.log_scan import NumberedLines, Sought
from dttui.tui.messages import LogChosen, LogSaveWanted, LogTimeChosen
from dttui.tui.widgets.choice_list import ChoiceList
from dttui.tui.widgets.log_view import LogLooked, LogView

ALL_STREAMS = ""
"""The value of all streams together; a stream's name is never empty."""
ALL_NODES = ""
"""That of all nodes."""


@dataclass(frozen=True)
class LogSource:
    """A node and what writes logs there."""

    key: str
    name: str
    """As it is shown."""
    ranks: tuple[int, ...]
    others: tuple[str, ...]
    """Names of the processes that are no ranks: what starts them, and what serves them."""

    @property
    def processes(self) -> tuple[str, ...]:
        """Names of all of them."""
        return (*map(str, self.ranks), *self.others)


class LogPanel(Vertical):
    """Tells its screen which log is wanted; the screen gives it lines."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", N_("search"), id="log.search", tooltip=N_("Look for words in the log")),
        Binding("t", "time", N_("time"), show=False, id="log.time", tooltip=N_("Go to a time: 13:05, or 10m ago")),
        Binding("s", "save", N_("save"), id="log.save", tooltip=N_("Write the lines that are shown into a file")),
        Binding("y", "copy", N_("copy"), show=False, id="log.copy", tooltip=N_("Copy the line found, or what is seen")),
        Binding("escape", "close", N_("forget"), show=False, id="log.close", tooltip=N_("Forget what was looked for")),
        Binding(
            "[",
            "stream(-1)",
            N_("stream before"),
            show=False,
            id="log.stream-before",
            tooltip=N_("Show the stream before"),
        ),
        Binding("]", "stream(1)", N_("next stream"), show=False, id="log.stream", tooltip=N_("Show the next stream")),
        Binding(
            "{", "node(-1)", N_("node before"), show=False, id="log.node-before", tooltip=N_("Show the node before")
        ),
        Binding("}", "node(1)", N_("next node"), id="log.node", tooltip=N_("Show the next node")),
    ]

    merges_nodes = True
    """Whether the logs of all nodes can be shown together."""
    attempt: int | None = None
    """Which one's lines are shown; `None` for the newest."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._sources: dict[str, LogSource] = {}
        self._is_chosen = False
        """Whether a person has chosen a log."""
        self._asks_time = False
        """Whether what is typed is a time, and no words."""

    def compose(self) -> ComposeResult:
        """Lay out the choices, the lines and the field."""
        with Horizontal(id="log-choice"):
            yield Label(_("Node"))
            yield ChoiceList(id="log-node")
            yield Label(_("Stream"))
            yield ChoiceList(id="log-stream")
            yield Static(id="log-place")
        yield Static(Content.styled(_("Nothing has been written yet."), "$muted"), id="log-empty")
        yield LogView(id="log")
        yield Input(id="log-search", compact=True)

    def on_mount(self) -> None:
        """Show the field where it is asked for."""
        self.query_one("#log-search").display = False

    @property
    def view(self) -> LogView:
        """The lines."""
        return self.query_one(LogView)

    def offer(self, nodes: Sequence[LogSource]) -> None:
        """Offer nodes, the master first; what is shown already stays, where it still is one of them."""
        found = {node.key: node for node in nodes}
        if found == self._sources or not nodes:
            return
        self._sources = found
        kept, stream = self._log_chosen
        node = kept if kept is not None and kept in self._node_keys() else nodes[0].key
        self._offer_nodes(node)
        self._offer_streams(node, stream if stream is not None and node == kept else ALL_STREAMS)

    def open_at(self, node: str, stream: str | None) -> None:
        """Show a stream of a node, or all of them, unless a person has chosen a log or it is shown already."""
        if self._is_chosen or node not in self._sources:
            return
        if self._log_chosen == (node, stream or ALL_STREAMS):
            return
        with self.prevent(Select.Changed):
            self.query_one("#log-node", ChoiceList).value = node
        self._offer_streams(node, stream or ALL_STREAMS)

    def choose_node(self, node: str) -> None:
        """Show all that a node prints, as if a person had chosen it here."""
        if node in self._sources:
            self.query_one("#log-node", ChoiceList).value = node

    def choose(self, wanted: LogChosen) -> None:
        """Show a log as if a person had chosen it here; all of its node's where there is no such stream."""
        node = wanted.node or ALL_NODES
        if node in self._node_keys():
            self._is_chosen = True
            with self.prevent(Select.Changed):
                self.query_one("#log-node", ChoiceList).value = node
            self.post_message(replace(wanted, stream=self._set_streams(node, wanted.stream or ALL_STREAMS) or None))

    def processes(self, node: str | None) -> tuple[str, ...]:
        """Return the names of what writes logs on a node, or on all."""
        sources = self._sources.values() if node is None else filter(None, [self._sources.get(node)])
        return tuple(process for source in sources for process in source.processes)

    def show(self, store: NumberedLines) -> None:
        """Show other lines; another log was chosen."""
        self.view.show(store)
        self._tell_place()

    def grown(self, earlier: int = 0) -> None:
        """Show what is new, of which so many lines come before what there was; the view follows while it may."""
        self.view.grown(earlier)
        self._tell_place()

    def action_search(self) -> None:
        """Ask for words."""
        self._ask(_("words to look for; enter goes to the next, N to the one before"), is_time=False)

    def action_time(self) -> None:
        """Ask for a time."""
        self._ask(_("time to go to: 13:05, 2026-11-21 13:05:00, or 10m ago"), is_time=True)

    def action_save(self) -> None:
        """Have the lines written into a file."""
        self.post_message(LogSaveWanted())

    def action_copy(self) -> None:
        """Give the terminal's clipboard the line that was found, or all that is seen."""
        lines = self.view.shown_lines()
        self.app.copy_to_clipboard("\n".join(lines))
        told = ngettext("{count} line copied", "{count} lines copied", len(lines)).format(count=len(lines))
        self.notify(told, markup=False)

    def action_stream(self, direction: int) -> None:
        """Show the next stream of the node, or the one before."""
        self._turn("#log-stream", direction)

    def action_node(self, direction: int) -> None:
        """Show the next node, or the one before."""
        self._turn("#log-node", direction)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Close only what is open; else the key leads back."""
        if action == "close":
            return self.is_mounted and (self.query_one("#log-search").display or self.view.scan is not None)
        return True

    def action_close(self) -> None:
        """Close the field, or forget what was looked for."""
        field = self.query_one("#log-search", Input)
        if field.display:
            field.display = False
            self.view.focus()
        else:
            self.view.look_for(None)

    @on(Input.Submitted, "#log-search")
    def _typed(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_close()
        if self._asks_time:
            self.post_message(LogTimeChosen(event.value))
        else:
            self.view.look_for(Sought.text(event.value) if event.value else None)

    @on(LogLooked)
    def _tell_place(self) -> None:
        view = self.view
        empty = self.query_one("#log-empty", Static)
        empty.display = not view.count
        has_lines = view.store is not None and view.store.end > view.store.first
        told_of = _("No line tells of any.") if has_lines else _("Nothing has been written yet.")
        if empty.display and str(empty.content) != told_of:
            empty.update(Content.styled(told_of, "$muted"))
        told = [] if self.attempt is None else [_("attempt {number}").format(number=self.attempt)]
        if view.scan is not None:
            place, count = view.scan.place(view.at) if view.at is not None else None, len(view.scan.found)
            told.append(f"{place:,}/{count:,}" if place is not None else _("{count:,} found").format(count=count))
            if not view.scan.is_done:
                told.append(f"{view.scan.share:.0%}")
        told += [] if not view.level else [_("warnings and errors") if view.level == 1 else _("errors")]
        told.append(_("following") if view.is_following else _("standing still"))
        if view.count:
            told.append(_("line {number:,} of {count:,}").format(number=view.last, count=view.count))
        told += [_("wrapped")] if view.wraps else []
        self.query_one("#log-place", Static).update(Content.styled(" · ".join(told), "$muted"))

    @on(Select.Changed, "#log-node")
    def _node_chosen(self, event: Select.Changed) -> None:
        event.stop()
        if isinstance(event.value, str):
            self._is_chosen = True
            self._offer_streams(event.value)

    @on(Select.Changed, "#log-stream")
    def _stream_chosen(self, event: Select.Changed) -> None:
        event.stop()
        self._is_chosen = True
        self._tell()

    def _ask(self, placeholder: str, *, is_time: bool) -> None:
        field = self.query_one("#log-search", Input)
        if self._asks_time is not is_time:
            field.value = ""
        self._asks_time, field.placeholder, field.display = is_time, placeholder, True
        field.focus()

    def _turn(self, selector: str, direction: int) -> None:
        select = self.query_one(selector, ChoiceList)
        values = self._streams(str(self.query_one("#log-node", ChoiceList).value))
        known = [value for _label, value in values] if selector == "#log-stream" else self._node_keys()
        if select.value in known:
            select.value = known[(known.index(str(select.value)) + direction) % len(known)]

    @property
    def _log_chosen(self) -> tuple[str | None, str | None]:
        """Node and stream that are chosen, where any were offered."""
        return self.query_one("#log-node", ChoiceList).selection, self.query_one("#log-stream", ChoiceList).selection

    def _offer_nodes(self, chosen: str) -> None:
        nodes = [(Content(node.name), node.key) for node in self._sources.values()]
        every = [(Content(_("all nodes")), ALL_NODES)] if ALL_NODES in self._node_keys() else []
        self.query_one("#log-node", ChoiceList).offer([*nodes, *every], chosen)

    def _node_keys(self) -> list[str]:
        return [*self._sources, *([ALL_NODES] if len(self._sources) > 1 and self.merges_nodes else [])]

    def _streams(self, node: str) -> list[tuple[str, str]]:
        streams = [(_("all ranks"), ALL_STREAMS)]
        source = self._sources.get(node)
        for rank in source.ranks if source is not None else ():
            streams.append((_("rank {rank} output").format(rank=rank), f"{rank}.out"))
            streams.append((_("rank {rank} errors").format(rank=rank), f"{rank}.err"))
        for name in source.others if source is not None else ():
            shown = short_name(name)
            streams.append((_("{process} output").format(process=shown), f"{name}.out"))
            streams.append((_("{process} errors").format(process=shown), f"{name}.err"))
        return streams

    def _offer_streams(self, node: str, chosen: str = ALL_STREAMS) -> None:
        self._set_streams(node, chosen)
        self._tell()

    def _set_streams(self, node: str, wanted: str) -> str:
        """Offer the streams of a node; return which one is chosen."""
        streams = self._streams(node)
        chosen = wanted if wanted in [value for _label, value in streams] else ALL_STREAMS
        self.query_one("#log-stream", ChoiceList).offer([(Content(label), value) for label, value in streams], chosen)
        return chosen

    def _tell(self) -> None:
        node, stream = self._log_chosen
        if node is not None and stream is not None:
            self.post_message(LogChosen(node or None, stream or None))
