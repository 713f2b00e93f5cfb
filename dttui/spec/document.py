"""From a YamlSource to a model: every mistake pydantic finds becomes a Problem with its place and a remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dttui.i18n import _
from dttui.spec.fullwidth import fullwidth_mark
from dttui.spec.intended_forms import intended_form, intended_scalar
from dttui.spec.problems import (
    MAX_PROBLEMS,
    DocumentError,
    PathKey,
    PlacedValueError,
    Problem,
    did_you_mean,
    format_path,
    printable,
    shown,
    with_hint,
)
from dttui.spec.schema_walk import key_homes, keys_of, literal_choices, models_at
from dttui.spec.synonyms import meant
from dttui.spec.text import describe_pattern
from dttui.spec.yaml_source import YamlSource

ModelT = TypeVar("ModelT", bound=BaseModel)

_MAX_KEYS_LISTED = 16
_MAX_REMEDIES = 200
"""Problems that a remedy is looked for: a document with more mistakes than that was never a job."""
_CHOICE = re.compile("'[^']*'|True|False")
"""One of what pydantic says was expected."""
_CHOICES = {"True": "true", "False": "false"}
_FORMS = ("tuple_type", "dict_type", "model_type", "model_attributes_type", "literal_error")
"""Mistakes of a value that has another form than wanted."""
_SCALARS = ("int_type", "int_from_float", "float_type", "bool_type")
"""Mistakes of a number or a truth value that is written as something else."""


def validate(source: YamlSource, model: type[ModelT]) -> ModelT:
    """Return the document as a model.

    Values must have the type the model says: `yes` is no boolean and `"4"` no number. The one exception: where text is
    expected, a plain scalar counts as the text that was written, so that `args: [--steps, 100]` needs no quotes.

    Raises:
        DocumentError: with every problem found.
    """
    try:
        return _validated(source, model)
    except ValidationError as error:
        raise DocumentError(_problems(error, source, model)) from error


def _validated(source: YamlSource, model: type[ModelT]) -> ModelT:
    try:
        return model.model_validate(source.data, strict=True)
    except ValidationError as error:
        texts: dict[PathKey, str] = {}
        for detail in error.errors(include_url=False, include_context=False, include_input=False):
            path = _path(detail, source)
            text = source.written(path)
            if detail["type"] == "string_type" and text is not None and source.value(path) is not None:
                texts[path] = text
        if not texts:
            raise
        return model.model_validate(_with_texts(source.data, texts, ()), strict=True)


def _with_texts(data: Any, texts: dict[PathKey, str], path: PathKey) -> Any:
    if isinstance(data, dict):
        return {key: _with_texts(item, texts, (*path, key)) for key, item in data.items()}
    if isinstance(data, tuple):
        return tuple(_with_texts(item, texts, (*path, index)) for index, item in enumerate(data))
    return texts.get(path, data)


def describe_error(detail: ErrorDetails) -> str:
    """Return what pydantic's error says was expected, in our words."""
    return _expected(detail, detail.get("ctx", {}), detail.get("input"))


def _path(detail: ErrorDetails, source: YamlSource) -> PathKey:
    """Return where in the document an error is; pydantic's own path also holds union members and `[key]`."""
    path: PathKey = ()
    for key in detail["loc"]:
        if source.has((*path, key)):
            path = (*path, key)
    if detail["type"] == "missing":
        path = (*path, detail["loc"][-1])
    return path


def _problems(error: ValidationError, source: YamlSource, model: type[BaseModel]) -> list[Problem]:
    details = error.errors(include_url=False)[:MAX_PROBLEMS]
    misspelt = [detail for detail in details if detail["type"] == "extra_forbidden"]
    unknown = {_path(detail, source) for detail in misspelt[:_MAX_REMEDIES]}
    problems: list[Problem] = []
    for detail in details:
        path = _path(detail, source)
        if detail["type"] == "missing" and _is_misspelt(path, unknown):
            continue
        problems += _problems_of(detail, path, source, model, with_remedy=len(problems) < _MAX_REMEDIES)
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))


def _is_misspelt(missing: PathKey, unknown: set[PathKey]) -> bool:
    """Whether the missing key is there under a name near to it, which is reported already."""
    wanted = str(missing[-1])
    return any(path[:-1] == missing[:-1] and did_you_mean(str(path[-1]), [wanted]) for path in unknown)


