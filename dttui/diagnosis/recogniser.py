"""One row of the table of causes: the words by which it is known, and what they mean. Knows no cause itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

MAX_FIELD = 160
"""Characters of a message that a sentence quotes."""
MAX_HEAD, MAX_TAIL = 3072, 1024
"""Characters of a text that patterns are held against: the words that matter stand at either end."""


@dataclass(frozen=True)
class Recogniser:
    """One way in which one cause shows."""

    code: str
    words: str
    """What happened; `{name}` stands for a group of the pattern, or for `host`, `rank`, `python`, `file`, `line`."""
    advice: tuple[str, ...]
    raised: str | None = None
    """Pattern of the exception's text, type included, from its first character on."""
    printed: str | None = None
    """Pattern of a whole line of the process's own output."""
    exit_codes: frozenset[int] = field(default_factory=frozenset)
    """Only with one of these, where there are any."""
    is_consequence: bool = False
    """Whether it says that another rank, or a link to it, failed before."""

    @cached_property
    def _raised(self) -> re.Pattern[str] | None:
        return None if self.raised is None else re.compile(self.raised, re.DOTALL)

    @cached_property
    def _printed(self) -> re.Pattern[str] | None:
        return None if self.printed is None else re.compile(self.printed)

    def in_exception(self, text: str) -> dict[str, str] | None:
        """Return what the pattern captured of an exception's text; `None` where it is another one."""
        return _groups(self._raised.match(_cut(text))) if self._raised else None

    def in_line(self, line: str, exit_code: int | None) -> dict[str, str] | None:
        """Return what the pattern captured of a printed line; `None` where it is another one."""
        if self.exit_codes and exit_code not in self.exit_codes:
            return None
        return _groups(self._printed.search(_cut(line))) if self._printed else None


def _cut(text: str) -> str:
    return text if len(text) <= MAX_HEAD + MAX_TAIL else f"{text[:MAX_HEAD]} … {text[-MAX_TAIL:]}"


def _groups(match: re.Match[str] | None) -> dict[str, str] | None:
    if match is None:
        return None
    return {name: (text or "").strip()[:MAX_FIELD] for name, text in match.groupdict().items()}
