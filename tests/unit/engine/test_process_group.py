"""Which ranks wait in init_process_group and for whom: told while it lasts, by what the agents see of sockets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import EventKind
from dtagent.protocol.jobs import NodeState, NodeStatus, ProcessExit
from dtagent.protocol.meeting import RendezvousReply, RendezvousRequest

from dttui import jobs
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.rendezvous import process_group
from dttui.engine.rendezvous.process_group import ProcessGroupBoard
from dttui.errors import HostError, HostUnreachableError
from dttui.frameworks import traits_of
from dttui.frameworks.horovod import Horovod
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.view import JobView
from tests.unit.jobs.test_follow import plan_for

KEY = AttemptKey("job", 0)


class Host:
    """An agent that says of each look which ranks are connected; `None` is one too old to tell of ranks.

    Where an answer is an error, it does not answer.
    """

    def __init__(self, *answers: list[int] | HostError | None, listens_on: int = 29500) -> None:
        self.answers = list(answers)
        self.port = listens_on

    async def call(self, method: str, request: RendezvousRequest, *_more: object) -> RendezvousReply:
        told = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(told, HostError):
            raise told
        return RendezvousReply(request.port == self.port, True, told)


@pytest.fixture
def directory() -> JobDirectory:
    return jobs.create("x")


@pytest.fixture
def watched(directory: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr(process_group, "FIRST_LOOK_S", 0.001)
    monkeypatch.setattr(process_group, "MOST_LOOK_S", 0.001)

    async def watch(
        first: Host,
        second: Host,
        status: NodeStatus | None = None,
        *,
        has_reported: bool = False,
        framework: str = "pytorch-ddp",
        **more: Any,
    ) -> list[tuple[str, dict[str, str]]]:
        nodes = []
        for planned, host in zip(plan_for("a", "b").nodes, (first, second), strict=True):
            node = NodeRun(None, planned, KEY, directory, None, None, lambda: None)  # type: ignore[arg-type]  # nothing is connected to
            node.client = host  # type: ignore[assignment]  # all that is asked of it
            node.status = NodeStatus(KEY, planned.node_rank, NodeState.RUNNING)
            nodes.append(node)
        nodes[1].record.has_reported = has_reported
        nodes[1].status = status or nodes[1].status
        board = ProcessGroupBoard(
            nodes, AttemptLog(EventLog(directory.events), 0), 29500, traits_of(framework).process_group, **more
        )
        await asyncio.wait_for(board.watch(), 10)
        events = [event for event in directory.read_events() if event.kind is EventKind.PROGRESS]
        return [(event.message, event.data["absent_ranks"]) for event in events]

    return watch


async def test_who_waits_for_whom_is_told_until_all_have_come(watched: Callable[..., Any]) -> None:
    told = await watched(Host([0]), Host([], [], [1]))
    *waiting, (last, nobody) = told
    expected = r"1 rank waits in init_process_group; not there \d+ s after all ran: rank 1 on b"
    assert all(re.fullmatch(expected, message) for message, _ranks in waiting)
    assert [ranks for _message, ranks in waiting] == [{"1": "b"}] * 2
    assert (last, nobody) == ("the ranks that were waited for have come", {})


@pytest.mark.parametrize(
    ("first", "second"),
    [(Host([0]), Host([1])), (Host([0]), Host(None)), (Host([], [0]), Host([], [1]))],
    ids=["all have come", "an old agent", "none has come yet"],
)
async def test_nothing_is_told_where_nobody_waits(watched: Callable[..., Any], first: Host, second: Host) -> None:
    assert await watched(first, second) == []


SILENT = HostUnreachableError("b", "b: no answer within 3 s")


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (Host(SILENT, SILENT, [], [1]), ["1 rank waits", "the ranks"]),
        (Host([], SILENT, SILENT, [1]), ["1 rank waits", "the ranks"]),
        (Host(SILENT, [1]), []),
    ],
    ids=["at first", "while it is waited for", "until all have come"],
)
async def test_of_ranks_of_a_host_that_does_not_answer_nothing_is_told(
    watched: Callable[..., Any], second: Host, told: list[str]
) -> None:
    found = await watched(Host([0]), second)
    assert len(found) == len(told)
    assert all(message.startswith(begin) for (message, _ranks), begin in zip(found, told, strict=True))
    assert len(second.answers) == 1


async def test_a_host_whose_ranks_have_ended_need_not_answer(watched: Callable[..., Any]) -> None:
    over = NodeStatus(KEY, 1, NodeState.RUNNING, exits=[ProcessExit("1", 1.0, exit_code=0)])
    assert await watched(Host([0]), Host(SILENT), status=over) == []


async def test_a_rank_that_has_ended_is_not_waited_for(watched: Callable[..., Any]) -> None:
    over = NodeStatus(KEY, 1, NodeState.RUNNING, exits=[ProcessExit("1", 1.0, exit_code=0)])
    assert await watched(Host([0]), Host([]), status=over) == []


async def test_a_rank_with_a_port_of_its_own_has_come_once_it_listens_there(watched: Callable[..., Any]) -> None:
    more = {"framework": "tensorflow", "own_ports": {"a": 29500, "b": 29501}}
    assert await watched(Host([]), Host([], listens_on=29501), **more) == []
    status = NodeStatus(KEY, 1, NodeState.RUNNING)

    class Late(Host):
        """It listens on its port from the tenth look on."""

        looks = 0

        async def call(self, method: str, request: RendezvousRequest, *more: object) -> RendezvousReply:
            self.looks += 1
            self.port = 29501 if self.looks >= 10 else 29500
            return await super().call(method, request, *more)

    told = await watched(Host([]), Late([]), status, **more)
    expected = r"1 rank waits in tf\.distribute; not there \d+ s after all ran: rank 1 on b"
    assert re.fullmatch(expected, told[0][0])
    assert told[-1] == ("the ranks that were waited for have come", {})


async def test_many_ranks_of_horovod_are_absent_only_where_two_looks_miss_the_same(
    watched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Host([0], [], [0]), Host([], [1], [1])
    assert len(await watched(*looks, framework="horovod")) == 3
    monkeypatch.setattr(Horovod, "process_group", replace(Horovod.process_group, seen_at_once=1))
    before = len(await watched(Host([0], [], [0]), Host([], [1], [1]), framework="horovod"))
    assert before == 3  # Nothing was told in addition.
    told = await watched(Host([0]), Host([], [], [], [1]), framework="horovod")
    assert [ranks for _message, ranks in told[before:]] == [{"1": "b"}, {"1": "b"}, {}]


async def test_a_step_that_was_reported_shows_that_all_have_met(watched: Callable[..., Any]) -> None:
    assert await watched(Host([0]), Host([]), has_reported=True) == []


async def test_the_view_says_who_is_waited_for_and_stops_to_say_so(
    watched: Callable[..., Any], directory: JobDirectory
) -> None:
    await watched(Host([0]), Host([], [1]))
    view = JobView("x")
    headlines = []
    for event in directory.read_events():
        view.apply(event)
        headlines.append(view.headline(0.0))
    assert headlines[0].startswith("1 rank waits in init_process_group")
    assert headlines[-1] == ""
