"""Plain data to dataclasses, checked field by field. A job's files are read by verbs that do not wait for pydantic."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")
_Taker = Callable[[Any], Any]


def taken(kind: type[T], data: object) -> T:
    """Return a dataclass made of plain data; fields that it does not know are left out.

    Raises:
        ValueError: something is missing, or is of another kind than the field.
    """
    take: Callable[[object], T] = _taker(typing.cast(Any, kind))
    return take(data)


@functools.cache
def _taker(kind: Any) -> _Taker:
    """Return what takes a value of one type."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return lambda value: value
    if origin in (typing.Union, types.UnionType):
        (wanted,) = (item for item in inner if item is not types.NoneType)
        take = _taker(wanted)
        return lambda value: None if value is None else take(value)
    if origin in (list, tuple):
        return _sequence(origin, _taker(inner[0]))
    if origin is dict:
        return _mapping(_taker(inner[1]))
    if dataclasses.is_dataclass(kind):
        return _record(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if kind is float:
        return _number
    return functools.partial(_exactly, kind)


def _exactly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{kind.__name__} is expected, not {type(value).__name__}")
    return value


def _number(value: Any) -> float:
    if type(value) is int:
        return float(value)
    if type(value) is not float:
        raise ValueError(f"a number is expected, not {type(value).__name__}")
    return value


def _sequence(kind: type, take: _Taker) -> _Taker:
    def take_all(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"a list is expected, not {type(value).__name__}")
        return kind(map(take, value))

    return take_all


def _mapping(take: _Taker) -> _Taker:
    def take_all(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"an object is expected, not {type(value).__name__}")
        return {_exactly(str, key): take(item) for key, item in value.items()}

    return take_all


def _record(kind: Any) -> _Taker:
    hints = typing.get_type_hints(kind)
    takers = [(field.name, _taker(hints[field.name])) for field in dataclasses.fields(kind)]

    def take(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"an object is expected, not {type(value).__name__}")
        try:
            return kind(**{name: take(value[name]) for name, take in takers if name in value})
        except TypeError as fault:  # A field that has no default is missing.
            raise ValueError(str(fault)) from fault

    return take
