"""What a check-up finds. Pure data; knows nothing of how it was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from dttui.spec.findings import Finding, Severity


class Site(str, Enum):
    """Where something is wrong."""

    LOGIN = "login"
    HOST = "host"
    """The subject of the finding is the environment."""
    BETWEEN = "between"
    """The network between hosts, and what is not the same on all."""


@dataclass(frozen=True)
class Remedy:
    """A line of shell that mends something; nobody runs it but the person."""

    line: str
    host: str | None = None
    """The environment that it is to be run on; `None` for the login node."""


@dataclass(frozen=True)
class Trouble:
    """Something that is wrong, or that could not be asked."""

    place: Site
    finding: Finding
    commands: tuple[Remedy, ...] = ()
    """In the order in which they are to be run; none where no command mends it."""


@dataclass(frozen=True)
class Checkup:
    """All that was looked at, and what was found."""

    hosts: tuple[str, ...]
    """The environments."""
    troubles: tuple[Trouble, ...]
    unasked: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Environment → in words what it could not be asked."""
    unreachable: frozenset[str] = frozenset()
    is_cut_short: bool = False
    """Whether the time was up before all were asked."""
    seconds: float = 0.0

    def of(self, place: Site, host: str | None = None) -> tuple[Trouble, ...]:
        """Return what is wrong at a place, the errors first."""
        order = tuple(Severity)[::-1]
        found = (item for item in self.troubles if item.place is place and host in (None, item.finding.subject))
        return tuple(sorted(found, key=lambda item: order.index(item.finding.severity)))

    def count(self, severity: Severity) -> int:
        """Return how many findings of a severity there are."""
        return sum(item.finding.severity is severity for item in self.troubles)
