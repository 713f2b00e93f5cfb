"""Small dialogs: a choice of buttons, a path to type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar, cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input
from textual.widgets.button import ButtonVariant

from dttui.i18n import _, told_now
from dttui.tui.commands import N_
from dttui.tui.screens.page import Page
from dttui.tui.widgets.button_row import ButtonRow
from dttui.tui.widgets.prose import Prose

FOLLOW_S = 0.5
"""How often a question that follows something is asked anew."""

ResultT = TypeVar("ResultT")


class KeepsTyped(Protocol):
    """An app that knows what was typed into dialogs that were left by esc."""

    typed_before: dict[str, dict[str, str]]
    """Texts of fields, by dialog and id."""


class Dialog(ModalScreen[ResultT], Page[ResultT]):
    """A box over the screen; escape closes it without an answer."""

    DEFAULT_CLASSES = "dialog"
    KEEPS_TYPED: ClassVar[bool] = True
    """Whether what was typed before esc can be had again."""
    _begun: Mapping[str, str] | None = None
    """What stood in the fields to begin with."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", N_("back"), id="dialog.back", tooltip=N_("Close without doing anything")),
        Binding(
            "ctrl+r",
            "recall",
            N_("typed before"),
            show=False,
            id="dialog.recall",
            tooltip=N_("Put back what was typed here and left by esc"),
        ),
        # At once, before what is typed next comes to the field that had the focus: pasted, or over a slow line.
        Binding("tab", "app.focus_next", N_("next field"), show=False, id="dialog.next", priority=True),
        Binding("shift+tab", "app.focus_previous", N_("field before"), show=False, id="dialog.previous", priority=True),
    ]

    def box(self, title: str, look: str = "", *, subtitle: str = "") -> Vertical:
        """Return what everything in the dialog is in; `look` is a class of the style sheet."""
        box = Vertical(classes=f"dialog-box {look}")
        box.border_title = Content(told_now(title))
        box.border_subtitle = Content(told_now(subtitle))
        return box

    def ok_or_cancel(self, ok: str) -> ComposeResult:
        """Lay out the two buttons: `#ok`, with this label, and one that closes the dialog."""
        with ButtonRow():
            yield Button(Content(told_now(ok)), id="ok", variant="primary", compact=True)
            yield Button(_("Cancel"), action="screen.cancel", compact=True)

    def action_cancel(self) -> None:
        """Give no answer; what was typed can be had again."""
        begun = self._begun or {}
        typed = {field.id or "": field.value for field in self._fields() if field.value != begun.get(field.id or "")}
        if typed:
            cast(KeepsTyped, self.app).typed_before[self._name_of_box] = typed
            self.notify(_("What was typed is kept: ctrl+r puts it back when this is open again."), markup=False)
        self.dismiss(None)

    def action_recall(self) -> None:
        """Put back what was typed the last time."""
        typed = cast(KeepsTyped, self.app).typed_before.get(self._name_of_box, {})
        for field in self._fields():
            field.value = typed.get(field.id or "", field.value)

    def on_mount(self) -> None:
        """Take note of what stands in the fields."""
        self._begun = {field.id or "": field.value for field in self._fields()}

    @property
    def _name_of_box(self) -> str:
        return f"{type(self).__name__} {self.query('.dialog-box').first().border_title}"

    def _fields(self) -> list[Input]:
        """Return where a person types; secrets are kept by nobody."""
        return [field for field in self.query(Input) if self.KEEPS_TYPED and not field.password]


Choices = Sequence[tuple[str, str, ButtonVariant]]
"""Value, label and look of each button of a question; the first is under the cursor, and so harmless."""


@dataclass(frozen=True)
class Question:
    """What is asked while something else may change what there is to ask."""

    text: str
    choices: Choices


class ChoiceDialog(Dialog[str]):
    """Asks for one of a few choices; escape chooses none."""

    def __init__(
        self,
        title: str,
        text: Content | str,
        choices: Choices,
        *,
        follow: Callable[[], Awaitable[Question | str | None]] | None = None,
    ) -> None:
        """Ask.

        Args:
            title: of the box.
            text: what is asked.
            choices: the buttons.
            follow: tells now and then what is to be asked by now; `None`, or a text that says why there is nothing to
                ask, closes the dialog without an answer.
        """
        super().__init__()
        self._title = title
        self._text = text
        self._choices = choices
        self._follow = follow
        self._is_asking = False

    def compose(self) -> ComposeResult:
        """Lay out the question and its buttons."""
        with self.box(self._title):
            text = self._text if isinstance(self._text, Content) else Content(told_now(self._text))
            yield Prose(text, classes="dialog-text")
            with ButtonRow():
                yield from self._buttons()

    def on_mount(self) -> None:
        """Begin at the first button."""
        self.query(Button).first().focus()
        if self._follow is not None:
            self.set_interval(FOLLOW_S, self.ask_anew)

    @on(Button.Pressed)
    def _chosen(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id)

    def _buttons(self) -> ComposeResult:
        for value, label, variant in self._choices:
            yield Button(Content(told_now(label)), id=value, variant=variant, compact=True)

    @work
    async def ask_anew(self) -> None:
        """Show the question as it now is, or go where nobody has to answer it any more.

        One after the other: to be broken off between the old buttons and the new ones would leave none, or no cursor.
        """
        if self._follow is None or self._is_asking:
            return
        self._is_asking = True
        try:
            await self._asked_anew(self._follow)
        finally:
            self._is_asking = False

    async def _asked_anew(self, follow: Callable[[], Awaitable[Question | str | None]]) -> None:
        if not self.is_active:  # A question on top of it is the current screen as well.
            return
        question = await follow()
        if not self.is_active:
            return
        if not isinstance(question, Question):
            if question:
                self.notify(question, markup=False)
            self.dismiss(None)
            return
        self.query_one(".dialog-text", Prose).show(Content(question.text))
        if list(question.choices) != list(self._choices):
            self._choices = question.choices
            row = self.query_one(ButtonRow)
            await row.remove_children()
            await row.mount(*self._buttons())
            # Not where the cursor was: that may be another button now.
            self.query(Button).first().focus()


class PathDialog(Dialog[str]):
    """Asks for a path."""

    def __init__(self, title: str, text: str, button: str, path: str) -> None:
        """Ask; `path` is there to begin with."""
        super().__init__()
        self._title = title
        self._text = text
        self._button = button
        self._path = path

    def compose(self) -> ComposeResult:
        """Lay out the field."""
        with self.box(self._title):
            yield Prose(told_now(self._text), classes="dialog-text", markup=False)
            yield Input(self._path, id="path", compact=True)
            yield from self.ok_or_cancel(self._button)

    def on_mount(self) -> None:
        """Begin in the field."""
        self.query_one(Input).focus()

    @on(Button.Pressed, "#ok")
    @on(Input.Submitted)
    def _done(self) -> None:
        self.dismiss(self.query_one(Input).value.strip() or None)
