"""The table of targets: what a job can be rendered for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dttui.errors import UsageError
from dttui.export.contents import Export
from dttui.export.kubernetes import check_kubernetes, render_kubernetes
from dttui.export.rendered import Rendered
from dttui.export.scripts import render_scripts
from dttui.export.slurm import render_slurm
from dttui.i18n import _
from dttui.spec.findings import Finding, error, warning
from dttui.spec.problems import did_you_mean


def _nothing(_export: Export) -> list[Finding]:
    return []


def _refuse_elastic(export: Export) -> list[Finding]:
    """Return an error for a job that is to go on without nodes that are lost, where one ends all."""
    if export.plan.min_nodes is None:
        return []
    message = _("this target ends all of a job with its first node, and the job is elastic")
    hint = _("Leave elastic out, or render for scripts.")
    path = ("framework_options", "elastic")
    return [error("framework-option", "framework_options.elastic", message, hint, path=path)]


def _check_scheduled(export: Export) -> list[Finding]:
    """Return what a target cannot do or leaves out where a scheduler starts the nodes."""
    found = _refuse_elastic(export)
    if any(node.gpu_ids for node in export.plan.nodes):
        message = _("resources.gpu.ids is not carried over: this target gives each node as many GPUs of its own choice")
        found.append(
            warning("gpu-ids-not-carried", "resources.gpu.ids", message, _("Render for scripts to name them."))
        )
    return found


@dataclass(frozen=True)
class ExportTarget:
    """A way to run a job without dttui."""

    render: Callable[[Export], list[Rendered]]
    """Makes the files of a directory; raises UsageError where the job cannot be had so."""
    check: Callable[[Export], list[Finding]] = _nothing
    """Returns what the files leave out of the job; with an error, none are written."""


TARGETS: Mapping[str, ExportTarget] = {
    "scripts": ExportTarget(render_scripts),
    "slurm": ExportTarget(render_slurm, _check_scheduled),
    "kubernetes": ExportTarget(
        render_kubernetes, lambda export: [*check_kubernetes(export), *_check_scheduled(export)]
    ),
}


def get_target(name: str) -> ExportTarget:
    """Return the target of that name. Raises UsageError where there is none."""
    if name not in TARGETS:
        listed = _("Targets there are: {names}.").format(names=", ".join(TARGETS))
        raise UsageError(_('no target "{name}"').format(name=name), did_you_mean(name, TARGETS) or listed)
    return TARGETS[name]
