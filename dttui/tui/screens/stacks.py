"""Where the ranks of a running job stand, asked of its hosts while somebody looks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content

from dttui.diagnosis.stack_report import NodeStacks, stack_lines, summary
from dttui.errors import DttuiError
from dttui.i18n import _
from dttui.spec import with_hint
from dttui.tui.commands import N_
from dttui.tui.rows import line
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.widgets.prose import Prose


class StacksDialog(Dialog[None]):
    """Tells who waits for whom, and below that each stack once, after the ranks that have it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "ask", N_("ask again"), id="stacks.again", tooltip=N_("Ask where the ranks stand now")),
    ]

    def __init__(self, ask: Callable[[], Awaitable[Sequence[NodeStacks]]]) -> None:
        """Ask the hosts by `ask`."""
        super().__init__()
        self._ask = ask

    def compose(self) -> ComposeResult:
        """Lay out a page that scrolls."""
        subtitle = _("r asks again, esc closes")
        with self.box(_("Where the ranks stand"), "-tall -wide", subtitle=subtitle), VerticalScroll():
            yield Prose(id="stacks-said")

    def on_mount(self) -> None:
        """Ask at once."""
        self.action_ask()

    @work(exclusive=True, group="stacks")
    async def action_ask(self) -> None:
        """Ask where the ranks stand now."""
        said = self.query_one("#stacks-said", Prose)
        said.show(Content.styled(_("asking the hosts …"), "$muted"))
        try:
            found = await self._ask()
        except DttuiError as error:
            said.show(Content.styled(line(with_hint(error.message, error.hint)), "$error"))
        else:
            said.show(_told(found))


def _told(found: Sequence[NodeStacks]) -> Content:
    heads = [Content.styled(line(str(text)), "bold") for text in summary(found)]
    lines = [
        Content.styled(line(text), "$primary") if text.startswith("── ") else Content(_indented(text))
        for text in stack_lines(found)
    ]
    return Content("\n").join([*heads, *lines] or [Content(_("no rank was found"))])


def _indented(text: str) -> str:
    """Return a line as it is printed, with what it begins with."""
    return text[: len(text) - len(text.lstrip())] + line(text.lstrip())
