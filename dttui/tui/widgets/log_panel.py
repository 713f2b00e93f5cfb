"""A job's logs: which node and which stream, and the lines, following their end."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Label, Log, Select, Static

from dttui.i18n import _
from dttui.tui.messages import LogChosen

MAX_LINES = 5000
ALL_STREAMS = ""
"""The value of all streams together; a stream's name is never empty."""


class LogPanel(Vertical):
    """Tells its screen which log is wanted; the screen gives it lines."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._ranks: dict[str, tuple[int, ...]] = {}
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

    def offer(self, nodes: Sequence[tuple[str, str, tuple[int, ...]]]) -> None:
        """Offer nodes as (key, name, ranks), the master first."""
        ranks = {key: node_ranks for key, _name, node_ranks in nodes}
        if ranks == self._ranks or not nodes:
            return
        self._ranks = ranks
        select = self.query_one("#log-node", Select)
        with self.prevent(Select.Changed):
            select.set_options([(Content(name), key) for key, name, _ranks in nodes])
            select.value = nodes[0][0]
        self._offer_streams(nodes[0][0])

    def open_at(self, node: str, stream: str | None) -> None:
        """Show a stream of a node, or all of them, unless a person has chosen a log or it is shown already."""
        if self._is_chosen or node not in self._ranks:
            return
        select = self.query_one("#log-node", Select)
        if (select.value, self.query_one("#log-stream", Select).value) == (node, stream or ALL_STREAMS):
            return
        with self.prevent(Select.Changed):
            select.value = node
        self._offer_streams(node, stream or ALL_STREAMS)

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
        for rank in self._ranks[node]:
            streams.append((_("rank {rank} output").format(rank=rank), f"{rank}.out"))
            streams.append((_("rank {rank} errors").format(rank=rank), f"{rank}.err"))
        streams.append((_("launcher output"), "launcher.out"))
        streams.append((_("launcher errors"), "launcher.err"))
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
