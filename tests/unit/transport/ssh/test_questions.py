"""Questions that are asked on behalf of one connection."""

from __future__ import annotations

import asyncio

from dttui.i18n import _, speaking
from dttui.transport.base import Prompt, PromptKind
from dttui.transport.deadline import Deadline
from dttui.transport.ssh.questions import Questions
from dttui.variables import bringing, variables


class Heard:
    """A person who is there, and keeps what the question was asked in."""

    def __init__(self) -> None:
        self.language = ""
        self.secret: str | None = None

    async def ask(self, prompt: Prompt) -> str | None:
        self.language, self.secret = _("cancelled"), variables().get("TOKEN")
        return "yes"


async def test_a_thread_that_logs_in_asks_in_the_language_and_with_the_variables_of_who_connects() -> None:
    person, prompt = Heard(), Prompt(PromptKind.PASSWORD, "gpu1", "a question")
    with speaking("zh"), bringing({"TOKEN": "of the caller"}):
        questions = Questions(person, Deadline(30), asyncio.Lock())
    loop = asyncio.get_running_loop()  # Which takes no context to a thread by itself, as paramiko does not.
    answers = [
        await loop.run_in_executor(None, lambda: questions.from_thread(questions.ask(prompt))) for _each in range(2)
    ]
    assert answers == ["yes", "yes"]
    assert (person.language, person.secret) == ("已取消", "of the caller")
