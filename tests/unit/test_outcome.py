"""Which failure came first, and in what words a stop ended."""

from __future__ import annotations

import signal

import pytest
from dtagent.protocol.jobs import AttemptKey, Leftover, NodeState, NodeStatus, ProcessExit, RankFailure

from dttui.services.outcome import ending, is_consequence


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: [/x/pair.cc:553] Connection closed by peer [10.0.0.1]:4",
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
        "RuntimeError: Read error [10.0.0.1]:4: Connection reset by peer",
    ],
)
def test_an_error_about_a_peer_is_a_consequence(error: str) -> None:
    assert is_consequence({"exit_code": 1, "error": error})


@pytest.mark.parametrize(
    "data",
    [
        {"exit_code": 3, "error": None, "tail": ["x: Connection reset by peer"]},
        {"exit_code": 1, "error": "torch.OutOfMemoryError: CUDA out of memory"},
        {"exit_code": None, "signal": 9, "error": None, "tail": []},
        {"exit_code": 1, "error": "ModuleNotFoundError: No module named 'x'"},
    ],
)
def test_an_error_of_its_own_is_a_cause(data: dict[str, object]) -> None:
    assert not is_consequence(data)


def test_a_rank_that_our_own_stop_ended_is_a_consequence() -> None:
    assert is_consequence({"exit_code": None, "signal": 15, "error": None})


def ended(*exits: ProcessExit, reason: str = "stopped", **more: object) -> NodeStatus:
    return NodeStatus(AttemptKey("job", 0), 0, NodeState.ENDED, reason, exits=list(exits), **more)  # type: ignore[arg-type]  # fields of it


def test_a_stop_tells_whether_it_had_to_kill() -> None:
    assert ending(ended(ProcessExit("launcher", 1.0, exit_code=0))) == "ended by itself after SIGTERM"
    assert ending(ended(ProcessExit("0", 1.0, signal=signal.SIGTERM))) == "ended by itself after SIGTERM"
    assert ending(ended(ProcessExit("0", 1.0, exit_code=0), ProcessExit("1", 1.0, signal=signal.SIGKILL))) == "killed"
    killed = RankFailure(1, 1.0, signal=signal.SIGKILL)
    assert ending(ended(ProcessExit("launcher", 1.0, exit_code=1), failures=[killed])) == "killed"
    assert ending(ended()) == "before it ran"


def test_other_ends_keep_their_reason() -> None:
    assert ending(ended(ProcessExit("0", 1.0, exit_code=3), reason="a process failed")) == "a process failed"
    assert ending(ended(reason="the supervisor on this host died")) == "the supervisor on this host died"
    stuck = NodeStatus(AttemptKey("job", 0), 0, NodeState.UNKILLABLE, "stopped", leftovers=[Leftover(7, "python", "D")])
    assert ending(stuck) == "cannot be ended: 7 (python)"
