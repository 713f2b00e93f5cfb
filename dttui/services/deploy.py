"""`dttui agents deploy`: brings the agent of this dttui to hosts, without root, over connections it is given."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from dttui.errors import AgentError, DttuiError, HostError, HostUnreachableError, UsageError
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.sanitize import clean
from dttui.services.agent import AgentClient
from dttui.services.agent_wheels import Requirement, Wheel, lock_text
from dttui.services.deploy_channel import ask_host
from dttui.services.wheel_source import ARCHITECTURES, WheelSource
from dttui.transport.base import Connection, Prompter, Transport

ROOM_BYTES = 16 * 1024**2
"""Room that a host must have: 5 MiB at the most while installing, as measured, and some for the agent to work with."""
CONCURRENCY = 32
CONNECT_TIMEOUT_S = 20.0
DEADLINE_S = 180.0

_LAYOUT = "1"
"""Changes when a version's directory is laid out in another way."""
_Answer = TypeVar("_Answer", bound=BaseModel)


@dataclass(frozen=True)
class Deployment:
    """An agent as it is on a host now."""

    host: str
    """Key of the environment."""
    changed: bool
    """Whether anything was installed; a daemon that runs an older version has to make way then."""
    version: str
    digest: str
    """Names this version, of these wheels for this Python, on the host."""
    python_version: str
    directory: str
    """Its virtual environment on the host."""
    seconds: float
    bytes_sent: int
    replaced: str | None = None
    """Digest of the other version that was in use before; `None` where there was none."""


class HostProbe(BaseModel):
    """What the probe saw."""

    model_config = ConfigDict(frozen=True)

    root: str
    python: str
    implementation: str
    free_threaded: bool
    executable: str
    has_venv: bool
    architecture: str
    libc: str
    free_bytes: int
    executable_mount: bool
    current: str | None
    version: str | None
    broken: str


class _Installed(BaseModel):
    """What the installation says at its end."""

    model_config = ConfigDict(frozen=True)

    version: str
    directory: str


async def deploy(
    connection: Connection,
    *,
    wheelhouse: Path | None = None,
    on_progress: Callable[[str], None] = lambda message: None,
    source: WheelSource | None = None,
    room_bytes: int = ROOM_BYTES,
) -> Deployment:
    """Install the agent on one host, or find that it is there and works.

    Args:
        connection: the way to the host; stays open.
        wheelhouse: directory with the wheels, instead of the cache and the index.
        on_progress: told what is being done, in the person's language.
        source: where the wheels come from, shared by several deployments; `wheelhouse` is for without.
        room_bytes: what must be free in the file system of the agent's root.

    Raises:
        AgentError: the host cannot have the agent, or the wheels cannot be had.
        HostUnreachableError: the link is gone.
    """
    started = time.monotonic()
    environment = connection.environment
    name = environment.name
    try:
        source = source or WheelSource(wheelhouse)
        on_progress(_("looking at the host"))
        answer = await ask_host(connection, {"action": "probe", "root": environment.agent_root})
        sent = answer.sent_bytes
        host = _decode(name, HostProbe, answer.result)
        _refuse_unsuitable(name, host)
        digest = agent_digest(source, host)
        if host.current == digest and host.version is not None:
            directory = f"{host.root}/agents/{digest}"
            seconds = time.monotonic() - started
            return Deployment(name, False, host.version, digest, host.python, directory, seconds, sent)
        _refuse_without_room(name, host, room_bytes)
        if host.current == digest:
            reason = (clean(host.broken).strip().splitlines() or [""])[-1]
            on_progress(_("repairing the agent: {reason}").format(reason=reason))
        on_progress(_("fetching wheels for {architecture}").format(architecture=host.architecture))
        wheels = await source.wheels(host.architecture)
        request = installation_request(digest, environment.agent_root, wheels)
        contents = [wheel.content for wheel in wheels]
        answer = await ask_host(connection, request, contents, lambda step: on_progress(_describe(step)))
        installed = _decode(name, _Installed, answer.result)
    except UsageError as error:
        raise AgentError(name, f"{name}: {error.message}", error.hint) from error
    return Deployment(
        host=name,
        changed=True,
        version=installed.version,
        digest=digest,
        python_version=host.python,
        directory=installed.directory,
        seconds=time.monotonic() - started,
        bytes_sent=sent + answer.sent_bytes,
        replaced=host.current if host.current != digest else None,
    )


