"""Checks of the hosts' software before anything is started there. Pure: facts in, findings and differences out."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from dtagent.protocol.facts import PACKAGES, FactsRequest, HostFacts, PythonFacts

from dttui import __version__
from dttui.agent_words import agent_text
from dttui.frameworks import get_framework, traits_of
from dttui.frameworks.bundle import holes_in
from dttui.frameworks.parts.nccl import PER_COLLECTIVE, version
from dttui.frameworks.parts.prefix import is_watched
from dttui.i18n import _, joined
from dttui.jobs.board import Drift, Judgement, drift_of
from dttui.jobs.checks import CheckStatus
from dttui.planning.models import Finding, Plan, PlannedNode
from dttui.preflight.imported import compared_modules, missing_modules, module_path, modules_asked, version_told
from dttui.spec.findings import error, warning

_Told = Callable[[HostFacts, PythonFacts], str | None]


def check_logout(node: PlannedNode, facts: HostFacts) -> list[Finding]:
    """Name a host that ends a job when a connection is lost; with simulated GPUs it is the person's own session."""
    if node.simulated or not facts.logout_kills:
        return []
    message = _("{host}: systemd would kill the job there as soon as the connection is lost").format(host=node.name)
    hint = _("Run there once: {command}").format(command=f"loginctl enable-linger {facts.user}")
    return [error("logout-kills", node.name, message, hint)]


def facts_request(plan: Plan, node: PlannedNode) -> FactsRequest:
    """Return what to ask of a node's host: of its interpreter behind the words that the job puts before it."""
    further = [name for name in get_framework(plan.framework).requires if name not in PACKAGES]
    if not node.prefix:
        asked, path = (modules_asked(plan), module_path(plan, node)) if plan.container is None else ({}, [])
        return FactsRequest([node.python], packages=further, modules=asked, module_path=path)
    # Only a start fills holes, and who looks on would look at what is asked.
    if any(holes_in(word) for word in node.prefix) or is_watched(node.prefix):
        return FactsRequest()
    process = next(iter(node.processes), None)
    told = process.env if process is not None else {}
    env = {name: told[name] for name in plan.own_variables if name in told and not holes_in(told[name])}
    cwd = process.cwd if process is not None and not holes_in(process.cwd) else "/"
    return FactsRequest(
        [node.python], list(node.prefix), env, cwd, further, modules_asked(plan), module_path(plan, node)
    )


def python_of(node: PlannedNode, facts: HostFacts) -> PythonFacts | None:
    """Return what a host says of a node's interpreter: of the one that the job will start."""
    told = (item for item in facts.pythons if item.path == node.python and tuple(item.prefix or ()) == node.prefix)
    return next(told, None)


def judge_software(plan: Plan, node: PlannedNode, facts: HostFacts) -> Judgement:
    """Say whether a host has the interpreter and packages of the job."""
    name, python = node.name, python_of(node, facts)
    if python is None or python.error:
        said = agent_text(python.error, python.error_notice) if python is not None else ""
        return _unusable(plan, node, said or _("nothing is known of it"))
    wanted = get_framework(plan.framework).requires
    findings = (*_check_packages(plan, name, python, wanted), *_check_nccl(plan, node, python))
    findings += tuple(missing_modules(plan, name, python, node.prefix))
    return Judgement(joined(" · ", _versions_told(plan, python, facts, wanted)), findings)


def _unusable(plan: Plan, node: PlannedNode, reason: str) -> Judgement:
    """Say that a host's interpreter cannot be used, or, behind words that lead elsewhere, that it was not seen."""
    if node.prefix:
        return _unseen(node, reason)
    message = _("{host}: the interpreter cannot be used: {reason}").format(host=node.name, reason=reason)
    hint = (
        _("Set `python` of this environment in the inventory.")
        if plan.python is None
        else _("Correct run.python of the job, or leave it out: then `python` of the environment counts.")
    )
    return Judgement(node.python, (error("python-missing", node.name, message, hint),))


def _versions_told(plan: Plan, python: PythonFacts, facts: HostFacts, wanted: Sequence[str]) -> Iterator[str]:
    """Yield the versions of what the job runs with on a host, as they are shown."""
    yield f"Python {python.version}"
    for name in wanted:
        yield f"{name} {python.packages.get(name, '–')}"
    if python.torch_cuda and "torch" in wanted:
        yield f"CUDA {python.torch_cuda}"
    if python.nccl and plan.backend == "nccl" and traits_of(plan.framework).uses_torch:
        yield f"NCCL {python.nccl}"
    if facts.driver_version:
        yield _("driver {version}").format(version=facts.driver_version)


def _check_packages(plan: Plan, name: str, python: PythonFacts, wanted: Sequence[str]) -> Iterator[Finding]:
    """Yield which packages that the job needs a host does not have, then of which that is not known."""
    hint = (
        _("Install it there, or name an interpreter that has it: `python` of this environment, or run.python.")
        if plan.python is None
        else _("Install it there, or name another interpreter by run.python of the job, or none.")
    )
    text = _("{host}: {python} has no {package}")
    missing = [package for package in wanted if package not in python.packages]
    sought = {*PACKAGES, *(python.looked_for or ())}
    for package in (item for item in missing if item in sought):
        yield error("package-missing", name, text.format(host=name, python=python.path, package=package), hint)
    unknown = _("{host}: whether {python} has {package} is not known: the agent there is too old")
    upgrade = _("Upgrade the agent: dttui agents deploy {host}").format(host=name)
    for package in (item for item in missing if item not in sought):
        message = unknown.format(host=name, python=python.path, package=package)
        yield warning("package-unknown", name, message, upgrade)


