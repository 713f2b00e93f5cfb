"""What the tests of deployments share: wheels made of what is installed here, and hosts that take or refuse them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.metadata
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import dtagent
import pytest

from dttui.fleet.deployment.deploy import deploy
from dttui.fleet.deployment.frame_program import MARK
from dttui.fleet.deployment.outcomes import Deployment
from dttui.fleet.deployment.wheel_source import WheelSource
from dttui.fleet.deployment.wheels import Requirement, Wheel, build_agent_wheel, zip_wheel
from dttui.inventory.models import Environment
from dttui.transport.base import Connection, RemoteCommand, Transport
from dttui.transport.local import LocalTransport
from tests.fake_transport import FakeHost, FakeProcess, FakeTransport
from tests.waiting import PATIENCE_S

ARCHITECTURE = os.uname().machine
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
    connection = await transport.connect(environment, Nobody(), PATIENCE_S)
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


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wheelhouse")


@pytest.fixture(scope="session")
def requirements(wheelhouse: Path) -> tuple[Requirement, ...]:
    return tuple(repack(project, wheelhouse) for project in ("dacite", "nvidia-ml-py", "pip", "psutil"))


@pytest.fixture(scope="session")
def agent(requirements: tuple[Requirement, ...]) -> Wheel:
    return build_agent_wheel(requirements)


@pytest.fixture
def source(wheelhouse: Path, requirements: tuple[Requirement, ...], agent: Wheel) -> WheelSource:
    return WheelSource(wheelhouse, requirements, agent)


@pytest.fixture
def newer(wheelhouse: Path, requirements: tuple[Requirement, ...], tmp_path: Path) -> WheelSource:
    """The same agent with one module more."""
    package = Path(shutil.copytree(Path(dtagent.__file__).parent, tmp_path / "newer" / "dtagent"))
    (package / "extra.py").write_text("new = True\n")
    return WheelSource(wheelhouse, requirements, build_agent_wheel(requirements, package))


@pytest.fixture(scope="session")
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


def current(root: Path) -> str:
    return Path(os.readlink(root / "current")).name


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def is_gone(path: Path) -> bool:
    return not os.path.lexists(path)
