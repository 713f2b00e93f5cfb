"""What a host tells of the agent on it, and what became of that and of tools beside it: values alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict

from dttui.sanitize import clean

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
