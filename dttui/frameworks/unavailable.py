"""A framework that is known by name and cannot be launched: shown, and refused with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dttui.errors import UsageError
from dttui.frameworks.base import JobLayout, NodeLayout, NoOptions, Rank
from dttui.frameworks.bundle import PlannedFile, PlannedProcess
from dttui.frameworks.traits import Traits
from dttui.spec.findings import Finding, error
from dttui.spec.models import Job
from dttui.spec.section import Section


@dataclass(frozen=True)
class Unavailable(Traits):
    """Stands where a framework would."""

    name: str
    label: str
    reason: str
    hint: str
    summary: str = ""
    description: str = ""
    features: Sequence[str] = ()
    requires: Sequence[str] = ()
    options: type[Section] = NoOptions
    rank: Rank = Rank.SLOT
    needs_ports: bool = False
    timeout_call: None = None
    available: bool = False

    def check(self, job: Job) -> list[Finding]:
        """Say why not."""
        return [error("framework-unavailable", "framework", self.reason, self.hint)]

    def check_layout(self, layout: JobLayout) -> list[Finding]:
        """Return nothing more."""
        return []

    def node_files(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedFile, ...]:
        """Refuse: raises UsageError."""
        raise UsageError(self.reason, self.hint)

    def processes(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedProcess, ...]:
        """Refuse: raises UsageError."""
        raise UsageError(self.reason, self.hint)
