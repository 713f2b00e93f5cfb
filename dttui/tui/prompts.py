"""Questions that hosts ask through us: shown one at a time, as dialogs over whatever screen is there."""

from __future__ import annotations

import asyncio
from typing import Any

from textual.app import App

from dttui.transport.base import Prompt
from dttui.tui.screens.prompt import PromptDialog, Reply


class PromptQueue:
    """One line of people's questions for the whole app."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._skipping = False

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

    async def _show(self, prompt: Prompt) -> str | None:
        answer: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        dialog = PromptDialog(prompt, lambda: self.waiting)

        def closed(reply: Reply | None) -> None:
            if not answer.done():
                answer.set_result(reply)

        # In the app's own context: whoever asked may have begun on a screen that is gone.
        self._app.call_later(self._app.push_screen, dialog, closed)
        try:
            reply = await answer
        except asyncio.CancelledError:
            self._app.call_later(dialog.withdraw)
            raise
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
