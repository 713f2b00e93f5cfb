"""`framework_options` of a job as the model that its framework has for them, and what is wrong with them."""

from __future__ import annotations

from pydantic import ValidationError

from dttui.frameworks.base import Framework
from dttui.i18n import _
from dttui.spec.document import describe_error
from dttui.spec.findings import Finding, error
from dttui.spec.models import Job
from dttui.spec.problems import PathKey, PlacedValueError, did_you_mean, format_path
from dttui.spec.schema_walk import keys_of, literal_choices, models_at
from dttui.spec.section import Section

_KEY = "framework_options"
_MOST = 20
"""Mistakes that are told at once."""


def read_options(job: Job, framework: Framework) -> tuple[Section | None, list[Finding]]:
    """Return the options of a job; `None` where they are wrong, with an error for each mistake.

    `None` alone for a framework that is not available, whose options nobody knows.
    """
    if not framework.available:
        return None, []
    try:
        return framework.options.model_validate(job.framework_options, strict=True), []
    except ValidationError as fault:
        details = fault.errors(include_url=False)[:_MOST]
    findings: list[Finding] = []
    for detail in details:
        path: PathKey = tuple(detail["loc"])
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, PlacedValueError):
            findings += [_error((*path, *below), message) for below, message in cause.faults]
        elif detail["type"] == "extra_forbidden":
            if not keys_of(framework.options):
                message = _("{framework} has no options").format(framework=framework.label)
                return None, [_error((), message, _("Leave framework_options out."))]
            known = sorted({name for model in models_at(framework.options, path[:-1]) for name in keys_of(model)})
            message = _("{framework} has no option {key}").format(framework=framework.label, key=path[-1])
            listed = _("known keys: {keys}").format(keys=", ".join(known)) if known else ""
            findings.append(_error(path, message, did_you_mean(str(path[-1]), known) or listed))
        elif detail["type"] == "missing":
            findings.append(_error(path, _('the key "{key}" is missing').format(key=path[-1])))
        else:
            value = detail.get("input")
            near = did_you_mean(value, literal_choices(framework.options, path)) if isinstance(value, str) else ""
            findings.append(_error(path, describe_error(detail), near))
    return None, findings


def _error(path: PathKey, message: str, hint: str = "") -> Finding:
    whole = (_KEY, *path)
    return error("framework-option", format_path(whole), message, hint, path=whole)
