"""Values of any form that a job carries to its script: what JSON can hold, bounded in depth and size."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

from pydantic import AfterValidator

from dttui.i18n import _
from dttui.spec.problems import MAX_PROBLEMS, PathKey, PlacedValueError

MAX_DEPTH = 16
"""Deepest nesting."""
MAX_BYTES = 256 * 1024
"""Most that the values take as JSON."""


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    faults = list(islice(_faults(values, ()), MAX_PROBLEMS))
    if not faults:
        plain: dict[str, Any] = _with_tuples(values)
        if len(json.dumps(plain, ensure_ascii=False).encode()) <= MAX_BYTES:
            return plain
        faults = [((), _("takes more than {limit} KiB as JSON").format(limit=MAX_BYTES // 1024))]
    raise PlacedValueError(*faults)


def _faults(value: Any, path: PathKey) -> Iterator[tuple[PathKey, str]]:
    if isinstance(value, (dict, list, tuple)):
        if len(path) >= MAX_DEPTH:
            yield path, _("nested deeper than {limit}").format(limit=MAX_DEPTH)
            return
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(value, dict) and not _is_text(key):
                yield path, _("a key must be text")
            else:
                yield from _faults(item, (*path, key))
    elif isinstance(value, float) and not math.isfinite(value):
        yield path, _("expected a number that JSON can hold")
    elif not (value is None or isinstance(value, (bool, int, float)) or _is_text(value)):
        yield path, _("expected a value that JSON can hold")


def _is_text(value: Any) -> bool:
    """Whether a value is text without halves of characters, which cannot be written as UTF-8."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _with_tuples(value: Any) -> Any:
    """Return a copy that is as a document is read: lists are tuples."""
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, (list, tuple)) else value


FreeValues = Annotated[dict[str, Any], AfterValidator(_checked)]
"""Any keys and values that JSON can hold."""
