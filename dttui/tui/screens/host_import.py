"""Hosts of another file to be added to the inventory: which file, what it names, and which of that is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Button, Input, OptionList

from dttui.compose import documents
from dttui.errors import DttuiError
from dttui.i18n import _, ngettext
from dttui.sanitize import clean
from dttui.tui import symbols
from dttui.tui.commands import N_
from dttui.tui.rows import line
from dttui.tui.screens import job_files
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.widgets.prose import Prose
from dttui.tui.widgets.tick_list import TickList
from dttui.words import listed

if TYPE_CHECKING:
    from dttui.compose.documents import ImportableHosts
    from dttui.inventory import Environment, Inventory

SSH_CONFIG = "~/.ssh/config"
MOST_NAMES = 4
"""Hosts that are named; the others are counted."""


async def import_hosts(app: App[Any], path: Path, known: Inventory) -> Inventory | None:
    """Ask which hosts to add to the inventory at `path`, and return what it then holds; `None` where none were added.

    Must run in a worker.
    """
    read = partial(documents.hosts_of, inventory=known)
    chosen = await app.push_screen_wait(HostPicker(read, str(path)))
    if not chosen:
        return None
    try:
        inventory = await asyncio.to_thread(documents.import_hosts, path, chosen)
    except DttuiError as error:
        job_files.tell(app, error)
        return None
    app.notify(_("Saved {file}.").format(file=clean(str(path))), markup=False)
    return inventory


class HostPicker(Dialog[list["Environment"]]):
    """Asks which hosts of which file to import."""

    KEEPS_TYPED: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", N_("filter"), id="pick.filter", tooltip=N_("Show only hosts with these words")),
        Binding("a", "all", N_("tick all shown"), id="pick.all", tooltip=N_("Tick all hosts that are shown")),
        Binding("o", "other_file", N_("file"), id="pick.file", tooltip=N_("Name the file that lists the hosts")),
    ]

    def __init__(self, read: Callable[[str], ImportableHosts], target: str) -> None:
        """Offer the hosts that `read` finds in a file; `target` is where they will be written."""
        super().__init__()
        self._read = read
        self._target = target
        self._hosts: dict[str, Environment] = {}
        self._picked: set[str] = set()

    def compose(self) -> ComposeResult:
        """Lay out the name of the file, and the list of what it names."""
        subtitle = _("space ticks · a all · enter imports · / filters · o other file")
        with self.box(_("Import hosts"), "-tall", subtitle=subtitle):
            kinds = _(
                "An ssh configuration, a hostfile, an inventory of Ansible or dttui, or slurm: for an allocation."
            )
            yield Prose(Content(kinds), classes="dialog-note")
            yield Input(SSH_CONFIG, id="host-file", compact=True)
            yield Prose(id="host-note", classes="dialog-note")
            yield Input(id="host-filter", compact=True, placeholder=_("filter: part of a name"))
            yield HostList(id="hosts", compact=True)
            yield from self.ok_or_cancel(_("Import"))

    def on_mount(self) -> None:
        """Show the hosts of ssh, which most have."""
        self.fill()
        self.query_one("#host-file", Input).focus()

    def fill(self) -> None:
        """List the hosts of the file."""
        self._fill()
        self._look()

    def action_filter(self) -> None:
        """Go to the filter."""
        self.query_one("#host-filter", Input).focus()

    def action_all(self) -> None:
        """Tick what is shown."""
        self._picked.update(self._shown())
        self._fill()

    def action_other_file(self) -> None:
        """Go to the name of the file."""
        self.query_one("#host-file", Input).focus()

    @on(Input.Submitted, "#host-file")
    def _file_named(self) -> None:
        self._look()

    @work(exclusive=True, group="read-hosts")
    async def _look(self) -> None:
        source = self.query_one("#host-file", Input).value.strip()
        if not source:
            return
        note = self.query_one("#host-note", Prose)
        try:
            found = await asyncio.to_thread(self._read, source)
        except DttuiError as error:
            self._hosts, self._picked = {}, set()
            note.show(Content.assemble((clean(error.message), "$finding-error"), symbols.hint(error.hint)))
        else:
            self._hosts = {host.name: host for host in found.new}
            self._picked &= set(self._hosts)
            note.show(Content(_told(found, self._target)))
        self._fill()
        if self._hosts:
            self.query_one(HostList).focus()

    @on(Input.Changed, "#host-filter")
    def _filtered(self) -> None:
        self._fill()

    @on(Input.Submitted, "#host-filter")
    def _filter_done(self) -> None:
        self.query_one(HostList).focus()

    @on(OptionList.OptionSelected)
    def _toggled(self, event: OptionList.OptionSelected) -> None:
        self._picked ^= {self._shown()[event.option_index]}
        self._fill()

    def action_take(self) -> None:
        """Import what is ticked; where nothing is, tick the host under the cursor."""
        if self._picked:
            self._done()
        else:
            self.query_one(HostList).action_select()

    @on(Button.Pressed, "#ok")
    def _done(self) -> None:
        self.dismiss([host for name, host in self._hosts.items() if name in self._picked])

    def _shown(self) -> list[str]:
        query = self.query_one("#host-filter", Input).value.casefold()
        return [name for name in self._hosts if query in name.casefold()]

    def _fill(self) -> None:
        hosts = self.query_one(HostList)
        cursor = hosts.highlighted or 0
        shown = self._shown()
        hosts.set_options([self._line(self._hosts[name]) for name in shown])
        hosts.highlighted = min(cursor, len(shown) - 1) if shown else None
        hosts.display = self.query_one("#host-filter").display = bool(self._hosts)
        count = len(self._picked)
        button = self.query_one("#ok", Button)
        button.label = Content(ngettext("Import {count} host", "Import {count} hosts", count).format(count=count))
        button.disabled = count == 0

    def _line(self, host: Environment) -> Content:
        mark = ("☑ ", "bold $ticked") if host.name in self._picked else ("☐ ", "$muted")
        gpu = host.resources.gpu
        more = [host.short_way if host.way != host.name else "", host.zone or ""]
        if gpu is not None:
            count = ngettext("{count} GPU", "{count} GPUs", gpu.count).format(count=gpu.count)
            more.append(f"{gpu.count}×{gpu.type}" if gpu.type else count)
        told = " · ".join(line(piece) for piece in more if piece)
        return Content.assemble(mark, line(host.name), (f"  {told}" if told else "", "$muted"))


class HostList(TickList):
    """The hosts, each of which can be ticked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "tick", N_("tick"), id="pick.tick", tooltip=N_("Tick the host, or untick it")),
        Binding("enter", "screen.take", N_("import"), id="pick.take", tooltip=N_("Import the ticked hosts")),
    ]


def _told(found: ImportableHosts, target: str) -> str:
    """Return what becomes of the hosts of a file."""
    told = []
    if found.new:
        count = len(found.new)
        text = ngettext("{count} host can be added to {path}.", "{count} hosts can be added to {path}.", count)
        told.append(text.format(count=count, path=clean(target)))
    elif not found.known:
        told.append(_("It names no host to train on."))
    if found.known:
        told.append(_("In the inventory already: {names}.").format(names=line(listed(found.known, MOST_NAMES))))
    if found.left_out:
        names = line(listed(found.left_out, MOST_NAMES))
        told.append(_("Left out, since nobody trains there: {names}.").format(names=names))
    return "\n".join(told)
