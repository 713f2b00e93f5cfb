"""Ranges that numbers of a request must be in, whoever sends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MOST_GPUS = 4096
"""Of a host."""
MOST = 2**63 - 1
"""No number of any request is larger, or smaller than its negative."""


class OutOfRangeError(ValueError):
    """A number that means nothing; the message names its place and what would do."""


def check_range(name: str, value: float, least: int, most: int) -> None:
    """Raise OutOfRangeError for what is not between two bounds, both of them allowed."""
    if not least <= value <= most:
        raise OutOfRangeError(f"{name} must be from {least} to {most}")


def check_ports(name: str, first_and_last: tuple[int, int]) -> None:
    """Raise OutOfRangeError for what is no range of ports."""
    first, last = first_and_last
    check_range(name, first, 1, last)
    check_range(name, last, first, 65535)


def check_gpu_ids(name: str, gpu_ids: Sequence[int], count: int) -> None:
    """Raise OutOfRangeError for GPUs that are named and are not as many as are wanted; none may be."""
    for index in gpu_ids:
        check_range(name, index, 0, MOST_GPUS - 1)
    if gpu_ids and (len(gpu_ids) != count or len({*gpu_ids}) != count):
        raise OutOfRangeError(f"{name} must be as many different numbers as cuda_slots says")


def check_numbers(value: Any, name: str = "") -> None:
    """Look at every number in JSON values. Raises OutOfRangeError for one that is huge or without end."""
    if isinstance(value, dict):
        for key, item in value.items():
            check_numbers(item, f"{name}.{key[:100]}" if name else key[:100])
    elif isinstance(value, list):
        for item in value:
            check_numbers(item, name)
    elif isinstance(value, (int, float)) and not -MOST <= value <= MOST:
        raise OutOfRangeError(f"{name} is too large a number")
