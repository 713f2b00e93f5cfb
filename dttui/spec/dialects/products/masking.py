"""Lines of a document as they may be shown: without the values of what is called a key, a token or a password."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dttui.spec.secret_names import NAMES_OF_SECRETS

_VALUE = re.compile(
    rf"(?<![\w.])({NAMES_OF_SECRETS})([\"']?[ \t]{{0,9}}(?:=|:[ \t]|:(?=[\"']))[ \t]{{0,9}})([^\s|>{{\[].*)",
    re.IGNORECASE,
)
_NAMED = re.compile(rf"\bname[\"']?:\s*[\"']?({NAMES_OF_SECRETS})\b(.*)", re.IGNORECASE)
_OF_NAME = re.compile(r"(\bvalue[\"']?:\s*)(\S.*)")
_MASK = "***"


def masked(lines: Iterable[str]) -> tuple[str, ...]:
    """Return lines with `***` in the place of values, also where name and value of a variable are keys of their own."""
    shown: list[str] = []
    is_named = False
    for line in lines:
        named = _NAMED.search(line)
        if is_named or named is not None:
            line = _OF_NAME.sub(rf"\g<1>{_MASK}", line)
        is_named = named is not None
        shown.append(_VALUE.sub(_without_value, line))
    return tuple(shown)


def _without_value(match: re.Match[str]) -> str:
    is_harmless = match[3].startswith(("null", "~", "${{"))
    return match[0] if is_harmless else f"{match[1]}{match[2]}{_MASK}"
