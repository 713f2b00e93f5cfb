"""The name of a field, beside what is typed or chosen there."""

from __future__ import annotations

from textual import events
from textual.widgets import Button, Label


class FieldLabel(Label):
    """A click on it does what a click on its field does first: it goes there, or presses what can be pressed."""

    def on_click(self, event: events.Click) -> None:
        """Go to the field of the same row."""
        field = next((item for item in self.siblings if item.focusable), None)
        if field is None:
            return
        event.stop()
        if isinstance(field, Button):
            field.press()
        else:
            field.focus()
