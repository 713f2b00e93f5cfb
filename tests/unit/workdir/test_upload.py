"""Sending a working directory to a host that keeps contents by their hash: only what it lacks is sent."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from dtagent.attempts.attempts import Attempts
from dtagent.errors import RpcError
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.preparation import PrepareRequest, PushRequest, WorkReply, WorkRequest
from dtagent.protocol.rpc import ErrorCode

from dttui import jobs
from dttui.engine import start as gang_start
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.nodes import node_start
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.nodes.node_start import NodeStart
from dttui.engine.start import GangStart
from dttui.errors import AgentError, HostUnreachableError, UsageError
from dttui.inventory.models import Environment
from dttui.jobs.event_log import EventLog
from dttui.rpc.client import AgentClient
from dttui.transport.base import Nobody
from dttui.workdir import upload
from dttui.workdir.selection import Upload, UploadFile, survey
from dttui.workdir.upload import Bundle, make_bundle, send
from tests.fake_transport import FakeConnection, FakeTransport
from tests.unit.jobs.test_follow import plan_for


class Host:
    """An agent's own part behind the calls, which counts what comes."""

    name = "gpu1"

    def __init__(self, root: Path) -> None:
        self.attempts = Attempts(root, lambda: [])
        self.root = root
        self.pushed: list[int] = []
        self.number = 0
        self.before_push: Callable[[], None] = lambda: None
        self.answer: Callable[[str], Any] | None = None

    takes_bytes = True

    async def call(self, method: str, request: Any, _reply: type, _timeout_s: float = 30.0, brings: bytes = b"") -> Any:
        if self.answer is not None and (found := self.answer(method)) is not None:
            return found
        try:
            if method == "work":
                return self.attempts.work(cast(WorkRequest, request))
            self.before_push()
            before = request.offset
            request = replace(cast(PushRequest, request), data=brings) if brings else request
            after = self.attempts.push(request)
            self.pushed.append(after - before)
            return after
        except RpcError as error:
            raise AgentError(self.name, str(error), code=error.code) from error

    def prepare(self) -> AttemptKey:
        """Prepare the next job's attempt."""
        self.number += 1
        key = AttemptKey(f"job{self.number}", 0)
        self.attempts.prepare(PrepareRequest(key, 0, "sh", "127.0.0.1", False, (29500, 29999), 0))
        return key

    def work_of(self, key: AttemptKey) -> dict[str, bytes]:
        """Return the files of an attempt's `work`."""
        work = self.root / "jobs" / key.job_id / str(key.attempt) / "work"
        return {str(path.relative_to(work)): path.read_bytes() for path in work.rglob("*") if path.is_file()}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "root")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    found = tmp_path / "project"
    for name, content in {
        "train.py": b"x = 1\n",
        "lib/net.py": b"y" * 200_000,
        "empty": b"",
        "same": b"x = 1\n",
    }.items():
        (found / name).parent.mkdir(parents=True, exist_ok=True)
        (found / name).write_bytes(content)
    return found


async def launch(host: Host, directory: Path) -> tuple[AttemptKey, int]:
    key = host.prepare()
    host.pushed.clear()
    return key, await send(cast(AgentClient, host), key, make_bundle(survey(directory).files))


@pytest.mark.parametrize("takes_bytes", [True, False])
async def test_a_second_launch_sends_nothing_and_a_change_sends_only_itself(
    host: Host, directory: Path, takes_bytes: bool
) -> None:
    host.takes_bytes = takes_bytes
    key, sent = await launch(host, directory)
    assert sent == 200_000 + 6  # Of two files with the same content one is sent.
    assert host.work_of(key)["lib/net.py"] == b"y" * 200_000
    assert host.work_of(key).keys() == {"train.py", "lib/net.py", "empty", "same"}
    key, sent = await launch(host, directory)
    assert (sent, host.pushed) == (0, [])
    (directory / "train.py").write_text("x = 2\n")
    (directory / "same").unlink()
    key, sent = await launch(host, directory)
    assert sent == 6
    assert host.work_of(key) == {"train.py": b"x = 2\n", "lib/net.py": b"y" * 200_000, "empty": b""}


