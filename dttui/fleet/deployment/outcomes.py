"""What a host tells of the agent on it, what became of that and of tools beside it, and in which words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import dtagent
from pydantic import BaseModel, ConfigDict

from dttui.errors import REFUSALS, HostError, HostUnreachableError, OutOfTimeError, RefusedError
from dttui.i18n import _, ngettext
from dttui.sanitize import clean
from dttui.words import agent_outcome_name, listed

_TAKEN = re.compile(r"/var/tmp/dtagent-[0-9]+-[0-9a-f]{32}")  # noqa: S108 - as a host says it


class Outcome(str, Enum):
    """What became of the agent, or a tool, on a host."""

    INSTALLED = "installed"
    UPGRADED = "upgraded"
    DOWNGRADED = "downgraded"
    REPAIRED = "repaired"
    UP_TO_DATE = "up-to-date"


def is_newer(one: str, other: str) -> bool:
    """Whether one version comes after another."""
    numbers = [tuple(int(part) for part in re.findall(r"\d+", version)[:4]) for version in (one, other)]
    return numbers[0] > numbers[1]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class ToolSeen(_Answer):
    """A tool that a host has."""

    name: str
    version: str
    wheel: str
    """SHA-256 of the wheel that it is from, in hex."""
    is_whole: bool
    """Whether its file is as it was unpacked."""


@dataclass(frozen=True)
class ToolDeployment:
    """A tool as it is on a host now."""

    name: str
    version: str
    outcome: Outcome

    @property
    def is_change(self) -> bool:
        """Whether it is to be brought, or was."""
        return self.outcome is not Outcome.UP_TO_DATE


class HostProbe(_Answer):
    """What the probe saw."""

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
    tools: list[ToolSeen] = []


@dataclass(frozen=True)
class Deployment:
    """An agent as it is on a host now."""

    host: str
    """Key of the environment."""
    changed: bool
    """Whether an agent was installed; a daemon that runs an older version has to make way then."""
    version: str
    digest: str
    """Names this version, of these wheels, on the host."""
    python_version: str
    directory: str
    """Its virtual environment on the host."""
    seconds: float
    bytes_sent: int
    replaced: str | None = None
    """Digest of the other version that was in use before; `None` where there was none."""
    version_before: str | None = None
    """What was there before; `None` where nothing was, or nothing that ran."""
    running: tuple[str, ...] = ()
    """Jobs that go on under the version before."""
    tools: tuple[ToolDeployment, ...] = ()
    """Those that were asked for."""

    @property
    def outcome(self) -> Outcome:
        """What it came to."""
        if not self.changed:
            return Outcome.UP_TO_DATE
        if self.replaced is None:
            return Outcome.REPAIRED if self.version_before == self.version else Outcome.INSTALLED
        is_back = self.version_before is not None and is_newer(self.version_before, self.version)
        return Outcome.DOWNGRADED if is_back else Outcome.UPGRADED


@dataclass(frozen=True)
class AgentRemoval:
    """What was done on a host."""

    host: str
    removed: bool
    """Whether there was an agent."""
    stopped: tuple[str, ...]
    """Jobs that ran there and were stopped."""
    jobs_removed: int
    """Attempts of jobs whose directories were removed."""
    kept: tuple[str, ...]
    """Paths on the host that are left, of all that was ours."""

    @property
    def outcome(self) -> str:
        """What it came to: `removed`, or `none` where there was no agent."""
        return "removed" if self.removed else "none"


class WarmSeen(_Answer):
    """A process that keeps torch imported for warm starts."""

    python: str
    """Interpreter."""
    pid: int
    memory_mib: int


class DaemonSeen(_Answer):
    """The daemon that serves on a host."""

    pid: int
    since: float | None
    """Unix time of its start, the host's clock."""
    digest: str | None
    """The version it runs from, which may be an older one than the current."""
    warm: list[WarmSeen] = []
    """What it keeps for warm starts."""


class AttemptSeen(_Answer):
    """An attempt of a job that is known on a host."""

    job: str
    attempt: int
    state: str
    """`running`, `prepared`, `left` (processes without their supervisor), `ended` or `discarded`."""

    @property
    def is_busy(self) -> bool:
        """Whether it stands in the way of removing the agent."""
        return self.state in ("running", "prepared", "left")


class OtherVersion(_Answer):
    """A version that is not the current one."""

    digest: str
    in_use: bool
    """Whether a process runs from it: the supervisor of a job that it started."""


class Inspection(_Answer):
    """What a host told."""

    probe: HostProbe
    agent_python: str | None
    protocols: list[int]
    """Versions of the protocol that the agent speaks."""
    logout_kills: bool | None
    """Whether a job started over a login as ours would end with it; `None` where the agent is too old to say."""
    daemon: DaemonSeen | None
    attempts: list[AttemptSeen]
    others: list[OtherVersion]


