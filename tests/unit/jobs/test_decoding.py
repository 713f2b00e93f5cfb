"""Plain data to dataclasses: what a job's files hold, or what somebody has made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest

from dttui.jobs.decoding import taken


class Colour(str, Enum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    name: str
    share: float | None = None


@dataclass(frozen=True)
class Whole:
    number: int
    colour: Colour
    parts: tuple[Part, ...] = ()
    extra: dict[str, float] = field(default_factory=dict)
    data: Any = None


def test_data_becomes_what_its_fields_say() -> None:
    data = {"number": 1, "colour": "red", "parts": [{"name": "a", "share": 1}], "extra": {"x": 2}, "unknown": True}
    made = taken(Whole, data)
    assert made == Whole(1, Colour.RED, (Part("a", 1.0),), {"x": 2.0})
    assert type(made.extra["x"]) is float


@pytest.mark.parametrize(
    "change",
    [
        {"number": "1"},
        {"number": True},
        {"number": 1.0},
        {"number": None},
        {"colour": "blue"},
        {"parts": "a"},
        {"parts": ["a"]},
        {"parts": [{}]},
        {"parts": [{"name": "a", "share": "1"}]},
        {"extra": []},
        {"extra": {"x": None}},
    ],
)
def test_data_of_another_kind_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        taken(Whole, {"number": 1, "colour": "red", **change})


@pytest.mark.parametrize("data", [None, [], "x", 1, {}, {"number": 1}])
def test_what_is_no_object_or_lacks_a_field_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match=r"expected|missing"):
        taken(Whole, data)
