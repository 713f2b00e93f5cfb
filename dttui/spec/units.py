"""Quantities with units as people write them: `16GB`, `100Gbps`, `5ms`. Exact integers inside."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from dttui.i18n import _

_BYTES = {
    "B": 1,
    **{f"{p}B": 1000**i for i, p in enumerate("KMGTP", 1)},
    **{f"{p}iB": 1024**i for i, p in enumerate("KMGTP", 1)},
}
_BITS_PER_SECOND = {"bps": 1, **{f"{p}bps": 1000**i for i, p in enumerate("KMGT", 1)}}
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
}


def _parse(text: Any, units: dict[str, int], bare: int | None, example: str) -> int:
    if isinstance(text, int) and not isinstance(text, bool) and bare is not None:
        if text < 0:
            raise ValueError(_("must not be negative"))
        return text * bare
    match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-zµ]+)\s*", text) if isinstance(text, str) else None
    scale = next((s for u, s in units.items() if match and u.lower() == match[2].lower()), None)
    if match is None or scale is None:
        message = _("expected a number with a unit ({units}), such as {example}")
        raise ValueError(message.format(units=", ".join(units), example=example))
    value = Decimal(match[1]) * scale
    if value != value.to_integral_value():
        raise ValueError(_("{text} is not a whole number of the smallest unit").format(text=text.strip()))
    return int(value)


def _format(value: int, units: dict[str, int]) -> str:
    unit, scale = max(((u, s) for u, s in units.items() if value % s == 0), key=lambda item: item[1])
    return f"{value // scale}{unit}"


def _plain(value: float) -> int | float:
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def format_bytes(value: int) -> str:
    """Return bytes in the largest unit that divides them: 16_000_000_000 → `16GB`."""
    return _format(value, _BYTES) if value else "0B"


Number = Annotated[float, PlainSerializer(_plain, return_type=int | float, when_used="json")]
"""A number that is written as people write it: 253824, not 253824.0."""

Bytes = Annotated[
    int,
    BeforeValidator(lambda text: _parse(text, _BYTES, 1, "16GB")),
    PlainSerializer(format_bytes, return_type=str, when_used="json"),
    WithJsonSchema({"type": ["string", "integer"], "description": "bytes: 16GB (10⁹), 16GiB (2³⁰)"}),
]
"""A size; a bare integer is bytes."""

BitsPerSecond = Annotated[
    int,
    BeforeValidator(lambda text: _parse(text, _BITS_PER_SECOND, None, "100Gbps")),
    PlainSerializer(lambda value: _format(value, _BITS_PER_SECOND), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "description": "bandwidth: 100Gbps"}),
]
"""A bandwidth."""

Nanoseconds = Annotated[
    int,
    BeforeValidator(lambda text: _parse(text, _NANOSECONDS, None, "5ms")),
    PlainSerializer(lambda value: _format(value, _NANOSECONDS), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "description": "a time: 5ms"}),
]
"""A duration, in nanoseconds."""
