"""The controller's questions to its clients, and what it does with a job it must only stop."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import EventKind, JobState
from dtagent.protocol.jobs import NodeState, NodeStatus
from dtagent.protocol.logs import FollowReply
from dtagent.protocol.rpc import ErrorCode, to_wire
from dtagent.system import processes

from dttui import jobs
from dttui.engine import clients
from dttui.engine import controller as controller_module
from dttui.engine import start as gang_start
from dttui.engine import watch as gang_watch
from dttui.engine.attempt import Attempt
from dttui.engine.context import JobContext
from dttui.engine.controller import Controller
from dttui.engine.nodes import node_run
from dttui.engine.recovered import RecoveredState
from dttui.errors import (
    AuthenticationError,
    ExitCode,
    HostError,
    HostUnreachableError,
    NotFinishedError,
)
from dttui.files import write_atomic
from dttui.i18n import msg, speaking
from dttui.inventory.models import Environment, Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.launch_file import LaunchFile
from dttui.jobs.view import JobView
from dttui.launch.control import ControllerClient
from dttui.launch.local_plan import make_local_plan
from dttui.launch.starting import ensure_controller, start_controller
from dttui.planning.models import Bindings, BoundPlan, Plan
from dttui.planning.submission import Submission
from dttui.spec import parse_job
from dttui.transport.base import Prompt, PromptKind
from tests.fake_transport import FakeHost, FakeTransport
from tests.outcomes import ended_with
from tests.tui.catalogue import compile_catalogues
from tests.unit.rpc.test_agent_client import agent
from tests.waiting import until

PROMPT = Prompt(PromptKind.PASSWORD, "gpu1", "Password:")
LIMIT_S = 10.0
JOB = """\
distributed_training:
  name: test
  dataset: none
  framework: command
  cluster: {nodes: [{id: gpu1, role: master, resources: {gpu: {count: 1}}}]}
  run: {command: ["true"]}
"""


class Person:
    """Answers a fixed word, or thinks for ever."""

    def __init__(self, word: str | None) -> None:
        self.word = word
        self.was_asked = asyncio.Event()

    async def ask(self, prompt: Prompt) -> str | None:
        assert prompt == PROMPT
        self.was_asked.set()
        if self.word is None:
            await asyncio.Event().wait()
        return self.word


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Go back after each test, and to its mask of files: a controller goes to its job's directory and sets one."""
    monkeypatch.chdir(Path.cwd())
    mask = processes.umask()
    yield
    os.umask(mask)


@pytest.fixture
def directory() -> JobDirectory:
    return jobs.create("job")


@pytest.fixture
async def controller(directory: JobDirectory) -> AsyncIterator[Controller]:
    controller = Controller(directory, expects_client=True)
    server = await controller.clients.serve()
    yield controller
    server.close()


async def test_a_question_is_put_to_another_client_when_the_one_it_was_put_to_leaves(
    controller: Controller, directory: JobDirectory
) -> None:
    staying, leaving = Person("sesame"), Person(None)
    first = await ControllerClient.connect(directory, staying)
    await until_prompting(controller, 1)
    second = await ControllerClient.connect(directory, leaving)
    await until_prompting(controller, 2)
    answer = asyncio.create_task(controller.clients.ask(PROMPT))
    await asyncio.wait_for(leaving.was_asked.wait(), LIMIT_S)
    assert not staying.was_asked.is_set()
    await second.close()
    assert await asyncio.wait_for(answer, LIMIT_S) == "sesame"
    await first.close()


async def test_a_question_is_put_in_the_language_of_who_is_asked(
    controller: Controller, directory: JobDirectory
) -> None:
    compile_catalogues()

    class Reader:
        async def ask(self, prompt: Prompt) -> str | None:
            return prompt.text

    client = await ControllerClient.connect(directory, Reader())
    await until_prompting(controller, 1)
    with speaking("zh"):
        text = msg("Passphrase of the key {path}, for use on this machine", path="/k")
        assert not text.isascii()
        prompt = Prompt(PromptKind.PASSPHRASE, "gpu1", text, said="")
        answer = await asyncio.wait_for(controller.clients.ask(prompt), LIMIT_S)
    assert answer == "Passphrase of the key /k, for use on this machine"
    await client.close()


async def test_a_question_has_no_answer_when_the_last_client_leaves(
    controller: Controller, directory: JobDirectory
) -> None:
    person = Person(None)
    client = await ControllerClient.connect(directory, person)
    answer = asyncio.create_task(controller.clients.ask(PROMPT))
    await asyncio.wait_for(person.was_asked.wait(), LIMIT_S)
    await client.close()
    assert await asyncio.wait_for(answer, LIMIT_S) is None


