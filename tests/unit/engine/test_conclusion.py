"""Of nodes that were given up for several reasons, each is told only what is true of it."""

from __future__ import annotations

from dttui.engine.conclusion import why_failed, why_not_stopped
from dttui.engine.given_up import GivenUp, NotEnded, NotFollowed
from dttui.errors import AgentError

STUCK = GivenUp("a", not_ended=NotEnded("a"))
BROKEN = GivenUp("b", not_followed=NotFollowed(AgentError("b", "it tells of gaps without end")))
SILENT = GivenUp("c")


def test_a_host_that_answered_and_did_not_end_is_not_said_to_be_out_of_reach() -> None:
    for given_up in ([STUCK, BROKEN], [BROKEN, STUCK]):
        message, _hint = why_not_stopped(given_up, "x-1")
        assert message == "stopped on request, but b could not be followed: it tells of gaps without end"
    assert why_not_stopped([SILENT, STUCK], "x-1")[0] == "stopped on request, but not ended: a did not end in time"
    assert why_failed(None, [], [STUCK, SILENT], None, "x-1")[0] == "a did not end in time"
    assert why_failed(None, [], [SILENT, STUCK], None, "x-1")[0] == "c could not be reached"
