"""A client of protocol version 1 against this agent: a conversation recorded then goes as it went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agent.conversation import Conversation
from tests.agent.recorded import version1

SAME = {"state", "reason", "code", "stream", "offset", "data", "exit_code", "name", "version", "more", "interface"}
"""Fields whose values are told again, and not only their kind."""


@pytest.fixture
def agent(tmp_path: Path) -> Any:
    with Conversation(tmp_path / "root") as conversation:
        yield conversation


def test_an_older_client_gets_every_answer_it_knows(agent: Conversation) -> None:
    """Each answer at once; the daemon ends, and nothing is left of its jobs."""
    for exchange in version1(str(agent.root)):
        call, reply = exchange["call"], exchange["reply"]
        if call["method"] == "follow":
            agent.end_of("recorded")
        now = agent.ask(call["method"], call["params"])
        assert ("error" in now) == ("error" in reply), (call["method"], now)
        _check_fits(reply, {**now, "id": reply["id"]}, call["method"])


def _check_fits(before: Any, now: Any, where: str) -> None:
    """Check that what an older client read then is there still, and of the same kind."""
    if isinstance(before, dict):
        assert isinstance(now, dict), where
        assert before.keys() <= now.keys(), (where, before.keys() - now.keys())
        for name, value in before.items():
            if name in SAME and not isinstance(value, (dict, list)):
                assert now[name] == value, (f"{where}.{name}", now[name], value)
            _check_fits(value, now[name], f"{where}.{name}")
    elif isinstance(before, list):
        assert isinstance(now, list), where
        if where.endswith(".ranks_started"):  # How far a rank has come by then is chance.
            return
        assert len(now) == len(before), (where, now)
        for index, (old, new) in enumerate(zip(before, now, strict=True)):
            _check_fits(old, new, f"{where}[{index}]")
    elif isinstance(before, (int, float)) and not isinstance(before, bool):
        assert isinstance(now, (int, float)), where
    else:
        assert type(now) is type(before), where
