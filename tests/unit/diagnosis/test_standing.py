"""Where ranks stand, by their stacks, and what torch's flight recorder has of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol import sentences
from dtagent.protocol.rpc import to_wire
from dtagent.protocol.stacks import Call, Frame, GroupCalls, ProcessStacks, RankStacks, Thread
from dtagent.stacks.dumps import of_recorder

from dttui.diagnosis import flight_records, standing
from dttui.diagnosis.stack_report import NodeStacks, of_data, summary, to_data
from dttui.i18n import speaking

TORCH = "/env/lib/python3.11/site-packages/torch"
WORK = "/var/tmp/dtagent-0/jobs/gpt-1/0/work"
RECORDED = Path(__file__).with_name("flight_recorder")
ALL_REDUCE = [
    Frame("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252),
    Frame("wrapper", f"{TORCH}/distributed/c10d_logger.py", 83),
    Frame("step", f"{WORK}/train.py", 88),
    Frame("<module>", f"{WORK}/train.py", 120),
    Frame("_run", "/var/tmp/dtagent-0/jobs/gpt-1/0/payload/rank.py", 212),
]


def process(frames: list[Frame], state: str = "S", **fields: Any) -> ProcessStacks:
    return ProcessStacks(1, state, source="py-spy", threads=[Thread("MainThread", frames, True)], **fields)


def rank(number: int, frames: list[Frame], state: str = "S", **fields: Any) -> RankStacks:
    return RankStacks(number, process(frames, state, **fields))


def said(*ranks: RankStacks) -> list[str]:
    return [str(line) for line in summary([NodeStacks("gpu1", ranks)])]


def test_ranks_are_grouped_by_the_collective_that_they_wait_in_and_the_one_that_does_not_is_named() -> None:
    reading = [Frame("read", f"{WORK}/data.py", 31), *ALL_REDUCE[3:]]
    ranks = [rank(number, reading if number == 9 else ALL_REDUCE) for number in range(14)]
    assert said(*ranks) == [
        "13 of 14 ranks (0–8, 10–13) wait in all_reduce at train.py:88 (step)",
        "rank 9 on gpu1 is at data.py:31 (read)",
    ]


def test_what_was_sent_to_nodes_lies_at_one_place_whatever_its_directory() -> None:
    other = [Frame(frame.name, frame.file.replace("dtagent-0", "dtagent-7"), frame.line) for frame in ALL_REDUCE]
    assert len(standing.groups_of([("gpu1", rank(0, ALL_REDUCE)), ("gpu2", rank(1, other))])) == 1


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        ([("wait", "/usr/lib/python3.11/threading.py"), ("join", f"{WORK}/a.py")], "is in wait at a.py:1 (join)"),
        (
            [
                ("poll", "/usr/lib/python3.11/selectors.py"),
                ("_try_get_data", f"{TORCH}/utils/data/dataloader.py"),
                ("__next__", f"{TORCH}/utils/data/dataloader.py"),
                ("epoch", f"{WORK}/a.py"),
            ],
            "is in DataLoader at a.py:1 (epoch)",
        ),
        (
            [
                ("_engine_run_backward", f"{TORCH}/autograd/graph.py"),
                ("backward", f"{TORCH}/autograd/__init__.py"),
                ("backward", f"{TORCH}/_tensor.py"),
                ("<module>", f"{WORK}/a.py"),
            ],
            "is in backward at a.py:1",
        ),
        (
            [
                ("barrier", f"{TORCH}/distributed/distributed_c10d.py"),
                ("wrapper", f"{TORCH}/distributed/c10d_logger.py"),
                ("wait_for_everyone", "/env/lib/python3.11/site-packages/accelerate/state.py"),
                ("main", f"{WORK}/a.py"),
            ],
            "waits in barrier at a.py:1 (main)",
        ),
        (
            [("forward", f"{WORK}/model.py"), ("__call__", f"{TORCH}/nn/modules/module.py")],
            "is at model.py:1 (forward)",
        ),
        ([("wrapper", f"{TORCH}/a.py"), ("loop", f"{WORK}/a.py")], "is at a.py:1 (loop)"),
    ],
)
def test_of_a_stack_the_scripts_own_frame_and_the_call_that_it_made_are_told(
    frames: list[tuple[str, str]], told: str
) -> None:
    assert said(rank(3, [Frame(name, file, 1) for name, file in frames])) == [f"rank 3 on gpu1 {told}"]


def test_a_rank_that_is_stopped_or_gone_or_in_the_kernel_is_told_to_be() -> None:
    told = said(
        rank(0, ALL_REDUCE, "T"),
        RankStacks(1, ProcessStacks(2, "D", wait_channel="nfs_wait")),
        RankStacks(2, None),
        RankStacks(3, None, has_ended=True),
        RankStacks(4, ProcessStacks(5, "S", detail="py-spy: Permission Denied")),
    )
    assert sorted(told) == [
        "rank 0 on gpu1 is stopped by a signal (SIGSTOP) or a debugger, at all_reduce, called at train.py:88 (step)",
        "rank 1 on gpu1 waits in the kernel, where no signal reaches it (nfs_wait)",
        "rank 2 on gpu1: its process is gone",
        "rank 3 on gpu1 has ended well",
        "rank 4 on gpu1: no stack could be read (py-spy: Permission Denied)",
    ]


def test_why_no_stack_could_be_read_is_told_in_the_readers_language_and_of_an_older_agent_as_it_came() -> None:
    tried = [sentences.STACK_SIGNAL_NOT_CAUGHT(number=61), sentences.STACK_TOOL_FAILED(tool="py-spy", reason="EPERM")]
    wire = to_wire(RankStacks(4, ProcessStacks(5, "S", detail=sentences.STACK_UNREAD(reasons=tried))))
    older = {**wire, "process": {**wire["process"], "detail_notice": None}}
    with speaking("zh"):
        assert "信号 61：未被捕获; py-spy：EPERM" in said(NodeStacks.rank_of(wire))[0]
        assert "signal 61: not caught; py-spy: EPERM" in said(NodeStacks.rank_of(older))[0]


def test_workers_that_a_rank_waits_for_are_told_below_it_and_idle_ones_are_not() -> None:
    waiting = [Frame("__next__", f"{TORCH}/utils/data/dataloader.py", 1), Frame("epoch", f"{WORK}/a.py", 5)]
    stuck = process([Frame("read", f"{WORK}/data.py", 31), Frame("fetch", f"{TORCH}/utils/data/_utils/fetch.py", 4)])
    idle = process(
        [Frame("get", "/usr/lib/python3.11/queue.py", 3), Frame("_worker_loop", f"{TORCH}/utils/data/w.py", 9)]
    )
    own = rank(0, waiting)
    told = said(RankStacks(0, own.process, children=[stuck, stuck, idle]))
    assert told == ["rank 0 on gpu1 is in DataLoader at a.py:5 (epoch)", "2 child processes are at data.py:31 (read)"]


def recorded(name: str, ranks: int) -> list[RankStacks]:
    """Return what real ranks of gloo recorded; of the third rank, where it is not there, the first one's."""
    found = []
    for number in range(ranks):
        path = RECORDED / f"{name}.{number}.json"
        text = (path if path.exists() else RECORDED / f"{name}.0.json").read_text()
        found.append(RankStacks(number, None, groups=of_recorder(text)))
    return found


