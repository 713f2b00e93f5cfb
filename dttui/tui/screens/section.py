"""The dialog that fills in a section of the job: a line a field, what it is for, and what is wrong with it.

Sections within it fold; a list of sections is a dialog of its own.
"""

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
from textual.widgets import Button, Input, Select

from dttui.i18n import _, told_now
from dttui.planning import FieldKind, FormField, SectionForm
from dttui.sanitize import clean
from dttui.tui.commands import N_
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.screens.section_items import ItemsButton
from dttui.tui.widgets.field_label import FieldLabel
from dttui.tui.widgets.fold import FoldHead, FoldToggled
from dttui.tui.widgets.prose import Prose

LEAST_FIELD = 24
"""Columns that a field keeps beside a long name."""
BORDERS = 14
"""Columns that the box takes around names and fields, with the bar of what is scrolled."""
MOST_OPEN = 24
"""Fields of a section of which all that is within it is open from the beginning."""


class SectionDialog(Dialog[dict[str, Any]]):
    """Gives the section's values, once nothing is wrong with them; escape changes nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", N_("field before"), show=False, id="section.up", priority=True),
        Binding("down", "step(1)", N_("next field"), show=False, id="section.down", priority=True),
    ]

    def __init__(self, title: str, form: SectionForm, at: str = "") -> None:
        """Ask.

        Args:
            title: of the box.
            form: what is asked, with the texts to begin with.
            at: name of the field to begin at, or of what it is within; empty for the first.
        """
        super().__init__()
        self._title = title
        self.form = form
        self._texts = dict(form.texts)
        """What the fields hold."""
        self._at = at
        self._is_refused = bool(form.read(form.texts)[1])
        """Whether what is wrong is told: not before a person has tried, unless it was wrong from the beginning."""

    def compose(self) -> ComposeResult:
        """Lay out a line a field, and below what the model says of the one that has the focus."""
        wanted = max(cell_len(_label(field)) for field in self.form.fields) + 2
        width = min(wanted, self.app.size.width - LEAST_FIELD - BORDERS)
        heads = dict.fromkeys(_group(field) for field in self.form.fields)
        closed = {group for group in heads if group and self._is_closed(group)}
        with self.box(
            clean(told_now(self._title)), "-wide", subtitle=_("tab next · enter takes it · esc changes nothing")
        ):
            with VerticalScroll(id="section-fields", can_focus=False):
                shown = ""
                own_first = sorted(enumerate(self.form.fields), key=lambda pair: bool(_group(pair[1])))
                for index, field in own_first:
                    group = _group(field)
                    if group and group != shown:
                        yield FoldHead(group, is_open=group not in closed)
                    shown = group
                    with Horizontal(classes="field") as row:
                        label = FieldLabel(Content(clean(_label(field))), classes="field-label")
                        label.styles.width = width
                        yield label
                        yield self._widget(index, field)
                    row.display = group not in closed
                    problem = Prose(id=f"problem-{index}", classes="field-problem")
                    problem.display = False
                    yield problem
            yield Prose(id="section-about", classes="dialog-note")
            yield from self.ok_or_cancel(_("OK"))

    def on_mount(self) -> None:
        """Begin at the field that was asked for, at the first, or the first that is wrong."""
        fields = self.form.fields
        first = next((index for index, field in enumerate(fields) if not _group(field)), 0)
        self._go_to(self.form.nearest(self._at) if self._at else first)
        self.fill()
        self._go_to_fault()

    def fill(self) -> None:
        """Tell what is wrong."""
        self._read()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Say what the field is for."""
        index = _index(event.widget)
        if index is not None:
            self.query_one("#section-about", Prose).show(_about(self.form.fields[index]))
        elif isinstance(event.widget, FoldHead):
            said = Content.assemble((event.widget.group, "bold"), "  ", _("enter folds it, or shows what is within"))
            self.query_one("#section-about", Prose).show(said)

    def action_step(self, by: int) -> None:
        """Go to the field above or below a line of text; elsewhere the keys mean what they mean there."""
        if not isinstance(self.focused, (Input, FoldHead)):
            raise SkipAction
        self.focus_next() if by > 0 else self.focus_previous()

    @on(Input.Changed)
    @on(Select.Changed)
    @on(ItemsButton.Changed)
    def _edited(self) -> None:
        self._read()

    @on(FoldToggled)
    def _folded(self, event: FoldToggled) -> None:
        self._show_group(event.group, is_open=event.is_open)

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
        self._texts = {name: self._text(index) for index, name in enumerate(names)}
        values, faults = self.form.read(self._texts)
        if not self._is_refused:
            return values
        for index, name in enumerate(names):
            told = f"✗ {clean(faults[name])}" if name in faults else ""
            problem = self.query_one(f"#problem-{index}", Prose)
            problem.display = bool(told)
            if told:
                self._show_group(_group(self.form.fields[index]), is_open=True)
            problem.show(Content.styled(told, "$error"))
        return None if faults else values

    def _go_to_fault(self) -> None:
        """Put the focus where something is wrong, if it is not there."""
        wrong = [index for index in range(len(self.form.fields)) if self.query_one(f"#problem-{index}").display]
        if wrong and _index(self.focused) not in wrong:
            self._go_to(wrong[0])

    def _go_to(self, index: int) -> None:
        """Put the focus on a field, which is shown then."""
        self._show_group(_group(self.form.fields[index]), is_open=True)
        self.query_one(f"#field-{index}").focus()

    def _is_closed(self, group: str) -> bool:
        """Whether what is within a section begins folded: of a long form, where nothing is said there."""
        inner = [field for field in self.form.fields if _group(field) == group]
        return len(self.form.fields) > MOST_OPEN and not any(self._texts[field.name] for field in inner)

    def _show_group(self, group: str, *, is_open: bool) -> None:
        if not group:
            return
        for head in self.query(FoldHead):
            if head.group == group:
                head.is_open = is_open
        for index, field in enumerate(self.form.fields):
            row = self.query_one(f"#field-{index}").parent
            if _group(field) == group and row is not None:
                row.display = is_open

    def _text(self, index: int) -> str:
        widget = self.query_one(f"#field-{index}")
        if isinstance(widget, Input):
            return widget.value
        if isinstance(widget, ItemsButton):
            return widget.text
        value = widget.value if isinstance(widget, Select) else None
        return value if isinstance(value, str) else ""

    def _widget(self, index: int, field: FormField) -> Input | Select[str] | ItemsButton:
        text, usual = self._texts[field.name], _usual(field)
        if field.item is not None:
            return ItemsButton(field, field.item, text, self._ask_for_item, id=f"field-{index}")
        if field.kind is not FieldKind.CHOICE:
            return Input(clean(text), id=f"field-{index}", compact=True, placeholder=clean(usual))
        known = [field.written(item) for item in field.choices]
        # What no choice is, was written into the file; it stays until another is made.
        shown = [*known, *([text] if text and text not in known else [])]
        options = [(Content(clean(item)), item) for item in shown]
        return Select(options, id=f"field-{index}", value=text or Select.NULL, prompt=usual, compact=True)

    def _ask_for_item(self, title: str, form: SectionForm) -> Dialog[dict[str, Any]]:
        return SectionDialog(title, form)


def _group(field: FormField) -> str:
    """Return the section that a field is within; empty for one of the form's own."""
    return field.path[0] if len(field.path) > 1 else ""


def _label(field: FormField) -> str:
    return "  " + ".".join(field.path[1:]) if len(field.path) > 1 else field.name


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
        FieldKind.TEXTS: _("names and texts: NCCL_DEBUG: INFO, OMP_NUM_THREADS: 8"),
        FieldKind.ITEMS: _("a list; enter shows it, to add, change and remove"),
        FieldKind.VALUE: _("a value, as YAML has it"),
    }
    said = "\n".join(clean(_(part)) for part in field.about) or _(
        "not among the keys that are known; empty it to drop it"
    )
    return Content.assemble((clean(field.name), "bold"), "  ", clean(kinds[field.kind]), "\n", said)
