"""A host whose key or to whom our credentials were refused: one name for its state, wherever it is told."""

from __future__ import annotations

import pytest

from dttui.cli.agents import _outcome
from dttui.diagnosis.unstarted import why_unstarted
from dttui.errors import AuthenticationError, ExitCode, HostError, HostKeyError, HostUnreachableError
from dttui.fleet.live import _state_of
from dttui.i18n import speaking
from tests.fake_transport import FakeHost
from tests.unit.diagnosis.test_diagnosis import evidence
from tests.unit.preflight.test_run import Checking


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (HostKeyError("b", "b: the key has changed"), "refused"),
        (AuthenticationError("b", "b: nobody accepts us"), "refused"),
        (HostUnreachableError("b", "b: no route"), "unreachable"),
    ],
)
async def test_envs_agents_and_a_launch_call_a_host_the_same(error: HostError, word: str) -> None:
    board = await Checking(b=FakeHost(error=error)).run()
    assert _state_of(error).value == word
    assert _outcome(error) == word
    (code,) = [finding.code for finding in board.errors if finding.subject == "b"]
    assert code == word


@pytest.mark.parametrize(("language", "word"), [("en", "refused"), ("zh", "拒绝")])
def test_the_cause_of_a_launch_onto_a_host_that_refused_is_not_that_it_was_out_of_reach(
    language: str, word: str
) -> None:
    found = evidence(exit_code=int(ExitCode.UNREACHABLE), refused=("b",), findings=(("b: its key", "look at it"),))
    with speaking(language):
        cause = why_unstarted(found)
    assert cause.code == "host-refused"
    assert word in cause.words
    assert cause.advice == ("look at it",)
