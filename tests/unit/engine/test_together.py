"""Whether ranks train together, by what they say of their process groups: who is judged, when, and in what words."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import EventKind, JobState
from dtagent.protocol.jobs import NodeState, NodeStatus
from dtagent.protocol.meeting import FormedGroup, Numbering

from dttui import jobs
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.nodes.node_record import Shared
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.rendezvous import together
from dttui.engine.rendezvous.together import TogetherWatch
from dttui.inventory.models import Environment
from dttui.jobs.disturbances import APART
from dttui.jobs.event_log import EventLog
from dttui.jobs.view import JobView
from dttui.transport.base import Nobody
from tests.fake_transport import FakeTransport
from tests.unit.jobs.test_follow import plan_for
from tests.waiting import until

NONE = "the 4 ranks have formed no process group: each seems to train by itself"
TWO = "the 4 ranks have formed 2 process groups, of 2, 2: they do not train together"


def formed(ranks: list[int], size: int, members: str = "m", *, turn: int = 0, **more: Any) -> FormedGroup:
    places = more.pop("places", list(range(len(ranks))))
    return FormedGroup(ranks, places, more.pop("backend", "gloo"), size, members, turn, more.pop("notes", ["torch"]))


def none(ranks: list[int], *notes: str) -> FormedGroup:
    return FormedGroup(ranks, notes=list(notes))


class Job:
    """Four ranks, one on each node, and the watch over their groups."""

    def __init__(self, framework: str = "pytorch-ddp", *, wanted: Any = "auto", is_elastic: bool = False) -> None:
        more = {"framework": framework, "require_process_group": wanted}
        self.plan = plan_for(*"abcd").model_copy(update=more)
        self.directory = jobs.create("x")
        key = AttemptKey(self.directory.job_id, 0)
        self.log = AttemptLog(EventLog(self.directory.events), 0)
        shared = Shared(world_size=4, is_elastic=is_elastic)
        self.nodes = [
            NodeRun(
                Environment(name=planned.name, host=planned.name),
                planned,
                key,
                self.directory,
                FakeTransport({}),
                Nobody(),
                lambda: None,
                shared,
            )
            for planned in self.plan.nodes
        ]
        for node in self.nodes:
            node.status = NodeStatus(key, node.planned.node_rank, NodeState.RUNNING)
        self.out: set[str] = set()
        self.watch = TogetherWatch(
            self.plan, lambda: [node for node in self.nodes if node.name not in self.out], self.log
        )

    def say(self, *groups: FormedGroup, numbering: dict[str, Numbering] | None = None) -> None:
        for node in self.nodes:
            node.status = NodeStatus(
                node.key,
                node.planned.node_rank,
                NodeState.RUNNING,
                groups=list(groups),
                numbering=(numbering or {}).get(node.name),
            )

    def end(self) -> str:
        apart = self.watch.end()
        return "" if apart is None else apart.message

    def told(self) -> list[tuple[str, str]]:
        events = [event for event in self.directory.read_events() if event.kind is EventKind.FINDING]
        return [(event.data["severity"], event.message) for event in events]


ALL = [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([formed(ALL, 4)], ""),
        # Nothing is known: an agent or a payload of before.
        ([], ""),
        ([formed([0, 1], 2, "a"), formed([2, 3], 2, "b")], TWO),
        ([formed([rank], 1, f"m{rank}") for rank in ALL],
         "the 4 ranks have formed 4 process groups, of 1, 1, 1, 1: they do not train together"),
        ([none(ALL, "torch")], NONE),
        # What processes that they started have formed is not known.
        ([none(ALL, "torch", "launcher")], "the 4 ranks have formed no process group themselves"),
        ([none(ALL)], "the 4 ranks have formed no process group themselves"),
        # They may have formed any group.
        ([none(ALL, "unseen")], ""),
        # Not of every rank is it known that it has none.
        ([none([0, 1, 2])], ""),
        ([formed([0, 1, 2], 3), none([3])], "3 of 4 ranks are in the process group; none: rank 3 on d"),
        ([formed([0], 1), none([1, 2, 3])],
         "1 of 4 ranks is in the process group; none: rank 1 on b, rank 2 on c, rank 3 on d"),
        # A group of all is one, whoever it is that has formed it.
        ([formed([0, 1], 4), none([2, 3])], ""),
        ([formed(ALL, 4), formed(ALL, 4, "n", turn=1)], ""),
        # One rank has formed it anew, and the others are about to.
        ([formed(ALL, 4), formed([2], 4, "n", turn=1, places=[2])], ""),
        # After training, one evaluates by itself.
        ([formed(ALL, 4), formed([0], 1, "n", turn=1)], ""),
        ([formed(ALL, 4), formed([0, 1], 2, "a", turn=1), formed([2, 3], 2, "b", turn=1)], TWO),
        ([formed([0, 1], 2, "a"), formed([2, 3], 2, "b"), formed(ALL, 4, turn=1)], ""),
        # The store had gone with one rank before the others had asked it.
        ([formed([0], 4, "a"), formed([1, 2, 3], 4, "", places=[1, 2, 3])], ""),
        ([formed([0, 1, 2], 4), formed([3], 4, "", places=[2])],
         ""),
        ([formed([0], 2, "a"), formed([1], 2, "", places=[1]), formed([2, 3], 2, "b")], TWO),
        # Without a store the places tell.
        ([formed(ALL, 4, "", backend="mpi")], ""),
        ([formed(ALL, 2, "", backend="mpi", places=[0, 1, 0, 1])], TWO),
        ([formed(ALL, 1, "", backend="horovod", places=[0, 0, 0, 0])],
         "the 4 ranks have formed 4 process groups, of 1, 1, 1, 1: they do not train together"),
        ([formed(ALL, 4, "", backend="gloo", places=[0, 1, 0, 1])],
         "the 4 ranks have formed 2 process groups, of 4, 4: they do not train together"),
        ([formed(ALL, 8, "", backend="fake")], NONE),
        # What a job has written over, or an agent makes up, breaks nothing.
        ([formed([77], 1), formed(ALL, 4, places=[0])], NONE),
    ],
)  # fmt: skip
def test_it_is_judged_by_who_is_in_which_group(groups: list[FormedGroup], message: str) -> None:
    job = Job()
    job.say(*groups)
    said = job.end()
    assert said == message
    assert job.told() == ([("warning", message)] if message else [])


@pytest.mark.parametrize(
    ("framework", "wanted", "is_judged"),
    [
        *((name, "auto", True) for name in ("pytorch-ddp", "pytorch-fsdp", "deepspeed", "megatron-lm", "horovod")),
        *((name, "auto", False) for name in ("command", "tensorflow", "of-a-package")),
        ("pytorch-ddp", False, False),
        ("of-a-package", True, True),
    ],
)
def test_who_trains_apart_on_purpose_is_not_told_of(framework: str, wanted: Any, is_judged: bool) -> None:
    job = Job(framework, wanted=wanted)
    job.say(none(ALL, "torch"))
    assert bool(job.end()) == is_judged
    assert (job.watch.wait_s is None) or is_judged


def test_one_rank_is_together_whatever_is_wanted() -> None:
    job = Job(wanted=True)
    plan = job.plan.model_copy(update={"world_size": 1, "nodes": job.plan.nodes[:1]})
    watch = TogetherWatch(plan, lambda: job.nodes[:1], job.log)
    job.say(none([0], "torch"))
    assert (watch.end(), watch.wait_s) == (None, None)


@pytest.mark.parametrize(
    ("group", "why"),
    [
        (none(ALL, "torch", "accelerate"), "accelerate has chosen no distribution"),
        (none(ALL, "torch", "launcher"), "The script starts processes of its own"),
        (none(ALL, "torch"), "The script never calls init_process_group"),
        (none(ALL), "The process that was started does not import torch.distributed"),
        (none(ALL, "of a newer agent"), "The process that was started does not import"),
        (formed([0], 1, notes=["torch", "world-size"]), "The script has changed WORLD_SIZE"),
        (formed([0], 1), "init_process_group was given a world_size"),
    ],
)
def test_the_likely_reason_is_told(group: FormedGroup, why: str) -> None:
    job = Job()
    job.say(group)
    apart = job.watch.end()
    assert apart is not None
    assert apart.why.startswith(why)
    assert apart.whole == f"{apart.message}. {apart.why}"
    (event,) = [event for event in job.directory.read_events() if event.kind is EventKind.FINDING]
    assert event.data["hint"].endswith("write require_process_group: false.")
    horovod = Job("horovod")
    horovod.say(group)
    assert "HOROVOD_" in str(horovod.watch.end()) or "hvd.init" in str(horovod.watch.end())


def test_where_it_is_required_what_is_not_known_does_not_do() -> None:
    job = Job(wanted=True)
    assert job.end() == "whether the ranks have formed a process group is not known"
    assert job.told()[0][0] == "error"
    silent = Job(wanted=True)
    silent.say(formed(ALL, 4))
    assert silent.end() == ""


async def test_while_they_run_it_is_told_once_it_is_plain_once_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    job = Job()
    job.say(none(ALL, "torch"))

    def looks() -> None:
        nonlocal now_s
        for _look in range(3):
            job.watch.look()
            now_s += together.SETTLE_S

    looks()
    assert job.told() == []  # They may still be on their way.
    job.nodes[0].record.reports = together.LEAST_REPORTS
    looks()
    job.say(none(ALL, "torch", "accelerate"))
    looks()
    assert job.told() == [("warning", NONE)]
    assert job.watch.wait_s is None
    view = JobView("x")
    view.set_plan(job.plan)
    for event in job.directory.read_events():
        view.apply(event)
    view.state, view.reason = JobState.RUNNING, "all 4 ranks run"
    assert view.headline(0.0) == NONE
    job.say(formed(ALL, 4))
    looks()
    assert job.told()[1:] == [("info", "all ranks are in one process group now")]
    view.apply([event for event in job.directory.read_events() if event.data.get("code") == APART][-1])
    assert view.headline(0.0) == "all 4 ranks run"
    assert job.end() == ""


async def test_ranks_that_torchrun_has_just_started_again_are_still_on_their_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Although those before them had reported steps."""
    monkeypatch.setattr(together, "SETTLE_S", 0.0)
    job = Job(is_elastic=True)
    job.say(formed(ALL, 4), numbering={name: Numbering([rank], 4, 0, 4000) for rank, name in enumerate("abcd")})
    job.nodes[0].record.reports = 50
    assert job.watch.look() is None
    anew = {name: Numbering([rank], 4, 1, 5000) for rank, name in enumerate("abcd")}
    job.say(none(ALL, "torch"), numbering=anew)
    assert [job.watch.look() for _look in range(3)] == [None] * 3
    job.nodes[0].record.reports += together.LEAST_REPORTS
    apart = job.watch.look()
    assert apart is not None
    assert apart.message == NONE


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([formed(ALL, 4)], "all ranks are in one process group now"),
        # The ranks' last word took back what they had said of themselves.
        ([], "whether the ranks have formed a process group is not known"),
    ],
)
async def test_what_was_told_is_taken_back_at_the_end_too(
    groups: list[FormedGroup], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "SETTLE_S", 0.0)
    job = Job()
    job.nodes[0].record.reports = together.LEAST_REPORTS
    job.say(none(ALL, "torch"))
    assert job.watch.look() is not None
    job.say(*groups)
    assert job.end() == ""
    assert job.told() == [("warning", NONE), ("info", message)]


