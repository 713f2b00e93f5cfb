"""Where on the compose screen it is mended what a finding is about: a widget, a host, a field of a section."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dttui.compose import is_elsewhere, section_of
from dttui.planning import ComposeState
from dttui.spec import Finding, Job

_BY_CODE = {
    "name-missing": "#task-name",
    "dataset-missing": "#dataset",
    "environment-missing": "#environments",
    "master-invalid": "#master",
    "framework-missing": "#framework",
    "run-missing": "#program",
    "script-missing": "#program",
    "arguments-invalid": "#arguments",
    "prefix-invalid": "#prefix",
    "master-loopback": "#master",
    "parameter-server": "#framework",
}
"""By the code of a finding, where its key says less."""
_MENDED_BY = {
    "memory": ("strategy", "zero_stage"),
    "layout": ("strategy", "pipeline_parallel_size"),
    "split-by-script": ("strategy", "tensor_parallel_size"),
}
"""Fields of sections that mend what a key does not lead to."""
_BY_KEY = {
    ("name",): "#task-name",
    ("framework",): "#framework",
    ("framework_options",): "#options",
    ("dataset",): "#dataset",
    ("cluster", "nodes"): "#environments",
    ("run", "script"): "#program",
    ("run", "module"): "#program",
    ("run", "command"): "#program",
    ("run", "args"): "#arguments",
    ("run", "workdir"): "#workdir",
    ("run", "python"): "#python",
    ("run", "prefix"): "#prefix",
    ("run", "per"): "#per",
    ("run", "container"): "#container",
}
"""Widgets, by the key of the job that they hold."""
_STEP = re.compile(r"[^.\[\]]+")


@dataclass(frozen=True)
class FieldPlace:
    """One of three: a widget, a host, a section with a field in it."""

    selector: str = ""
    """Of a widget of the screen."""
    environment: str = ""
    """Key of a host of the list."""
    section: str = ""
    """Key of the job."""
    field: str = ""
    """Dotted name, from the section or from what the widget opens; empty for its first field."""


def place_of(finding: Finding, state: ComposeState) -> FieldPlace | None:
    """Return where a finding about a draft is mended; `None` where no field of it does that."""
    if finding.code in _BY_CODE:
        return FieldPlace(selector=_BY_CODE[finding.code])
    if finding.code in _MENDED_BY:
        section, field = _MENDED_BY[finding.code]
        return FieldPlace(section=section, field=field)
    if finding.subject in state.selected:
        return FieldPlace(environment=finding.subject)
    path = finding.path or _path(finding.subject)
    keys = [key for key in path if isinstance(key, str)]
    if not keys or keys[0] not in Job.model_fields:
        return None
    node = next((key for key in path[2:3] if isinstance(key, int)), None) if keys[:2] == ["cluster", "nodes"] else None
    if node is not None and node < len(state.selected):
        return FieldPlace(environment=state.selected[node])
    for known, selector in _BY_KEY.items():
        if tuple(keys[: len(known)]) == known:
            return FieldPlace(selector=selector, field=".".join(keys[len(known) :]))
    if keys == ["run"]:
        return FieldPlace(selector="#program")
    if keys == ["cluster"]:
        return FieldPlace(selector="#environments")
    section, field = section_of(path)
    return None if is_elsewhere(path) else FieldPlace(section=section, field=field)


def _path(subject: str) -> tuple[str | int, ...]:
    """Return the keys of a text such as `cluster.nodes[1].id`."""
    return tuple(int(step) if step.isdigit() else step for step in _STEP.findall(subject))
