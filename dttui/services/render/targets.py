"""The table of targets: what a job can be rendered for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.services.render.ejection import Ejection
from dttui.services.render.kubernetes import render_kubernetes
from dttui.services.render.rendered import Rendered
from dttui.services.render.scripts import render_scripts
from dttui.services.render.slurm import render_slurm
from dttui.spec.problems import did_you_mean

Target = Callable[[Ejection], list[Rendered]]
"""Makes the files of a directory; raises UsageError where the job cannot be had so."""

TARGETS: Mapping[str, Target] = {
    "scripts": render_scripts,
    "slurm": render_slurm,
    "kubernetes": render_kubernetes,
}


def get_target(name: str) -> Target:
    """Return the target of that name. Raises UsageError where there is none."""
    if name not in TARGETS:
        listed = _("Targets there are: {names}.").format(names=", ".join(TARGETS))
        raise UsageError(_('no target "{name}"').format(name=name), did_you_mean(name, TARGETS) or listed)
    return TARGETS[name]
