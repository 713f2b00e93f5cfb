"""The form a value should have had: what a person most likely meant, written as YAML. Pure."""

from __future__ import annotations

import math
import re
import shlex
from decimal import Decimal
from typing import Any, get_origin

from pydantic import BaseModel, ValidationError

from dttui.spec.problems import PathKey, printable
from dttui.spec.quantities import COUNT_SCALES
from dttui.spec.schema_walk import annotations_at, keys_of, models_at
from dttui.spec.yaml_writer import flow

_MAX_LENGTH = 70
_TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_SCALES = {"": 1, "g": 10**9, **COUNT_SCALES}
_NUMBER = re.compile(r"(-?[0-9]{1,15}(?:\.[0-9]{1,9})?(?:e[0-9]{1,2})?)\s*([kmgbt]?)b?", re.IGNORECASE)


def intended_form(model: type[BaseModel], path: PathKey, value: Any) -> str:
    """Return `key: value` as the model wants it, made of the value that is there; nothing where none comes to mind.

    `args: --steps 30` was meant as `args: [--steps, '30']`, and `gpu: 2` as `gpu: {count: 2}`.
    """
    meant = _meant(model, path, value)
    return "" if meant is None else _entry(path, meant)


def intended_scalar(path: PathKey, value: Any, *, is_whole: bool, is_truth: bool) -> str:
    """Return `key: value` with a number or a truth value that is written as text: `"4"`, `8.0`, `7B`, `yes`."""
    if is_truth:
        truth = _TRUTHS.get(value.casefold()) if isinstance(value, str) else None
        return "" if truth is None else _entry(path, truth)
    match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
    number = Decimal(match[1]) * _SCALES[match[2].casefold()] if match else value
    if not isinstance(number, (Decimal, float)):
        return ""
    is_integral = math.isfinite(number) and number == int(number)
    if is_whole and not is_integral:
        return ""
    return _entry(path, int(number) if is_integral else float(number))


def _entry(path: PathKey, meant: Any) -> str:
    written = flow(meant)
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
        if (parts := _parts(section, value)) is not None:
            return parts
        for name in keys_of(section):
            if _fits(section, {name: value}):
                return {name: _plain(value)}
    return None


def _parts(section: type[BaseModel], value: Any) -> dict[str, Any] | None:
    """Return `key:value` without its blank, or a command line of Python, as the keys of a section."""
    text = value if isinstance(value, str) else ""
    key, _colon, rest = text.partition(":")
    if rest and _fits(section, {key: rest}):
        return {key: rest}
    words = text.split()
    if len(words) > 1 and words[0].startswith("python") and "script" in keys_of(section):
        script = {"script": words[1], "args": tuple(words[2:])} if words[2:] else {"script": words[1]}
        return _plain(script) if _fits(section, script) else None
    return None


def _as_list(model: type[BaseModel], path: PathKey, value: Any) -> list[Any] | None:
    item = (*path, 0)
    sections = models_at(model, item)
    if any(_fits(section, value) for section in sections):
        return [_plain(value)]
    if sections and str not in annotations_at(model, item):
        meant = _meant(model, item, value)
        return None if meant is None else [meant]
    if isinstance(value, str):
        try:
            return shlex.split(value) or None
        except ValueError:  # A quote that never closes.
            return None
    if isinstance(value, dict):
        return list(value) or None
    if isinstance(value, (int, float)):
        return [value if int in annotations_at(model, item) else str(value)]
    return None


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
