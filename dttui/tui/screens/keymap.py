"""All commands with their keys: one is chosen, and the next key pressed becomes its own."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList

from dttui.i18n import _, in_all_languages
from dttui.tui.bindings import KnownBinding, all_bindings, group_name, place_of
from dttui.tui.commands import N_, keys_shown
from dttui.tui.preferences import Preferences
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.widgets.cells import fit
from dttui.tui.widgets.prose import Prose

KEY_WIDTH = 12
NAME_WIDTH = 14


class KeymapDialog(Dialog[None]):
    """Changes a key at once, and in the person's file."""

    KEEPS_TYPED: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", N_("filter"), id="keymap.filter", tooltip=N_("Show only commands with these words")),
        Binding(
            "delete,backspace",
            "reset",
            N_("as it was"),
            id="keymap.reset",
            tooltip=N_("Give the command its own key again"),
        ),
    ]

    def __init__(self, preferences: Preferences) -> None:
        super().__init__()
        self._preferences = preferences
        self._known = sorted(all_bindings().values(), key=lambda known: place_of(known.group))
        self._waiting: KnownBinding | None = None
        """The command whose new key is waited for."""

    def compose(self) -> ComposeResult:
        """Lay out the list."""
        subtitle = _("enter, then the new key · del: as it was · / filters")
        with self.box(_("Keys"), "-wide -tall", subtitle=subtitle):
            yield Input(id="keymap-filter", compact=True, placeholder=_("filter: words of a command, or its key"))
            yield OptionList(id="keymap-list", compact=True)
            yield Prose(id="keymap-told", classes="dialog-note")

    def on_mount(self) -> None:
        """List all."""
        self.fill()
        self.query_one(OptionList).focus()

    def fill(self) -> None:
        """List the commands that have the words."""
        listed = self.query_one(OptionList)
        cursor = listed.highlighted or 0
        shown = self._shown()
        groups = max((cell_len(group_name(known.group)) for known in self._known), default=0)
        listed.set_options([self._line(known, groups) for known in shown])
        listed.highlighted = min(cursor, len(shown) - 1) if shown else None
        if not shown:
            self._say(_("No command has these words."))

    def action_filter(self) -> None:
        """Go to the filter."""
        self.query_one(Input).focus()

    def action_cancel(self) -> None:
        """Wait for no key any more, or close."""
        if self._waiting is not None:
            self._waiting = None
            self._say("")
        else:
            self.dismiss(None)

    def action_reset(self) -> None:
        """Give the command under the cursor its own key again."""
        known = self._at_cursor()
        if known is not None:
            self._change(known, None)

    async def on_event(self, event: events.Event) -> None:
        """Take the next key for the command that waits for one, whatever it does otherwise."""
        waiting = self._waiting
        if waiting is not None and isinstance(event, events.Key) and event.key != "escape":
            event.stop()
            event.prevent_default()
            self._waiting = None
            self._change(waiting, event.key)
            return
        await super().on_event(event)

    @on(Input.Changed)
    def _filtered(self) -> None:
        self.fill()

    @on(Input.Submitted)
    def _filter_done(self) -> None:
        self.query_one(OptionList).focus()

    @on(OptionList.OptionSelected)
    def _selected(self) -> None:
        self._waiting = self._at_cursor()
        if self._waiting is not None:
            text = _("Press the new key for: {what}. esc leaves it as it is.")
            self._say(text.format(what=_(self._waiting.binding.tooltip or self._waiting.binding.description)))

    @on(OptionList.OptionHighlighted)
    def _moved(self) -> None:
        known = self._at_cursor()
        if known is not None and self._waiting is None:
            self._say(_("In the file it is called {id}.").format(id=known.id))

    @work(group="settings")
    async def _change(self, known: KnownBinding, key: str | None) -> None:
        change = self._preferences.change(self.app, ("keymap", known.id), key)
        await self.app.run_worker(change, group="settings").wait()
        self.fill()

    def _at_cursor(self) -> KnownBinding | None:
        at = self.query_one(OptionList).highlighted
        shown = self._shown()
        return shown[at] if at is not None and at < len(shown) else None

    def _shown(self) -> list[KnownBinding]:
        words = self.query_one(Input).value.casefold().split()
        return [known for known in self._known if all(word in self._searched(known) for word in words)]

    def _searched(self, known: KnownBinding) -> str:
        messages = (known.binding.description, known.binding.tooltip)
        told = [text for message in messages if message for text in in_all_languages(message)]
        return " ".join([known.id, *told, keys_shown(self.app, known)]).casefold()

    def _line(self, known: KnownBinding, groups: int) -> Content:
        is_changed = known.id in self._preferences.keymap
        return Content.assemble(
            (fit(group_name(known.group), groups), "$muted"),
            "  ",
            (fit(keys_shown(self.app, known), KEY_WIDTH), "bold $primary"),
            ("* " if is_changed else "  ", "$accent"),
            (fit(_(known.binding.description), NAME_WIDTH), ""),
            ("  " + _(known.binding.tooltip), "$muted"),
        )

    def _say(self, text: str) -> None:
        self.query_one("#keymap-told", Prose).show(Content.styled(text, "$muted"))
