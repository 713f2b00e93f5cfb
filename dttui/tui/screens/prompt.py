"""The dialog of one question: a host key to confirm, or a password, passphrase or code to type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Button, Input, Static

from dttui.app import Prompt, PromptKind
from dttui.i18n import _, ngettext
from dttui.sanitize import clean, quoted
from dttui.tui.commands import N_
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.widgets.button_row import ButtonRow
from dttui.tui.widgets.prose import Prose

SAID_COLUMNS = 62
"""Of the dialog, left of them the bar."""
MOST_SAID_LINES = 8


@dataclass(frozen=True)
class Reply:
    """What the person did."""

    text: str | None
    """The answer; `None` where it was declined."""
    skips_all: bool = False
    """Whether the questions that wait are declined too."""


class PromptDialog(Dialog[Reply]):
    """Closes with the answer."""

    KEEPS_TYPED: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "decline", N_("decline"), id="prompt.decline", tooltip=N_("Do not answer this question")),
    ]

    def __init__(self, prompt: Prompt, waiting: Callable[[], int]) -> None:
        """Ask `prompt`; `waiting` tells how many more questions come after it."""
        super().__init__()
        self._prompt = prompt
        self._waiting = waiting
        self._withdrawn = False

    def compose(self) -> ComposeResult:
        """Lay out the question and the ways to answer."""
        with self.box(_title(self._prompt)):
            if self._prompt.said:
                # However much a server says, what is asked and the way to answer stay on the screen.
                with VerticalScroll(id="server-said"):
                    yield Prose(_question(self._prompt), classes="dialog-text")
                    # The bar on its left is beside each of its lines, and nothing of ours has one.
                    lines = quoted(self._prompt.said, SAID_COLUMNS, MOST_SAID_LINES)
                    yield Prose(Content("\n".join(lines)), classes="server-words")
                yield Prose(_asked(self._prompt), classes="dialog-text")
            else:
                yield Prose(_question(self._prompt), classes="dialog-text")
            if self._prompt.kind is not PromptKind.HOST_KEY:
                yield Input(password=self._prompt.secret, id="answer", compact=True)
            yield Prose(id="waiting", classes="dialog-note")
            with ButtonRow():
                if self._prompt.kind is PromptKind.HOST_KEY:
                    yield Button(_("Yes, trust it"), id="yes", variant="primary", compact=True)
                    yield Button(_("No"), id="no", compact=True)
                else:
                    yield Button(_("Answer"), id="send", variant="primary", compact=True)
                    yield Button(_("Decline"), id="no", compact=True)
                yield Button(_("Skip all questions"), id="skip", compact=True)

    def on_mount(self) -> None:
        """Put the cursor where a slip of the Enter key does no harm, and keep the count of questions fresh."""
        self.query_one("#no" if self._prompt.kind is PromptKind.HOST_KEY else "#answer").focus()
        self._count()
        self.set_interval(0.5, self._count)

    def withdraw(self) -> None:
        """Close without an answer: whoever asked no longer waits for it."""
        self._withdrawn = True
        if self.is_active:
            self.dismiss(None)

    def on_screen_resume(self) -> None:
        """Close if the question was withdrawn while another dialog lay over it."""
        if self._withdrawn:
            self.dismiss(None)

    def action_decline(self) -> None:
        """Do not answer."""
        self.dismiss(Reply(None))

    @on(Button.Pressed, "#yes")
    def _yes(self) -> None:
        self.dismiss(Reply("yes"))

    @on(Button.Pressed, "#no")
    def _no(self) -> None:
        self.dismiss(Reply(None))

    @on(Button.Pressed, "#skip")
    def _skip(self) -> None:
        self.dismiss(Reply(None, skips_all=True))

    @on(Button.Pressed, "#send")
    @on(Input.Submitted)
    def _send(self) -> None:
        self.dismiss(Reply(self.query_one("#answer", Input).value))

    def _count(self) -> None:
        count = self._waiting()
        text = ngettext("{count} more question waits", "{count} more questions wait", count).format(count=count)
        self.query_one("#waiting", Static).update(Content(text if count else ""))
        self.query_one("#skip", Button).display = count > 0


def _title(prompt: Prompt) -> str:
    if prompt.said:
        return _("The server asks")
    return {
        PromptKind.HOST_KEY: _("Unknown host"),
        PromptKind.PASSWORD: _("Password"),
        PromptKind.PASSPHRASE: _("Passphrase"),
        PromptKind.ONE_TIME_CODE: _("Code"),
    }[prompt.kind]


def _question(prompt: Prompt) -> Content:
    if prompt.said:
        return Content.assemble((prompt.account, "bold"), "\n", _("the server says:"))
    if prompt.kind is not PromptKind.HOST_KEY:
        return _asked(prompt)
    return Content.assemble(
        _("The host shows a key that is not known yet."),
        "\n\n",
        (prompt.account, "bold"),
        "\n",
        (clean(prompt.fingerprint), "bold $primary"),
        "\n\n",
        _("Compare it with what the host's owner says. Trust it from now on?"),
    )


def _asked(prompt: Prompt) -> Content:
    return Content.assemble((prompt.account, "bold"), "\n", clean(prompt.text).strip())
