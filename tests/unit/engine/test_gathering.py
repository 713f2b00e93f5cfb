"""When the parts of a checkpoint are brought together, and of which step."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.checkpoints import PART, CheckpointsOf, FoundCheckpoint, JoinReply
from dtagent.protocol.events import EventKind
from dtagent.protocol.probes import PathsReply, PathState
from dtagent.protocol.replication import CopiesReply, HeldCopy, SendReply, TakeReply
from dtagent.protocol.rpc import ErrorCode

from dttui.engine.checkpoints.checkpoint_places import places, read_plans
from dttui.engine.checkpoints.replication.gathering import gather
from dttui.engine.checkpoints.replication.written_parts import parts_of
from dttui.engine.checkpoints.resume_choice import whole_steps
from dttui.errors import AgentError
from dttui.planning.resumption import Resumption
from tests.unit.engine.test_resuming_far_back import Job


def part(step: int, form: str = PART, changed_s: float | None = None) -> FoundCheckpoint:
    changed_ns = None if changed_s is None else round(changed_s * 1e9)
    return FoundCheckpoint(f"/kept/step-{step}", form, step, changed_ns=changed_ns)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([part(20, "torch-dcp"), part(10, "torch-dcp")], [part(20), part(10)], [20, 10]),
        ([part(20), part(10, "torch-dcp")], [part(20), part(10)], [10]),
        ([part(20, "torch-dcp")], [part(10)], []),
        ([part(20, "torch-dcp")], [], []),
    ],
    ids=["all there", "rank 0 was still writing", "of other steps", "one host has none"],
)
def test_a_step_counts_of_which_each_host_has_a_part_and_one_what_names_all(
    first: list[FoundCheckpoint], second: list[FoundCheckpoint], expected: list[int]
) -> None:
    assert whole_steps([first, second]) == expected


@pytest.mark.parametrize(
    ("shards_s", "named_s", "is_whole"),
    [(5000.0, 5010.0, True), (5050.0, 5010.0, True), (8000.0, 5010.0, False), (1000.0, 5010.0, False)],
    ids=["before it", "shortly after it", "another training writes over it", "another has written over the rest"],
)
def test_parts_that_were_not_written_together_are_no_whole(shards_s: float, named_s: float, is_whole: bool) -> None:
    """By the login node's clock: that of the second host is an hour ahead."""
    parts = [[part(20, "torch-dcp", named_s)], [part(20, PART, shards_s + 3600)]]
    assert whole_steps(parts, offsets_s=[0.0, 3600.0]) == ([20] if is_whole else [])
    assert whole_steps(parts, offsets_s=[0.0, None]) == [20], "nobody knows the clock of a host that is gone"


class Sender:
    """Has parts of two steps, and sends and takes them without the wire, unless it is told to fail."""

    def __init__(self, *, fails_after_s: float | None = None, takes_s: float = 0.0) -> None:
        self.fails_after_s, self.takes_s = fails_after_s, takes_s
        self.held: list[HeldCopy] = []
        self.free_mib = 100
        self.parts = [FoundCheckpoint(f"/kept/step-{step}", "torch-dcp", step, 10 << 20) for step in (20, 10)]
        self.refused: set[str] = set()
        """Paths that cannot be read."""
        self.joins = True
        self.sent: list[int | None] = []
        self.told: list[tuple[int, str]] = []
        """Of what was sent: the rank that wrote it, and its path."""
        self.dropped: list[str] = []

    async def call(self, method: str, request: Any, _reply: object, _deadline_s: float = 0.0) -> Any:
        if method == "paths":
            return PathsReply([PathState(path, free_mib=self.free_mib) for path in request.paths])
        if method == "copies":
            self.dropped += request.stores if request.drop else []
            return CopiesReply(self.held)
        if method == "copy_take":
            return TakeReply(1)
        if method == "join_checkpoint":
            if not self.joins:
                raise AgentError("a", "unknown method", code=ErrorCode.UNKNOWN_METHOD)
            return JoinReply(f"{request.store}/joined/{request.parts[0].rpartition('/')[2]}")
        if self.fails_after_s is not None:
            await asyncio.sleep(self.fails_after_s)
            return SendReply(detail="cut")
        await asyncio.sleep(self.takes_s)
        if request.path in self.refused:
            return SendReply(detail="Input/output error")
        self.sent.append(request.step)
        self.told.append((request.node_rank, request.path))
        return SendReply("/copy", 1)