async def test_a_job_that_writes_to_its_files_in_place_leaves_the_next_jobs_alone(host: Host, directory: Path) -> None:
    key, _ = await launch(host, directory)
    with (host.root / "jobs" / key.job_id / "0/work/train.py").open("r+b") as stream:
        stream.write(b"broken")
    key, sent = await launch(host, directory)
    assert sent == 0
    assert host.work_of(key)["train.py"] == b"x = 1\n"


@pytest.mark.parametrize("damage", [b"", b"z" * 200_000, b"y" * 200_001])
async def test_a_content_that_was_damaged_on_the_host_is_sent_again(host: Host, directory: Path, damage: bytes) -> None:
    await launch(host, directory)
    (large,) = [path for path in (host.root / "store").rglob("*") if path.is_file() and path.stat().st_size == 200_000]
    large.write_bytes(damage)
    key, sent = await launch(host, directory)
    assert sent == 200_000
    assert host.work_of(key)["lib/net.py"] == b"y" * 200_000


async def test_a_long_list_of_files_is_pushed_once_and_known_by_its_name_then(
    host: Host, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "INLINE_BYTES", 10)
    _, sent = await launch(host, directory)
    assert sent == 200_006
    assert sum(host.pushed) > sent
    _, sent = await launch(host, directory)
    assert (sent, host.pushed) == (0, [])


async def test_an_agent_that_starts_anew_in_between_asks_again(host: Host, directory: Path) -> None:
    def restart() -> None:
        host.before_push = lambda: None
        host.attempts = Attempts(host.root, lambda: [])

    host.before_push = restart
    key, sent = await launch(host, directory)
    assert sent == 200_006
    assert len(host.work_of(key)) == 4


async def test_what_is_appended_meanwhile_stays_here_and_what_is_changed_is_an_error(
    host: Host, directory: Path
) -> None:
    bundle = make_bundle(survey(directory).files)
    with (directory / "train.py").open("a") as stream:
        stream.write("more\n")
    key = host.prepare()
    await send(cast(AgentClient, host), key, bundle)
    assert host.work_of(key)["train.py"] == b"x = 1\n"
    (directory / "train.py").write_text("x = 7\n")
    bundle = make_bundle(survey(directory).files)
    (directory / "train.py").write_text("x = 8\n")
    with pytest.raises(UsageError, match="a file changed while it was sent to gpu1"):
        await send(cast(AgentClient, host), host.prepare(), bundle)
    (directory / "train.py").write_text("x")
    with pytest.raises(UsageError, match="became shorter"):
        await send(cast(AgentClient, host), host.prepare(), bundle)


async def test_a_directory_that_is_exchanged_for_a_link_meanwhile_sends_nothing_from_there(
    host: Host, directory: Path, tmp_path: Path
) -> None:
    bundle = make_bundle(survey(directory).files)
    secret = tmp_path / "outside/net.py"
    secret.parent.mkdir()
    secret.write_bytes(b"s" * 200_000)
    (directory / "lib").rename(tmp_path / "aside")
    (directory / "lib").symlink_to(secret.parent)
    host.before_push = lambda: pytest.fail("something was sent")
    with pytest.raises(UsageError, match=r"lib/net\.py was a file of the working directory, and leads elsewhere now"):
        await send(cast(AgentClient, host), host.prepare(), replace(bundle, sources=_only(bundle, 200_000)))
    with pytest.raises(UsageError, match="leads elsewhere now"):
        make_bundle(tuple(bundle.sources.values()))


def _only(bundle: Bundle, size: int) -> dict[str, UploadFile]:
    """Return all contents as sources of the one file of a size, so that this is what is read first."""
    (large,) = [file for file in bundle.sources.values() if file.size == size]
    return dict.fromkeys(bundle.sources, large)


