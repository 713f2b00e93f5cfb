"""A host whose key or to whom our credentials were refused: one name for its state, wherever it is told."""

from __future__ import annotations

import pytest

from dttui.app import outcome_of
from dttui.diagnosis.unstarted import why_unstarted
from dttui.errors import AgentGoneError, AuthenticationError, HostError, HostKeyError, HostUnreachableError
from dttui.fleet.live import state_of
from dttui.i18n import speaking
from dttui.spec.failure_causes import HOST_UNREACHABLE
from tests.fake_transport import FakeHost
from tests.unit.diagnosis.test_diagnosis import evidence
from tests.unit.preflight.test_preflight import Checking


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
    assert state_of(error).value == word
    assert outcome_of(error) == word
    (code,) = [finding.code for finding in board.errors if finding.subject == "b"]
    assert code == word


async def test_a_host_whose_agent_is_gone_is_not_called_out_of_reach_by_a_launch() -> None:
    gone = AgentGoneError("b", "b: there is no agent on this host", "Install it: dttui agents deploy b")
    board = await Checking(b=FakeHost(error=gone)).run()
    assert state_of(gone).value == "no agent"
    (found,) = [finding for finding in board.errors if finding.subject == "b"]
    assert (found.code, found.hint) == ("no-agent", "Install it: dttui agents deploy b")


@pytest.mark.parametrize(("language", "word"), [("en", "refused"), ("zh", "拒绝")])
def test_the_cause_of_a_launch_onto_a_host_that_refused_is_not_that_it_was_out_of_reach(
    language: str, word: str
) -> None:
    found = evidence(outcome_cause=HOST_UNREACHABLE, refused=("b",), findings=(("b: its key", "look at it"),))
    with speaking(language):
        cause = why_unstarted(found)
    assert cause.code == "host-refused"
    assert word in cause.words
    assert cause.advice == ("look at it",)


@pytest.mark.parametrize(("language", "word"), [("en", "no agent"), ("zh", "agent")])
def test_the_cause_of_a_launch_onto_a_host_without_an_agent_is_that_and_the_way_out_is_to_install_it(
    language: str, word: str
) -> None:
    found = evidence(outcome_cause=HOST_UNREACHABLE, agentless=("b", "c"), findings=(("b: gone", "look at it"),))
    with speaking(language):
        cause = why_unstarted(found)
    assert cause.code == "no-agent"
    assert word in cause.words
    assert "`dttui agents deploy b c`" in cause.advice[0]