@dataclass(frozen=True)
class AgentStatus:
    """The agent of one host."""

    host: str
    seen: Inspection
    is_current: bool
    """Whether it is what this dttui would install there."""

    @property
    def state(self) -> str:
        """`up-to-date`, `outdated`, `broken`, `none`, or `embedded`: dttui's own on this machine, not installed."""
        if self.seen.probe.current is None:
            return "none" if self.seen.daemon is None else "embedded"
        if self.seen.probe.version is None:
            return "broken"
        return "up-to-date" if self.is_current else "outdated"

    @property
    def is_elsewhere(self) -> bool:
        """Whether it lives in a place that was taken because the usual one is not to be had."""
        return self.seen.probe.current is not None and _TAKEN.fullmatch(self.seen.probe.root) is not None

    def document(self) -> dict[str, Any]:
        """Return it as data."""
        seen = self.seen
        return {
            "host": self.host,
            "outcome": self.state,
            "version": seen.probe.version,
            "digest": seen.probe.current,
            "root": seen.probe.root if seen.probe.current is not None else None,
            "protocols": seen.protocols,
            "python": seen.agent_python,
            "daemon": seen.daemon.model_dump() if seen.daemon is not None else None,
            "jobs": [item.model_dump() for item in seen.attempts],
            "tools": [item.model_dump() for item in seen.probe.tools],
            "other_versions": [item.model_dump() for item in seen.others],
            "logout_kills": seen.logout_kills,
            "broken": clean(seen.probe.broken),
        }


MAX_NAMES = 8
"""Jobs or paths that a note names; the others are counted."""


def outcome_of(item: Deployment | AgentStatus | AgentRemoval | HostError) -> str:
    """Return the word of the data: what became of a host."""
    if isinstance(item, AgentStatus):
        return item.state
    if isinstance(item, Deployment):
        return item.outcome.value
    if isinstance(item, AgentRemoval):
        return item.outcome
    if isinstance(item, (RefusedError, *REFUSALS)):
        return "refused"
    if isinstance(item, OutOfTimeError):
        return "unfinished"
    return "unreachable" if isinstance(item, HostUnreachableError) else "failed"


def outcome_notes(item: Deployment | AgentStatus | AgentRemoval | HostError) -> list[str]:
    """Return what there is to say of what became of a host, beside the word for it."""
    if isinstance(item, AgentStatus):
        return [*_of_program(item), *_of_host(item)]
    if isinstance(item, Deployment):
        return list(_of_deployment(item))
    if isinstance(item, AgentRemoval):
        return list(_of_removal(item))
    return [item.message.removeprefix(f"{item.host}: ")]


def _of_deployment(item: Deployment) -> Iterator[str]:
    yield _("{seconds:.1f} s").format(seconds=item.seconds)
    if item.version_before not in (None, item.version):
        yield _("before: {version}").format(version=item.version_before)
    if item.running:
        running = _("jobs that go on under the version before: {jobs}")
        yield running.format(jobs=listed(item.running, MAX_NAMES))
    for tool in item.tools:
        yield f"{tool.name} {tool.version}: {agent_outcome_name(tool.outcome.value)}"


def _of_removal(item: AgentRemoval) -> Iterator[str]:
    if item.stopped:
        yield _("stopped: {jobs}").format(jobs=listed(item.stopped, MAX_NAMES))
    if item.jobs_removed:
        yield ngettext(
            "{count} directory of a job removed", "{count} directories of jobs removed", item.jobs_removed
        ).format(count=item.jobs_removed)
    if item.kept:
        yield _("left there: {paths}").format(paths=listed(item.kept, MAX_NAMES))


def _of_program(item: AgentStatus) -> Iterator[str]:
    """Yield what there is to say of the agent's program and its daemon."""
    seen = item.seen
    if seen.probe.broken:
        yield clean(seen.probe.broken).strip().splitlines()[-1]
    if item.state == "outdated" and seen.probe.version != dtagent.__version__:
        yield _("this dttui brings {version}: dttui agents upgrade").format(version=dtagent.__version__)
    elif item.state == "outdated":
        yield _("of this version, but with other files than this dttui's: dttui agents upgrade")
    if seen.daemon is not None and seen.daemon.digest not in (None, seen.probe.current):
        yield _("the daemon is of an older version")
    if seen.daemon is not None and seen.daemon.warm:
        size_mib = sum(item.memory_mib for item in seen.daemon.warm)
        yield _("keeps torch imported for warm starts: {size} MiB").format(size=size_mib)


def _of_host(item: AgentStatus) -> Iterator[str]:
    """Yield what there is to say of where the agent lies, and of what else is there."""
    seen = item.seen
    if item.is_elsewhere:
        yield _("in {path}, since others have the usual place").format(path=clean(seen.probe.root))
    for tool in seen.probe.tools:
        named = f"{clean(tool.name)} {clean(tool.version)}".rstrip()
        damaged = _("{tool} is damaged: dttui agents deploy --with {name}")
        yield (named if tool.is_whole else damaged.format(tool=named, name=clean(tool.name)))
    if seen.others:
        used = sum(other.in_use for other in seen.others)
        text = ngettext(
            "{count} other version kept, {used} in use", "{count} other versions kept, {used} in use", len(seen.others)
        )
        yield text.format(count=len(seen.others), used=used)
    if seen.logout_kills:
        yield _("logout ends jobs: ask for loginctl enable-linger")
