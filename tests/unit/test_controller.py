"""The controller's questions to its clients, and what it does with a job it must only stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind, JobState

from dttui.errors import AuthenticationError, HostError, HostUnreachableError, JobFailedError
from dttui.inventory.models import Environment, Inventory
from dttui.services import controller as controller_module
from dttui.services import jobs, orphan
from dttui.services.control import ControllerClient
from dttui.services.controller import Controller
from dttui.services.files import write_atomic
from dttui.services.jobs import EventLog, JobDirectory
from dttui.services.launch import Submission, make_local_plan
from dttui.services.orphan import Orphan
from dttui.spec import parse_job
from dttui.transport.base import Prompt, PromptKind
from dttui.transport.fake import FakeHost, FakeTransport

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


@pytest.fixture
def directory() -> JobDirectory:
    return jobs.create("job")


@pytest.fixture
async def controller(directory: JobDirectory) -> AsyncIterator[Controller]:
    controller = Controller(directory, expects_client=True)
    server = await controller._serve()
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
    answer = asyncio.create_task(controller.ask(PROMPT))
    await asyncio.wait_for(leaving.was_asked.wait(), LIMIT_S)
    assert not staying.was_asked.is_set()
    await second.close()
    assert await asyncio.wait_for(answer, LIMIT_S) == "sesame"
    await first.close()


async def test_a_question_has_no_answer_when_the_last_client_leaves(
    controller: Controller, directory: JobDirectory
) -> None:
    person = Person(None)
    client = await ControllerClient.connect(directory, person)
    answer = asyncio.create_task(controller.ask(PROMPT))
    await asyncio.wait_for(person.was_asked.wait(), LIMIT_S)
    await client.close()
    assert await asyncio.wait_for(answer, LIMIT_S) is None


async def test_a_bystander_that_leaves_changes_nothing(controller: Controller, directory: JobDirectory) -> None:
    bystander = await ControllerClient.connect(directory, Person(None))
    await until_prompting(controller, 1)
    client = await ControllerClient.connect(directory, thinking := Person(None))
    await until_prompting(controller, 2)
    answer = asyncio.create_task(controller.ask(PROMPT))
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
    before = os.umask(0o022)
    try:
        assert controller_module.main([str(directory.path)]) == 0
    finally:
        os.umask(before)
    assert (directory.path / "made").stat().st_mode & 0o777 == 0o700
    assert (directory.path / "made/file").stat().st_mode & 0o777 == 0o600


def test_a_job_that_is_over_is_not_stopped_again(directory: JobDirectory) -> None:
    EventLog(directory).add(EventKind.OUTCOME, "done", data={"state": JobState.SUCCEEDED.value, "exit_code": 0})
    before = os.umask(0o077)
    try:
        assert controller_module.main([str(directory.path), "--stop-only"]) == 0
    finally:
        os.umask(before)
    assert len(directory.read_events()) == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (HostUnreachableError("gpu1", "gpu1: no route"), "could not be reached; what runs there is unknown"),
        (AuthenticationError("gpu1", "gpu1: permission denied"), "gpu1: permission denied"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
async def test_a_host_that_cannot_be_stopped_is_named_as_lost(
    error: HostError, told: str, force: bool, directory: JobDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STOP_DEADLINE_S", "KILL_DEADLINE_S", "RECONNECT_S"):
        monkeypatch.setattr(orphan, name, 0.05)
    inventory = Inventory(environments=(Environment(name="gpu1", host="gpu1"),))
    job = parse_job(JOB, "job.yaml")
    write_atomic(directory.plan, make_local_plan(Submission(job, inventory, tmp_path)).model_dump_json())
    log = EventLog(directory)
    left = Orphan(directory, log, FakeTransport({"gpu1": FakeHost(error=error)}), Person(None), inventory)
    left.request_stop(force)
    with pytest.raises(JobFailedError, match="what runs on gpu1 is unknown"):
        await asyncio.wait_for(left.end(), LIMIT_S)
    (event,) = [event for event in directory.read_events() if event.kind is EventKind.NODE_STATE]
    assert (event.node, event.data, event.message) == ("gpu1", {"state": "lost"}, told)


class Writer:
    """Stands for a controller; all it does is write."""

    def __init__(self, directory: JobDirectory, **_options: bool) -> None:
        self._path = Path(directory.path)

    async def run(self) -> None:
        (self._path / "made").mkdir()
        (self._path / "made/file").write_text("")


async def until_prompting(controller: Controller, count: int) -> None:
    deadline = asyncio.get_running_loop().time() + LIMIT_S
    while len(controller._prompting) != count:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)
