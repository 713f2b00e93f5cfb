"""What a job must say before it can run, and what it says that this version does not act upon."""

from __future__ import annotations

import posixpath
import re

from dttui.frameworks import Framework, frameworks, get_framework, traits_of
from dttui.frameworks.bundle import is_hole
from dttui.frameworks.parts.environment import VISIBLE_GPUS, is_reserved
from dttui.frameworks.parts.options import read_options
from dttui.i18n import _
from dttui.planning.accelerate_words import check_accelerate
from dttui.spec.effects import keys_without_effect
from dttui.spec.entry_points import DEFAULT_FRAMEWORK
from dttui.spec.findings import Finding, error, info, warning
from dttui.spec.models import Job, Run
from dttui.spec.placeholders import UNLIKE_TOKENIZERS
from dttui.spec.problems import PathKey, format_path

_UNFILLED = re.compile(r"\$(?:[A-Za-z_]\w*|[0-9@]|\{[A-Za-z_0-9]\w*\})|" + UNLIKE_TOKENIZERS + r"<[A-Za-z][\w .-]*>")
"""What a shell would fill in, or somebody was to."""
_NAMED_GPUS = re.compile(r"\d|GPU-|MIG-")
"""How a list of GPUs begins, and none does that hides them all."""
_SHELLS = ("bash", "sh", "zsh", "dash", "ksh")


def check_completeness(job: Job) -> list[Finding]:
    """Return what is missing, and what the framework makes of the rest."""
    findings: list[Finding] = []
    if job.run is None:
        message = _("the job does not say what to run")
        findings.append(error("run-missing", "run", message, _("Add run: with script, module or command.")))
    else:
        findings += [*_check_variables(job.run), *_check_filled(job.run), *check_accelerate(job)]
    if job.framework is None:
        message = _("the job does not say which framework launches it")
        hint = _("Write framework: {name}.").format(name=DEFAULT_FRAMEWORK)
        findings.append(error("framework-missing", "framework", message, hint))
    else:
        findings += check_framework(job, get_framework(job.framework))
    servers = {index: node.id for index, node in enumerate(job.cluster.nodes) if node.role == "parameter_server"}
    if servers and not traits_of(job.framework).has_parameter_servers:
        message = _("{nodes}: parameter_server is a role for {frameworks} alone").format(
            nodes=", ".join(servers.values()),
            frameworks=", ".join(item.label for item in frameworks() if item.has_parameter_servers),
        )
        path = ("cluster", "nodes", next(iter(servers)), "role")
        findings.append(error("parameter-server", "cluster.nodes", message, _("Write role: worker."), path=path))
    recovery = job.recovery
    if recovery.checkpoint is not None and recovery.checkpoint.dir.startswith("~"):
        key = "recovery.checkpoint.dir"
        message = _("{key} begins with ~, which means another directory on every host").format(key=key)
        findings.append(error("tilde", key, message, _("Write the whole path.")))
    checkpoint = recovery.checkpoint
    outlives = checkpoint is not None and (checkpoint.shared or checkpoint.copies > 0)
    if recovery.on_node_failure == "replace" and not outlives:
        message = _("a node can be replaced only where its checkpoints outlive it")
        hint = _("Set recovery.checkpoint with shared: true or copies: 1, or another on_node_failure.")
        findings.append(error("replace-needs-shared", "recovery.on_node_failure", message, hint))
    return findings


def check_framework(job: Job, framework: Framework) -> list[Finding]:
    """Return what in the job and its options does not go with the framework."""
    return [*framework.check(job), *read_options(job, framework)[1]]


def _check_filled(run: Run) -> list[Finding]:
    """Warn of words that a shell would fill in, and of placeholders: a program gets them as they stand."""
    is_script = run.command is not None and posixpath.basename(run.command[0]) in _SHELLS
    words: list[tuple[PathKey, str]] = [(("run", "args", index), word) for index, word in enumerate(run.args)]
    words += [(("run", "command", index), word) for index, word in enumerate(run.command or ()) if not is_script]
    words += [(("run", "env", name), value) for name, value in run.env.items()]
    found = [(path, match[0]) for path, word in words for match in _UNFILLED.finditer(word) if not is_hole(match[0])]
    if not found:
        return []
    texts = ", ".join(dict.fromkeys(text for _path, text in found))
    message = _("the program gets this as it stands, and no shell fills it in: {texts}").format(texts=texts)
    hint = _("Write what is meant in its place.")
    return [warning("not-filled-in", format_path(found[0][0]), message, hint, path=found[0][0])]


def check_unused(job: Job) -> list[Finding]:
    """Name the keys that act upon other jobs alone."""
    found: list[Finding] = []
    paths = list(keys_without_effect(job))
    keys = [format_path(path) for path in paths if path[0] != "monitoring"]
    if keys:
        message = _("without another attempt nothing comes of: {keys}").format(keys=", ".join(keys))
        hint = _("Write recovery.on_node_failure: restart, or leave them out.")
        found.append(info("not-acted-upon", keys[0], message, hint))
    for path in paths:
        if path[0] == "monitoring":
            message = _("without monitoring.on_event nothing comes of: {keys}").format(keys=format_path(path))
            found.append(info("not-acted-upon", format_path(path), message, _("Write it, or leave this out.")))
    return found


def _check_variables(run: Run) -> list[Finding]:
    """Refuse the variables by which ranks find each other, and the agent finds the job's processes and logs.

    One that names GPUs is the job's own affair, and told.
    """
    hint = _("dttui and torchrun set it themselves on every rank: leave it out, or take another name.")
    named: list[tuple[str, str, PathKey]] = [(f"run.env.{name}", name, ("run", "env", name)) for name in run.env]
    named += [("run.secrets", name, ("run", "secrets", index)) for index, name in enumerate(run.secrets)]
    found = [
        error("reserved-variable", subject, _("the job may not set {name}").format(name=name), hint, path=path)
        for subject, name, path in named
        if is_reserved(name, run.per)
    ]
    if _NAMED_GPUS.match(run.env.get(VISIBLE_GPUS, "")):
        told = _("{name} takes the place of the GPUs that a host sets aside for the job: others may get the same ones")
        hint = _("Name them by resources.gpu.ids, and leave this out.")
        path = ("run", "env", VISIBLE_GPUS)
        found.append(warning("gpus-by-hand", format_path(path), told.format(name=VISIBLE_GPUS), hint, path=path))
    return found
