"""The board of a preflight: a row a node, a column a check, and what was found. Pure data; knows nothing of hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from dttui.errors import HostError, PreflightError, UsageError
from dttui.i18n import _, ngettext
from dttui.jobs.checks import Cell, Check, CheckStatus
from dttui.planning.merged_findings import merged
from dttui.planning.models import Plan
from dttui.spec.findings import Finding, Severity, errors_first

IGNORABLE = frozenset(
    {
        "address-loopback",
        "address-unknown",
        "checkpoint-unwritable",
        "command-missing",
        "container-engine",
        "container-image",
        "disk-low",
        "framework-refuses",
        "gpu-error",
        "gpu-memory",
        "gpu-recovery",
        "gpus-taken",
        "logout-kills",
        "master-unreachable",
        "module-missing",
        "nccl-drift",
        "nccl-too-old",
        "package-missing",
        "path-missing",
    }
)
"""Codes of errors that a person may know better about. Without the others mended nothing could start."""


def check_ignored(codes: Iterable[str]) -> tuple[str, ...]:
    """Return the codes, each once. Raises UsageError for one that cannot be ignored."""
    found = tuple(dict.fromkeys(codes))
    for code in found:
        if code not in IGNORABLE:
            raise UsageError(
                _("{code} cannot be ignored").format(code=code),
                _("These can: {codes}").format(codes=", ".join(sorted(IGNORABLE))),
            )
    return found


def forbidding(finding: Finding) -> Finding:
    """Make an error of what a plan only warns of, so that it may be composed, and a launch stops at unless ignored."""
    if finding.code != "command-missing":
        return finding
    return finding.model_copy(update={"severity": Severity.ERROR})


@dataclass(frozen=True)
class Judgement:
    """What one check says of one node, before it is on the board."""

    text: str = ""
    findings: tuple[Finding, ...] = ()
    status: CheckStatus = CheckStatus.OK
    """Where no finding is worse."""


@dataclass(frozen=True)
class Drift:
    """A property that is not the same on all nodes."""

    item: str
    """`torch`, `driver`."""
    usual: str
    """What most nodes have."""
    usual_nodes: tuple[str, ...]
    others: dict[str, tuple[str, ...]]
    """What else there is, and on which nodes."""


def drift_of(item: str, values: Mapping[str, str]) -> Drift:
    """Return who has what, of values by node that are not all the same."""
    usual = Counter(values.values()).most_common(1)[0][0]  # Of two that are as common, that of the lower rank.
    by_value: dict[str, tuple[str, ...]] = {}
    for name, value in values.items():
        by_value[value] = (*by_value.get(value, ()), name)
    usual_nodes = by_value.pop(usual)
    return Drift(item, usual, usual_nodes, by_value)


Changed = Callable[[str, Mapping[Check, Cell]], None]
"""Told the name of a node and the cells of it that changed."""


@dataclass
class Board:
    """All that a preflight has found so far."""

    names: tuple[str, ...]
    """The nodes, in order of rank."""
    ignored: frozenset[str] = frozenset()
    """Codes of errors that a person wants ignored."""
    on_change: Changed | None = None
    rows: dict[str, dict[Check, Cell]] = field(default_factory=dict)
    unreachable: dict[str, HostError] = field(default_factory=dict)
    """Node → why it cannot be used at all."""
    drift: tuple[Drift, ...] = ()
    others: tuple[Finding, ...] = ()
    """What is found of no single node's check: the plan's own findings, versions that differ."""
    plan: Plan | None = None
    """The plan by what the hosts say, once all have been asked."""
    _found: dict[tuple[str, Check], tuple[Finding, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.names:
            self.rows[name] = dict.fromkeys(Check, Cell(CheckStatus.PENDING))

    def put(self, name: str, judgements: Mapping[Check, Judgement], seconds: float | None = None) -> None:
        """Write what checks of a node came to; a check that is judged again keeps its time."""
        changed: dict[Check, Cell] = {}
        for check, judgement in judgements.items():
            found = tuple(self._weighed(finding) for finding in judgement.findings)
            self._found[name, check] = found
            statuses = [judgement.status, *(_STATUS_OF[finding.severity] for finding in found)]
            before = self.rows[name][check]
            took = seconds if before.status is CheckStatus.PENDING else before.seconds
            cell = Cell(max(statuses, key=lambda status: status.badness), judgement.text, took)
            if cell != before:
                changed[check] = self.rows[name][check] = cell
        if changed and self.on_change is not None:
            self.on_change(name, changed)

    def say(self, findings: Iterable[Finding]) -> None:
        """Write what concerns no single node's check."""
        self.others = tuple(self._weighed(finding) for finding in findings)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything found, the errors first."""
        of_nodes = (finding for name in self.names for check in Check for finding in self._found.get((name, check), ()))
        return errors_first(dict.fromkeys((*of_nodes, *self.others)))

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What forbids a launch."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    def raise_errors(self) -> None:
        """Raise HostError where a node cannot be reached, else PreflightError where something forbids the launch."""
        for name in self.names:
            if name in self.unreachable:
                raise self.unreachable[name]
        if self.errors:
            first, *others = merged(self.errors)
            more = ngettext(" (and {count} more error)", " (and {count} more errors)", len(others)) if others else ""
            raise PreflightError(first.message + more.format(count=len(others)), first.hint)

    def _weighed(self, finding: Finding) -> Finding:
        """Make a warning of an error that is to be ignored, and say so."""
        if finding.severity is not Severity.ERROR or finding.code not in self.ignored & IGNORABLE:
            return finding
        message = _("ignored: {message}").format(message=finding.message)
        return finding.model_copy(update={"severity": Severity.WARNING, "message": message, "hint": ""})


_STATUS_OF = {Severity.INFO: CheckStatus.OK, Severity.WARNING: CheckStatus.WARNING, Severity.ERROR: CheckStatus.ERROR}
