"""The form a value should have had: what a person most likely meant, written as YAML. Pure."""

from __future__ import annotations

import shlex
from typing import Any, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from dttui.spec.problems import PathKey, printable
from dttui.spec.schema_walk import annotations_at, keys_of, models_at

_MAX_LENGTH = 70


def intended_form(model: type[BaseModel], path: PathKey, value: Any) -> str:
    """Return `key: value` as the model wants it, made of the value that is there; nothing where none comes to mind.

    `args: --steps 30` was meant as `args: [--steps, '30']`, and `gpu: 2` as `gpu: {count: 2}`.
    """
    meant = _meant(model, path, value)
    if meant is None:
        return ""
    written = yaml.safe_dump(meant, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6).strip()
    if len(written) > _MAX_LENGTH:
        return ""
    return printable(f"{path[-1]}: {written}" if isinstance(path[-1], str) else written)


def _meant(model: type[BaseModel], path: PathKey, value: Any) -> Any:
    if value is None:
        return None
    kinds = [get_origin(item) for item in annotations_at(model, path)]
    if tuple in kinds:
        return _as_list(model, path, value)
    if dict in kinds:
        return _as_mapping(value)
    for section in models_at(model, path):
        for name in keys_of(section):
            if _fits(section, {name: value}):
                return {name: _plain(value)}
    return None


def _as_list(model: type[BaseModel], path: PathKey, value: Any) -> list[Any] | None:
    item = (*path, 0)
    sections = models_at(model, item)
    if any(_fits(section, value) for section in sections):
        return [_plain(value)]
    if sections:
        meant = _meant(model, item, value)
        return None if meant is None else [meant]
    if isinstance(value, str):
        try:
            return shlex.split(value) or None
        except ValueError:  # A quote that never closes.
            return None
    return [str(value)] if isinstance(value, (int, float)) else None


def _as_mapping(value: Any) -> dict[str, str] | None:
    """Return `NAME=value`, or a list of these, as a mapping."""
    items = value if isinstance(value, tuple) else str(value).split()
    pairs = [item.split("=", 1) for item in items if isinstance(item, str) and "=" in item]
    return {name: text for name, text in pairs} if pairs and len(pairs) == len(items) else None


def _fits(section: type[BaseModel], value: Any) -> bool:
    try:
        section.model_validate(value, strict=True)
    except ValidationError:
        return False
    return isinstance(value, dict)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
