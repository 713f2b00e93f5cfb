"""The dialog that fills in a section of the job: a line a field, what it is for, and what is wrong with it."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.cells import cell_len
from textual import events, on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Input, Label, Select

from dttui.i18n import _
from dttui.planning import FieldKind, FormField, SectionForm
from dttui.sanitize import clean
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.widgets.prose import Prose

LEAST_FIELD = 24
"""Columns that a field keeps beside a long name."""
BORDERS = 14
"""Columns that the box takes around names and fields, with the bar of what is scrolled."""


class SectionDialog(Dialog[dict[str, Any]]):
    """Gives the section's values, once nothing is wrong with them; escape changes nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", show=False, priority=True),
        Binding("down", "step(1)", show=False, priority=True),
    ]

    def __init__(self, title: str, form: SectionForm) -> None:
        """Ask.

        Args:
            title: of the box.
            form: what is asked, with the texts to begin with.
        """
        super().__init__()
        self._title = title
        self.form = form
        self._is_refused = bool(form.read(form.texts)[1])
        """Whether what is wrong is told: not before a person has tried, unless it was wrong from the beginning."""

    def compose(self) -> ComposeResult:
        """Lay out a line a field, and below what the model says of the one that has the focus."""
        wanted = max(cell_len(field.name) for field in self.form.fields) + 2
        width = min(wanted, self.app.size.width - LEAST_FIELD - BORDERS)
        with self.box(clean(self._title), "-wide", subtitle=_("tab next · enter takes it · esc changes nothing")):
            with VerticalScroll(id="section-fields", can_focus=False):
                for index, field in enumerate(self.form.fields):
                    with Horizontal(classes="field"):
                        label = Label(Content(clean(field.name)), classes="field-label")
                        label.styles.width = width
                        yield label
                        yield self._widget(index, field)
                    problem = Prose(id=f"problem-{index}", classes="field-problem")
                    problem.display = False
                    yield problem
            yield Prose(id="section-about", classes="dialog-note")
            yield from self.ok_or_cancel(_("OK"))

    def on_mount(self) -> None:
        """Begin at the first field, or the first that is wrong."""
        self.query_one("#field-0").focus()
        self._read()
        self._go_to_fault()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Say what the field is for."""
        index = _index(event.widget)
        if index is not None:
            self.query_one("#section-about", Prose).show(_about(self.form.fields[index]))

    def action_step(self, by: int) -> None:
        """Go to the field above or below a line of text; elsewhere the keys mean what they mean there."""
        if not isinstance(self.focused, Input):
            raise SkipAction
        self.focus_next() if by > 0 else self.focus_previous()

    @on(Input.Changed)
    @on(Select.Changed)
    def _edited(self) -> None:
        self._read()

    @on(Button.Pressed, "#ok")
    @on(Input.Submitted)
    def _done(self) -> None:
        self._is_refused = True
        values = self._read()
        if values is None:
            self._go_to_fault()
        else:
            self.dismiss(values)

    def _read(self) -> dict[str, Any] | None:
        """Return the values; `None` where some are wrong, which is told at each once a person has tried."""
        names = [field.name for field in self.form.fields]
        values, faults = self.form.read({name: self._text(index) for index, name in enumerate(names)})
        if not self._is_refused:
            return values
        for index, name in enumerate(names):
            told = f"✗ {clean(faults[name])}" if name in faults else ""
            problem = self.query_one(f"#problem-{index}", Prose)
            problem.display = bool(told)
            problem.show(Content.styled(told, "$error"))
        return None if faults else values

    def _go_to_fault(self) -> None:
        """Put the focus where something is wrong, if it is not there."""
        wrong = [index for index in range(len(self.form.fields)) if self.query_one(f"#problem-{index}").display]
        if wrong and _index(self.focused) not in wrong:
            self.query_one(f"#field-{wrong[0]}").focus()

    def _text(self, index: int) -> str:
        widget = self.query_one(f"#field-{index}")
        if isinstance(widget, Input):
            return widget.value
        value = widget.value if isinstance(widget, Select) else None
        return value if isinstance(value, str) else ""

    def _widget(self, index: int, field: FormField) -> Input | Select[str]:
        text, usual = self.form.texts[field.name], _usual(field)
        if field.kind is not FieldKind.CHOICE:
            return Input(clean(text), id=f"field-{index}", compact=True, placeholder=clean(usual))
        known = [field.written(item) for item in field.choices]
        # What no choice is, was written into the file; it stays until another is made.
        shown = [*known, *([text] if text and text not in known else [])]
        options = [(Content(clean(item)), item) for item in shown]
        return Select(options, id=f"field-{index}", value=text or Select.NULL, prompt=usual, compact=True)


def _index(widget: Widget | None) -> int | None:
    """Return which field a widget is, or is a part of."""
    for node in widget.ancestors_with_self if widget is not None else ():
        if node.id is not None and node.id.startswith("field-"):
            return int(node.id.removeprefix("field-"))
    return None


def _usual(field: FormField) -> str:
    if field.default:
        return _("{value} by default").format(value=field.default)
    return _("required") if field.is_needed and len(field.path) == 1 else _("not given")


def _about(field: FormField) -> Content:
    """Return what a field takes, and what the model says of it."""
    kinds = {
        FieldKind.CHOICE: " | ".join(field.written(item) for item in field.choices),
        FieldKind.WHOLE: _("a whole number"),
        FieldKind.NUMBER: _("a number"),
        FieldKind.TEXT: _("text"),
        FieldKind.LIST: _("a list: one, two"),
        FieldKind.MAPPING: _("keys and values: lr: 0.1, betas: [0.9, 0.95]"),
        FieldKind.VALUE: _("a value, as YAML has it"),
    }
    said = "\n".join(clean(_(part)) for part in field.about) or _(
        "not among the keys that are known; empty it to drop it"
    )
    return Content.assemble((clean(field.name), "bold"), "  ", clean(kinds[field.kind]), "\n", said)