async def test_a_small_group_that_a_script_forms_first_is_no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()
    steps = itertools.count()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: float(next(steps)) / 2)
    job.say(*(formed([rank], 1, f"m{rank}") for rank in ALL))
    assert job.watch.look() is None
    job.say(*(formed([rank], 1, f"m{rank}") for rank in ALL), formed(ALL, 4, turn=1))
    assert job.watch.look() is None
    job.say(*(formed([rank], 1, f"m{rank}", turn=1) for rank in ALL))
    monkeypatch.undo()
    monkeypatch.setattr(together, "SETTLE_S", 0.01)
    await until(lambda: job.watch.look() is not None, "what stays so to be told")
    assert len(job.told()) == 1


def test_of_an_elastic_job_the_ranks_of_the_last_round_count() -> None:
    job = Job(is_elastic=True)
    before = {name: Numbering([rank], 4, 0, 4000) for rank, name in enumerate("abcd")}
    job.say(formed(ALL, 4), numbering=before)
    assert job.end() == ""
    # One has gone; of the others two are numbered anew, and the third is about to be.
    job.out = {"b"}
    anew = {"a": Numbering([0], 3, 1, 5000), "c": Numbering([1], 3, 1, 5000), "d": before["d"]}
    job.say(formed([0, 1], 3, "n"), numbering=anew)
    assert job.end() == ""
    anew["d"] = Numbering([2], 3, 1, 5000)
    job.say(formed([0, 1, 2], 3, "n"), numbering=anew)
    assert job.end() == ""
    job.say(*(formed([rank], 1, f"n{rank}") for rank in (0, 1, 2)), numbering=anew)
    assert job.end() == "the 3 ranks have formed 3 process groups, of 1, 1, 1: they do not train together"
