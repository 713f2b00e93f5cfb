"""Asking a person at the terminal."""

from __future__ import annotations

import asyncio
import getpass
import sys

from dttui.i18n import _
from dttui.sanitize import clean
from dttui.transport.base import Prompt, PromptKind


class TerminalPrompter:
    """Asks on the terminal, one question at a time; where there is no terminal, nobody answers."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def ask(self, prompt: Prompt) -> str | None:
        """Return the answer; `None` without a terminal."""
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        async with self._turn:
            return await asyncio.to_thread(_ask, prompt)


class Nobody:
    """A prompter for use without a person."""

    async def ask(self, prompt: Prompt) -> str | None:
        """Return `None`."""
        return None


def _ask(prompt: Prompt) -> str | None:
    try:
        if prompt.kind is PromptKind.HOST_KEY:
            sys.stderr.write(
                _("{host} shows a key that is not known yet:\n  {fingerprint}\n").format(
                    host=prompt.host, fingerprint=prompt.fingerprint
                )
            )
            sys.stderr.write(_("Compare it with what the host's owner says. Trust it? [yes/no] "))
            sys.stderr.flush()
            return "yes" if sys.stdin.readline().strip().lower() in ("yes", "y", "是") else None
        text = clean(prompt.text).strip()
        text = f"{text} " if text.endswith((":", "?", "：")) else f"{text}: "
        if prompt.secret:
            return getpass.getpass(text, stream=sys.stderr)
        sys.stderr.write(text)
        sys.stderr.flush()
        return sys.stdin.readline().rstrip("\n")
    except (EOFError, KeyboardInterrupt):
        return None