class Gathering:
    """Some hosts whose parts are to be brought together."""

    def __init__(self, place: Path, *senders: Sender, copies: int = 0) -> None:
        self.senders = senders
        self.resumption = Resumption(copies=copies)
        self.job = Job(place / "kept", 1, self.resumption, names=("a", "b", "c")[: len(senders)])
        for node, sender in zip(self.job.nodes, senders, strict=True):
            node.client = sender  # type: ignore[assignment]  # all that is asked of it
        self.store = f"{place}/kept/.dttui-copies/{self.job.directory.job_id}.parts"

    async def gathered(self, *unwanted: str, copies: dict[str, list[HeldCopy]] | None = None) -> int | None:
        job = self.job
        (bound,) = read_plans(job.directory, [0]).values()
        answers = {
            node.name: {place: CheckpointsOf(parts=sender.parts)}
            for node, sender in zip(job.nodes, self.senders, strict=True)
            for place in places({0: bound}, node.name, shared=False)
        }
        wanted = parts_of(0, bound, job.nodes, answers, copies or {}, unwanted)
        found = await gather(0, bound, wanted, job.nodes, self.resumption, job.directory.job_id, job.log)
        return found.step if found is not None else None

    def findings(self) -> list[str]:
        return [event.message for event in self.job.directory.read_events(EventKind.FINDING)]


@pytest.mark.parametrize("why", ["silent", "another"])
async def test_nothing_is_brought_together_unless_each_host_that_wrote_is_there(why: str, tmp_path: Path) -> None:
    gathering = Gathering(tmp_path, *(senders := (Sender(), Sender())))
    node = gathering.job.nodes[1]
    if why == "silent":
        node.client = None
    else:
        node.planned = node.planned.model_copy(update={"name": "c"})
    assert await gathering.gathered() is None
    assert [sender.sent for sender in senders] == [[], []]


async def test_no_copy_goes_on_once_it_is_given_up(tmp_path: Path) -> None:
    slow = Sender(takes_s=0.2)
    gathering = Gathering(tmp_path, Sender(fails_after_s=0.0), slow)
    assert await gathering.gathered() is None
    assert slow.sent == [20, 10]


@pytest.mark.parametrize("copies", [0, 1])
async def test_what_came_of_one_that_is_given_up_goes_and_the_copies_of_the_job_stay(
    copies: int, tmp_path: Path
) -> None:
    senders = Sender(fails_after_s=0.0), Sender()
    gathering = Gathering(tmp_path, *senders, copies=copies)
    assert await gathering.gathered() is None
    assert [set(sender.dropped) for sender in senders] == [{gathering.store}] * 2


async def test_a_host_that_joins_nothing_is_named(tmp_path: Path) -> None:
    gathering = Gathering(tmp_path, Sender(), Sender())
    gathering.senders[1].joins = False
    assert await gathering.gathered() is None
    assert "b: it does not answer, or its agent is too old" in gathering.findings()[0]


async def test_where_one_host_has_no_room_nothing_is_sent(tmp_path: Path) -> None:
    senders = Sender(), Sender()
    senders[1].free_mib = 9
    gathering = Gathering(tmp_path, *senders)
    assert await gathering.gathered() is None
    assert [sender.sent for sender in senders] == [[], []]
    assert "take 10.5 MB" in gathering.findings()[0]


async def test_what_a_host_has_of_an_earlier_try_wants_no_room(tmp_path: Path) -> None:
    senders = Sender(), Sender()
    senders[1].free_mib = 9
    senders[1].held = [HeldCopy("/copy", PART, 0, 0, "/kept/step-20", 20)]
    assert await Gathering(tmp_path, *senders).gathered() == 20


