"""What a key of the job does: a mark of its field, in the models and in the JSON Schema alike. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel
from pydantic.config import JsonDict

from dttui.spec.problems import PathKey

LAUNCHED: JsonDict = {"effect": "launch"}
"""Decides what is started, where, or how ranks talk."""
VERIFIED: JsonDict = {"effect": "preflight"}
"""Looked after on the hosts before anything is started."""
ESTIMATED: JsonDict = {"effect": "estimate"}
"""Goes into the estimate of memory and time."""
FOR_SCRIPT: JsonDict = {"effect": "script"}
"""Handed to the script in the file that DTTUI_CONFIG names; dttui itself does nothing by it."""
AFTER_FAILURE_ONLY: JsonDict = {**LAUNCHED, "only_with": "framework_options.elastic or recovery.on_node_failure"}
"""Acts upon jobs that go on after a failure, and upon no others."""
ON_EVENTS_ONLY: JsonDict = {**LAUNCHED, "only_with": "monitoring.on_event"}
"""Acts upon jobs that have something run on events, and upon no others."""


def effect_of(model: type[BaseModel], name: str) -> str | None:
    """Return the mark of a field: `launch`, `preflight`, `estimate` or `script`; `None` for one without."""
    extra = model.model_fields[name].json_schema_extra
    effect = extra.get("effect") if isinstance(extra, dict) else None
    return effect if isinstance(effect, str) else None


def keys_without_effect(job: BaseModel) -> Iterator[PathKey]:
    """Yield the keys of a job that say something other than their default and act upon other jobs alone."""
    goes_on = getattr(job, "framework_options", {}).get("elastic") is not None
    # Another attempt may begin on other hosts, too.
    goes_on = goes_on or getattr(getattr(job, "recovery", None), "action", "stop") != "stop"
    has_hook = getattr(getattr(job, "monitoring", None), "on_event", None) is not None
    is_met = {AFTER_FAILURE_ONLY["only_with"]: goes_on, ON_EVENTS_ONLY["only_with"]: has_hook}
    for section, name, path in _said(job):
        extra = type(section).model_fields[name].json_schema_extra
        if isinstance(extra, dict) and not is_met.get(extra.get("only_with"), True):
            yield path


def keys_for_script(job: BaseModel) -> Iterator[PathKey]:
    """Yield the keys of a job that say something and that its script alone acts upon, but for its own `settings`."""
    for section, name, path in _said(job):
        if effect_of(type(section), name) != "script" or path == ("settings",):
            continue
        value = getattr(section, name)
        if not isinstance(value, tuple) or any(not isinstance(item, BaseModel) for item in value):
            yield path  # Of a list, those items are meant that say nothing else.


def _said(section: BaseModel, path: PathKey = ()) -> Iterator[tuple[BaseModel, str, PathKey]]:
    """Yield each key below a section that is not its default: whose it is, its name, and where it stands."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if value == field.get_default(call_default_factory=True):
            continue
        at = (*path, name)
        yield section, name, at
        for place, item in _sections(value, at):
            yield from _said(item, place)


def _sections(value: object, path: PathKey) -> Iterator[tuple[PathKey, BaseModel]]:
    items = enumerate(value) if isinstance(value, tuple) else ()
    if isinstance(value, BaseModel):
        yield path, value
    for index, item in items:
        if isinstance(item, BaseModel):
            yield (*path, index), item
