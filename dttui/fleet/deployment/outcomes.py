"""What became of something that was brought to a host, by what was there before."""

from __future__ import annotations

import re
from enum import Enum


class Outcome(str, Enum):
    """What became of the agent, or a tool, on a host."""

    INSTALLED = "installed"
    UPGRADED = "upgraded"
    DOWNGRADED = "downgraded"
    REPAIRED = "repaired"
    UP_TO_DATE = "up-to-date"


def is_newer(one: str, other: str) -> bool:
    """Whether one version comes after another."""
    numbers = [tuple(int(part) for part in re.findall(r"\d+", version)[:4]) for version in (one, other)]
    return numbers[0] > numbers[1]