def versions_of(plan: Plan, node: PlannedNode, facts: HostFacts) -> dict[str, str]:
    """Return the versions of what a job runs with on a host, by what they are of; in a container that is its image."""
    python = python_of(node, facts) if plan.container is None else None
    found: dict[str, str | None] = {"dttui": __version__, "driver": facts.driver_version}
    if plan.container is not None:
        found["image"] = plan.container.image
    if python is not None and not python.error:
        packages = dict.fromkeys(("torch", *get_framework(plan.framework).requires))
        found["Python"] = python.version
        found |= {name: python.packages.get(name) for name in packages}
        found |= {"CUDA": python.torch_cuda, "ROCm": python.torch_rocm, "NCCL": python.nccl}
    return {name: version for name, version in found.items() if version is not None}


def _unseen(node: PlannedNode, reason: str) -> Judgement:
    """Say that nobody could look behind the prefix, which may be ready only when the job starts."""
    message = _("{host}: the interpreter behind run.prefix could not be looked at: {reason}")
    hint = _("Try there: {command}").format(command=shlex.join([*node.prefix, node.python, "--version"]))
    found = warning("python-unknown", node.name, message.format(host=node.name, reason=reason), hint)
    return Judgement(node.python, (found,), CheckStatus.UNKNOWN)


def _check_nccl(plan: Plan, node: PlannedNode, python: PythonFacts) -> tuple[Finding, ...]:
    """Name an NCCL that would find no algorithm at all where it is told that of one collective."""
    asked = next((process.env["NCCL_ALGO"] for process in node.processes if "NCCL_ALGO" in process.env), "")
    if plan.backend != "nccl" or ":" not in asked or python.nccl is None or version(python.nccl) >= PER_COLLECTIVE:
        return ()
    message = _("{host}: NCCL {version} does not take NCCL_ALGO={value}").format(
        host=node.name, version=python.nccl, value=asked
    )
    key = "run.env.NCCL_ALGO" if "NCCL_ALGO" in plan.own_variables else "communication.allreduce.algorithm"
    hint = _("Leave {key} out, or install NCCL {least} there: torch 2.7 brings a newer one.")
    hint = hint.format(key=key, least=".".join(map(str, PER_COLLECTIVE)))
    return (error("nccl-too-old", node.name, message, hint),)


def differences(plan: Plan, facts: Mapping[str, HostFacts]) -> tuple[Drift, ...]:
    """Return what is not the same on all nodes that told it: who has what most have, and who differs."""
    uses_torch = traits_of(plan.framework).uses_torch
    packages = [*(("torch",) if uses_torch else ()), *get_framework(plan.framework).requires]
    told = {
        node.name: (facts[node.name], python)
        for node in plan.nodes
        if node.name in facts and (python := python_of(node, facts[node.name])) and not python.error
    }
    return version_differences(
        told,
        packages if plan.container is None else None,
        uses_torch=uses_torch,
        uses_nccl=plan.backend == "nccl",
        modules=compared_modules(plan, packages),
    )


def version_differences(
    told: Mapping[str, tuple[HostFacts, PythonFacts]],
    packages: Sequence[str] | None,
    *,
    uses_torch: bool,
    uses_nccl: bool,
    modules: Sequence[str] = (),
) -> tuple[Drift, ...]:
    """Return what is not the same on all hosts that told it.

    Args:
        told: host → what it says of itself, and of the interpreter that counts there.
        packages: to compare; `None` where the interpreter does not matter.
        uses_torch: whether it matters what torch was built for.
        uses_nccl: whether NCCL and the driver matter.
        modules: that the script imports, to compare besides.
    """
    items: dict[str, _Told] = {}
    if packages is not None:
        items = {
            "Python": lambda _host, python: python.version,
            **{package: _package(package) for package in packages},
            **{module: _module(module) for module in modules},
        }
    if packages is not None and uses_torch:
        items["CUDA"] = lambda _host, python: python.torch_cuda
        items["ROCm"] = lambda _host, python: python.torch_rocm
        if uses_nccl:
            items["NCCL"] = lambda _host, python: python.nccl
    if uses_nccl:
        items["driver"] = lambda host, _python: host.driver_version
    found = []
    for item, tell in items.items():
        values = {name: value for name, pair in told.items() if (value := tell(*pair)) is not None}
        if item in ("CUDA", "ROCm"):  # A build without it differs from one with it.
            values = {name: tell(*pair) or _("none") for name, pair in told.items() if pair[1].packages.get("torch")}
        if len(set(values.values())) > 1:
            found.append(drift_of(item, values))
    return tuple(found)


def drift_findings(drift: tuple[Drift, ...]) -> list[Finding]:
    """Return a finding a difference; of NCCL, whose versions do not talk to each other, it is an error."""
    found = []
    for item in drift:
        told = joined(", ", (f"{name}: " + value for value, names in item.others.items() for name in names))
        message = _("the hosts have different versions of {package}: most {usual}, {others}").format(
            package=item.item, usual=item.usual, others=told
        )
        make = error if item.item == "NCCL" else warning
        code = "nccl-drift" if item.item == "NCCL" else "drift"
        found.append(make(code, item.item, message, _("Install the same version everywhere.")))
    return found


def _module(name: str) -> _Told:
    return lambda _host, python: version_told(python, name)


def _package(name: str) -> _Told:
    return lambda _host, python: python.packages.get(name)
