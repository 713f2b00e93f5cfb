"""Deployments to a directory of this machine: a real shell, a real venv, a real pip."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import dtagent
import pytest

from dttui.errors import AgentError
from dttui.fleet.deployment import deploy_program
from dttui.fleet.deployment.deploy import ROOM_BYTES, installation_request
from dttui.fleet.deployment.outcomes import Deployment
from dttui.fleet.deployment.wheel_source import WheelSource
from dttui.fleet.deployment.wheels import Requirement, build_agent_wheel
from dttui.transport.base import RemoteCommand
from dttui.transport.process_stream import ProcessStream
from dttui.transport.remote_commands import COMMANDS, bootstrap_input
from tests.integration.deploy_fixtures import (
    ARCHITECTURE,
    current,
    deploy_here,
    names,
)
from tests.waiting import PATIENCE_S

PROGRAM = Path(deploy_program.__file__).read_bytes()


def say_version(root: Path, command: Sequence[str] = ("python", "-I", "-m", "dtagent")) -> str:
    argv = [str(root / "current" / "bin" / command[0]), *command[1:], "--version"]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout.strip()


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


@pytest.mark.parametrize("name", ["psutil/__init__.py", "dtagent/supervision/supervisor.py"])
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
    await asyncio.wait_for(begun.wait(), PATIENCE_S)
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

    stream = await ProcessStream.start(["sh", "-c", f"{COMMANDS[RemoteCommand.BOOTSTRAP]} | head -n 3"], "here")
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
