"""Quantities with units as people write them: `16GB`, `100Gbps`, `5ms`. Exact integers inside, written back as read."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from string import ascii_letters
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema

from dttui.i18n import _
from dttui.spec.problems import shown, with_hint
from dttui.spec.section import MOST_PARAMETERS

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


_MICRO, _GREEK_MU = "\u00b5", "\u03bc"
"""Two characters that look the same; keyboards have either."""

MAX_QUANTITY = 2**63 - 1
"""Largest quantity, in its smallest unit: what a signed integer of 64 bits holds."""

MIN_BARE_BYTES = 1024**2
"""Smallest size that is taken for bytes where it has no unit; `memory: 80` was meant otherwise."""

_QUANTITY = re.compile(r"\s*([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*([A-Za-z\u00b5]+)\s*")


class Quantity(int):
    """A number of the smallest unit that remembers how it was written; equal to the plain number."""

    written: str | None = None
    """As the document has it, `1.5TB`."""


def _parse(text: Any, units: dict[str, int], bare: bool, example: str) -> Quantity:
    if isinstance(text, Quantity):
        return _bounded(text, text.written)
    if bare and type(text) is int and not 0 < text < MIN_BARE_BYTES:
        return _bounded(text, None)
    text = text.replace(_GREEK_MU, _MICRO) if isinstance(text, str) else text
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    scale = next((s for u, s in units.items() if match and u.lower() == match[2].lower()), None)
    if match is None or scale is None:
        message = _("expected a number with a unit ({units}), such as {example}, found {value}")
        told = message.format(units=", ".join(units), example=example, value=shown(text))
        meant = _meant(match, text, units, example)
        raise ValueError(with_hint(told, meant))
    value = Decimal(match[1]) * scale
    if value != value.to_integral_value():
        raise ValueError(_("{text} is not a whole number of the smallest unit").format(text=text.strip()))
    return _bounded(int(value), text.strip())


def _meant(match: re.Match[str] | None, text: Any, units: dict[str, int], example: str) -> str:
    """Return a question for the quantity that was meant: with the unit that begins like the one that is there."""
    number, unit = (match[1], match[2]) if match is not None else (text, example.lstrip("0123456789"))
    near = next((known for known in units if known.casefold().startswith(str(unit).casefold())), None)
    if near is None or isinstance(number, bool) or not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", str(number)):
        return ""
    return _('did you mean "{word}"?').format(word=f"{number}{near}")


def _bounded(value: int, written: str | None) -> Quantity:
    if value < 0:
        raise ValueError(_("must not be negative"))
    if value > MAX_QUANTITY:
        raise ValueError(_("is larger than anything there is"))
    quantity = Quantity(value)
    quantity.written = written
    return quantity


def _written(units: dict[str, int]) -> Callable[[int], str]:
    """Return what writes a quantity: as it was read, or else in the largest unit that divides it."""

    def write(value: int) -> str:
        kept = value.written if isinstance(value, Quantity) else None
        return kept if kept is not None else _format(value, units)

    return write


def _format(value: int, units: dict[str, int]) -> str:
    if not value:
        return f"0{next(iter(units))}"
    unit, scale = max(((u, s) for u, s in units.items() if value % s == 0), key=lambda item: item[1])
    return f"{value // scale}{unit}"


def _plain(value: float) -> int | float:
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def format_bytes(value: int) -> str:
    """Return bytes in the largest unit that divides them: 16_000_000_000 → `16GB`."""
    return _format(value, _BYTES)


def parse_bytes(text: str) -> int:
    """Return the bytes of `64MiB`. Raises ValueError."""
    return _parse(text, _BYTES, True, "64MiB")


def _pattern(units: dict[str, int]) -> str:
    """Return the pattern of a quantity for the JSON Schema, which knows no flag for either case."""
    letters = {
        **{letter: f"[{letter.upper()}{letter.lower()}]" for letter in ascii_letters},
        _MICRO: f"[{_MICRO}{_GREEK_MU}]",
    }
    spelt = "|".join("".join(letters[letter] for letter in unit) for unit in units)
    return rf"^\s*[0-9]{{1,19}}(\.[0-9]{{1,9}})?\s*({spelt})\s*$"


Number = Annotated[float, PlainSerializer(_plain, return_type=int | float, when_used="json")]
"""A number that is written as people write it: 253824, not 253824.0."""

_SHORT = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([KMBTkmbt])\s*")
COUNT_SCALES = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
"""Letters behind a count, in lower case."""


def _counted(value: Any) -> Any:
    """Return the number of `1.3B`; anything else as it is."""
    match = _SHORT.fullmatch(value) if isinstance(value, str) else None
    return float(Decimal(match[1]) * COUNT_SCALES[match[2].lower()]) if match is not None else value


Parameters = Annotated[
    Number,
    Field(gt=0, le=MOST_PARAMETERS),
    BeforeValidator(_counted),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_PARAMETERS},
                {"type": "string", "pattern": f"^{_SHORT.pattern}$"},
            ]
        }
    ),
]
"""How many a model has, as people write it: `7e9`, `1.3B`, `125M`."""

Bytes = Annotated[
    int,
    PlainValidator(lambda text: _parse(text, _BYTES, True, "16GB")),
    PlainSerializer(_written(_BYTES), return_type=str, when_used="json"),
    WithJsonSchema(
        {
            "type": ["string", "integer"],
            "pattern": _pattern(_BYTES),
            "minimum": 0,
            "not": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": MIN_BARE_BYTES},
            "maximum": MAX_QUANTITY,
            "examples": ["16GB", "80GiB"],
        }
    ),
]
"""A size; a bare integer is bytes. GB is 10⁹ bytes and GiB 2³⁰."""

BitsPerSecond = Annotated[
    int,
    PlainValidator(lambda text: _parse(text, _BITS_PER_SECOND, False, "100Gbps")),
    PlainSerializer(_written(_BITS_PER_SECOND), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": _pattern(_BITS_PER_SECOND), "examples": ["100Gbps"]}),
]
"""A bandwidth."""

Nanoseconds = Annotated[
    int,
    PlainValidator(lambda text: _parse(text, _NANOSECONDS, False, "5ms")),
    PlainSerializer(_written(_NANOSECONDS), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": _pattern(_NANOSECONDS), "examples": ["5ms"]}),
]
"""A duration, in nanoseconds."""