async def test_the_next_part_is_on_its_way_while_the_host_takes_one(host: Host, directory: Path) -> None:
    (directory / "large").write_bytes(os.urandom(3_000_000))
    waiting: list[asyncio.Event] = []
    plain, most = host.call, 0

    async def call(method: str, *arguments: Any) -> Any:
        nonlocal most
        if method == "push":
            waiting.append(gate := asyncio.Event())
            most = max(most, len(waiting))
            if len(waiting) > 1:
                waiting[0].set()
            asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(gate.set))
            await gate.wait()
            waiting.remove(gate)
        return await plain(method, *arguments)

    cast(Any, host).call = call
    key, sent = await launch(host, directory)
    assert most == upload.PARTS_UNDER_WAY
    assert sent == 3_200_006
    assert host.work_of(key)["large"] == (directory / "large").read_bytes()


async def test_a_part_that_is_on_its_way_goes_out_whole_where_the_sending_is_given_up(
    host: Host, directory: Path
) -> None:
    begun, gate, went_out = asyncio.Event(), asyncio.Event(), False
    plain = host.call

    async def call(method: str, *arguments: Any) -> Any:
        nonlocal went_out
        if method == "push":
            begun.set()
            await gate.wait()
            went_out = True
        return await plain(method, *arguments)

    cast(Any, host).call = call
    sending_files = asyncio.create_task(launch(host, directory))
    await asyncio.wait_for(begun.wait(), 10)
    sending_files.cancel()
    await asyncio.wait({sending_files}, timeout=0.05)
    assert not sending_files.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(sending_files, 10)
    assert went_out


async def test_files_are_looked_through_beside_the_loop(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def noted(path: Path) -> Upload:
        threads.append(threading.get_ident())
        return survey(path)

    monkeypatch.setattr(gang_start, "survey", noted)
    job = jobs.create("job")
    sent = plan_for("gpu1").model_copy(update={"upload": "."})
    start = GangStart(job, AttemptLog(EventLog(job.events), 0), [], sent, directory, {})
    bundle = await start.make_bundle()
    assert bundle is not None
    assert bundle.count == 4
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.usefixtures("unhurried")
async def test_a_host_that_refuses_is_asked_again_with_pauses(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_start, "SEND_PATIENCE_S", 0.1)
    monkeypatch.setattr(node_start, "RETRY_S", 0.04)
    asked = 0

    class Refusing(FakeTransport):
        async def connect(self, *_arguments: Any) -> FakeConnection:
            nonlocal asked
            asked += 1
            raise HostUnreachableError("gpu1", "gpu1: connection refused")

    environment = Environment(name="gpu1", host="gpu1")
    planned, key, job = plan_for("gpu1").nodes[0], AttemptKey("job", 0), jobs.create("job")
    node = NodeRun(environment, planned, key, job, Refusing({}), Nobody(), lambda: None)
    with pytest.raises(HostUnreachableError):
        await NodeStart(node).send(make_bundle(survey(directory).files), lambda *_: None)
    assert 2 <= asked <= 4


async def test_parts_grow_where_the_link_is_quick_and_shrink_where_it_is_slow() -> None:
    size = upload.PartSize()
    first = size.part_bytes
    for _ in range(10):
        size.note(size.part_bytes, 0.001)
    assert size.part_bytes == 1 << 20
    size.note(size.part_bytes, 8.0)
    assert size.part_bytes < first


@pytest.mark.parametrize(
    "answer",
    [
        lambda method: WorkReply(False, ["0" * 64], 1),
        lambda method: WorkReply(False, [], 1),
        lambda method: 7 if method == "push" else None,
    ],
)
async def test_an_agent_that_lies_about_what_it_has_is_an_error_and_no_endless_loop(
    host: Host, directory: Path, answer: Callable[[str], Any]
) -> None:
    host.answer = answer
    with pytest.raises(AgentError, match="gpu1: the agent"):
        await asyncio.wait_for(launch(host, directory), 10)


async def test_an_agent_too_old_for_this_is_to_be_upgraded(host: Host, directory: Path) -> None:
    def refuse(_method: str) -> None:
        raise AgentError("gpu1", "no method 'work'", code=ErrorCode.UNKNOWN_METHOD)

    host.answer = refuse
    with pytest.raises(AgentError, match="too old") as caught:
        await launch(host, directory)
    assert "dttui agents deploy gpu1" in caught.value.hint
