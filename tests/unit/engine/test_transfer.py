"""One copy of a checkpoint, where another one is written at its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol import sentences
from dtagent.protocol.checkpoints import FoundCheckpoint
from dtagent.protocol.notices import Notice
from dtagent.protocol.replication import SendReply, TakeReply
from dtagent.protocol.rpc import ErrorCode

from dttui.engine.checkpoints.replication import transfer as module
from dttui.engine.checkpoints.replication.transfer import CopyFailedError, Stores, transfer
from dttui.errors import AgentError
from dttui.planning.resumption import Resumption
from tests.unit.engine.test_resuming_far_back import Job

UNDER_WAY = str(sentences.COPY_UNDER_WAY())
REFUSED = SendReply(detail=UNDER_WAY, detail_notice=Notice(sentences.COPY_UNDER_WAY.code))
FOUND = FoundCheckpoint("/kept/step-5", "complete", 5)


class Busy:
    """An agent that is asked for a copy while it is at another."""

    def __init__(self, *answers: SendReply | Exception) -> None:
        self.answers = list(answers)

    async def call(self, method: str, _request: object, _reply: object, _deadline_s: float = 0.0) -> Any:
        if method == "copy_take":
            return TakeReply(1)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def _copied(place: Path, agent: Busy, *, is_awaited: bool) -> str:
    job = Job(place, 1, Resumption(copies=1, place=str(place)))
    for node in job.nodes:
        node.client = agent  # type: ignore[assignment]  # all that is asked of it
    source, target = job.nodes
    stores = Stores(str(place / "copies"), [])
    return (await transfer(source, target, FOUND, (0, 0), stores, Resumption(), is_awaited=is_awaited)).path


async def test_ranks_that_wait_for_a_copy_get_it_once_another_one_has_come_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which an attempt that has failed may have left, at the agent that takes or at the place itself."""
    monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.01)
    busy = AgentError("b", UNDER_WAY, code=ErrorCode.BUSY)
    agent = Busy(REFUSED, busy, SendReply("/copy", 100, 100))
    assert await _copied(tmp_path, agent, is_awaited=True) == "/copy"
    assert agent.answers == []


async def test_a_copy_that_nobody_waits_for_is_tried_again_at_another_time(tmp_path: Path) -> None:
    agent = Busy(REFUSED, SendReply("/copy"))
    with pytest.raises(CopyFailedError, match="another copy is being written"):
        await _copied(tmp_path, agent, is_awaited=False)
    assert len(agent.answers) == 1


async def test_what_fails_for_another_reason_is_not_tried_again(tmp_path: Path) -> None:
    cut = Notice(sentences.COPY_CUT.code, {"error": "reset"})
    agent = Busy(SendReply(detail=str(sentences.COPY_CUT(error="reset")), detail_notice=cut), SendReply("/copy"))
    with pytest.raises(CopyFailedError, match="reset"):
        await _copied(tmp_path, agent, is_awaited=True)
    assert len(agent.answers) == 1
