"""A field that is a list of sections, as alerts are: a button that tells of them, and a dialog with a line for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import Button, OptionList

from dttui.i18n import _, ngettext
from dttui.planning import FormField, SectionForm, items_of
from dttui.planning.section_form import section_form
from dttui.sanitize import clean
from dttui.tui.commands import N_
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.widgets.button_row import ButtonRow

Items = list[dict[str, Any]]
AskForItem = Callable[[str, SectionForm], Dialog[dict[str, Any]]]
"""Returns the dialog that fills in one item, of a title and a form."""


class ItemsButton(Button):
    """Shows what the list holds; pressed, it opens it."""

    @dataclass
    class Changed(Message):
        """A person gave the list other items."""

    def __init__(self, field: FormField, item: type[BaseModel], text: str, ask: AskForItem, *, id: str) -> None:
        """Show what a text holds of a field; `ask` returns what fills an item in."""
        super().__init__(_told(items_of(field, text)), id=id, compact=True, classes="items")
        self._field = field
        self._item = item
        self._ask = ask
        self.text = text
        """What the form reads."""

    @on(Button.Pressed)
    def _wanted(self, event: Button.Pressed) -> None:
        event.stop()
        self._open()

    @work
    async def _open(self) -> None:

        def ask(values: dict[str, Any]) -> Dialog[dict[str, Any]]:
            return self._ask(self._field.name, section_form(self._item, values))

        dialog = ItemsDialog(self._field.name, items_of(self._field, self.text), ask)
        items = await self.app.push_screen_wait(dialog)
        if items is not None:
            self.text = self._field.written(items) if items else ""
            self.label = _told(items)
            self.post_message(self.Changed())


class ItemsDialog(Dialog[Items]):
    """A line an item; enter changes one. Escape leaves the list as it was."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "add", N_("add"), id="items.add", tooltip=N_("Add one to the list")),
        Binding("delete,x", "remove", N_("remove"), id="items.remove", tooltip=N_("Remove the one under the cursor")),
    ]

    def __init__(self, name: str, items: Items, ask: Callable[[dict[str, Any]], Dialog[dict[str, Any]]]) -> None:
        """Show `items` of a field of this name; `ask` returns what fills in one that holds values already."""
        super().__init__()
        self._list_name = name
        self._items = list(items)
        self._ask = ask

    def compose(self) -> ComposeResult:
        """Lay out the list and the buttons."""
        with self.box(clean(self._list_name), subtitle=_("enter changes one · a adds · x removes")):
            yield OptionList(id="items", compact=True)
            with ButtonRow():
                yield Button(_("OK"), id="ok", variant="primary", compact=True)
                yield Button(_("Add"), id="add", action="screen.add", compact=True)
                yield Button(_("Remove"), id="remove", action="screen.remove", compact=True)
                yield Button(_("Cancel"), action="screen.cancel", compact=True)

    def on_mount(self) -> None:
        """Show the items."""
        self.fill()
        self.query_one(OptionList if self._items else "#add").focus()

    @work
    async def action_add(self) -> None:
        """Add one."""
        values = await self._asked({})
        if values:
            self._items.append(values)
            self.fill(len(self._items) - 1)

    def action_remove(self) -> None:
        """Remove the one under the cursor."""
        index = self.query_one(OptionList).highlighted
        if index is not None:
            del self._items[index]
            self.fill(index)

    @on(OptionList.OptionSelected)
    @work
    async def _change(self, event: OptionList.OptionSelected) -> None:
        values = await self._asked(self._items[event.option_index])
        if values:
            self._items[event.option_index] = values
            self.fill(event.option_index)

    @on(Button.Pressed, "#ok")
    def _done(self) -> None:
        self.dismiss(self._items)

    async def _asked(self, values: dict[str, Any]) -> dict[str, Any] | None:
        return await self.app.push_screen_wait(self._ask(values))

    def fill(self, at: int = 0) -> None:
        """Show the items, with the cursor on one."""
        listed = self.query_one(OptionList)
        listed.set_options([Content(_line(item)) for item in self._items])
        listed.highlighted = min(at, len(self._items) - 1) if self._items else None


def _line(item: dict[str, Any]) -> str:
    return clean(" · ".join(f"{name}: {value}" for name, value in item.items()))


def _told(items: Sequence[dict[str, Any]]) -> Content:
    if not items:
        return Content.styled(_("none"), "italic $muted")
    count = ngettext("{count} given", "{count} given", len(items)).format(count=len(items))
    return Content(f"{count}: {clean('; '.join(map(_line, items)))}")
