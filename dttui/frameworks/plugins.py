"""Frameworks that other packages add by entry points: loaded, looked over, and every call of theirs fenced in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint
from typing import Any, TypeVar, cast

from dttui.errors import UsageError
from dttui.frameworks.base import Framework, JobLayout, NodeLayout, Rank
from dttui.frameworks.bundle import PlannedFile, PlannedProcess
from dttui.frameworks.traits import ProcessGroup, ScriptImports, SizeGuide, Traits, Usual
from dttui.frameworks.unavailable import Unavailable
from dttui.i18n import _
from dttui.spec.findings import Finding, Severity, error
from dttui.spec.models import Job
from dttui.spec.section import Section

OPTIONAL = frozenset(name for name in vars(Traits) if not name.startswith("_"))
"""Members of the Protocol that may be left out."""
_MEMBERS = tuple(name for name in vars(Framework) if not name.startswith("_"))
_KINDS: dict[str, type] = {
    **dict.fromkeys(("label", "summary", "description"), str),
    **dict.fromkeys(("needs_ports", "available"), bool),
    "rank": Rank,
}
"""What the plain members are."""
_TEXTS = ("features", "requires", "verdicts")
"""Members that are several texts."""
_OPTIONAL_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(
        ("arguments_advice", "context_option", "expert_option", "template", "timeout_call", "when_split"),
        (str, type(None)),
    ),
    **dict.fromkeys(
        ("has_mpi", "has_parameter_servers", "may_share_unequally", "only_starts", "uses_torch"),
        (bool,),
    ),
    **dict.fromkeys(("findings_of_imports", "spreads"), (Mapping,)),
    "collective_reach": (Mapping,),
    "overlaps_gradients": (bool,),
    "option_costs": (Mapping, type(None)),
    "plain_protocol": (str,),
    "process_group": (ProcessGroup,),
    "script_imports": (ScriptImports, type(None)),
    "size_guide": (SizeGuide, type(None)),
    "usual_zero_stage": (int,),
}
"""What the members are that may be left out."""
_Item = TypeVar("_Item")


def load(point: EntryPoint) -> Framework:
    """Return what a package adds; where it cannot be used, what says so."""
    package = point.dist.name if point.dist is not None else point.value
    try:
        framework = point.load()()
        missing = [name for name in _MEMBERS if not _has(framework, name)]
        reason = _faults(framework, point.name, missing)
    except Exception as fault:  # noqa: BLE001 - whatever somebody else's package raises
        reason = _in_words(fault)
    if not reason:
        # All other members are passed on, which no type checker can see.
        return cast("Framework", Plugin(framework, package))
    told = _("the framework {name} of {package} cannot be loaded: {error}")
    told = told.format(name=point.name, package=package, error=reason)
    return Unavailable(point.name, point.name, told, _mend(package))


class Plugin:
    """A framework of another package, none of whose exceptions is taken for one of dttui's."""

    def __init__(self, framework: Framework, package: str) -> None:
        self._framework, self._package = framework, package

    def __getattr__(self, name: str) -> Any:
        """Return what the framework has by that name; of what it leaves out, what most have."""
        if name in OPTIONAL and not hasattr(self._framework, name):
            return getattr(Usual(), name)
        return getattr(self._framework, name)

    def check(self, job: Job) -> list[Finding]:
        """Return its findings, or that it failed."""
        try:
            return self._call(Finding, self._framework.check, job)
        except UsageError as fault:
            return [_failed(fault)]

    def check_layout(self, layout: JobLayout) -> list[Finding]:
        """Return its findings, or that it failed: at these, or at a node's bundle."""
        try:
            findings = self._call(Finding, self._framework.check_layout, layout)
            if not any(finding.severity is Severity.ERROR for finding in findings):
                for node in layout.nodes:
                    self.node_files(layout, node)
                    self.processes(layout, node)
        except UsageError as fault:
            return [_failed(fault)]
        return findings

    def node_files(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedFile, ...]:
        """Return its files of a node. Raises UsageError where it fails."""
        return tuple(self._call(PlannedFile, self._framework.node_files, layout, node))

    def processes(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedProcess, ...]:
        """Return its commands of a node. Raises UsageError where it fails."""
        return tuple(self._call(PlannedProcess, self._framework.processes, layout, node))

    def _call(self, kind: type[_Item], function: Callable[..., Iterable[_Item]], *arguments: Any) -> list[_Item]:
        try:
            items = [*function(*arguments)]
            if strange := next((item for item in items if not isinstance(item, kind)), None):
                raise TypeError(f"{type(strange).__name__} is no {kind.__name__}")
        except Exception as fault:
            message = _("the framework {name} of {package} failed in {function}: {error}").format(
                name=self._framework.name, package=self._package, function=function.__name__, error=_in_words(fault)
            )
            raise UsageError(message, _mend(self._package)) from fault
        return items


def _faults(framework: Any, name: str, missing: list[str]) -> str:
    """Return what is wrong with what was loaded; empty for a framework."""
    if missing:
        return _("it has no {names}, as every framework must").format(names=", ".join(missing))
    if framework.name != name:
        return _("it calls itself {name}").format(name=framework.name)
    if not (isinstance(framework.options, type) and issubclass(framework.options, Section)):
        return _("its {name} is no {kind}").format(name="options", kind="Section")
    for member, kind in _KINDS.items():
        if not isinstance(getattr(framework, member), kind):
            return _("its {name} is no {kind}").format(name=member, kind=kind.__name__)
    for member in _TEXTS:
        found = getattr(framework, member, ())
        if not (isinstance(found, (list, tuple)) and all(isinstance(item, str) for item in found)):
            return _("its {name} is no {kind}").format(name=member, kind="Sequence[str]")
    for member, kinds in _OPTIONAL_KINDS.items():
        if hasattr(framework, member) and not isinstance(getattr(framework, member), kinds):
            return _("its {name} is no {kind}").format(name=member, kind=kinds[0].__name__)
    return ""


def _has(framework: Any, name: str) -> bool:
    """Whether a framework has a member of its own: one that derives from the Protocol has its empty ones as well."""
    return hasattr(framework, name) and getattr(type(framework), name, None) is not vars(Framework)[name]


def _failed(fault: UsageError) -> Finding:
    return error("framework-failed", "framework", fault.message, fault.hint)


def _mend(package: str) -> str:
    return _("Remove the package {package}, or mend it.").format(package=package)


def _in_words(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}"