async def test_a_bystander_that_leaves_changes_nothing(controller: Controller, directory: JobDirectory) -> None:
    bystander = await ControllerClient.connect(directory, Person(None))
    await until_prompting(controller, 1)
    client = await ControllerClient.connect(directory, thinking := Person(None))
    await until_prompting(controller, 2)
    answer = asyncio.create_task(controller.clients.ask(PROMPT))
    await asyncio.wait_for(thinking.was_asked.wait(), LIMIT_S)
    await bystander.close()
    await until_prompting(controller, 1)
    assert not answer.done()
    await client.close()
    assert await asyncio.wait_for(answer, LIMIT_S) is None


def test_everything_the_controller_writes_is_for_its_user_alone(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_module, "Controller", Writer)
    os.umask(0o022)
    assert controller_module.main([str(directory.path)]) == 0
    assert (directory.path / "made").stat().st_mode & 0o777 == 0o700
    assert (directory.path / "made/file").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o000])
async def test_the_sockets_of_two_jobs_are_for_their_user_alone_and_leave_the_mask_of_files_as_it_is(mask: int) -> None:
    directories = [jobs.create("one"), jobs.create("two")]
    controllers = [Controller(directory, expects_client=False) for directory in directories]
    os.umask(mask)
    servers = await asyncio.gather(*(controller.clients.serve() for controller in controllers))
    assert processes.umask() == mask
    assert [directory.socket.stat().st_mode & 0o777 for directory in directories] == [0o600, 0o600]
    for server in servers:
        server.close()


def test_a_job_that_is_over_and_lost_no_host_is_left_alone(directory: JobDirectory) -> None:
    write_atomic(directory.launch, "{}")
    EventLog(directory.events).add(EventKind.OUTCOME, "done", data={"state": JobState.SUCCEEDED.value, "exit_code": 0})
    assert not ensure_controller(directory, cleans_up=True)
    assert len(directory.read_events()) == 1


