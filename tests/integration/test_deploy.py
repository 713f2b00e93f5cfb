"""Deployments to a directory of this machine: a real shell, a real venv, a real pip; and hosts that are refused."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dtagent
import pytest

from dttui.errors import AgentError, HostUnreachableError
from dttui.inventory.models import Environment
from dttui.services import deploy_program
from dttui.services.agent_wheels import Requirement, Wheel, build_agent_wheel, zip_wheel
from dttui.services.deploy import (
    ROOM_BYTES,
    Deployment,
    HostProbe,
    agent_digest,
    deploy,
    deploy_all,
    installation_request,
)
from dttui.services.deploy_program import MARK
from dttui.services.wheel_source import WheelSource
from dttui.transport.base import Connection, RemoteCommand, Transport
from dttui.transport.commands import COMMANDS, bootstrap_input
from dttui.transport.fake import FakeHost, FakeProcess, FakeTransport
from dttui.transport.local import LocalStream, LocalTransport

ARCHITECTURE = os.uname().machine
PROGRAM = Path(deploy_program.__file__).read_bytes()
PROBE = {
    "root": "/var/tmp/dtagent-1000",
    "python": "3.12.3",
    "implementation": "cpython",
    "free_threaded": False,
    "executable": "/usr/bin/python3",
    "has_venv": True,
    "architecture": "x86_64",
    "libc": "glibc 2.39",
    "free_bytes": 10**10,
    "executable_mount": True,
    "current": None,
    "version": None,
    "broken": "",
}


class Nobody:
    """A prompter with no person behind it."""

    async def ask(self, prompt: object) -> str | None:
        return None


def here(root: Path) -> Environment:
    """This machine, with the agent in a directory of the test."""
    return Environment(name="here", host="localhost", agent_root=str(root), python=sys.executable)


@contextlib.asynccontextmanager
async def connected(transport: Transport, environment: Environment) -> AsyncIterator[Connection]:
    connection = await transport.connect(environment, Nobody(), 10)
    try:
        yield connection
    finally:
        await connection.close()


async def deploy_here(root: Path, source: WheelSource, **options: Any) -> Deployment:
    async with connected(LocalTransport(), here(root)) as connection:
        return await deploy(connection, source=source, **options)


def answering(*messages: dict[str, Any] | bytes, status: int = 0, stderr: bytes = b"") -> FakeHost:
    """A host whose program prints these lines, or other bytes as they are, and ends."""

    async def play(process: FakeProcess) -> int:
        assert process.command is RemoteCommand.BOOTSTRAP
        for message in messages:
            line = message if isinstance(message, bytes) else MARK + json.dumps(message).encode() + b"\n"
            if not await process.stdout.write(line):
                break
        process.stderr += stderr
        return status

    return FakeHost(play)


async def play_silence(process: FakeProcess) -> int:
    await asyncio.Event().wait()
    return 0


async def deploy_far(host: FakeHost, source: WheelSource) -> Deployment:
    async with connected(FakeTransport({"far": host}), Environment(name="far", host="192.0.2.1")) as connection:
        return await deploy(connection, source=source)


def repack(project: str, directory: Path) -> Requirement:
    """Make a wheel again of what is installed here, and return what pins it; so the tests need no network."""
    distribution = importlib.metadata.distribution(project)
    files: dict[str, bytes] = {}
    record = ""
    for item in distribution.files or ():
        name = item.as_posix()
        if name.endswith("/RECORD"):
            record = name
        elif not name.startswith("..") and "__pycache__" not in name and item.name not in ("INSTALLER", "REQUESTED"):
            files[name] = Path(str(item.locate())).read_bytes()
    lines = (distribution.read_text("WHEEL") or "").splitlines()
    tags = [line.split()[1].split("-") for line in lines if line.startswith("Tag:")]
    tag = "-".join([tags[0][0], tags[0][1], ".".join(platform for _python, _abi, platform in tags)])
    content = zip_wheel(files, record)
    (directory / f"{project.replace('-', '_')}-{distribution.version}-{tag}.whl").write_bytes(content)
    return Requirement(project, distribution.version, frozenset({hashlib.sha256(content).hexdigest()}))


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wheelhouse")


@pytest.fixture(scope="module")
def requirements(wheelhouse: Path) -> tuple[Requirement, ...]:
    return tuple(repack(project, wheelhouse) for project in ("dacite", "nvidia-ml-py", "pip", "psutil"))


@pytest.fixture(scope="module")
def agent(requirements: tuple[Requirement, ...]) -> Wheel:
    return build_agent_wheel(requirements)


@pytest.fixture
def source(wheelhouse: Path, requirements: tuple[Requirement, ...], agent: Wheel) -> WheelSource:
    return WheelSource(wheelhouse, requirements, agent)


@pytest.fixture(scope="module")
def installed(
    wheelhouse: Path, requirements: tuple[Requirement, ...], agent: Wheel, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A root with an agent in it, to be copied: nothing in it depends on the root but its scripts."""
    root = tmp_path_factory.mktemp("host") / "root"
    asyncio.run(deploy_here(root, WheelSource(wheelhouse, requirements, agent)))
    return root