def odd(ranks: list[RankStacks]) -> list[str]:
    return [str(line) for line in flight_records.sentences(flight_records.odd_ones(ranks))]


def test_a_rank_that_skipped_a_collective_is_told_by_what_gloo_recorded() -> None:
    assert odd(recorded("skip", 3)) == [
        "rank 1 did not come to collective 6 of group default_pg, all_reduce [8] Float, in which ranks 0, 2 wait; "
        "the newest one that came was 5"
    ]


def test_a_rank_that_called_another_collective_is_told_by_what_gloo_recorded() -> None:
    assert odd(recorded("op", 3)) == [
        "in collective 6 of group default_pg, rank 1 called broadcast [8] Float, and ranks 0, 2 called "
        "all_reduce [8] Float"
    ]


def calls(last: int, *, size: int = 8, done: int | None = None, name: str = "all_reduce") -> list[GroupCalls]:
    done = last - 1 if done is None else done
    numbers = range(max(1, last - 3), last + 1)
    listed = [Call(n, name, [[size if n == last else 8]], ["Float"], n <= done) for n in numbers]
    return [GroupCalls("0", "default_pg", [], last, done, listed)]


def test_another_size_is_told_and_of_collectives_that_take_any_it_is_not() -> None:
    assert odd([RankStacks(0, None, groups=calls(9)), RankStacks(1, None, groups=calls(9, size=16))]) == [
        "in collective 9 of group default_pg, rank 1 called all_reduce [16] Float, and rank 0 called "
        "all_reduce [8] Float"
    ]
    uneven = [RankStacks(n, None, groups=calls(9, size=8 + n, name="all_to_all")) for n in range(2)]
    assert odd(uneven) == []


def test_ranks_that_are_in_step_or_only_slower_are_not_told() -> None:
    assert odd([RankStacks(n, None, groups=calls(9)) for n in range(3)]) == []
    ahead = RankStacks(0, None, groups=calls(9, done=9))
    assert odd([ahead, RankStacks(1, None, groups=calls(8))]) == []


def test_a_rank_that_is_far_behind_is_told_though_nothing_of_that_time_is_kept() -> None:
    told = odd([RankStacks(0, None, groups=calls(500, done=490)), RankStacks(1, None, groups=calls(7, done=7))])
    assert len(told) == 1
    assert told[0].startswith("rank 1 did not come to collective ")


def test_what_is_told_comes_back_from_plain_data() -> None:
    found = (NodeStacks("gpu1", (rank(0, ALL_REDUCE), *recorded("skip", 2))), NodeStacks("gpu2", error="no answer"))
    assert of_data(to_data(found)) == found
    assert summary(of_data(to_data(found, is_short=True))) == summary(found)
