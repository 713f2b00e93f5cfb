"""Durations as people write them: `30s`, `10m`, `2h`."""

from __future__ import annotations

import re

from dttui.i18n import _
from dttui.spec.problems import shown, with_hint

DURATION = r"^([0-9]{1,6}(?:\.[0-9]{1,3})?) ?(s|m|min|h)$"
"""A duration of seconds, minutes or hours."""
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Return the seconds of `30s`, `10m`, `10min`, `2h`. Raises ValueError with what was expected."""
    match = re.fullmatch(DURATION, text.strip())
    if match is None:
        message = _("expected a duration, found {value}").format(value=shown(text.strip()))
        raise ValueError(with_hint(message, _("write it as in {example}").format(example="30s, 10m, 2h")))
    return float(match[1]) * _SECONDS[match[2]]