def _problems_of(
    detail: ErrorDetails, path: PathKey, source: YamlSource, model: type[BaseModel], *, with_remedy: bool
) -> list[Problem]:
    context: Mapping[str, Any] = detail.get("ctx", {})
    fault = context.get("error")
    if isinstance(fault, PlacedValueError):
        places = [((*path, *below), message) for below, message in fault.faults[:MAX_PROBLEMS]]
        return [source.problem(place, source.mark(place), message) for place, message in places]
    if detail["type"] == "missing":
        message = _('the key "{key}" is missing').format(key=path[-1])
        return [source.problem(path[:-1], source.key_mark(path[:-1]), message)]
    if detail["type"] == "extra_forbidden":
        remedy = _remedy(path, model) if with_remedy else ""
        return [source.problem(path, source.key_mark(path), _("unknown key"), remedy)]
    of_key = "[key]" in detail["loc"]
    mark = source.key_mark(path) if of_key else source.mark(path)
    value = str(path[-1]) if of_key else source.value(path)
    hint = _hint(detail["type"], path, value, model) if with_remedy and not of_key else ""
    return [source.problem(path, mark, _expected(detail, context, value), hint)]


def _hint(kind: str, path: PathKey, value: Any, model: type[BaseModel]) -> str:
    """Return what to write instead of a value: the nearest of those that are valid, or its proper form."""
    if kind == "literal_error" and isinstance(value, str):
        near = did_you_mean(value, literal_choices(model, path))
        if near:
            return near
    form = ""
    if path and kind in _FORMS:
        form = intended_form(model, path, value)
    elif path and kind in _SCALARS:
        form = intended_scalar(path, value, is_whole=kind.startswith("int"), is_truth=kind.startswith("bool"))
    return _("write {form}").format(form=form) if form else ""


def _remedy(path: PathKey, model: type[BaseModel]) -> str:
    """Return what to do about an unknown key: its nearest spelling, the place it belongs to, or the valid keys."""
    key = str(path[-1])
    known = sorted({name for item in models_at(model, path[:-1]) for name in keys_of(item)})
    if wide := fullwidth_mark(key):
        return wide
    near = did_you_mean(key, known)
    homes = key_homes(model).get(key, ())
    if near and (not homes or meant(key, known)):
        return near
    depth = min(map(len, homes), default=0)
    nearest_homes = [home for home in homes if len(home) == depth]
    if len(nearest_homes) == 1:
        return _("it belongs to {path}").format(path=format_path(nearest_homes[0]))
    if near:
        return near
    if known and len(known) <= _MAX_KEYS_LISTED:
        told = _("known keys: {keys}").format(keys=", ".join(known))
        return with_hint(told, _("keys of the script's own go below settings") if "settings" in known else "")
    return ""


def _expected(detail: ErrorDetails, context: Mapping[str, Any], value: object) -> str:
    """Return what was expected, and what is there instead."""
    kind = detail["type"]
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        *others, last = [_CHOICES.get(word, word.strip("'")) for word in _CHOICE.findall(str(context["expected"]))]
        choices = _("{choices} or {last}").format(choices=", ".join(others), last=last)
        wanted = _("one of {choices}").format(choices=choices) if others else last
    elif kind == "string_pattern_mismatch":
        wanted = describe_pattern(str(context["pattern"]))
    else:
        wanted = _wanted_type(kind) or _wanted_bound(kind, context)
    if not wanted:
        return printable(detail["msg"])
    return _("expected {wanted}, found {value}").format(wanted=wanted, value=shown(value))


def _wanted_type(kind: str) -> str:
    match kind:
        case "string_type":
            return _("text")
        case "string_unicode":
            return _("valid Unicode text")
        case "int_type" | "int_from_float" | "int_parsing":
            return _("a whole number")
        case "float_type" | "finite_number":
            return _("a number")
        case "bool_type":
            return _("true or false")
        case "tuple_type":
            return _("a list")
        case "dict_type" | "model_type" | "model_attributes_type":
            return _("a mapping of keys to values")
        case _:
            return ""


def _wanted_bound(kind: str, context: Mapping[str, Any]) -> str:
    is_text = kind.startswith("string")
    bounds = {
        "gt": _("a number above {bound}"),
        "ge": _("a number of at least {bound}"),
        "lt": _("a number below {bound}"),
        "le": _("a number of at most {bound}"),
        "min_length": _("at least {bound} characters") if is_text else _("a list of at least {bound}"),
        "max_length": _("at most {bound} characters") if is_text else _("a list of at most {bound}"),
    }
    return next((bounds[name].format(bound=context[name]) for name in bounds if name in context), "")
