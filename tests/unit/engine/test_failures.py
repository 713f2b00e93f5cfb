"""Which failure came first, and in what words a stop ended."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from typing import Any

import pytest
from dtagent.protocol import sentences
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import EndReason, Leftover, NodeState, NodeStatus, ProcessExit, RankFailure
from dtagent.protocol.notices import Notice
from dtagent.protocol.rpc import to_wire

from dttui import jobs
from dttui.engine.conclusion import node_outcome
from dttui.engine.failures import cause_of, ending, is_consequence, last_words, rank_failures, stopped_on_request
from dttui.engine.nodes.node_run import NodeRun
from tests.unit.jobs.test_follow import plan_for


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: [/x/pair.cc:553] Connection closed by peer [10.0.0.1]:4",
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
        "RuntimeError: [/x/pair.cc:534] Read error [10.0.0.1]:4: Connection reset by peer",
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
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
        {"exit_code": 1, "error": "ConnectionRefusedError: [Errno 111] Connection refused"},
        {"exit_code": 1, "error": "BrokenPipeError: [Errno 32] Broken pipe"},
        {"exit_code": 1, "error": "RuntimeError: Timed out waiting for the license server"},
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


def test_a_launcher_that_had_to_be_killed_after_its_ranks_had_ended_well_is_told_apart() -> None:
    launcher = ProcessExit("launcher", 9.0, signal=signal.SIGKILL)
    waited = ended(launcher, ProcessExit("4", 1.0, exit_code=0), ranks_started=[4])
    assert ending(waited) == "its ranks had ended; the launcher that waited for others was killed"
    assert stopped_on_request([node_run(waited)]) == "stopped on request"
    assert ending(ended(launcher, ProcessExit("4", 1.0, exit_code=0), ranks_started=[4, 5])) == "killed"


def test_ranks_that_had_ended_before_the_stop_did_not_end_because_of_it() -> None:
    launcher = ProcessExit("launcher", 109.0, exit_code=1)
    waited = ended(launcher, ProcessExit("4", 100.0, exit_code=0), ProcessExit("5", 101.0, exit_code=0))
    waited = replace(waited, ranks_started=[4, 5])
    assert ending(waited, 108.0) == "its ranks had ended by themselves"
    assert ending(waited, 100.5) == "ended by itself after SIGTERM"
    assert ending(waited) == "ended by itself after SIGTERM"


def test_ranks_that_had_failed_before_the_stop_or_only_some_had_ended_are_told_so() -> None:
    ends = ProcessExit("4", 100.0, exit_code=1), ProcessExit("5", 101.0, exit_code=0)
    waited = ended(ProcessExit("launcher", 109.0, exit_code=1), *ends, ranks_started=[4, 5])
    assert ending(waited, 108.0) == "its ranks had ended by themselves"
    one_more = replace(waited, ranks_started=[4, 5, 6])
    assert ending(one_more, 108.0) == "ended by itself after SIGTERM; 2 of 3 ranks had ended before"
    killed = ended(*ends, ProcessExit("6", 120.0, signal=signal.SIGKILL), ranks_started=[4, 5, 6])
    assert ending(killed, 108.0) == "killed; 2 of 3 ranks had ended before"
    termed = ended(ProcessExit("4", 100.0, signal=signal.SIGTERM), ranks_started=[4])
    assert ending(termed, 108.0) == "ended by itself after SIGTERM"


def test_other_ends_keep_their_reason() -> None:
    assert ending(ended(ProcessExit("0", 1.0, exit_code=3), reason="a process failed")) == "a process failed"
    assert ending(ended(reason="the supervisor on this host died")) == "the supervisor on this host died"
    stuck = NodeStatus(AttemptKey("job", 0), 0, NodeState.UNKILLABLE, "stopped", leftovers=[Leftover(7, "python", "D")])
    assert ending(stuck) == "cannot be ended: 7 (python)"
    rude = replace(stuck, leftovers=[Leftover(7, "\x1b[2Jpy\ud800", "D")])
    assert ending(rude) == "cannot be ended: 7 (py\N{REPLACEMENT CHARACTER})"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("stopped", EndReason.STOPPED), ("a process failed", EndReason.PROCESS_FAILED), ("", None), ("host died", None)],
)
def test_the_words_that_agents_have_always_written_are_reasons_of_a_kind(
    reason: str, expected: EndReason | None
) -> None:
    status = ended(reason=reason)
    assert status.end_reason is expected
    assert last_words(node_run(status))["end_reason"] == (expected.value if expected else None)
    assert not json.dumps(to_wire(status)).count("end_reason"), "an old login node or agent meets nothing new"


def test_why_a_node_stands_as_it_does_is_the_code_of_what_its_agent_says_of_the_end() -> None:
    said = sentences.HOST_RESTARTED()
    told = ended(reason=said, reason_notice=Notice(said.code))
    assert node_outcome(node_run(told)).why == "host-restarted"
    assert node_outcome(node_run(replace(told, reason_notice=Notice("of-next-year\x1b[2J")))).why == ""
    before_codes = {reason: node_outcome(node_run(ended(reason=reason))).why for reason in ("a process failed", said)}
    assert before_codes == {"a process failed": "process-failed", said: ""}


def node_run(status: NodeStatus, offset_s: float = 0.0, gpus: int = 1) -> NodeRun:
    plan = plan_for("a", "b")
    planned = plan.nodes[status.node_rank]
    planned = planned.model_copy(update={"ranks": tuple(range(planned.ranks[0], planned.ranks[0] + gpus))})
    made = NodeRun(None, planned, status.key, jobs.create("x"), None, None, lambda: None)  # type: ignore[arg-type]  # nothing is connected to
    made.status, made.clock_offset_s, made.heard_at = status, offset_s, 500.0
    return made


def of_node(rank: int, *failures: RankFailure, state: NodeState = NodeState.ENDED, **more: object) -> NodeStatus:
    key = AttemptKey("job", 0)
    return NodeStatus(key, rank, state, "a process failed", failures=list(failures), **more)  # type: ignore[arg-type]  # fields of it


def test_failures_are_ordered_by_one_clock_and_secrets_stay_out() -> None:
    early = node_run(of_node(0, RankFailure(0, 1100.0, 1, error="ValueError: the key is s3cret")), offset_s=1000.0)
    late = node_run(of_node(1, RankFailure(1, 105.0, 1, error="KeyError: 'x'", traceback="KeyError: s3cret")))
    found = rank_failures(jobs.create("x"), [late, early], ["s3cret"])
    assert [(item.rank, item.time) for item in found] == [(0, 100.0), (1, 105.0)]
    assert "s3cret" not in str([(item.message, item.data) for item in found])
    assert found[0].message.endswith("ValueError: the key is •••")


@pytest.mark.parametrize(
    ("counted", "told"),
    [((False, False), False), ((False, None), None), ((None, None), None), ((True, None), True), ((True, False), True)],
)
def test_that_none_was_killed_for_memory_is_told_where_it_is_known_of_each_that_broke(
    counted: tuple[bool | None, ...], told: bool | None
) -> None:
    """What ended well is not asked: nobody counts for it."""
    exits = [
        ProcessExit(str(rank), 1.0, signal=signal.SIGKILL, is_oom_killed_here=here) for rank, here in enumerate(counted)
    ]
    status = of_node(0, exits=[*exits, ProcessExit("2", 1.0, exit_code=0)])
    (first, *_others) = rank_failures(jobs.create("job"), [node_run(status)])
    assert first.data.get("oom_killed_here") is told


def test_a_host_that_lost_its_supervisor_failed_when_it_was_told_and_leftovers_come_last() -> None:
    failed = node_run(of_node(0, RankFailure(0, 600.0, 1, error="KeyError: 'x'")))
    lost = node_run(of_node(1, state=NodeState.LOST, started_at=1.0))
    found = rank_failures(jobs.create("x"), [failed, lost])
    assert [(item.node, item.time) for item in found] == [("b", 500.0), ("a", 600.0)]
    stuck = node_run(of_node(1, state=NodeState.UNKILLABLE, started_at=1.0, leftovers=[Leftover(7, "python", "D")]))
    assert [item.node for item in rank_failures(jobs.create("x"), [stuck, failed])] == ["a", "b"]


def test_a_node_s_last_words_tell_its_clock_and_how_each_process_ended() -> None:
    exits = [ProcessExit("0", 101.0, exit_code=3), ProcessExit("1", 101.0, signal=9)]
    status = of_node(0, ranks_started=[0, 1], exits=exits)
    told = last_words(node_run(status, offset_s=2.5, gpus=2))
    assert told["clock_offset_s"] == 2.5
    assert told["ranks_started"] == [0, 1]
    assert told["exits"] == {"0": 3, "1": -9}
    assert told["ended_at"] == {"0": 98.5, "1": 98.5}
    assert last_words(node_run(of_node(0, state=NodeState.RUNNING))) == {}


def test_an_agent_that_tells_of_ranks_it_was_not_given_and_gives_no_end_of_words_is_not_believed() -> None:
    others = [RankFailure(rank, 1.0, 1, error="KeyError: 'x'") for rank in range(-1, 5000)]
    own = RankFailure(0, 2.0, 1, error="ValueError: " + "x" * 1_000_000, traceback="y" * 1_000_000)
    exits = [ProcessExit(name, 1.0, exit_code=1) for name in ("²", "7", "../../passwd", *map(str, range(100, 5000)))]
    left = [Leftover(pid, "python" * 1000, "D") for pid in range(5000)]
    status = of_node(0, *others, own, exits=exits, ranks_started=[*range(5000)], leftovers=left)
    node = node_run(status)
    found = rank_failures(jobs.create("x"), [node])
    assert [item.rank for item in found] == [0]
    assert len(json.dumps(found[0].data)) < 64 * 1024
    assert last_words(node)["ranks_started"] == [0]
    assert last_words(node)["exits"] == {}
    assert len(ending(replace(status, state=NodeState.UNKILLABLE))) < 4096


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        ({"signal": 9}, "killed"),
        ({"exit_code": 3, "tail": ["bye"]}, "exit-code"),
        ({"exit_code": 1, "error": "ValueError: no samples"}, "exception"),
        ({"exit_code": 1, "error": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"}, "cuda-oom"),
        ({"uncleared": False, "lost": True}, "supervisor-lost"),
        ({"uncleared": True, "lost": False}, "unkillable"),
        ({"uncleared": False, "self_fenced": True}, "self-fenced"),
        ({}, None),
    ],
)
def test_the_cause_of_a_failure_follows_from_its_words_and_its_end(failure: dict[str, Any], cause: str | None) -> None:
    assert cause_of(failure) == cause
