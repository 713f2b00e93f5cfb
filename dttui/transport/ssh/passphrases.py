"""Opens encrypted key files with what a person types. Knows nothing of servers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dttui.i18n import _
from dttui.transport.base import Prompt, PromptKind
from dttui.transport.ssh.keys import KeyFile
from dttui.transport.ssh.questions import Questions
from dttui.transport.ssh.threads import Threads

PASSPHRASE_TRIES = 3


class Unlocker:
    """Asks for the passphrases of key files; whoever needs the same one meanwhile shares the answer."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._under_way: dict[Path, asyncio.Future[bool]] = {}

    async def unlock(self, file: KeyFile, host: str, user: str, questions: Questions) -> bool:
        """Return whether the key is open now."""
        while file.locked and (other := self._under_way.get(file.path)):
            with questions.deadline.paused():
                # The one who asks may be cancelled; then the next one asks.
                outcome = await asyncio.gather(asyncio.shield(other), return_exceptions=True)
            if outcome[0] is False:
                return False
        if not file.locked:
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._under_way[file.path] = future
        try:
            opened = await self._ask(file, host, user, questions)
            future.set_result(opened)
            return opened
        finally:
            del self._under_way[file.path]
            if not future.done():
                future.cancel()

    async def _ask(self, file: KeyFile, host: str, user: str, questions: Questions) -> bool:
        text = _("Passphrase of the key {path}, for use on this machine")
        for _attempt in range(PASSPHRASE_TRIES):
            prompt = Prompt(PromptKind.PASSPHRASE, host, text.format(path=file.path), user=user)
            answer = await questions.ask(prompt)
            if answer is None:
                return False
            try:
                await self._threads.connecting(file.unlock, answer)
            except ValueError:
                text = _("That was not it. Passphrase of the key {path}, for use on this machine")
            else:
                return True
        return False
