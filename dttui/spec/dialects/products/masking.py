"""Lines of a document as they may be shown: without the values of what is called a key, a token or a password."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dttui.spec.secret_names import NAMES_OF_SECRETS

_KEY = rf"(?<![\w.])({NAMES_OF_SECRETS})"
_VALUE = re.compile(
    rf"{_KEY}([\"']?[ \t]{{0,9}}(?:=|:[ \t]|:(?=[\"']))[ \t]{{0,9}})([^\s|>{{\[].*)",
    re.IGNORECASE,
)
_NAMED = re.compile(rf"\bname[\"']?:\s*[\"']?({NAMES_OF_SECRETS})\b(.*)", re.IGNORECASE)
_OF_NAME = re.compile(r"(\bvalue[\"']?:\s*)(\S.*)")
_LONG = re.compile(rf"{_KEY}[\"']?:[ \t]+(?:[|>]|(?!null\b|~|\$\{{\{{)[^\s{{\[])", re.IGNORECASE)
"""A value that lines which are indented further go on with."""
_LONG_OF_NAME = re.compile(r"\bvalue[\"']?:(?!\s*[{\[])")
_MASK = "***"


def masked(lines: Iterable[str]) -> tuple[str, ...]:
    """Return lines with `***` in the place of values, also where name and value of a variable are keys of their own."""
    before = list(lines)
    mappings = _mappings(before)
    secret = {mapping for mapping, line in zip(mappings, before, strict=True) if _NAMED.search(line)}
    shown: list[str] = []
    inside: int | None = None
    """Column of the key whose value goes on."""
    for line, mapping in zip(before, mappings, strict=True):
        column = len(line) - len(line.lstrip())
        if inside is not None and (not line.strip() or column > inside):
            shown.append(f"{line[:column]}{_MASK}" if line.strip() else line)
            continue
        is_named = mapping in secret
        begun = _LONG.search(line) or (_LONG_OF_NAME.search(line) if is_named else None)
        inside = begun.start() if begun is not None else None
        line = _OF_NAME.sub(rf"\g<1>{_MASK}", line) if is_named else line
        shown.append(_VALUE.sub(_without_value, line))
    return tuple(shown)


def _mappings(lines: Sequence[str]) -> list[int]:
    """Return of each line the number of the mapping that its first key is of; an item of a list begins another."""
    found = []
    count = 0
    around: list[tuple[int, int]] = []
    for line in lines:
        begins_item = line.lstrip().startswith("-")
        column = len(line) - len(line.lstrip(" -"))
        if line.strip():
            while around and (around[-1][0] > column or (begins_item and around[-1][0] == column)):
                around.pop()
            if not around or around[-1][0] < column:
                count += 1
                around.append((column, count))
        found.append(around[-1][1] if around else 0)
    return found


def _without_value(match: re.Match[str]) -> str:
    is_harmless = match[3].startswith(("null", "~", "${{"))
    return match[0] if is_harmless else f"{match[1]}{match[2]}{_MASK}"