LOST = HeldCopy("/copies/rank-1/0-x/step-20", PART, 0, 1, "/kept/step-20", 20, 10 << 20)
"""The part of a host that was lost."""


def spared(place: Path, *senders: Sender) -> Gathering:
    """Return two hosts of which the second takes the place of one that was lost."""
    gathering = Gathering(place, *senders, copies=1)
    gathering.resumption = gathering.resumption.model_copy(update={"place": f"{place}/kept"})
    spare = gathering.job.nodes[1]
    spare.planned = spare.planned.model_copy(update={"name": "c"})
    return gathering


async def test_the_part_of_a_lost_host_comes_from_who_has_a_copy_of_it_with_that_hosts_own(tmp_path: Path) -> None:
    senders = Sender(), Sender()
    gathering = spared(tmp_path, *senders)
    assert await gathering.gathered() is None, "nobody has the other part"
    assert await gathering.gathered(copies={"a": [LOST]}) == 20
    assert sorted(senders[0].told) == [(0, "/kept/step-20"), (1, LOST.path)]
    assert senders[1].told == []


async def test_where_one_cannot_read_its_part_whoever_has_a_copy_sends_it(tmp_path: Path) -> None:
    gathering = Gathering(tmp_path, *(senders := (Sender(), Sender(), Sender())), copies=1)
    senders[0].refused = {"/kept/step-20", "/kept/step-10"}
    assert await gathering.gathered() is None
    assert "Input/output error" in gathering.findings()[0]
    copy = HeldCopy("/copies/rank-0/0-x/step-20", PART, 0, 0, "/kept/step-20", 20, 10 << 20)
    assert await gathering.gathered(copies={"b": [copy]}) == 20
    assert (0, copy.path) in senders[1].told


async def test_a_copy_of_what_has_been_written_over_since_is_none(tmp_path: Path) -> None:
    senders = Sender(), Sender()
    for sender in senders:
        sender.parts = [part(20, "torch-dcp", 9000.0)]
    job = Gathering(tmp_path, *senders, copies=1).job
    (bound,) = read_plans(job.directory, [0]).values()
    (place,) = places({0: bound}, "a", shared=False)
    answers = {name: {place: CheckpointsOf(parts=senders[0].parts)} for name in ("a", "b")}
    old = HeldCopy("/copies/rank-0/0-x/step-20", PART, 0, 0, "/kept/step-20", 20, changed_ns=round(1000.0 * 1e9))
    for copy, expected in ((old, ["a"]), (replace(old, changed_ns=round(9000.0 * 1e9)), ["a", "b"])):
        (found,) = parts_of(0, bound, job.nodes, answers, {"b": [copy]})
        assert list(found[0].holders) == expected


async def test_of_copies_of_several_steps_the_newest_of_which_all_parts_are_there_counts(tmp_path: Path) -> None:
    gathering = spared(tmp_path, Sender(), Sender())
    older = replace(LOST, path="/copies/rank-1/0-y/step-10", source="/kept/step-10", step=10)
    newer = replace(LOST, path="/copies/rank-1/0-z/step-30", source="/kept/step-30", step=30)
    assert await gathering.gathered(copies={"a": [newer, older]}) == 10
    assert await gathering.gathered(older.source, copies={"a": [newer, older]}) is None


async def test_where_nobody_is_left_who_wrote_a_part_copies_of_all_of_them_will_do(tmp_path: Path) -> None:
    gathering = spared(tmp_path, *(senders := (Sender(), Sender())))
    first = gathering.job.nodes[0]
    first.planned = first.planned.model_copy(update={"name": "d"})
    own = HeldCopy("/copies/rank-0/0-x/step-20", PART, 0, 0, "/kept/step-20", 20, 10 << 20)
    assert await gathering.gathered(copies={"c": [own, LOST]}) == 20
    assert sorted(senders[1].told) == [(0, own.path), (1, LOST.path)]
