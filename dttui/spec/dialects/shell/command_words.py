"""Words of a command: built field by field as the shell splits them, and with what is open in each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from dttui.spec.dialects.shell.open_parts import OpenPart, OpenParts
from dttui.spec.yaml_source import Mark

BLANKS = " \t\n"
"""What parts words where `IFS` says nothing else."""
_MOST_BRACES = 200


@dataclass(frozen=True)
class Word:
    """A word of a command as a person reads it."""

    text: str
    """With what the script has for each hole."""
    mark: Mark
    """Where it stands."""
    holes: tuple[OpenPart, ...] = ()
    """What of it is not known."""
    raw: str = ""
    """As the shell has it, for what is itself a script, as after `bash -c`."""


@dataclass(frozen=True)
class ShellCommand:
    """A simple command that a script comes to."""

    words: tuple[Word, ...]
    """Its name and arguments."""
    environment: dict[str, Word]
    """Variables that it gets: exported ones, and those before it."""
    directory: str
    """Where it runs, from where the script is started; `.` for there."""
    is_background: bool = False
    """Whether the script goes on beside it."""

    @property
    def mark(self) -> Mark:
        """Where it stands."""
        return self.words[0].mark


class Fields:
    """Fields that a word becomes: one as a rule, several or none where it is not quoted."""

    def __init__(self, separators: str = BLANKS) -> None:
        """Begin a word, of which `separators` part what is not quoted, as `IFS` says."""
        self._separators = separators
        self._done: list[str] = []
        self._open: str | None = None

    def add(self, text: str) -> None:
        """Add text that stays together, were it empty."""
        self._open = (self._open or "") + text

    def add_split(self, text: str) -> None:
        """Add text that separators part."""
        if set(self._separators) != set(BLANKS):
            self._add_between(text)
            return
        parts = text.split()
        if not parts:
            self._close_if(bool(text))
            return
        self._close_if(text[0].isspace())
        for part in parts[:-1]:
            self.add(part)
            self._close_if(True)
        self.add(parts[-1])
        self._close_if(text[-1].isspace())

    def _add_between(self, text: str) -> None:
        """Add text that each of the separators parts, but blanks among them together, as bash has it."""
        pattern = between(self._separators)
        at = 0
        for match in re.finditer(pattern, text) if pattern else ():
            if match.start() > at:
                self.add(text[at : match.start()])
            elif self._open is None and match[0].strip(BLANKS):
                self.add("")  # Between two separators is an empty field.
            self._close_if(True)
            at = match.end()
        if at < len(text):
            self.add(text[at:])

    def add_each(self, items: Sequence[str]) -> None:
        """Add items of which each is a field, the first one with what stands before it."""
        for index, item in enumerate(items):
            self._close_if(index > 0)
            self.add(item)

    def finish(self) -> list[str]:
        """Return the fields."""
        self._close_if(True)
        return self._done

    def _close_if(self, ends: bool) -> None:
        if ends and self._open is not None:
            self._done.append(self._open)
            self._open = None


def between(separators: str) -> str:
    """Return a pattern of what parts two fields: a separator with blanks about it, or blanks; empty for nothing."""
    blanks = "".join(character for character in separators if character in BLANKS)
    others = "".join(character for character in separators if character not in BLANKS)
    blank = f"[{blanks}]*" if blanks else ""
    return "|".join([f"{blank}[{re.escape(others)}]{blank}"] * bool(others) + [f"[{blanks}]+"] * bool(blanks))


def braced(text: str) -> list[str]:
    """Return what `a{b,c}d` and `{1..3}` stand for; text without such as it is."""
    return list(islice(_braced(text), _MOST_BRACES)) if "{" in text else [text]


def _braced(text: str) -> Iterator[str]:
    start = text.find("{")
    end = _closing(text, start) if start >= 0 else -1
    if end < 0 or text[start - 1 : start] == "$":
        yield text
        return
    inside = text[start + 1 : end]
    choices = list(_range(inside)) or _parted(inside)
    if len(choices) < 2:
        yield text
        return
    for choice in choices:
        for first in _braced(choice):
            for rest in _braced(text[end + 1 :]):
                yield text[:start] + first + rest


def _closing(text: str, start: int) -> int:
    depth = 0
    for index in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return index
    return -1


def _parted(inside: str) -> list[str]:
    parts, depth = [""], 0
    for character in inside:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _range(inside: str) -> Iterator[str]:
    first, separator, last = inside.partition("..")
    if separator and first.lstrip("-").isdecimal() and last.lstrip("-").isdecimal() and len(first + last) < 20:
        low, high = int(first), int(last)
        step = 1 if low <= high else -1
        yield from map(str, range(low, high + step, step)[:_MOST_BRACES])


def make_word(raw: str, mark: Mark, holes: OpenParts, directory: str) -> Word:
    """Return a word as a person reads it in a directory."""
    return Word(holes.shown(raw, directory), mark, holes.of(raw), raw)
