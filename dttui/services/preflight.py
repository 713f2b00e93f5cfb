"""Checks of the hosts before anything is started there. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Mapping

from dtagent.protocol.telemetry import HostFacts, PythonFacts

from dttui.frameworks import get_framework
from dttui.i18n import _
from dttui.planning.models import Finding, Plan, Severity


def check_hosts(plan: Plan, facts: Mapping[str, HostFacts]) -> list[Finding]:
    """Return what the facts of the chosen hosts say against the plan: interpreters, packages, their versions."""
    findings: list[Finding] = []
    pythons = {node.name: _python(facts.get(node.name), node.python) for node in plan.nodes}
    for name, python in pythons.items():
        if python is None or python.error:
            reason = python.error if python and python.error else _("nothing is known of it")
            findings.append(
                _error(
                    "python-missing",
                    name,
                    _("{host}: the interpreter cannot be used: {reason}").format(host=name, reason=reason),
                    _("Set `python` of this environment in the inventory.")
                    if plan.python is None
                    else _("Correct run.python of the job, or leave it out: then `python` of the environment counts."),
                )
            )
            continue
        for package in get_framework(plan.framework).requires:
            if package not in python.packages:
                findings.append(
                    _error(
                        "package-missing",
                        name,
                        _("{host}: {python} has no {package}").format(host=name, python=python.path, package=package),
                        _("Install it there, or set `python` of this environment to an interpreter that has it.")
                        if plan.python is None
                        else _("Install it there, or name another interpreter by run.python of the job, or none."),
                    )
                )
    for package in get_framework(plan.framework).requires:
        versions = {
            name: python.packages[package] for name, python in pythons.items() if python and package in python.packages
        }
        if len(set(versions.values())) > 1:
            told = ", ".join(f"{name}: {version}" for name, version in versions.items())
            findings.append(
                Finding(
                    code="drift",
                    severity=Severity.WARNING,
                    subject=package,
                    message=_("the hosts have different versions of {package}: {versions}").format(
                        package=package, versions=told
                    ),
                    hint=_("Install the same version everywhere."),
                )
            )
    return findings


def _python(facts: HostFacts | None, path: str) -> PythonFacts | None:
    return next((item for item in facts.pythons if item.path == path), None) if facts else None


def _error(code: str, subject: str, message: str, hint: str) -> Finding:
    return Finding(code=code, severity=Severity.ERROR, subject=subject, message=message, hint=hint)