async def deploy_all(
    environments: Sequence[Environment],
    transport: Transport,
    prompter: Prompter,
    *,
    wheelhouse: Path | None = None,
    on_progress: Callable[[str, str], None] = lambda host, message: None,
    source: WheelSource | None = None,
    deadline_s: float = DEADLINE_S,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    concurrency: int = CONCURRENCY,
) -> list[Deployment | HostError]:
    """Deploy to several hosts at a time; return how each ended, in their order.

    Args:
        environments: the hosts.
        transport: how to reach them.
        prompter: asked for passwords and new host keys while connecting.
        wheelhouse: directory with the wheels, instead of the cache and the index.
        on_progress: told a host's name and what is being done there.
        source: where the wheels come from, instead of `wheelhouse`.
        deadline_s: for each host, from the connection on.
        connect_timeout_s: for each host, until there is a connection.
        concurrency: how many hosts at a time.
    """
    shared = source or WheelSource(wheelhouse)
    slots = asyncio.Semaphore(concurrency)

    async def one(environment: Environment) -> Deployment | HostError:
        name = environment.name
        try:
            async with slots:
                on_progress(name, _("connecting"))
                connection = await transport.connect(environment, prompter, connect_timeout_s)
                try:
                    work = deploy(connection, source=shared, on_progress=lambda message: on_progress(name, message))
                    deployment = await asyncio.wait_for(work, deadline_s)
                    if deployment.changed:
                        if deployment.replaced is not None:
                            on_progress(name, _("letting a daemon of an older version go"))
                        await _retire_daemon(connection)
                    return deployment
                finally:
                    await connection.close()
        except asyncio.TimeoutError:
            message = _("{host}: the deployment was not done within {seconds:g} s").format(
                host=name, seconds=deadline_s
            )
            return HostUnreachableError(name, message, _("Look whether the host is overloaded or its disk hangs."))
        except HostError as error:
            return error
        except DttuiError as error:
            return AgentError(name, f"{name}: {error.message}", error.hint)

    tasks = [asyncio.create_task(one(environment)) for environment in environments]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _retire_daemon(connection: Connection) -> None:
    """End the daemon, which may be of the version before; jobs go on, and the next connection starts the new one."""
    client = await AgentClient.over(connection)
    try:
        await client.call("shutdown", None, dict)
    finally:
        await client.close()


def _decode(name: str, model: type[_Answer], result: dict[str, Any]) -> _Answer:
    try:
        return model.model_validate(result, strict=True)
    except ValidationError as error:
        raise AgentError(name, _("{host}: the host's answer makes no sense").format(host=name)) from error


def _refuse_unsuitable(name: str, host: HostProbe) -> None:
    """Raise AgentError where the pinned wheels would not run."""
    other = _("Name another Python in the inventory: python: /path/to/python3")
    problem, hint = "", ""
    if host.architecture not in ARCHITECTURES:
        problem = _("there is no agent for {architecture}, only for {supported}").format(
            architecture=clean(host.architecture), supported=", ".join(ARCHITECTURES)
        )
    elif not host.libc.startswith("glibc"):
        problem = _("its C library is not glibc (musl?); the agent's wheels need glibc")
        hint = _("Use an image that is based on glibc, such as Debian, Ubuntu or Rocky Linux.")
    elif host.implementation != "cpython" or host.free_threaded:
        problem = _("{python} is not a usual CPython").format(python=clean(host.executable))
        hint = other
    elif not host.has_venv:
        problem = _("{python} lacks the venv module").format(python=clean(host.executable))
        hint = _("Install it (Debian and Ubuntu: python3-venv), or name another Python in the inventory: python: PATH")
    elif not host.executable_mount:
        problem = _("{path} is mounted noexec, so the agent cannot run from it").format(path=clean(host.root))
        hint = _("Ask an administrator for a local /var/tmp that programs may run from.")
    if problem:
        raise AgentError(name, f"{name}: {problem}", hint)


def _refuse_without_room(name: str, host: HostProbe, room_bytes: int) -> None:
    if host.free_bytes < room_bytes:
        raise AgentError(
            name,
            _("{host}: {free:.1f} MiB are free for {path}, and {needed:.1f} MiB are needed").format(
                host=name, free=host.free_bytes / 1024**2, needed=room_bytes / 1024**2, path=clean(host.root)
            ),
            _("Make room there and deploy again."),
        )


def agent_digest(source: WheelSource, host: HostProbe) -> str:
    """Name the version that belongs on a host: what would be installed, and the Python that runs it."""
    minor = ".".join(host.python.split(".")[:2])
    parts = [_LAYOUT, source.fingerprint(host.architecture), minor, host.executable]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def installation_request(digest: str, root: str | None, wheels: Sequence[Wheel]) -> dict[str, Any]:
    """Return what the program is asked to do with the wheels that follow, in their order."""
    wanted: list[Requirement] = [wheel.requirement for wheel in wheels if wheel.project != "pip"]
    files = [{"name": wheel.file_name, "size": len(wheel.content), "sha256": wheel.sha256} for wheel in wheels]
    return {"action": "install", "root": root, "digest": digest, "files": files, "requirements": lock_text(wanted)}


def _describe(step: str) -> str:
    steps = {
        "receive": _("sending wheels"),
        "venv": _("making a virtual environment"),
        "install": _("installing"),
        "check": _("checking that the agent runs"),
        "switch": _("switching to the new version"),
    }
    return steps.get(step, clean(step))
