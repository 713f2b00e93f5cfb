"""A job's logs: which node and which stream, and the lines, following their end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Label, Log, Select, Static

from dttui.i18n import _
from dttui.tui.log_lines import short_name
from dttui.tui.messages import LogChosen

MAX_LINES = 5000
ALL_STREAMS = ""
"""The value of all streams together; a stream's name is never empty."""


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

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._sources: dict[str, LogSource] = {}
        self._is_chosen = False
        """Whether a person has chosen a log."""

    def compose(self) -> ComposeResult:
        """Lay out the choices and the lines."""
        with Horizontal(id="log-choice"):
            yield Label(_("Node"))
            yield Select[str]([], id="log-node", prompt=_("choose"), compact=True)
            yield Label(_("Stream"))
            yield Select[str]([], id="log-stream", prompt=_("choose"), compact=True)
        yield Static(Content.styled(_("Nothing has been written yet."), "$muted"), id="log-empty")
        yield Log(id="log", max_lines=MAX_LINES, highlight=False)

    def offer(self, nodes: Sequence[LogSource]) -> None:
        """Offer nodes, the master first; what is shown already stays, where it still is one of them."""
        found = {node.key: node for node in nodes}
        if found == self._sources or not nodes:
            return
        select, streams = self.query_one("#log-node", Select), self.query_one("#log-stream", Select)
        kept, stream = select.value, streams.value
        is_new = list(found) != list(self._sources)
        self._sources = found
        if is_new:
            with self.prevent(Select.Changed):
                select.set_options([(Content(node.name), node.key) for node in nodes])
                select.value = kept if isinstance(kept, str) and kept in found else nodes[0].key
        chosen = stream if isinstance(stream, str) and select.value == kept else ALL_STREAMS
        self._offer_streams(str(select.value), chosen)

    def open_at(self, node: str, stream: str | None) -> None:
        """Show a stream of a node, or all of them, unless a person has chosen a log or it is shown already."""
        if self._is_chosen or node not in self._sources:
            return
        select = self.query_one("#log-node", Select)
        if (select.value, self.query_one("#log-stream", Select).value) == (node, stream or ALL_STREAMS):
            return
        with self.prevent(Select.Changed):
            select.value = node
        self._offer_streams(node, stream or ALL_STREAMS)

    def processes(self, node: str) -> tuple[str, ...]:
        """Return the names of what writes logs on a node."""
        return self._sources[node].processes if node in self._sources else ()

    def clear(self) -> None:
        """Show no lines; another log was chosen."""
        self.query_one(Log).clear()
        self.query_one("#log-empty").display = True

    def add(self, lines: Sequence[str]) -> None:
        """Show further lines; the view follows while it is at the end."""
        if lines:
            self.query_one("#log-empty").display = False
            self.query_one(Log).write_lines(lines)

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

    def _offer_streams(self, node: str, chosen: str = ALL_STREAMS) -> None:
        streams = [(_("all ranks"), ALL_STREAMS)]
        for rank in self._sources[node].ranks:
            streams.append((_("rank {rank} output").format(rank=rank), f"{rank}.out"))
            streams.append((_("rank {rank} errors").format(rank=rank), f"{rank}.err"))
        for name in self._sources[node].others:
            shown = short_name(name)
            streams.append((_("{process} output").format(process=shown), f"{name}.out"))
            streams.append((_("{process} errors").format(process=shown), f"{name}.err"))
        select = self.query_one("#log-stream", Select)
        with self.prevent(Select.Changed):
            select.set_options([(Content(label), value) for label, value in streams])
            select.value = chosen if chosen in [value for _label, value in streams] else ALL_STREAMS
        self._tell()

    def _tell(self) -> None:
        node = self.query_one("#log-node", Select).value
        stream = self.query_one("#log-stream", Select).value
        if isinstance(node, str) and isinstance(stream, str):
            self.post_message(LogChosen(node, stream or None))
