"""How a person has left the screens, kept for the next time: panes that are folded, axes. Nothing rests upon it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from dttui import locations
from dttui.files import write_atomic

VERSION = 1
MOST_BYTES = 1 << 20
"""A larger file is none of dttui's."""


def remembered(screen: str) -> dict[str, Any]:
    """Return how a screen was left; of a file that cannot be read nothing."""
    found = _read().get(screen)
    return dict(found) if isinstance(found, dict) else {}


def remember(screen: str, left: Mapping[str, Any]) -> None:
    """Keep how a screen is left, beside what is kept of others; where it cannot be written, that is no loss."""
    text = json.dumps({"version": VERSION, "screens": {**_read(), screen: dict(left)}})
    with contextlib.suppress(OSError):
        write_atomic(locations.screens_file(), text)


def _read() -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        with locations.screens_file().open(encoding="utf-8") as stream:
            text = stream.read(MOST_BYTES + 1)
        body = json.loads(text) if len(text) <= MOST_BYTES else None
        if isinstance(body, dict) and body.get("version") == VERSION and isinstance(body.get("screens"), dict):
            return dict(body["screens"])
    return {}
