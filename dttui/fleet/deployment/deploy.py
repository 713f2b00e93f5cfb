"""`dttui agents deploy` and `upgrade`: bring the agent of this dttui, and tools beside it, to hosts, without root.

What runs on a host goes on under the version that started it.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import dtagent
from pydantic import BaseModel, ConfigDict, ValidationError

from dttui.errors import AgentError, HostError, RefusedError, UsageError
from dttui.fleet.deployment import tools as tool_pins
from dttui.fleet.deployment.each_host import CONCURRENCY, DEADLINE_S, Visit, on_each
from dttui.fleet.deployment.outcomes import Deployment, HostProbe, Outcome, is_newer
from dttui.fleet.deployment.refusals import elsewhere
from dttui.fleet.deployment.remote_program import Program, ask_host
from dttui.fleet.deployment.wheel_source import ARCHITECTURES, WheelSource
from dttui.fleet.deployment.wheels import Requirement, Wheel, lock_text
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.rpc.client import AgentClient
from dttui.sanitize import clean
from dttui.transport.base import Connection, Prompter, Transport
from dttui.transport.deadline import Deadline

ROOM_BYTES = 16 * 1024**2
"""Room that a host must have: 5 MiB at the most while installing, as measured, and some for the agent to work with."""

_LAYOUT = "1"
"""Changes when a version's directory is laid out in another way."""
_Answer = TypeVar("_Answer", bound=BaseModel)


class _Installed(BaseModel):
    """What the installation says at its end."""

    model_config = ConfigDict(frozen=True)

    version: str
    directory: str


async def deploy(
    connection: Connection,
    *,
    source: WheelSource,
    tools: tuple[Requirement, ...] = (),
    on_progress: Callable[[str], None] = lambda message: None,
    room_bytes: int = ROOM_BYTES,
    only_upgrade: bool = False,
    allow_downgrade: bool = True,
    dry_run: bool = False,
    deadline: Deadline | None = None,
) -> Deployment:
    """Install the agent on one host, or find that it is there and works.

    Args:
        connection: the way to the host; stays open.
        source: where the wheels come from; may be shared by several deployments.
        tools: what to bring beside the agent; others that the host has stay.
        on_progress: told what is being done, in the person's language.
        room_bytes: what must be free in the file system of the agent's root.
        only_upgrade: change nothing where there is no agent.
        allow_downgrade: replace a newer version too.
        dry_run: install nothing, and return what that would have come to.
        deadline: stands still while the wheels are fetched.

    Raises:
        AgentError: the host cannot have the agent, or the wheels cannot be had; with `only_upgrade` it has none.
        RefusedError: the host has a newer version, and nobody allowed to replace it.
        HostUnreachableError: the link is gone.
    """
    started = time.monotonic()
    name = connection.environment.name
    try:
        on_progress(_("looking at the host"))
        answer = await ask_host(connection, {"action": "probe", "root": connection.environment.agent_root})
        host = decode(name, HostProbe, answer.result)
        if only_upgrade and host.current is None:
            message = _("{host}: there is no agent on this host").format(host=name)
            raise AgentError(name, message, _("Install it: dttui agents deploy {host}").format(host=name))
        done = replace(
            _planned(name, host, agent_digest(source, host.architecture), tools), bytes_sent=answer.sent_bytes
        )
        missing = tuple(tool for tool, item in zip(tools, done.tools, strict=True) if item.is_change)
        if done.changed:
            _refuse_newer(name, host, allow_downgrade=allow_downgrade)
            _refuse_unsuitable(name, host)
        _refuse_without_room(name, host, room_bytes * done.changed + tool_pins.ROOM_BYTES * len(missing))
        if not dry_run and (done.changed or missing):
            if host.current == done.digest and done.changed:
                reason = (clean(host.broken).strip().splitlines() or [""])[-1]
                on_progress(_("repairing the agent: {reason}").format(reason=reason))
            on_progress(_("fetching wheels for {architecture}").format(architecture=host.architecture))
            with deadline.paused() if deadline is not None else contextlib.nullcontext():
                agent = await source.wheels(host.architecture) if done.changed else ()
                brought = await source.wheels_of(missing, host.architecture)
            done = await _install(connection, done, agent, brought, on_progress)
    except UsageError as error:
        raise AgentError(name, f"{name}: {error.message}", error.hint) from error
    return replace(done, seconds=time.monotonic() - started)


