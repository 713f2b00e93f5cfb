"""How a person has left the screens, kept for the next time: panes that are folded, axes. Nothing rests upon it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from dttui import locations
from dttui.files import read_kept, write_atomic

VERSION = 1
MOST_BYTES = 1 << 20
"""A larger file is none of dttui's."""


def remembered(screen: str) -> dict[str, Any]:
    """Return how a screen was left; of a file that cannot be read nothing."""
    found = _kept().get(screen)
    return dict(found) if isinstance(found, dict) else {}


def remember(screen: str, left: Mapping[str, Any]) -> None:
    """Keep how a screen is left, beside what is kept of others; where it cannot be written, that is no loss."""
    text = json.dumps({"version": VERSION, "screens": {**_kept(), screen: dict(left)}})
    with contextlib.suppress(OSError):
        write_atomic(locations.screens_file(), text)


def _kept() -> dict[str, Any]:
    return read_kept(locations.screens_file(), "screens", VERSION, MOST_BYTES)
