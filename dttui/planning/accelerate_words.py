"""Whether what a job tells accelerate by variables, under `run.env`, is what it says itself. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from dttui.i18n import _
from dttui.spec.dialects.accelerate_environment import told_by
from dttui.spec.dialects.accelerate_options import job_values
from dttui.spec.findings import Finding, warning
from dttui.spec.models import Job
from dttui.spec.problems import PathKey, format_path, shown


def check_accelerate(job: Job) -> list[Finding]:
    """Return where the ranks go by other words than the plan; what the job leaves open is no contradiction."""
    told = told_by(job.run.env) if job.run is not None else {}
    findings: list[Finding] = []
    values = tuple(job_values({name: variable.value for name, variable in told.items()}))
    frameworks = [item.value for item in values if item.target == ("framework",)]
    for item in values:
        own = _at(job, item.target)
        variable = told.get(item.setting)
        is_foreign = item.target[0] == "framework_options" and job.framework not in frameworks
        if variable is None or item.is_implied or is_foreign or own in (None, item.value):
            continue
        message = _("the ranks go by this, {value}; the plan goes by {key}, {own}")
        message = message.format(value=shown(variable.value), key=format_path(item.target), own=shown(own))
        path: PathKey = ("run", "env", variable.name)
        hint = _("Say the same in both, or leave the variable out: accelerate takes its own default then.")
        findings.append(warning("accelerate-variable", format_path(path), message, hint, path=path))
    return findings


def _at(value: Any, path: PathKey) -> Any:
    """Return what a job says; `None` where it says nothing."""
    for key in path:
        if isinstance(value, BaseModel):
            value = getattr(value, str(key)) if key in value.model_fields_set else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return tuple(value) if isinstance(value, list) else value