def _planned(name: str, host: HostProbe, digest: str, tools: Sequence[Requirement]) -> Deployment:
    """Return what a deployment comes to, by what the host has."""
    is_there = host.current == digest and host.version is not None
    ours = dtagent.__version__
    return Deployment(
        host=name,
        changed=not is_there,
        version=host.version if is_there and host.version is not None else ours,
        digest=digest,
        python_version=host.python,
        directory=f"{host.root}/agents/{digest}",
        seconds=0.0,
        bytes_sent=0,
        replaced=host.current if host.current != digest else None,
        version_before=None if is_there else host.version or (ours if host.current == digest else None),
        tools=tuple(tool_pins.planned(tool, host.tools) for tool in tools),
    )


async def _install(
    connection: Connection,
    done: Deployment,
    agent: Sequence[Wheel],
    tools: Sequence[Wheel],
    on_progress: Callable[[str], None],
) -> Deployment:
    """Install wheels of the agent, and those of tools; return what the host has then."""
    root = connection.environment.agent_root
    requests = [(installation_request(done.digest, root, agent), agent)] if agent else []
    if tools:
        # First, where there is an agent: a tool that does not run there leaves that, and its daemon, as they were.
        has_agent = not done.changed or done.outcome is not Outcome.INSTALLED
        requests.insert(0 if has_agent else len(requests), (equipping_request(root, tools), tools))
    for request, wheels in requests:
        contents = [wheel.content for wheel in wheels]
        answer = await ask_host(connection, request, contents, lambda step: on_progress(_describe(step)))
        done = replace(done, bytes_sent=done.bytes_sent + answer.sent_bytes)
        if wheels is agent:
            installed = decode(done.host, _Installed, answer.result)
            done = replace(done, version=installed.version, directory=installed.directory)
    return done


async def deploy_all(
    environments: Sequence[Environment],
    transport: Transport,
    prompter: Prompter,
    *,
    source: WheelSource,
    tools: tuple[Requirement, ...] = (),
    on_progress: Callable[[str, str], None] = lambda host, message: None,
    on_done: Callable[[str, Deployment | HostError], None] = lambda host, result: None,
    only_upgrade: bool = False,
    allow_downgrade: bool = True,
    dry_run: bool = False,
    deadline_s: float = DEADLINE_S,
    concurrency: int = CONCURRENCY,
) -> list[Deployment | HostError]:
    """Deploy to several hosts at a time; return how each ended, in their order.

    Args:
        environments: the hosts.
        transport: how to reach them.
        prompter: asked for passwords and new host keys while connecting.
        source: where the wheels come from.
        tools: what to bring beside the agent; see `named`.
        on_progress: told a host's name and what is being done there.
        on_done: told a host's name and what came of it, as soon as that is known.
        only_upgrade: change nothing where there is no agent.
        allow_downgrade: replace newer versions too.
        dry_run: install nothing; see `deploy`.
        deadline_s: for each host; see `on_each`.
        concurrency: how many hosts at a time.
    """

    async def act(visit: Visit) -> Deployment:
        done = await deploy(
            visit.connection,
            source=source,
            tools=tools,
            on_progress=visit.say,
            only_upgrade=only_upgrade,
            allow_downgrade=allow_downgrade,
            dry_run=dry_run,
            deadline=visit.deadline,
        )
        return await _take_over(visit, done) if done.changed and not dry_run else done

    return await on_each(
        environments, transport, prompter, act,
        on_progress=on_progress, on_done=on_done, deadline_s=deadline_s, concurrency=concurrency,
    )  # fmt: skip


