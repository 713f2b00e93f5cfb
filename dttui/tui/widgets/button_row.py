"""The buttons of a dialog, side by side: arrows go from one to the next."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Button

from dttui.tui.commands import N_


class ButtonRow(Horizontal):
    """Holds buttons. Its keys work while one of them has the focus, so that a text field keeps its own."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(-1)", N_("left"), show=False, id="dialog.left", tooltip=N_("Go to the button before")),
        Binding("right,l", "move(1)", N_("right"), show=False, id="dialog.right", tooltip=N_("Go to the next button")),
    ]

    def __init__(self) -> None:
        super().__init__(classes="dialog-buttons")

    def action_move(self, step: int) -> None:
        """Move the focus among the buttons that can be pressed."""
        buttons = [button for button in self.query(Button) if button.display and not button.disabled]
        at = next((index for index, button in enumerate(buttons) if button.has_focus), None)
        if at is not None:
            buttons[(at + step) % len(buttons)].focus()
