"""When the parts of a checkpoint are brought together, and of which step."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.checkpoints import PART, CheckpointsOf, CheckpointsReply, FoundCheckpoint, JoinReply
from dtagent.protocol.events import EventKind
from dtagent.protocol.probes import PathsReply, PathState
from dtagent.protocol.replication import CopiesReply, HeldCopy, SendReply, TakeReply

from dttui.engine.checkpoints.checkpoint_places import read_plans
from dttui.engine.checkpoints.replication.gathering import gather
from dttui.engine.checkpoints.resume_choice import whole_steps
from dttui.planning.models import BoundPlan
from dttui.planning.resumption import Resumption
from tests.unit.engine.test_resuming_far_back import Job


def part(step: int, form: str = PART) -> FoundCheckpoint:
    return FoundCheckpoint(f"/kept/step-{step}", form, step)


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


class Host:
    """Has one part, and counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def call(self, method: str, _request: Any, _reply: object, _deadline_s: float = 0.0) -> Any:
        self.asked.append(method)
        return CheckpointsReply([CheckpointsOf(parts=[part(10, "torch-dcp")])])


@pytest.mark.parametrize("why", ["shared", "silent", "another", "alone"])
async def test_nothing_is_brought_together_unless_each_host_that_wrote_is_there(why: str, tmp_path: Path) -> None:
    resumption = Resumption(shared=why == "shared")
    job = Job(tmp_path / "kept", 1, resumption)
    host = Host()
    for node in job.nodes:
        node.client = host  # type: ignore[assignment]  # all that is asked of it
    nodes = job.nodes[:1] if why == "alone" else job.nodes
    if why == "silent":
        nodes[1].client = None
    before: dict[int, BoundPlan] = read_plans(job.directory, [0])
    if why == "another":
        nodes[1].planned = nodes[1].planned.model_copy(update={"name": "c"})
    found = await gather(before, nodes, [], resumption, job.directory.job_id, job.log)
    assert (found, host.asked) == (None, [])


class Sender:
    """Has parts of two steps, and sends and takes them without the wire, unless it is told to fail."""

    def __init__(self, *, fails_after_s: float | None = None, takes_s: float = 0.0) -> None:
        self.fails_after_s, self.takes_s = fails_after_s, takes_s
        self.held: list[HeldCopy] = []
        self.free_mib = 100
        self.sent: list[int | None] = []
        self.told: list[tuple[int, str]] = []
        """Of what was sent: the rank that wrote it, and its path."""
        self.dropped: list[str] = []

    async def call(self, method: str, request: Any, _reply: object, _deadline_s: float = 0.0) -> Any:
        if method == "checkpoints":
            parts = [FoundCheckpoint(f"/kept/step-{step}", "torch-dcp", step, 10 << 20) for step in (20, 10)]
            return CheckpointsReply([CheckpointsOf(parts=parts)])
        if method == "paths":
            return PathsReply([PathState(path, free_mib=self.free_mib) for path in request.paths])
        if method == "copies":
            self.dropped += request.stores if request.drop else []
            return CopiesReply(self.held)
        if method == "copy_take":
            return TakeReply(1)
        if method == "join_checkpoint":
            return JoinReply(f"{request.store}/joined/{request.parts[0].rpartition('/')[2]}")
        if self.fails_after_s is not None:
            await asyncio.sleep(self.fails_after_s)
            return SendReply(detail="cut")
        await asyncio.sleep(self.takes_s)
        self.sent.append(request.step)
        self.told.append((request.node_rank, request.path))
        return SendReply("/copy", 1)


class Gathering:
    """Two hosts whose parts are to be brought together."""

    def __init__(self, place: Path, *senders: Sender, copies: int = 0) -> None:
        self.resumption = Resumption(copies=copies)
        self.job = Job(place / "kept", 1, self.resumption)
        for node, sender in zip(self.job.nodes, senders, strict=True):
            node.client = sender  # type: ignore[assignment]  # all that is asked of it
        self.store = f"{place}/kept/.dttui-copies/{self.job.directory.job_id}"

    async def gathered(self, *unwanted: str, copies: dict[str, list[HeldCopy]] | None = None) -> int | None:
        before = read_plans(self.job.directory, [0])
        job = self.job
        found = await gather(before, job.nodes, unwanted, self.resumption, job.directory.job_id, job.log, copies or {})
        return found.step if found is not None else None

    def findings(self) -> list[str]:
        return [event.message for event in self.job.directory.read_events(EventKind.FINDING)]


async def test_no_copy_goes_on_once_it_is_given_up(tmp_path: Path) -> None:
    slow = Sender(takes_s=0.2)
    gathering = Gathering(tmp_path, Sender(fails_after_s=0.0), slow)
    assert await gathering.gathered() is None
    assert slow.sent == [20, 10]


@pytest.mark.parametrize("copies", [0, 1])
async def test_what_came_of_one_that_is_given_up_goes_unless_copies_lie_beside_it(copies: int, tmp_path: Path) -> None:
    senders = Sender(fails_after_s=0.0), Sender()
    gathering = Gathering(tmp_path, *senders, copies=copies)
    assert await gathering.gathered() is None
    assert [set(sender.dropped) for sender in senders] == [set() if copies else {gathering.store}] * 2


async def test_a_whole_that_is_unwanted_is_not_brought_together(tmp_path: Path) -> None:
    senders = Sender(), Sender()
    gathering = Gathering(tmp_path, *senders)
    assert await gathering.gathered(f"{gathering.store}/joined/step-20") == 10
    assert [sender.sent for sender in senders] == [[10], [10]]


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
