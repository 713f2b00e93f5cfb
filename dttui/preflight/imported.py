"""What hosts say of the modules that a job's script imports: which are missing, and where versions differ. Pure."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence

from dtagent.protocol.facts import FactsRequest, HostFacts, PythonFacts

from dttui.frameworks import get_framework
from dttui.frameworks.bundle import holes_in
from dttui.i18n import _
from dttui.planning.distributions import distributions_of
from dttui.planning.models import Plan, PlannedNode
from dttui.planning.needed_module import Demand, NeededModule
from dttui.spec.findings import Finding, error, info, warning
from dttui.words import listed

MOST_NAMED = 8
"""Modules that a message names; the install line has all."""
MISSING = "module-missing"


def modules_asked(plan: Plan) -> dict[str, list[str]]:
    """Return which modules hosts are asked for, each with the distributions that may bring it."""
    return {item.module: list(distributions_of(item.module)) for item in plan.imports}


def module_path(plan: Plan, node: PlannedNode) -> list[str]:
    """Return the directories of the job's own PYTHONPATH that are on the hosts."""
    process = next(iter(node.processes), None)
    if process is None or "PYTHONPATH" not in plan.own_variables:
        return []
    entries = process.env.get("PYTHONPATH", "").split(os.pathsep)
    return [entry for entry in entries if os.path.isabs(entry) and not holes_in(entry)]


def missing_modules(plan: Plan, name: str, python: PythonFacts, prefix: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield what is said of the modules that a host's interpreter lacks: a finding for each kind of demand.

    What the framework itself requires is told as a package that is missing.

    Args:
        plan: of the job.
        name: of the host.
        python: what its interpreter says.
        prefix: words before it, in the order in which they run it.
    """
    required = set(get_framework(plan.framework).requires) if plan.framework else set()
    lacks = set(python.missing_modules or ())
    missing = [
        item for item in plan.imports if item.module in lacks and not required & {*distributions_of(item.module)}
    ]
    for demand, make in ((Demand.SURE, error), (Demand.LIKELY, warning), (Demand.LATE, info)):
        items = [item for item in missing if item.demand is demand]
        if items:
            code = MISSING if demand is not Demand.LATE else "module-late"
            message = _message(name, python.path, items)
            yield make(code, name, message, _hint(plan, python.path, items, prefix))


def version_told(python: PythonFacts, module: str) -> str | None:
    """Return the version of what brings a module; `None` where it is missing or not known."""
    return (python.modules or {}).get(module) or None


def compared_modules(plan: Plan, packages: Iterable[str]) -> list[str]:
    """Return the modules whose versions are compared: those that are imported, and are not compared as packages."""
    known = set(packages)
    return [item.module for item in plan.imports if not known & {*distributions_of(item.module)}]


def in_container(plan: Plan, node: PlannedNode) -> FactsRequest | None:
    """Return what to ask of the interpreter in a job's container; `None` without one, or where nothing is imported.

    The container is started as the job's is, without what only a start knows.
    """
    process = next(iter(node.processes), None)
    if plan.container is None or plan.python_inside is None or process is None or not plan.imports:
        return None
    words = process.argv[: process.engine_words]
    kept = [word for word in words if not holes_in(word) and not word.startswith("--name=")]
    return FactsRequest([plan.python_inside], kept, modules=modules_asked(plan), module_path=module_path(plan, node))


def python_inside(plan: Plan, facts: HostFacts | None) -> PythonFacts | None:
    """Return what the interpreter in a container has told; `None` where it could not be asked."""
    told = facts.pythons if facts is not None else ()
    return next((item for item in told if item.path == plan.python_inside and not item.error), None)


def _message(host: str, python: str, items: Sequence[NeededModule]) -> str:
    modules = listed([item.module for item in items], MOST_NAMED)
    where = f"{items[0].file}:{items[0].line}"
    if items[0].demand is Demand.LATE:
        text = _("{host}: {python} has no {modules}, imported in a function or under a condition, first at {place}")
    else:
        text = _("{host}: {python} has no {modules}, which the script imports, first at {place}")
    return text.format(host=host, python=python, modules=modules, place=where)


def _hint(plan: Plan, python: str, items: Sequence[NeededModule], prefix: Sequence[str]) -> str:
    names = list(dict.fromkeys(distributions_of(item.module)[0] for item in items))
    command = shlex.join([*(() if plan.container is not None else prefix), python, "-m", "pip", "install", *names])
    if items[0].demand is Demand.LATE:
        return _("Nothing is to be done where the script does not come there; else: {command}").format(command=command)
    if items[0].demand is Demand.LIKELY:
        return _(
            "Nothing is wrong where they are found by what the script adds to sys.path; else install them: {command}"
        ).format(command=command)
    if plan.container is not None:
        return _("Put them into the image: {command}").format(command=command)
    return _("Install them there: {command}").format(command=command)
