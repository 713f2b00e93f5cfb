"""Patterns of the shell: what `case`, `[[ … == … ]]` and `${name#pattern}` match by."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_LONGEST = 4_000
_LONGEST_CUT = 500
_ANY = None
"""Stands for `*` among the parts of a pattern."""
_Part = Callable[[str], bool]


def escaped(text: str) -> str:
    """Return a pattern that matches text as it stands, as quotes have it."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", text)


def matches(text: str, pattern: str) -> bool:
    """Whether the whole text is what a pattern describes; what is too long to tell in time is not."""
    return len(text) <= _LONGEST and len(pattern) <= _LONGEST and _matches(text, list(_parts(pattern)))


def without_prefix(text: str, pattern: str, *, longest: bool) -> str:
    """Return text without what a pattern matches at its beginning."""
    parts = list(_parts(pattern))
    ends = range(len(text), -1, -1) if longest else range(len(text) + 1)
    return next((text[end:] for end in ends if _matches(text[:end], parts)), text) if _is_short(text) else text


def without_suffix(text: str, pattern: str, *, longest: bool) -> str:
    """Return text without what a pattern matches at its end."""
    parts = list(_parts(pattern))
    starts = range(len(text) + 1) if longest else range(len(text), -1, -1)
    return next((text[:start] for start in starts if _matches(text[start:], parts)), text) if _is_short(text) else text


def replaced(text: str, pattern: str, replacement: str, *, everywhere: bool) -> str:
    """Return text with the longest of what a pattern matches replaced, the first time or everywhere."""
    parts = list(_parts(pattern))
    if not parts or not _is_short(text):
        return text
    kept, at = "", 0
    while at < len(text):
        end = next((end for end in range(len(text), at, -1) if _matches(text[at:end], parts)), None)
        if end is None:
            kept += text[at]
            at += 1
            continue
        kept, at = kept + replacement, end
        if not everywhere:
            break
    return kept + text[at:]


def _is_short(text: str) -> bool:
    return len(text) <= _LONGEST_CUT


def _matches(text: str, parts: list[_Part | None]) -> bool:
    """Go through text once, and back to behind the last star where it does not fit: at most text × parts steps."""
    at = part = 0
    star, resumed = -1, 0
    while at < len(text):
        if part < len(parts) and parts[part] is _ANY:
            star, resumed = part, at
            part += 1
        elif part < len(parts) and (fits := parts[part]) is not None and fits(text[at]):
            at += 1
            part += 1
        elif star >= 0:
            resumed += 1
            at, part = resumed, star + 1
        else:
            return False
    return all(item is _ANY for item in parts[part:])


def _parts(pattern: str) -> Iterator[_Part | None]:
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "*":
            yield _ANY
        elif character == "?":
            yield lambda _character: True
        elif character == "[" and (end := pattern.find("]", at + 1)) > 0:
            yield _one_of(pattern[at:end])
            at = end + 1
        else:
            if character == "\\" and at < len(pattern):
                character = pattern[at]
                at += 1
            yield character.__eq__


def _one_of(inside: str) -> _Part:
    """Return whether a character is one of `[a-z0]`, or none of `[!a-z0]`."""
    is_negated = inside[:1] in ("!", "^")
    ranges = re.findall(r"(.)-(.)|(.)", inside[1:] if is_negated else inside, re.DOTALL)

    def fits(character: str) -> bool:
        return is_negated != any(first <= character <= last or character == alone for first, last, alone in ranges)

    return fits
