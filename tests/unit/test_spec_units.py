"""Quantities: exact in, the same out."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from dttui.spec.units import BitsPerSecond, Bytes, Nanoseconds, format_bytes

BYTES: TypeAdapter[int] = TypeAdapter(Bytes)
BANDWIDTH: TypeAdapter[int] = TypeAdapter(BitsPerSecond)
DURATION: TypeAdapter[int] = TypeAdapter(Nanoseconds)


@pytest.mark.parametrize(
    ("text", "value"),
    [("16GB", 16 * 10**9), ("16GiB", 16 * 2**30), ("1.5 TB", 15 * 10**11), ("80gb", 80 * 10**9), (0, 0), (512, 512)],
)
def test_sizes_are_exact_bytes(text: str | int, value: int) -> None:
    assert BYTES.validate_python(text, strict=True) == value


@pytest.mark.parametrize("text", ["16", "GB", "-1GB", "0.3B", "16 gigs", True, 1.5, None, -1, "1e3GB", ""])
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
