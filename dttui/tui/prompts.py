"""Questions that hosts ask through us: shown one at a time, as dialogs over whatever screen is there.

They come at any moment, so that none may take the keys of a person who is typing something else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.widgets import Input, TextArea

from dttui.app import Prompt
from dttui.i18n import _
from dttui.sanitize import clean
from dttui.tui.screens.prompt import PromptDialog, Reply

TYPING_PAUSE_S = 1.0
"""So long after a key in a text field a question does not come up."""
DEAF_S = 0.7
"""So long without a key a question must have been on screen before it hears any."""
POLL_S = 0.1
TOAST_S = 5.0


class PromptQueue:
    """One line of people's questions for the whole app."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self.clock = time.monotonic
        """Tells seconds."""
        self._dialog: PromptDialog | None = None
        self._quiet_since = 0.0
        """When the dialog came up, or when it last did not hear a key."""
        self._typed_at = float("-inf")
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._skipping = False

    @property
    def is_shown(self) -> bool:
        """Whether a question is on the screen."""
        return self._dialog is not None and self._quiet_since < float("inf")

    @property
    def waiting(self) -> int:
        """How many questions come after the one that is shown."""
        return max(0, self._waiting - 1)

    async def ask(self, prompt: Prompt) -> str | None:
        """Show the question when its turn comes; `None` where the person declines, or skips all that wait."""
        self._waiting += 1
        try:
            async with self._turn:
                return None if self._skipping else await self._show(prompt)
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self._skipping = False

    def drops_key(self) -> bool:
        """Take note of a key; return whether it was pressed too soon to be meant for the question on screen."""
        now = self._typed_at = self.clock()
        if self._dialog is None or self._app.screen is not self._dialog or now - self._quiet_since >= DEAF_S:
            return False
        self._quiet_since = now
        return True

    async def _wait_for_pause(self, host: str) -> None:
        """Wait until nobody types into a field, and say meanwhile that a question waits."""
        told_at = float("-inf")
        while isinstance(self._app.focused, (Input, TextArea)) and self.clock() - self._typed_at < TYPING_PAUSE_S:
            if self.clock() - told_at >= TOAST_S:
                told_at = self.clock()
                text = _("{host} asks something; the question comes up when you pause typing.")
                self._app.notify(text.format(host=clean(host)), timeout=TOAST_S, markup=False)
            await asyncio.sleep(POLL_S)

    async def _push(self, dialog: PromptDialog, closed: Callable[[Reply | None], None]) -> None:
        await self._app.push_screen(dialog, closed)
        self._quiet_since = self.clock()

    async def _show(self, prompt: Prompt) -> str | None:
        await self._wait_for_pause(prompt.host)
        answer: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        dialog = PromptDialog(prompt, lambda: self.waiting)

        def closed(reply: Reply | None) -> None:
            if not answer.done():
                answer.set_result(reply)

        self._dialog, self._quiet_since = dialog, float("inf")
        # In the app's own context: whoever asked may have begun on a screen that is gone.
        self._app.call_later(self._push, dialog, closed)
        try:
            reply = await answer
        except asyncio.CancelledError:
            self._app.call_later(dialog.withdraw)
            raise
        finally:
            self._dialog = None
            # What was typed was the answer.
            self._typed_at = float("-inf")
        if reply is None:
            return None
        self._skipping = reply.skips_all
        return reply.text


class ScreenPrompter:
    """A Prompter that asks on screen."""

    def __init__(self, queue: PromptQueue, *, remembers_refusals: bool) -> None:
        """Ask through `queue`.

        Args:
            queue: the app's.
            remembers_refusals: whether a host that was declined is not asked about again until `forget`; for
                connections that are tried again and again.
        """
        self._queue = queue
        self._remembers = remembers_refusals
        self._refused: set[str] = set()

    async def ask(self, prompt: Prompt) -> str | None:
        """Return the answer; `None` when the person declines."""
        if prompt.host in self._refused:
            return None
        answer = await self._queue.ask(prompt)
        if answer is None and self._remembers:
            self._refused.add(prompt.host)
        return answer

    def forget(self, host: str) -> None:
        """Ask about a host again, since the person wants to try once more."""
        self._refused.discard(host)