def test_where_no_process_can_be_started_a_take_over_is_refused_with_the_reason(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomic(directory.launch, "{}")

    def refuse(*_arguments: object, **_options: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(NotFinishedError, match="can be started: Resource temporarily unavailable"):
        ensure_controller(directory)
    assert not directory.has_controller()


def test_a_controller_that_runs_counts_as_started_where_there_can_be_no_thread_to_wait_for_it(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    class Started:
        def __init__(self, arguments: list[str], **_options: object) -> None:
            started.append(arguments)

        def wait(self) -> None:
            """Be waited for by a thread."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("dttui.launch.login_session.own_scope", list)
    monkeypatch.setattr(subprocess, "Popen", Started)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    start_controller(directory, None)
    assert [str(directory.path) in arguments for arguments in started] == [True]


def test_a_controller_that_died_between_state_and_outcome_is_taken_at_its_word(directory: JobDirectory) -> None:
    data = {"state": JobState.FAILED.value, "exit_code": 100}
    EventLog(directory.events).add(EventKind.JOB_STATE, "rank 1 on gpu1 exited with code 3", data=data)
    assert controller_module.main([str(directory.path)]) == 0
    last = directory.read_events()[-1]
    assert (last.kind, last.message, last.data) == (EventKind.OUTCOME, "rank 1 on gpu1 exited with code 3", data)


@pytest.mark.parametrize("force", [False, True])
async def test_a_look_at_lost_hosts_is_forced_only_where_that_is_asked_of_it(
    force: bool, directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_launch(directory)
    write_atomic(directory.stop_request, "kill")
    EventLog(directory.events).add(EventKind.OUTCOME, "", data={"state": JobState.FAILED.value, "exit_code": 100})
    seen: list[bool] = []

    async def look(*_arguments: object, forced: asyncio.Event) -> None:
        client = await ControllerClient.connect(directory)
        assert await asyncio.wait_for(client.stop(force=force), LIMIT_S)
        await client.close()
        seen.append(forced.is_set())

    monkeypatch.setattr(controller_module, "clean_up_after_job", look)
    await asyncio.wait_for(Controller(directory, expects_client=False).run(), LIMIT_S)
    assert seen == [force]


@pytest.mark.usefixtures("unhurried")
async def test_a_job_in_a_state_of_another_version_is_taken_over_and_listed_as_unknown(
    directory: JobDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_start, "ROLLBACK_DEADLINE_S", 0.2)
    inventory = write_launch(directory)
    log = running_job(directory, inventory, tmp_path)
    log.add(EventKind.JOB_STATE, "sleeps", attempt=0, data={"state": "HIBERNATING"})
    assert [job.state for job in jobs.list_jobs()] == [JobState.UNKNOWN]
    view = JobView(directory.job_id)
    for event in directory.read_events():
        view.apply(event)
    assert view.state is JobState.UNKNOWN
    error = HostUnreachableError("gpu1", "gpu1: no route")
    monkeypatch.setattr(controller_module, "Transports", lambda: FakeTransport({"gpu1": FakeHost(error=error)}))
    await asyncio.wait_for(Controller(directory, expects_client=False).run(), LIMIT_S)
    last = directory.read_events()[-1]
    assert last.message == "the controller died before the start; what runs on gpu1 is unknown"
    assert last.data == {"state": "FAILED", "exit_code": 5}


@pytest.mark.parametrize("launches", [False, True])
async def test_a_launch_file_of_another_version_is_named_and_fails_no_job_that_may_run(
    launches: bool, directory: JobDirectory
) -> None:
    write_launch(directory)
    body = json.loads(directory.launch.read_text())
    write_atomic(directory.launch, json.dumps({**body, "version": 2}))
    await asyncio.wait_for(Controller(directory, expects_client=False, launches=launches).run(), LIMIT_S)
    last = directory.read_events()[-1]
    assert last.message.startswith(f"{directory.launch} is of version 2, and this dttui reads version 1 of it. ")
    assert last.kind is (EventKind.OUTCOME if launches else EventKind.PROGRESS)


def test_only_one_of_two_controllers_gets_the_job(directory: JobDirectory) -> None:
    lock = directory.claim()
    assert lock is not None
    assert controller_module.main([str(directory.path)]) == 1
    assert directory.has_controller()
    os.close(lock)
    assert not directory.has_controller()
    with directory.lock.open() as looking:  # As `ps`, the screen and an attach do at the same time.
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not directory.has_controller()


async def test_a_stop_is_noted_before_it_is_answered_and_outlives_the_controller(
    controller: Controller, directory: JobDirectory
) -> None:
    client = await ControllerClient.connect(directory)
    assert await asyncio.wait_for(client.stop(force=False), LIMIT_S)
    assert directory.stop_request.read_text() == "stop"
    assert await asyncio.wait_for(client.stop(force=True), LIMIT_S)
    await client.close()
    after = Controller(directory, expects_client=False)
    asked: list[bool] = []
    after.take_stops(asked.append)
    assert asked == [True]


async def test_an_agent_that_is_stuck_holds_no_client_up(
    controller: Controller, directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, answered = threading.Event(), threading.Event()

    def stuck(_path: str) -> None:
        tried.set()
        assert answered.wait(LIMIT_S)

    monkeypatch.setattr(clients, "take_agent", stuck)
    retried = asyncio.Event()
    controller.clients.retry = retried.set
    client = await ControllerClient.connect(directory)
    try:
        assert await asyncio.wait_for(client.stop(), LIMIT_S)
        assert await asyncio.to_thread(tried.wait, LIMIT_S)
        assert not retried.is_set()
    finally:
        answered.set()
    await asyncio.wait_for(retried.wait(), LIMIT_S)
    await client.close()


async def test_a_client_tells_what_was_typed_for_the_job(controller: Controller, directory: JobDirectory) -> None:
    client = await ControllerClient.connect(directory, Person("sesame"))
    await until_prompting(controller, 1)
    assert await client.typed_kinds() == ()
    assert await asyncio.wait_for(controller.clients.ask(PROMPT), LIMIT_S) == "sesame"
    assert await client.typed_kinds() == ("password",)
    await client.close()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (HostUnreachableError("gpu1", "gpu1: no route"), "no word from gpu1 for"),
        (AuthenticationError("gpu1", "gpu1: permission denied"), "gpu1: permission denied. `dttui attach"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.usefixtures("unhurried")
async def test_a_host_that_cannot_be_stopped_is_named_as_lost(
    error: HostError, told: str, force: bool, directory: JobDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STOP_DEADLINE_S", "FORCED_STOP_DEADLINE_S"):
        monkeypatch.setattr(gang_watch, name, 0.2)
    inventory = Inventory(environments=(Environment(name="gpu1", host="gpu1"),))
    log = running_job(directory, inventory, tmp_path, JobState.LAUNCHING, JobState.RUNNING)
    plan = RecoveredState.read(directory, 0.0).plan
    bound = BoundPlan(plan=plan, bindings=Bindings(job_id=directory.job_id, attempt=0, master_port=1, nodes={}))
    write_atomic(directory.bound_plan(0), bound.model_dump_json())
    transport = FakeTransport({"gpu1": FakeHost(error=error)})
    taken = take_over(directory, log, inventory, transport)
    taken.request_stop(force=force)
    ended_with(
        await asyncio.wait_for(taken.run(), LIMIT_S),
        ExitCode.JOB_FAILED,
        "stopped on request, but gpu1 could not be reached",
    )
    nodes = [event for event in directory.read_events() if event.kind is EventKind.NODE_STATE]
    assert [(event.node, event.data["state"]) for event in nodes] == [("gpu1", "unknown"), ("gpu1", "lost")]
    assert nodes[0].message.startswith(told)


@pytest.mark.parametrize("states", [[], [JobState.PREFLIGHT]])
async def test_a_job_whose_controller_died_before_it_touched_a_host_has_failed_without_asking_one(
    states: list[JobState], directory: JobDirectory, tmp_path: Path
) -> None:
    inventory = Inventory(environments=(Environment(name="gpu1", host="gpu1"),))
    log = running_job(directory, inventory, tmp_path, *states)
    transport = FakeTransport({})
    taken = take_over(directory, log, inventory, transport)
    ended_with(await asyncio.wait_for(taken.run(), LIMIT_S), ExitCode.LAUNCH, r"^the controller died before the start$")
    assert transport.connections == []


async def test_a_host_that_cannot_tell_whether_it_was_started_is_lost_and_the_others_are_cleared(
    directory: JobDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_run, "RECONNECT_S", 0.001)
    names = ("gpu1", "gpu2")
    inventory = Inventory(environments=tuple(Environment(name=name, host=name) for name in names))
    job = JOB.replace("role: master, resources: {gpu: {count: 1}}}", "role: master}, {id: gpu2}")
    log = running_job(directory, inventory, tmp_path, JobState.LAUNCHING, job=job)
    bound = BoundPlan(
        plan=RecoveredState.read(directory, 0.0).plan,
        bindings=Bindings(job_id=directory.job_id, attempt=0, master_port=1, nodes={}),
    )
    write_atomic(directory.bound_plan(0), bound.model_dump_json())
    damaged = {"code": ErrorCode.DAMAGED, "message": "a record of how it ended on this host is damaged"}
    running, stopped = (
        NodeStatus(AttemptKey(directory.job_id, 0), 1, NodeState(word)) for word in ("running", "ended")
    )
    asked: list[str] = []

    def trains(method: str) -> object:
        asked.append(method)
        return to_wire({"status": running, "stop": stopped, "follow": FollowReply(stopped, "")}[method])

    transport = FakeTransport({"gpu1": FakeHost(agent(lambda _: damaged)), "gpu2": FakeHost(agent(trains))})
    taken = take_over(directory, log, inventory, transport)
    told = "gpu1: a record of how it ended on this host is damaged"
    caught = ended_with(await asyncio.wait_for(taken.run(), LIMIT_S), ExitCode.LAUNCH)
    assert caught.message == f"{told}; what runs on gpu1 is unknown"
    assert "stop" in asked
    nodes = [event for event in directory.read_events() if event.kind is EventKind.NODE_STATE]
    assert {event.node: (event.data["state"], event.message) for event in nodes} == {
        "gpu1": ("lost", f"{told}; what runs there is unknown"),
        "gpu2": ("ended", "clean"),
    }


def take_over(directory: JobDirectory, log: EventLog, inventory: Inventory, transport: FakeTransport) -> Attempt:
    """Return the newest attempt, as it is for a controller that comes after another."""

    def never(*_: object) -> Plan:
        raise AssertionError("nothing is planned anew")

    job = JobContext(directory, log, transport, Person(None), inventory, never, directory.path, {})
    return Attempt(job, RecoveredState.read(directory, 0.0))


def write_launch(directory: JobDirectory) -> Inventory:
    """Write what was known at the submission of a job of one host; return its inventory."""
    inventory = Inventory(environments=(Environment(name="gpu1", host="gpu1"),))
    launch = LaunchFile(inventory=inventory, base=directory.path, language="en")
    write_atomic(directory.launch, launch.model_dump_json())
    directory.lock.touch()  # A controller whose job was removed ends its whole process.
    return inventory


def running_job(
    directory: JobDirectory,
    inventory: Inventory,
    base: Path,
    *states: JobState,
    job: str = JOB,
) -> EventLog:
    """Write what a controller leaves that died in the last of the states; without any, before the first."""
    plan = make_local_plan(Submission(parse_job(job, "job.yaml"), inventory, base))
    write_atomic(directory.plan, plan.model_dump_json())
    log = EventLog(directory.events)
    for state in states:
        log.add(EventKind.JOB_STATE, "", attempt=0, data={"state": state.value})
    return log


class Writer:
    """Stands for a controller; all it does is write."""

    def __init__(self, directory: JobDirectory, **_options: bool) -> None:
        self._path = Path(directory.path)

    async def run(self) -> None:
        (self._path / "made").mkdir()
        (self._path / "made/file").write_text("")


async def until_prompting(controller: Controller, count: int) -> None:
    await until(lambda: controller.clients.prompting == count, f"{count} questions to be asked", LIMIT_S)
