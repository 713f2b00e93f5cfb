"""Questions at a terminal: a pseudo terminal stands for it, and the test types."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from dttui.cli.prompting import TerminalPrompter
from dttui.fleet.waiting import Asking
from dttui.transport.base import Prompt, PromptKind
from dttui.transport.deadline import Deadline

NAME = Prompt(PromptKind.PASSWORD, "gpu1", "User name", secret=False)
PASSWORD = Prompt(PromptKind.PASSWORD, "gpu1", "Password:")
KEY = Prompt(PromptKind.HOST_KEY, "gpu1", "Trust this key?", secret=False, fingerprint="SHA256:abc")


class Person:
    """The other end of the terminal."""

    def __init__(self, controller: int, terminal: TextIO) -> None:
        self._controller = controller
        self.terminal = terminal

    def type(self, text: str) -> None:
        os.write(self._controller, text.encode())

    async def read_until(self, text: str) -> str:
        """Wait until the terminal shows a text; return all that it showed."""
        shown = ""
        loop = asyncio.get_running_loop()
        while text not in shown:
            readable = asyncio.Event()
            loop.add_reader(self._controller, readable.set)
            try:
                await asyncio.wait_for(readable.wait(), 60)
            finally:
                loop.remove_reader(self._controller)
            shown += os.read(self._controller, 4096).decode()
        return shown

    def has_echo(self) -> bool:
        return bool(termios.tcgetattr(self.terminal.fileno())[3] & termios.ECHO)


@pytest.fixture
def person() -> Iterator[Person]:
    controller, descriptor = os.openpty()
    with open(descriptor, encoding="utf-8") as terminal:
        yield Person(controller, terminal)
    os.close(controller)


@pytest.fixture
def screen(person: Person) -> TextIO:
    return open(os.ttyname(person.terminal.fileno()), "w", encoding="utf-8")


async def test_a_line_is_the_answer_and_yes_takes_a_key(person: Person, screen: TextIO) -> None:
    with screen:
        prompter = TerminalPrompter(person.terminal, screen)
        for prompt, shown, typed, answer in (
            (NAME, "User name: ", "alice\n", "alice"),
            (NAME, "User name: ", "\n", ""),
            (KEY, "[yes/no]", "yes\n", "yes"),
            (KEY, "[yes/no]", "no\n", None),
            (NAME, "User name: ", "\x04", None),
        ):
            asking = asyncio.create_task(prompter.ask(prompt))
            await person.read_until(shown)
            person.type(typed)
            assert await asyncio.wait_for(asking, 10) == answer


async def test_a_secret_is_not_shown_and_echo_comes_back(person: Person, screen: TextIO) -> None:
    with screen:
        asking = asyncio.create_task(TerminalPrompter(person.terminal, screen).ask(PASSWORD))
        await person.read_until("Password: ")
        assert not person.has_echo()
        person.type("sesame\n")
        assert await asyncio.wait_for(asking, 10) == "sesame"
        assert "sesame" not in await person.read_until("\n")
        assert person.has_echo()


async def test_a_question_that_is_cancelled_lets_go_of_the_terminal(person: Person, screen: TextIO) -> None:
    with screen:
        asking = asyncio.create_task(TerminalPrompter(person.terminal, screen).ask(PASSWORD))
        await person.read_until("Password: ")
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert person.has_echo()


async def test_who_declines_is_not_asked_again(person: Person, screen: TextIO) -> None:
    with screen:
        prompter = TerminalPrompter(person.terminal, screen)
        first, second = (asyncio.create_task(prompter.ask(PASSWORD)) for _each in range(2))
        await person.read_until("Password: ")
        prompter.decline()
        assert await asyncio.wait_for(first, 10) is None
        assert await asyncio.wait_for(second, 10) is None
        assert await prompter.ask(NAME) is None
        assert person.has_echo()


async def test_a_deadline_stands_still_while_a_question_is_open(person: Person, screen: TextIO) -> None:
    deadline = Deadline(0.1)
    with screen:
        prompter = Asking(TerminalPrompter(person.terminal, screen), deadline)
        asking = asyncio.create_task(deadline.run(prompter.ask(NAME)))
        await person.read_until("User name: ")
        with pytest.raises(TimeoutError):
            await Deadline(deadline.seconds).run(asyncio.Event().wait())
        person.type("alice\n")
        assert await asyncio.wait_for(asking, 10) == "alice"


async def test_without_a_terminal_nobody_answers(person: Person) -> None:
    assert await TerminalPrompter(io.StringIO(), person.terminal).ask(NAME) is None


QUESTION = """
import signal, sys, threading
from dttui.cli.interrupting import run_interruptibly
from dttui.cli.prompting import TerminalPrompter
from dttui.fleet.waiting import Asking
from dttui.transport.base import Prompt, PromptKind

if sys.argv[1] == "late":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
run_interruptibly(TerminalPrompter().ask(Prompt(PromptKind.PASSWORD, 'gpu1', 'Password:')))
"""
"""Where it is late, another thread takes the signal, which so wakes nothing by itself: as if it had come in the moment
between the interpreter's last look for signals and its going to sleep."""


@pytest.mark.parametrize("moment", ["asleep", "late"])
async def test_an_interrupt_at_a_question_ends_the_process_with_echo_back(person: Person, moment: str) -> None:
    asking = subprocess.Popen(  # noqa: ASYNC220 - starting it takes no time that the loop would need
        [sys.executable, "-c", QUESTION, moment], stdin=person.terminal, stderr=person.terminal
    )
    try:
        await person.read_until("Password: ")
        assert not person.has_echo()
        asking.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(asking.wait, 60) != 0
    finally:
        asking.kill()
        asking.wait()
    assert person.has_echo()