class _Retired(BaseModel):
    """What the end of a daemon left."""

    model_config = ConfigDict(frozen=True)

    had_daemon: bool
    running: list[dict[str, Any]]


async def _take_over(visit: Visit, done: Deployment) -> Deployment:
    """End the daemon of the version before, and let the new one take over what it watched. Jobs do not notice."""
    request = {"action": "retire", "root": visit.connection.environment.agent_root}
    answer = await ask_host(visit.connection, request, program=Program.AGENTS)
    retired = decode(visit.host, _Retired, answer.result)
    if retired.had_daemon:
        visit.say(_("letting the new version take over"))
        client = await AgentClient.over(visit.connection)
        await client.leave()
    return replace(done, running=tuple(sorted({clean(str(item.get("job"))) for item in retired.running})))


def decode(name: str, model: type[_Answer], result: dict[str, Any]) -> _Answer:
    """Return what a program on a host answered. Raises AgentError where that makes no sense."""
    try:
        return model.model_validate(result, strict=True)
    except ValidationError as error:
        raise AgentError(name, _("{host}: the host's answer makes no sense").format(host=name)) from error


def _refuse_newer(name: str, host: HostProbe, *, allow_downgrade: bool) -> None:
    if not allow_downgrade and host.version is not None and is_newer(host.version, dtagent.__version__):
        message = _("{host}: has dtagent {there}, which is newer than {here} of this dttui")
        message = message.format(host=name, there=clean(host.version), here=dtagent.__version__)
        raise RefusedError(name, message, _("Upgrade dttui on this login node, or insist with --yes."))


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
        hint = elsewhere()
    if problem:
        raise AgentError(name, f"{name}: {problem}", hint)


def _refuse_without_room(name: str, host: HostProbe, room_bytes: int) -> None:
    if host.free_bytes < room_bytes:
        raise AgentError(
            name,
            _("{host}: {free:.1f} MiB are free for {path}, and {needed:.1f} MiB are needed").format(
                host=name, free=host.free_bytes / 1024**2, needed=room_bytes / 1024**2, path=clean(host.root)
            ),
            elsewhere(_("Make room there and deploy again.")),
        )


def agent_digest(source: WheelSource, architecture: str) -> str:
    """Name the version that belongs on a host: what would be installed.

    The wheels are for any Python. Which one runs them does not count: it is that of the first installation for as long
    as it works, whatever the inventory calls the interpreter of jobs since.
    """
    parts = [_LAYOUT, source.fingerprint(architecture)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def installation_request(digest: str, root: str | None, wheels: Sequence[Wheel]) -> dict[str, Any]:
    """Return what the program is asked to do with the wheels that follow, in their order."""
    wanted: list[Requirement] = [wheel.requirement for wheel in wheels if wheel.project != "pip"]
    files = [_announced(wheel) for wheel in wheels]
    return {"action": "install", "root": root, "digest": digest, "files": files, "requirements": lock_text(wanted)}


def equipping_request(root: str | None, wheels: Sequence[Wheel]) -> dict[str, Any]:
    """Return what the program is asked to do with the wheels of tools that follow, in their order."""
    files = [{**_announced(wheel), "tool": wheel.project, "version": wheel.version} for wheel in wheels]
    return {"action": "equip", "root": root, "files": files}


def _announced(wheel: Wheel) -> dict[str, Any]:
    return {"name": wheel.file_name, "size": len(wheel.content), "sha256": wheel.sha256}


def _describe(step: str) -> str:
    steps = {
        "receive": _("sending wheels"),
        "venv": _("making a virtual environment"),
        "install": _("installing"),
        "unpack": _("unpacking tools"),
        "check": _("checking that the agent runs"),
        "switch": _("switching to the new version"),
    }
    return steps.get(step, clean(step))