@pytest.fixture
def host(installed: Path, tmp_path: Path) -> Path:
    """The root of a host that has an agent."""
    return Path(shutil.copytree(installed, tmp_path / "root", symlinks=True))


def say_version(root: Path, command: Sequence[str] = ("python", "-I", "-m", "dtagent")) -> str:
    argv = [str(root / "current" / "bin" / command[0]), *command[1:], "--version"]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def current(root: Path) -> str:
    return Path(os.readlink(root / "current")).name


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def disk_usage(root: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in root.rglob("*"))


@contextlib.contextmanager
def running_from(version: Path) -> Iterator[None]:
    """Run a program that lies in a version's directory."""
    program = version / "bin" / "sleep"
    program.symlink_to(shutil.which("sleep") or "/bin/sleep")
    with subprocess.Popen([str(program), "60"]) as process:
        try:
            yield
        finally:
            process.kill()


async def test_an_agent_is_installed_and_a_second_run_changes_nothing(
    source: WheelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "host" / "root"
    for name, value in {"PIP_TARGET": "/nowhere", "PIP_USER": "1", "PYTHONPATH": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "dacite.py").write_text("raise ImportError('not this one')")
    said: list[str] = []

    first = await deploy_here(root, source, on_progress=said.append)
    before = sorted((path, path.lstat().st_mtime_ns) for path in root.rglob("*"))
    second = await deploy_here(root, source, on_progress=said.append)

    assert first == Deployment(
        host="here",
        changed=True,
        version=dtagent.__version__,
        digest=current(root),
        python_version=sys.version.split()[0],
        directory=str(root / "agents" / current(root)),
        seconds=first.seconds,
        bytes_sent=first.bytes_sent,
    )
    assert say_version(root) == f"dtagent {dtagent.__version__}"
    assert say_version(root, ["dtagent"]) == say_version(root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert names(root / "agents") == {first.digest}
    assert "checking that the agent runs" in said
    assert second == replace(first, changed=False, seconds=second.seconds, bytes_sent=second.bytes_sent)
    assert second.bytes_sent < 20_000 < first.bytes_sent
    assert before == sorted((path, path.lstat().st_mtime_ns) for path in root.rglob("*"))


async def test_a_deployment_needs_less_room_than_it_asks_for(installed: Path, source: WheelSource) -> None:
    sent = sum(len(wheel.content) for wheel in await source.wheels(ARCHITECTURE))

    assert disk_usage(installed) + sent < ROOM_BYTES


@pytest.mark.parametrize("name", ["psutil/__init__.py", "dtagent/supervisor.py"])
async def test_an_agent_whose_files_went_is_repaired(host: Path, source: WheelSource, name: str) -> None:
    (lost,) = (host / "current" / "lib").glob(f"python3*/site-packages/{name}")
    lost.unlink()
    said: list[str] = []

    repaired = await deploy_here(host, source, on_progress=said.append)

    assert repaired.changed
    assert any(line.startswith("repairing the agent") and name in line for line in said)
    assert lost.exists()
    assert say_version(host) == f"dtagent {dtagent.__version__}"
    assert names(host / "agents") == {repaired.digest}


async def test_an_agent_whose_interpreter_went_is_repaired(host: Path, source: WheelSource) -> None:
    python = host / "current" / "bin" / "python"
    python.unlink()
    python.symlink_to("/usr/bin/python3.0")

    assert (await deploy_here(host, source)).changed
    assert say_version(host) == f"dtagent {dtagent.__version__}"


async def test_the_version_before_and_those_in_use_stay_when_a_new_one_comes(
    host: Path, wheelhouse: Path, requirements: tuple[Requirement, ...], tmp_path: Path
) -> None:
    before = current(host)
    agents = host / "agents"
    for name in ("unused", "running", f".new-{before}-1", ".old-unused-1"):
        (agents / name / "bin").mkdir(parents=True)
    package = Path(shutil.copytree(Path(dtagent.__file__).parent, tmp_path / "dtagent"))
    (package / "extra.py").write_text("new = True\n")
    source = WheelSource(wheelhouse, requirements, build_agent_wheel(requirements, package))

    with running_from(agents / "running"):
        upgraded = await deploy_here(host, source)

    assert upgraded.digest not in (before, "unused", "running")
    assert current(host) == upgraded.digest
    assert names(agents) == {before, "running", upgraded.digest}


def test_who_looks_at_the_link_finds_a_version_at_every_moment(tmp_path: Path) -> None:
    deploy_program.switch_current(tmp_path, "first")
    seen: set[str] = set()
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            seen.add(os.readlink(tmp_path / "current"))

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        looking = threads.submit(look)
        for _round in range(50):
            deploy_program.switch_current(tmp_path, "second")
            deploy_program.switch_current(tmp_path, "first")
        ended.set()
        looking.result()

    assert seen <= {"agents/first", "agents/second"}
    assert names(tmp_path) == {"current"}


async def test_a_wheel_that_changed_on_the_way_is_refused_and_nothing_stays(
    wheelhouse: Path, requirements: tuple[Requirement, ...], agent: Wheel, tmp_path: Path
) -> None:
    changed = replace(agent, content=agent.content[:-1] + b"?")

    with pytest.raises(AgentError, match=rf"here: {agent.file_name} did not arrive as it was sent"):
        await deploy_here(tmp_path / "root", WheelSource(wheelhouse, requirements, changed))

    assert names(tmp_path) == set()


async def test_an_agent_that_does_not_run_is_refused_and_the_one_before_stays(
    host: Path, wheelhouse: Path, requirements: tuple[Requirement, ...], tmp_path: Path
) -> None:
    before = current(host)
    package = Path(shutil.copytree(Path(dtagent.__file__).parent, tmp_path / "dtagent"))
    (package / "cli.py").write_text("raise SystemExit('out of order')\n")
    source = WheelSource(wheelhouse, requirements, build_agent_wheel(requirements, package))

    with pytest.raises(AgentError, match=r"does not run: out of order") as caught:
        await deploy_here(host, source)

    assert "version used until now stays" in caught.value.hint
    assert current(host) == before
    assert names(host / "agents") == {before}


async def test_a_host_without_room_is_refused_with_both_numbers_before_anything_is_written(
    source: WheelSource, tmp_path: Path
) -> None:
    message = r"here: [\d.]+ MiB are free for .*/root, and 95367431640625\.0 MiB are needed"
    with pytest.raises(AgentError, match=message):
        await deploy_here(tmp_path / "root", source, room_bytes=10**20)

    assert names(tmp_path) == set()


async def test_a_host_with_the_agent_needs_no_room(host: Path, source: WheelSource) -> None:
    assert not (await deploy_here(host, source, room_bytes=10**20)).changed


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is too small for an agent."""
    directory = tmp_path / "disk"
    directory.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(directory)]
    mounted = subprocess.run(argv, capture_output=True, text=True, check=False)
    if mounted.returncode:
        reason = f"needs root to mount a small tmpfs: {mounted.stderr.strip()}"
        pytest.fail(reason) if os.environ.get("DTTUI_REQUIRE_LAB") == "1" else pytest.skip(reason)
    yield directory
    subprocess.run(["umount", directory], check=True)


async def test_a_disk_that_fills_up_is_said_and_nothing_stays(small_disk: Path, source: WheelSource) -> None:
    with pytest.raises(AgentError, match=r"here: the disk or your quota was full"):
        await deploy_here(small_disk / "root", source, room_bytes=0)

    assert names(small_disk) == set()


async def test_a_deployment_that_is_given_up_leaves_nothing(tmp_path: Path, source: WheelSource) -> None:
    root = tmp_path / "root"
    begun = asyncio.Event()

    def watch(message: str) -> None:
        if message == "making a virtual environment":
            begun.set()

    task = asyncio.create_task(deploy_here(root, source, on_progress=watch))
    await asyncio.wait_for(begun.wait(), 30)
    was_there = root.exists()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

    assert was_there
    assert not root.exists()


async def test_a_deployment_whose_output_nobody_reads_any_more_leaves_nothing(
    tmp_path: Path, source: WheelSource
) -> None:
    root = tmp_path / "root"
    wheels = await source.wheels(ARCHITECTURE)
    request = json.dumps(installation_request("0" * 16, str(root), wheels)).encode() + b"\n"

    stream = await LocalStream.start(["sh", "-c", f"{COMMANDS[RemoteCommand.BOOTSTRAP]} | head -n 3"], "here")
    for part in (bootstrap_input(PROGRAM, sys.executable), request, *(wheel.content for wheel in wheels)):
        await stream.write(part)
    status, stderr = await stream.wait()
    await stream.close()

    assert (status, stderr) == (0, b"")
    assert not root.exists()


async def test_two_deployments_to_one_host_do_not_meet(host: Path, source: WheelSource) -> None:
    (host / "current").unlink()
    descriptor = os.open(host / "agents", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(AgentError, match=r"another deployment is at work"):
            await deploy_here(host, source)
    finally:
        os.close(descriptor)


def make_link(root: Path) -> None:
    root.symlink_to(root.parent)


def make_file(root: Path) -> None:
    root.touch()


def make_open(root: Path) -> None:
    root.mkdir()
    root.chmod(0o777)


@pytest.mark.parametrize(
    ("make", "message"),
    [(make_link, "is a link or a file"), (make_file, "is a link or a file"), (make_open, "others can write to")],
)
async def test_an_unsafe_root_is_refused(
    make: Callable[[Path], None], message: str, source: WheelSource, tmp_path: Path
) -> None:
    make(tmp_path / "root")

    with pytest.raises(AgentError, match=message) as caught:
        await deploy_here(tmp_path / "root", source)

    assert caught.value.hint


def test_the_file_system_of_a_path_is_known() -> None:
    assert deploy_program.file_system_of(Path("/proc/self")) == "proc"
    assert deploy_program.file_system_of(Path("/")) not in ("", "proc")


def test_a_root_on_a_network_file_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploy_program, "file_system_of", lambda path: "nfs4")

    with pytest.raises(deploy_program.Refusal, match="network-file-system"):
        deploy_program.inspect_root(Path("/var/tmp/dtagent-none"))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"architecture": "ppc64le"}, "no agent for ppc64le, only for x86_64, aarch64"),
        ({"architecture": "x86_64 (32 bit)"}, r"no agent for x86_64 \(32 bit\)"),
        ({"libc": ""}, "not glibc"),
        ({"implementation": "pypy"}, "not a usual CPython"),
        ({"free_threaded": True}, "not a usual CPython"),
        ({"has_venv": False}, "/usr/bin/python3 lacks the venv module"),
        ({"executable_mount": False}, "/var/tmp/dtagent-1000 is mounted noexec"),
        ({"free_bytes": 2**20}, r"far: 1\.0 MiB are free for /var/tmp/dtagent-1000, and 16\.0 MiB are needed"),
        ({"free_bytes": None}, "answer makes no sense"),
    ],
)
async def test_a_host_that_the_wheels_are_not_for_is_refused(
    found: dict[str, Any], message: str, source: WheelSource
) -> None:
    with pytest.raises(AgentError, match=message):
        await deploy_far(answering({"result": {**PROBE, **found}}), source)


async def test_what_a_login_shell_prints_is_left_out(source: WheelSource) -> None:
    result = {"result": {**PROBE, "libc": "musl"}}

    with pytest.raises(AgentError, match="not glibc"):
        await deploy_far(answering(b"Welcome!\ndttui-deploy", b"\nquota: 5%", b"\n", result), source)


@pytest.mark.parametrize(
    ("status", "stderr", "message"),
    [
        (
            42,
            b"dttui-bootstrap: no python>=3.10 (found: python3=3.6.8 /usr/bin/python3=3.6.8)\n",
            "no Python 3.10 or later; found: python3=3.6.8 /usr/bin/python3=3.6.8$",
        ),
        (42, b"dttui-bootstrap: no python>=3.10 (found: none)\n", "no Python 3.10 or later; found: none$"),
        (1, b"Traceback\nMemoryError\x1b[2J\n", "ended with exit status 1: MemoryError$"),
        (127, b"", "ended with exit status 127: it said nothing"),
    ],
)
async def test_a_program_that_ends_without_an_answer_is_explained(
    status: int, stderr: bytes, message: str, source: WheelSource
) -> None:
    with pytest.raises(AgentError, match=message):
        await deploy_far(answering(b"Welcome!\n", status=status, stderr=stderr), source)


async def test_a_shell_that_prints_without_end_is_refused(source: WheelSource) -> None:
    with pytest.raises(AgentError, match="prints without end"):
        await deploy_far(answering(*[b"y\n" * 50_000] * 20), source)


async def test_a_refusal_that_is_new_to_us_is_shown_as_it_is(source: WheelSource) -> None:
    with pytest.raises(AgentError, match=r"far: the installation was refused: from-the-\{future\}$"):
        await deploy_far(answering({"refusal": "from-the-{future}\x1b[2J"}), source)


async def test_an_incomplete_wheelhouse_leaves_the_host_as_it_was(
    requirements: tuple[Requirement, ...], agent: Wheel, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()

    with pytest.raises(AgentError, match=rf"here: {empty} lacks wheels for {ARCHITECTURE}: dacite==") as caught:
        await deploy_here(tmp_path / "root", WheelSource(empty, requirements, agent))

    assert "pip download" in caught.value.hint
    assert not (tmp_path / "root").exists()


async def test_several_hosts_each_end_in_their_own_way_and_in_their_order(source: WheelSource) -> None:
    digest = agent_digest(source, HostProbe(**PROBE))
    transport = FakeTransport(
        {
            "done": answering({"result": {**PROBE, "current": digest, "version": "0.1.0"}}),
            "musl": answering({"result": {**PROBE, "libc": ""}}),
        }
    )
    environments = [Environment(name=name, host="192.0.2.1") for name in ("down", "done", "musl")]
    said: list[tuple[str, str]] = []

    outcomes = await deploy_all(
        environments,
        transport,
        Nobody(),
        source=source,
        on_progress=lambda name, message: said.append((name, message)),
    )

    down, done, musl = outcomes
    assert isinstance(down, HostUnreachableError)
    assert isinstance(done, Deployment)
    assert (done.host, done.changed, done.digest) == ("done", False, digest)
    assert isinstance(musl, AgentError)
    assert musl.message.startswith("musl: its C library is not glibc")
    assert all(connection.closed for connection in transport.connections)
    assert ("done", "looking at the host") in said


async def test_a_host_that_falls_silent_is_given_up_and_its_connection_closed(source: WheelSource) -> None:
    transport = FakeTransport({"silent": FakeHost(play_silence)})
    environment = Environment(name="silent", host="192.0.2.1")

    (outcome,) = await deploy_all([environment], transport, Nobody(), source=source, deadline_s=0.2)

    assert isinstance(outcome, HostUnreachableError)
    assert outcome.message == "silent: the deployment was not done within 0.2 s"
    assert transport.connections[0].closed


async def test_no_more_hosts_are_worked_on_at_a_time_than_asked_for(source: WheelSource) -> None:
    at_work: set[str] = set()
    most = 0

    async def play(process: FakeProcess) -> int:
        nonlocal most
        at_work.add(process.environment.key)
        most = max(most, len(at_work))
        await asyncio.sleep(0)
        at_work.remove(process.environment.key)
        return 1

    hosts = [f"gpu{number}" for number in range(6)]
    environments = [Environment(name=name, host="192.0.2.1") for name in hosts]
    transport = FakeTransport(dict.fromkeys(hosts, FakeHost(play)))

    outcomes = await deploy_all(environments, transport, Nobody(), source=source, concurrency=2)

    assert [outcome.host for outcome in outcomes] == hosts
    assert most == 2
