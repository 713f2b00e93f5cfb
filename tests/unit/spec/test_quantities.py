"""Quantities: exact in, the same out."""

from __future__ import annotations

import copy
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from dttui.spec.models import Model
from dttui.spec.quantities import MAX_QUANTITY, BitsPerSecond, Bytes, Nanoseconds, format_bytes

BYTES: TypeAdapter[int] = TypeAdapter(Bytes)
BANDWIDTH: TypeAdapter[int] = TypeAdapter(BitsPerSecond)
DURATION: TypeAdapter[int] = TypeAdapter(Nanoseconds)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16GB", 16 * 10**9),
        ("16GiB", 16 * 2**30),
        ("1.5 TB", 15 * 10**11),
        ("80gb", 80 * 10**9),
        (0, 0),
        (2**21, 2**21),
    ],
)
def test_sizes_are_exact_bytes(text: str | int, value: int) -> None:
    assert BYTES.validate_python(text, strict=True) == value


@pytest.mark.parametrize(
    "text", ["16", "GB", "-1GB", "0.3B", "16 gigs", True, 1.5, None, -1, "1e3GB", "", "10000000PB", 2**63]
)
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValidationError):
        BYTES.validate_python(text, strict=True)


@pytest.mark.parametrize("text", ["16GB", "1536MiB", "1B", "80PB"])
def test_sizes_are_written_as_they_were_read(text: str) -> None:
    assert format_bytes(BYTES.validate_python(text)) == text


def test_bandwidth_and_latency_have_units_of_their_own() -> None:
    assert BANDWIDTH.validate_python("100Gbps") == 10**11
    assert DURATION.validate_python("5ms") == 5 * 10**6
    with pytest.raises(ValidationError):
        BANDWIDTH.validate_python(100)
    with pytest.raises(ValidationError):
        DURATION.validate_python("5MB")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BYTES, "1.5TB"),
        (BYTES, "16000MB"),
        (BYTES, "80 gb"),
        (BANDWIDTH, "100Gbps"),
        (DURATION, "5ms"),
        (DURATION, "0.5us"),
    ],
)
def test_quantities_are_written_back_as_they_were_read(kind: TypeAdapter[int], text: str) -> None:
    assert kind.dump_python(kind.validate_python(text), mode="json") == text


@pytest.mark.parametrize("kind", [BYTES, BANDWIDTH, DURATION])
@given(st.integers(0, MAX_QUANTITY) | st.integers(0, 10**6).map(lambda number: number * 10**12))
def test_what_is_written_of_a_number_is_read_as_that_number(kind: TypeAdapter[int], value: int) -> None:
    written = kind.dump_python(value, mode="json")
    assert kind.validate_python(written, strict=True) == value


@given(st.integers(0, 10**19 - 1), st.integers(0, 999), st.sampled_from(["B", "KB", "mb", "GiB", "PiB", "pb"]))
def test_a_size_is_exact_or_refused(whole: int, thousandths: int, unit: str) -> None:
    scale = {"B": 1, "KB": 1000, "mb": 1000**2, "GiB": 1024**3, "PiB": 1024**5, "pb": 1000**5}[unit]
    exact = (Fraction(whole) + Fraction(thousandths, 1000)) * scale
    text = f"{whole}.{thousandths:03}{unit}"
    if exact.denominator == 1 and exact <= MAX_QUANTITY:
        assert BYTES.validate_python(text) == exact
    else:
        with pytest.raises(ValidationError):
            BYTES.validate_python(text)


def test_a_quantity_keeps_its_writing_through_copies_and_is_a_plain_number_otherwise() -> None:
    size = copy.deepcopy(BYTES.validate_python("1.5TB"))
    assert BYTES.dump_python(BYTES.validate_python(size), mode="json") == "1.5TB"
    assert size == 15 * 10**11
    assert type(size + 0) is int


@pytest.mark.parametrize(
    ("written", "value"), [("1.3B", 1.3e9), ("7b", 7e9), ("125 M", 125e6), ("1T", 1e12), (7e9, 7e9), ("1.3e9", 1.3e9)]
)
def test_parameters_are_written_as_people_say_them(written: str | float, value: float) -> None:
    assert Model.model_validate({"parameters": written}).parameters == value
    number, text, _none = Model.model_json_schema()["properties"]["parameters"]["anyOf"]
    assert number == {"type": "number", "exclusiveMinimum": 0, "maximum": 1e18}
    assert isinstance(written, float) or "e" in written or re.search(text["pattern"], written)


@pytest.mark.parametrize("written", ["7Q", "B", "1.3 billion", "-1B", "0B", "2000000T", ""])
def test_what_is_no_number_of_parameters_is_refused(written: str) -> None:
    with pytest.raises(ValidationError):
        Model.model_validate({"parameters": written})
