"""How a person has left the screens, kept for the next time: panes that are folded, axes. Nothing rests upon it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from dttui import locations
from dttui.errors import UsageError
from dttui.files import alone, read_kept, write_atomic

VERSION = 1
MOST_BYTES = 1 << 20
"""A larger file is none of dttui's."""


def remembered(screen: str) -> dict[str, Any]:
    """Return how a screen was left; of a file that cannot be read nothing."""
    found = _kept().get(screen)
    return dict(found) if isinstance(found, dict) else {}


def remember(screen: str, left: Mapping[str, Any]) -> None:
    """Keep how a screen is left, beside what is kept of others; where it cannot be written, that is no loss."""
    path = locations.screens_file()
    with contextlib.suppress(OSError, UsageError), alone(path.with_suffix(".lock"), path):
        write_atomic(path, json.dumps({"version": VERSION, "screens": {**_kept(), screen: dict(left)}}))


def _kept() -> dict[str, Any]:
    return read_kept(locations.screens_file(), "screens", VERSION, MOST_BYTES)
