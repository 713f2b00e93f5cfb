"""Processes that only serve others, in gangs of the embedded cluster: when they end, and what the job is told of it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from dtagent.protocol.events import JobState, NodeStanding

from dttui.diagnosis.diagnose import diagnose
from dttui.diagnosis.evidence import read_evidence
from dttui.engine.attempt import Attempt
from dttui.engine.recovered import RecoveredState
from dttui.errors import ExitCode
from dttui.frameworks.base import JobLayout, NodeLayout
from dttui.frameworks.bundle import PlannedProcess
from dttui.frameworks.command import Command
from dttui.jobs.view import JobView
from tests.agent.conversation import processes_with
from tests.integration.gangs import ONE, TWO, TestGang, have_older_agent
from tests.outcomes import ended_with
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.waiting import until

SERVE = "echo serves; exec sleep 300"
SERVES = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
print("serves", flush=True)
while True:
    signal.pause()
"""
WAIT = 'echo works; while [ ! -e "$GO" ]; do sleep 0.05; done'
DEADLINE_S = 60.0

Make = Callable[..., TestGang]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make a gang whose nodes run what they are told here: `{name: (command, whether a service, whether a rank)}`."""

    def make(nodes: dict[str, list[tuple[str, bool, bool]]], serving: str = SERVE) -> TestGang:
        plain = Command.processes

        def processes(self: Command, layout: JobLayout, node: NodeLayout) -> tuple[PlannedProcess, ...]:
            (process,) = plain(self, layout, node)
            made = []
            for command, is_service, is_rank in nodes[node.name]:
                own = {"argv": ("sh", "-c", command), "is_service": is_service}
                if not is_rank:
                    own |= {"name": "service-store", "rank": None}
                made.append(process.model_copy(update=own))
            return tuple(made)

        monkeypatch.setattr(Command, "processes", processes)
        run = {"command": ["sh"], "env": {"GO": str(tmp_path / "go")}}
        return TestGang(tmp_path / "job", dict.fromkeys(nodes, 1), run=run)

    return make


def worker(command: str = WAIT) -> tuple[str, bool, bool]:
    return command, False, True


def server(command: str = SERVE) -> tuple[str, bool, bool]:
    """A service that is a rank, as a parameter server is."""
    return command, True, True


def store(command: str = SERVE) -> tuple[str, bool, bool]:
    """A service that is none."""
    return command, True, False


def view_of(gang: TestGang) -> JobView:
    view = JobView(gang.directory.job_id)
    view.set_plan(gang.gang.plan)
    for event in gang.directory.read_events():
        view.apply(event)
    return view


def printed(gang: TestGang, node: str, stream: str) -> str:
    path = gang.directory.logs(0, node) / stream
    return path.read_text() if path.exists() else ""


async def test_a_node_that_only_serves_ends_once_the_others_have_and_the_job_succeeds(
    make: Make, tmp_path: Path
) -> None:
    gang = make({ONE: [worker(), store()], TWO: [server()]})
    running = asyncio.ensure_future(gang.gang.run())
    await until(lambda: view_of(gang).state is JobState.RUNNING, "all to run", DEADLINE_S)
    await until(lambda: printed(gang, TWO, "1.out") == "serves\n", "the server's log", DEADLINE_S)
    await until(lambda: printed(gang, ONE, "service-store.out") == "serves\n", "the store's log", DEADLINE_S)
    (tmp_path / "go").touch()
    await asyncio.wait_for(running, DEADLINE_S)
    view = view_of(gang)
    assert not view.failures
    assert {name: node.state for name, node in view.nodes.items()} == dict.fromkeys((ONE, TWO), NodeStanding.ENDED)
    assert f"all others have ended well; services end on {TWO}" in gang.messages("progress")
    assert JobState.STOPPING not in [event.data.get("state") for event in gang.directory.read_events()]
    assert processes_with(f"DTTUI_JOB_ID={gang.directory.job_id}") == []


async def test_a_server_whose_script_makes_an_exit_code_of_the_signal_that_ends_it_has_not_failed(
    make: Make, tmp_path: Path
) -> None:
    (tmp_path / "serve.py").write_text(SERVES)
    gang = make({ONE: [worker()], TWO: [server(f"exec ${{PYTHON}} ${{PAYLOAD}}/rank.py {tmp_path / 'serve.py'}")]})
    running = asyncio.ensure_future(gang.gang.run())
    await until(lambda: printed(gang, TWO, "1.out") == "serves\n", "the server's log", DEADLINE_S)
    (tmp_path / "go").touch()
    await asyncio.wait_for(running, DEADLINE_S)
    assert not view_of(gang).failures
    assert printed(gang, TWO, "1.err").endswith("told to end\n")


async def test_a_service_that_dies_fails_the_job_by_its_name_and_its_last_words_are_told(make: Make) -> None:
    gang = make({ONE: [worker(), store("echo the store is full >&2; exit 3")], TWO: [server()]})
    ended_with(
        await asyncio.wait_for(gang.gang.run(), DEADLINE_S),
        ExitCode.JOB_FAILED,
        f"^service-store on {ONE} exited with code 3$",
    )
    view = view_of(gang)
    first, consequence = view.failures
    assert (first.node, first.rank, first.tail) == (ONE, None, ("the store is full",))
    assert (consequence.rank, consequence.signal) == (0, signal.SIGTERM)
    found = diagnose(read_evidence(gang.directory, view))
    assert found.first is not None
    assert found.first.failure.service == "service-store"
    assert found.log == (ONE, "service-store.err")
    assert processes_with(f"DTTUI_JOB_ID={gang.directory.job_id}") == []


async def test_a_server_that_dies_is_a_failed_rank(make: Make) -> None:
    gang = make({ONE: [worker()], TWO: [server("kill -SEGV $$")]})
    ended_with(
        await asyncio.wait_for(gang.gang.run(), DEADLINE_S),
        ExitCode.JOB_FAILED,
        f"^rank 1 on {TWO} was ended by signal SIGSEGV$",
    )


async def test_a_failed_worker_stops_the_servers_and_is_all_that_is_told(make: Make) -> None:
    gang = make({ONE: [worker("exit 4"), store()], TWO: [server()]})
    ended_with(
        await asyncio.wait_for(gang.gang.run(), DEADLINE_S),
        ExitCode.JOB_FAILED,
        f"^rank 0 on {ONE} exited with code 4$",
    )
    assert [(item.node, item.rank) for item in view_of(gang).failures] == [(ONE, 0)]


async def test_a_stop_while_only_servers_run_on_a_node_is_a_stop(make: Make) -> None:
    gang = make({ONE: [worker()], TWO: [server()]})
    running = asyncio.ensure_future(gang.gang.run())
    await until(lambda: view_of(gang).state is JobState.RUNNING, "all to run", DEADLINE_S)
    gang.gang.request_stop(force=False)
    ended_with(await asyncio.wait_for(running, DEADLINE_S), ExitCode.CANCELLED, r"^stopped on request$")
    assert view_of(gang).nodes[TWO].state is NodeStanding.STOPPED


async def test_another_controller_ends_the_servers_too(make: Make, tmp_path: Path) -> None:
    gang = make({ONE: [worker()], TWO: [server()]})
    first = asyncio.ensure_future(gang.gang.run())
    await until(lambda: view_of(gang).state is JobState.RUNNING, "all to run", DEADLINE_S)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    (tmp_path / "go").touch()
    taken = Attempt(gang.job, RecoveredState.read(gang.directory, 0.0))
    ended_with(await asyncio.wait_for(taken.run(), DEADLINE_S), ExitCode.OK)
    assert not view_of(gang).failures
    assert processes_with(f"DTTUI_JOB_ID={gang.directory.job_id}") == []


async def test_an_agent_that_would_never_end_them_is_refused_before_anything_starts(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_older_agent(monkeypatch, TWO, ends_services=False)
    gang = make({ONE: [worker()], TWO: [server()]})
    words = f"^{TWO}: its agent is too old for this framework: "
    caught = ended_with(await asyncio.wait_for(gang.gang.run(), DEADLINE_S), ExitCode.PREFLIGHT, words)
    assert caught.hint == f"Upgrade it: dttui agents deploy {TWO}"
    assert printed(gang, ONE, "0.out") == ""
