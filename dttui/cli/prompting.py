"""Asking a person at the terminal, so that neither a question nor its cancelling holds anything up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from dttui import locations
from dttui.app import Prompt, PromptKind
from dttui.errors import UsageError
from dttui.i18n import _
from dttui.sanitize import clean, quoted
from dttui.words import listed

READ_BYTES = 4096
MARK = "  | "
"""Before each line of a server's words."""
USUAL_COLUMNS = 80
LEAST_ROOM = 10
MAX_NAMES = 5
"""Files that a question names; the others are counted."""


class TerminalPrompter:
    """Asks on the terminal, one question at a time; where there is no terminal, nobody answers."""

    def __init__(self, source: TextIO | None = None, screen: TextIO | None = None) -> None:
        """Ask on standard error and read standard input, or other streams."""
        self._source = source or sys.stdin
        self._screen = screen or sys.stderr
        self._turn = asyncio.Lock()
        self._open: asyncio.Future[str | None] | None = None
        self._is_declined = False

    async def ask(self, prompt: Prompt) -> str | None:
        """Return the answer; `None` without a terminal, and once the person has declined."""
        if not (self._source.isatty() and self._screen.isatty()):
            return None
        async with self._turn:
            return None if self._is_declined else await self._ask(prompt)

    async def confirm(self, question: str) -> bool:
        """Put a question of ours, and return whether the answer is yes.

        Raises:
            UsageError: there is no terminal to ask at.
        """
        if not (self._source.isatty() and self._screen.isatty()):
            told = _("this asks first, and there is no terminal to ask at: {question}")
            raise UsageError(told.format(question=" ".join(question.split("\n"))), _("Add --yes if you mean it."))
        here = f"{locations.local_user()}@{os.uname().nodename}"
        async with self._turn:
            self._screen.write(_asked(here, f"{question}\n") + _asked(here, _("Go on? [yes/no] ")))
            return _is_yes(await self._read_line())

    def decline(self) -> None:
        """Answer `None` to the question that is open and to all that come."""
        self._is_declined = True
        if self._open is not None and not self._open.done():
            self._open.set_result(None)

    async def _ask(self, prompt: Prompt) -> str | None:
        """Each line that begins at the margin is ours, and says whom it is about; a server's are marked."""
        account = prompt.account
        if prompt.kind is PromptKind.HOST_KEY:
            shown = _("the host shows a key that is not known yet:\n  {fingerprint}\n")
            self._screen.write(_asked(account, shown.format(fingerprint=clean(prompt.fingerprint))))
            self._screen.write(_asked(account, _("Compare it with what the host's owner says. Trust it? [yes/no] ")))
            line = await self._read_line()
            return "yes" if _is_yes(line) else None
        if prompt.said:
            self._screen.write(_asked(account, _("the server says:")) + "\n" + self._quote(prompt.said))
        text = _asked(account, clean(prompt.text).strip())
        text = f"{text} " if text.endswith((":", "?", "：")) else f"{text}: "
        if not prompt.secret:
            self._screen.write(text)
            return await self._read_line()
        with _without_echo(self._source.fileno()):
            self._screen.write(text)
            try:
                return await self._read_line()
            finally:
                self._screen.write("\n")

    def _quote(self, said: str) -> str:
        """Return a server's words as they are shown: on no line can they be taken for ours."""
        encoding = self._screen.encoding or "ascii"
        try:
            columns = os.get_terminal_size(self._screen.fileno()).columns
        except OSError:
            columns = 0
        room = max((columns or USUAL_COLUMNS) - len(MARK) - 1, LEAST_ROOM)
        # What the terminal cannot show would become an escape sequence in letters, which is longer.
        lines = quoted(said.encode(encoding, "replace").decode(encoding), room)
        return "".join(f"{MARK}{line}\n" for line in lines)

    async def _read_line(self) -> str | None:
        """Return the line typed; `None` at its end, or once declined. The loop waits, since a thread could not stop."""
        self._screen.flush()
        loop, descriptor = asyncio.get_running_loop(), self._source.fileno()
        answer: asyncio.Future[str | None] = loop.create_future()
        typed = bytearray()

        def take() -> None:
            data = b""
            with contextlib.suppress(OSError):
                data = os.read(descriptor, READ_BYTES)
            typed.extend(data)
            if (not data or data.endswith(b"\n")) and not answer.done():
                answer.set_result(typed.decode(errors="replace").rstrip("\r\n") if typed else None)

        self._open = answer
        loop.add_reader(descriptor, take)
        try:
            return await answer
        finally:
            loop.remove_reader(descriptor)
            self._open = None


def replacing(directory: Path, names: Sequence[str]) -> str:
    """Return what to confirm before files of a directory are replaced."""
    question = _("{path} has {names} already: what was written there is replaced.")
    return clean(question.format(path=directory, names=listed(names, MAX_NAMES)))


def _asked(account: str, text: str) -> str:
    return _("{account}: {question}").format(account=account, question=text)


def _is_yes(line: str | None) -> bool:
    return line is not None and line.strip().lower() in ("yes", "y", "是")


@contextlib.contextmanager
def _without_echo(descriptor: int) -> Iterator[None]:
    before = termios.tcgetattr(descriptor)
    silent = [*before]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSAFLUSH, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
