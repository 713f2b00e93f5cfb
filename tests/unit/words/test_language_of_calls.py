"""Several callers in one process: each is told things in its own language, and its variables are its own."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from dttui.i18n import _, language, speaking
from dttui.redaction import MARK, Redaction
from dttui.transport.ssh.threads import Threads
from dttui.variables import bringing, for_a_process, variables

pytestmark = pytest.mark.usefixtures("english")

ENGLISH, CHINESE = "connecting", "正在连接"


def test_tasks_in_two_languages_at_once_do_not_mix() -> None:
    async def tell(name: str, value: str) -> list[tuple[str, str, str]]:
        with speaking(name), bringing({"TOKEN": value}):
            said = []
            for _turn in range(3):
                inner = await asyncio.to_thread(lambda: (_(ENGLISH), variables()["TOKEN"], language()))
                said.append(inner)
            return said

    async def both() -> None:
        english, chinese = await asyncio.gather(tell("en", "first"), tell("zh", "second"))
        assert english == [(ENGLISH, "first", "en")] * 3
        assert chinese == [(CHINESE, "second", "zh")] * 3
        assert (_(ENGLISH), language()) == (ENGLISH, "en")

    asyncio.run(both())


def test_threads_of_connections_speak_the_callers_language() -> None:
    async def told() -> list[str]:
        threads = Threads()
        try:
            with speaking("zh"):
                return [
                    await call(lambda: _(ENGLISH))
                    for call in (threads.connecting, threads.forwarding, threads.traffic, threads.looking_up)
                ]
        finally:
            threads.close()

    assert asyncio.run(told()) == [CHINESE] * 4


def test_a_thread_that_belongs_to_no_call_speaks_the_language_of_the_process() -> None:
    said: list[str] = []
    with speaking("zh"):
        thread = threading.Thread(target=lambda: said.append(_(ENGLISH)))
        thread.start()
        thread.join()
    assert said == [ENGLISH]


def test_secrets_are_those_that_came_with_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "of-the-process")
    with bringing({"TOKEN": "of-the-call"}):
        told = Redaction.of_names(["TOKEN", "OTHER"]).text("of-the-process of-the-call")
    assert told == f"of-the-process {MARK}"
    assert Redaction.of_names(["TOKEN"]).text("of-the-process") == MARK


def test_a_process_that_is_started_for_a_call_has_no_secrets_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_TOKEN", "of-the-process")
    assert for_a_process()["OWN_TOKEN"] == "of-the-process"
    with bringing({"TOKEN": "of-the-call", "PATH": "/only/here"}):
        made = for_a_process()
    assert (made["TOKEN"], made["PATH"], made["HOME"]) == ("of-the-call", "/only/here", os.environ["HOME"])
    assert "OWN_TOKEN" not in made
