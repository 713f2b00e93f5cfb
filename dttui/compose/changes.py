"""What a person says of a draft section by section, and of its model and degrees. Pure: each gives a changed draft."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from dttui.planning.advising import framework_of, given_fields, with_recommendation, with_spread
from dttui.planning.compose_state import ComposeState
from dttui.planning.cost.recommend import Recommendation
from dttui.planning.section_form import SectionForm, section_form
from dttui.spec.models import Job, Model, Section, Strategy
from dttui.spec.problems import PathKey
from dttui.spec.schema_walk import models_at
from dttui.spec.yaml_writer import flow

JOB_ITSELF = "job"
"""Stands for what a job says beside its sections."""
_NAME = "draft"
"""Of a job, or a script, that is only looked at."""
_ELSEWHERE = {
    "run": ("script", "module", "command", "args", "workdir", "python", "prefix", "per", "container"),
    "cluster": ("nodes",),
    JOB_ITSELF: ("name", "framework", "framework_options", "dataset"),
}
"""What the screen asks for in other places."""


def sections() -> tuple[str, ...]:
    """Return the keys of a job that are sections, and `JOB_ITSELF` for what is beside them."""
    return (*(name for name in Job.model_fields if _is_section(name)), JOB_ITSELF)


def section_of(path: PathKey) -> tuple[str, str]:
    """Return which of the sections a key of the job is in, and its dotted name there."""
    keys = [str(key) for key in path if isinstance(key, str)]
    if keys and _is_section(keys[0]):
        return keys[0], ".".join(keys[1:])
    return JOB_ITSELF, ".".join(keys)


def is_elsewhere(path: PathKey) -> bool:
    """Whether the screen asks for a key in another place than the form of its section."""
    section, name = section_of(path)
    return name.split(".")[0] in _ELSEWHERE.get(section, ())


def form_of(state: ComposeState, section: str) -> SectionForm:
    """Return the form of a section of the draft, or of what is beside them."""
    return section_form(_model(section), _said(state, section), _apart(state, section))


def with_section(state: ComposeState, section: str, values: Mapping[str, Any]) -> ComposeState:
    """Give the draft other values of a section, which its form has read; what is asked for elsewhere stays."""
    model = _model(section)
    apart = _apart(state, section)
    given = {name: value for name, value in apart.items() if value is not None}
    read = model.model_validate({**given, **values}, strict=True)
    kept = _set_fields(_said(state, section))
    parts = {name: kept.get(name) if name in apart else getattr(read, name) for name in model.model_fields}
    parts = {name: parts[name] for name in parts if name in (kept if name in apart else values)}
    if section == JOB_ITSELF:
        others = _set_fields(state.base or Job(name=_NAME))
        asked = [name for name in model.model_fields if name not in apart]
        return _with(state, {**{name: value for name, value in others.items() if name not in asked}, **parts})
    if section == "run" and parts and not kept:
        parts["script"] = _NAME  # What runs is taken from the fields of the screen.
    made = model.model_construct(set(parts), **parts)
    return with_sections(state, **{section: made if parts else None})


def said_of(state: ComposeState, section: str) -> tuple[str, ...]:
    """Return what a section of the draft says, a text for each field: `checkpoint.dir /ckpt`."""
    said, apart = _said(state, section), _ELSEWHERE.get(section, ())
    if section == JOB_ITSELF:
        apart = (*apart, *sections())
    return tuple(_texts(said, apart)) if said is not None else ()


def model_of(state: ComposeState) -> Model | None:
    """Return the model that the draft names."""
    return state.base.model if state.base is not None else None


def with_model(state: ComposeState, model: Model) -> ComposeState:
    """Give the draft a model; one of which nothing is said is none."""
    return with_sections(state, model=model if given_fields(model) else None)


def with_layout(state: ComposeState, chosen: Recommendation) -> ComposeState:
    """Give the draft the degrees, batches and schedule of a recommendation; what else its strategy says stays.

    Where its framework cannot train so, it gets one that can.
    """
    strategy = state.base.strategy if state.base is not None else Strategy()
    framework = framework_of(state.framework, chosen.frameworks)
    if framework is not None and framework != state.framework:
        state = state.choose_framework(framework)
    options = with_spread(state.framework_options, framework, chosen)
    if options != state.framework_options:
        state = state.with_options(options)
    return with_sections(state, strategy=with_recommendation(strategy, chosen))


def with_sections(state: ComposeState, **sections: BaseModel | None) -> ComposeState:
    """Give the draft other sections; `None` for one of which it says nothing."""
    others = _set_fields(state.base or Job(name=_NAME))
    parts = {name: section for name, section in {**others, **sections}.items() if section is not None}
    return _with(state, parts)


def _with(state: ComposeState, parts: Mapping[str, Any]) -> ComposeState:
    return replace(state, base=Job.model_construct(set(parts), **parts))


def _is_section(name: str) -> bool:
    return name != "dataset" and bool(models_at(Job, (name,)))


def _model(section: str) -> type[BaseModel]:
    return Job if section == JOB_ITSELF else models_at(Job, (section,))[0]


def _said(state: ComposeState, section: str) -> Section | None:
    base = state.base
    return base if section == JOB_ITSELF or base is None else getattr(base, section)


def _apart(state: ComposeState, section: str) -> dict[str, Any]:
    """Return what the form of a section does not ask for, with the values that the others have to go with."""
    apart: dict[str, Any] = dict.fromkeys(_ELSEWHERE.get(section, ()))
    if section == "run":
        apart["script"] = _NAME
    elif section == "cluster" and state.selected:
        known = dict(state.base_nodes)
        apart["nodes"] = tuple({"id": known[key].id if key in known else key} for key in state.selected)
        apart.update(dict.fromkeys(("count", "gpus_per_node")))  # They stand for nodes that are not listed.
    elif section == JOB_ITSELF:
        apart.update(dict.fromkeys(name for name in Job.model_fields if _is_section(name)), name=_NAME)
    return apart


def _set_fields(section: BaseModel | None) -> dict[str, Any]:
    if section is None:
        return {}
    return {name: getattr(section, name) for name in type(section).model_fields if name in section.model_fields_set}


def _texts(section: BaseModel, apart: tuple[str, ...] = (), within: str = "") -> Iterator[str]:
    for name, value in _set_fields(section).items():
        if isinstance(value, BaseModel) and name not in apart:
            yield from _texts(value, within=f"{within}{name}.")
        elif name not in apart:
            items = isinstance(value, tuple) and any(isinstance(item, BaseModel) for item in value)
            shown = section.model_dump(mode="json", include={name}, exclude_unset=True)[name]
            yield f"{within}{name} {len(value) if items else flow(shown)}"
