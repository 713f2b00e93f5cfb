"""Names of what other installed packages add to dttui by entry points. Loads none of them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

FRAMEWORKS = "dttui.frameworks"
"""The group of entry points: name of a framework → the object that `dttui.frameworks.base.Framework` describes."""


@cache
def plugin_frameworks() -> frozenset[str]:
    """Return the names of the frameworks that are added."""
    return frozenset(entry_points(group=FRAMEWORKS).names)
