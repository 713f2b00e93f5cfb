"""What the models say about a place in a document: which keys are known there, and where else a key belongs."""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel

from dttui.spec.problems import PathKey


def models_at(model: type[BaseModel], path: PathKey) -> list[type[BaseModel]]:
    """Return the models that the mapping at `path` may be; empty where keys are free."""
    return [item for item in annotations_at(model, path) if _is_model(item)]


def literal_choices(model: type[BaseModel], path: PathKey) -> list[str]:
    """Return the values that a literal at `path` may have."""
    literals = [item for item in annotations_at(model, path) if get_origin(item) is Literal]
    choices = [choice for item in literals for choice in get_args(item)]
    return [str(choice).lower() if isinstance(choice, bool) else str(choice) for choice in choices]


@cache
def key_homes(model: type[BaseModel]) -> dict[str, tuple[PathKey, ...]]:
    """Return, for every key of the document, the paths of the mappings it belongs to."""
    homes: dict[str, tuple[PathKey, ...]] = {}
    for path, item in _walk(model, (), ()):
        for name in keys_of(item):
            homes[name] = (*homes.get(name, ()), path)
    return homes


def keys_of(model: type[BaseModel]) -> list[str]:
    """Return the keys of a model as documents spell them, in its order."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _walk(
    model: type[BaseModel], path: PathKey, above: tuple[type[BaseModel], ...]
) -> Iterator[tuple[PathKey, type[BaseModel]]]:
    yield path, model
    for name, field in zip(keys_of(model), model.model_fields.values(), strict=True):
        for item in _members(field.annotation):
            inner, step = (item, ()) if _is_model(item) else (next(iter(get_args(item)), None), (0,))
            if _is_model(inner) and inner not in above:
                yield from _walk(inner, (*path, name, *step), (*above, model))


def annotations_at(model: type[BaseModel], path: PathKey) -> list[Any]:
    """Return the annotations that the value at `path` may have."""
    found: list[Any] = [model]
    for key in path:
        found = [member for item in found for inner in _inner(item, key) for member in _members(inner)]
    return found


def _inner(annotation: Any, key: str | int) -> Iterator[Any]:
    """Yield what stands under `key` in a value of this annotation."""
    arguments = get_args(annotation)
    if _is_model(annotation):
        for name, field in annotation.model_fields.items():
            if key == (field.alias or name):
                yield field.annotation
    elif isinstance(key, int) and get_origin(annotation) is tuple:
        yield arguments[0]
    elif isinstance(key, str) and get_origin(annotation) is dict:
        yield arguments[1]


def _members(annotation: Any) -> Iterator[Any]:
    """Yield the alternatives of an annotation, without `Annotated` and `None`."""
    if get_origin(annotation) is Annotated:
        yield from _members(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for item in get_args(annotation):
            yield from _members(item)
    elif annotation is not type(None):
        yield annotation


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
