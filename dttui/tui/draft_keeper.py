"""Keeps the draft on the screen for as long as it is not saved, and offers what another screen has left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from textual.app import App

from dttui.app import Drafts
from dttui.i18n import _, ngettext
from dttui.sanitize import clean
from dttui.tui import symbols
from dttui.tui.screens.dialogs import ChoiceDialog

if TYPE_CHECKING:
    from dttui.planning import ComposeState
    from dttui.tui.screens.job_files import JobFile, Unsaved

KEEP_S = 2.0
"""How much of what was typed may be lost at most."""


class HoldsDraft(Protocol):
    """A screen on which a job is composed."""

    @property
    def state(self) -> ComposeState:
        """The draft as it is now."""

    @property
    def has_edits(self) -> bool:
        """Whether it is not saved."""

    @property
    def file(self) -> JobFile:
        """Where it lies."""

    def take_up(self, state: ComposeState, file: JobFile) -> None:
        """Go on with another one."""


class DraftKeeper:
    """Looks now and then whether the draft has changed."""

    def __init__(self, app: App[Any], drafts: Drafts, inventory: Callable[[], str | None]) -> None:
        """Keep drafts of `app` by `drafts`; `inventory` returns the file of the environments that they are of."""
        self._app = app
        self._drafts = drafts
        self._inventory = inventory
        self._kept: Unsaved | None = None
        self._turn = asyncio.Lock()

    def look(self) -> None:
        """Keep the draft where it has changed."""
        screen = self._screen()
        if screen is not None and not self._is_kept(self._wanted(screen)) and not self._turn.locked():
            self._app.run_worker(self.keep(), group="draft-keeping")

    async def keep(self) -> None:
        """Write the draft where it is not saved; forget it once it is."""
        screen = self._screen()
        if screen is None:
            return
        async with self._turn:
            wanted, file = self._wanted(screen), screen.file
            try:
                if wanted is None:
                    await asyncio.to_thread(self._drafts.drop)
                else:
                    await asyncio.to_thread(
                        self._drafts.keep,
                        wanted.state,
                        self._inventory(),
                        file.base,
                        file.path,
                        fingerprint=file.fingerprint,
                        edited=wanted.edited,
                        unfinished=wanted.unfinished,
                    )
            except OSError as fault:  # A full disk, say: it is not what a person is asked about while composing.
                logging.getLogger(__name__).warning("the draft is not kept: %s", fault)
            self._kept = wanted

    async def drop(self) -> None:
        """Forget the draft: a person leaves without it."""
        async with self._turn:
            await asyncio.to_thread(self._drafts.drop)

    async def offer(self) -> None:
        """Offer the draft that a screen has left behind; it stays there until a person has said what becomes of it."""
        found = await asyncio.to_thread(self._drafts.left, self._inventory())
        if found is None:
            return
        path, draft = found
        nodes = len(draft.state.selected)
        text = ngettext(
            "{name}, on {count} environment, was being composed on {time} when its screen ended; it was not saved.",
            "{name}, on {count} environments, was being composed on {time} when its screen ended; it was not saved.",
            nodes,
        )
        name = draft.state.task_name.strip() or _("A job without a name")
        told = text.format(name=clean(name), count=nodes, time=symbols.date_and_time(draft.kept_at))
        answer = await self._app.push_screen_wait(
            ChoiceDialog(
                _("Go on with this draft?"),
                told,
                (("take", _("Go on"), "primary"), ("later", _("Later"), "default"), ("drop", _("Drop it"), "error")),
            )
        )
        screen = self._screen()
        if answer == "take" and screen is not None:
            from dttui.tui.screens.job_files import JobFile, Unsaved

            unsaved = Unsaved(draft.state, draft.edited, draft.unfinished)
            screen.take_up(draft.state, JobFile.of_draft(draft.base, draft.file, draft.fingerprint, unsaved))
            await self.keep()
        if answer in ("take", "drop"):
            await asyncio.to_thread(self._drafts.forget, path)

    def _wanted(self, screen: HoldsDraft) -> Unsaved | None:
        return screen.file.unsaved(screen.state) if screen.has_edits else None

    def _is_kept(self, wanted: Unsaved | None) -> bool:
        """Whether that was written last; of an equal state, that it is the same, which is told at once."""
        if wanted is None or self._kept is None:
            return wanted is self._kept
        return wanted.state is self._kept.state and wanted[1:] == self._kept[1:]

    def _screen(self) -> HoldsDraft | None:
        from dttui.tui.screens.compose import ComposeScreen

        return next((screen for screen in self._app.screen_stack if isinstance(screen, ComposeScreen)), None)
