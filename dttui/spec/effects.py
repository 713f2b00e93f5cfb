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
UNUSED: JsonDict = {"effect": "none"}
"""Read, checked and kept, and nothing acts upon it yet: a plan says so."""
AFTER_FAILURE_ONLY: JsonDict = {**LAUNCHED, "only_with": "framework_options.elastic or recovery.on_node_failure"}
"""Acts upon jobs that go on after a failure, and upon no others."""


def effect_of(model: type[BaseModel], name: str) -> str | None:
    """Return the mark of a field: `launch`, `preflight`, `estimate`, `script` or `none`; `None` for one without."""
    extra = model.model_fields[name].json_schema_extra
    effect = extra.get("effect") if isinstance(extra, dict) else None
    return effect if isinstance(effect, str) else None


def keys_without_effect(section: BaseModel, path: PathKey = (), *, goes_on: bool = False) -> Iterator[PathKey]:
    """Yield the keys below `section` that say something other than their default and that nothing acts upon.

    Args:
        section: a job, or a part of one.
        path: where it stands.
        goes_on: whether the job does after a failure; of a whole job its own options say so.
    """
    goes_on = goes_on or getattr(section, "framework_options", {}).get("elastic") is not None
    # Another attempt may begin on other hosts, too.
    goes_on = goes_on or getattr(getattr(section, "recovery", None), "action", "stop") != "stop"
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if value == field.get_default(call_default_factory=True):
            continue
        extra = field.json_schema_extra
        is_in_vain = isinstance(extra, dict) and "only_with" in extra and not goes_on
        if is_in_vain or effect_of(type(section), name) == "none":
            yield (*path, name)
        elif isinstance(value, BaseModel):
            yield from keys_without_effect(value, (*path, name), goes_on=goes_on)
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from keys_without_effect(item, (*path, name, index), goes_on=goes_on)
