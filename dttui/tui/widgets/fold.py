"""The head of what can be folded away: a line that says what is below it, and whether that is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from dttui.sanitize import clean
from dttui.tui.commands import N_


@dataclass
class FoldToggled(Message):
    """A person folded something, or opened it."""

    group: str
    is_open: bool


class FoldHead(Widget, can_focus=True):
    """Folds by enter, space or a click; whoever has what is below it hides that."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "fold", N_("fold"), id="fold.toggle", tooltip=N_("Fold it, or show what is within"))
    ]

    is_open: reactive[bool] = reactive(True)

    def __init__(self, group: str, *, is_open: bool) -> None:
        """Head a group of this name."""
        super().__init__()
        self.group = group
        self.set_reactive(FoldHead.is_open, is_open)

    def render(self) -> Content:
        """Return the line."""
        return Content.assemble(("▾ " if self.is_open else "▸ ", "$primary"), (clean(self.group), "bold"))

    def action_fold(self) -> None:
        """Fold, or open."""
        self.is_open = not self.is_open
        self.post_message(FoldToggled(self.group, self.is_open))

    def on_click(self, event: events.Click) -> None:
        """Fold, or open."""
        event.stop()
        self.action_fold()
