"""Text that is not wholly known before a script runs: what is open stands in it as one character each."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from enum import Enum

START = "\U000f0000"
"""Stands for the directory that the script is started in."""
_FIRST = 0xF0001
_LAST = 0xFFFFD
_HOLE = re.compile("[\U000f0001-\U000ffffd]")
_RESERVED = re.compile("[\U000f0000-\U000ffffd]")


class Openness(Enum):
    """Why a piece of text is not known."""

    NEEDED = "needed"
    """Whoever starts the script has to give it: an argument, or a variable that nothing sets."""
    RUNTIME = "runtime"
    """It is worked out where and when the script runs."""
    HOST = "host"
    """It is what the host's own environment has, as of PATH."""
    GPUS = "gpus"
    """The number of GPUs of the host that the script runs on."""


@dataclass(frozen=True)
class OpenPart:
    """A piece of text that is not known."""

    text: str
    """As the script has it, `$1` or `$(hostname)`."""
    openness: Openness


class OpenParts:
    """The holes of one script."""

    def __init__(self) -> None:
        self._holes: list[OpenPart] = []

    def make(self, text: str, openness: Openness) -> str:
        """Return the character that stands for a piece of text that is not known."""
        hole = OpenPart(self.shown(text), openness)
        if hole not in self._holes:
            if _FIRST + len(self._holes) > _LAST:
                return hole.text
            self._holes.append(hole)
        return chr(_FIRST + self._holes.index(hole))

    def of(self, text: str) -> tuple[OpenPart, ...]:
        """Return the holes of a text, each once."""
        return tuple(dict.fromkeys(self._holes[ord(character) - _FIRST] for character in _HOLE.findall(text)))

    def shown(self, text: str, directory: str = START) -> str:
        """Return a text as a person reads it: with what the script has for each hole.

        Args:
            text: of which.
            directory: from which the directory of the start is named, `START` and what is below it, or an absolute one.
        """
        return _HOLE.sub(lambda match: self._holes[ord(match[0]) - _FIRST].text, _from(text, directory))

    def given(self, text: str) -> str | None:
        """Return what a text is where nobody gives what is needed, as bash has it; `None` where that is not known."""
        kept = _HOLE.sub(lambda match: "" if self._is_empty(match[0]) else match[0], text)
        return None if _HOLE.search(kept) else kept

    def without(self, text: str, openness: Openness) -> str:
        """Return a text without its holes of one kind."""
        return _HOLE.sub(lambda match: "" if self._of(match[0]).openness is openness else match[0], text)

    def _is_empty(self, character: str) -> bool:
        return self._of(character).openness is Openness.NEEDED

    def _of(self, character: str) -> OpenPart:
        return self._holes[ord(character) - _FIRST]


def cleaned(text: str) -> str:
    """Return text from outside without the characters that mean something here."""
    return _RESERVED.sub("\N{REPLACEMENT CHARACTER}", text)


def entered(directory: str, path: str) -> str:
    """Return the directory that `cd path` leads to from another."""
    if path.startswith((START, "/", "~")) or _HOLE.match(path):
        return normalised(path)
    return normalised(posixpath.join(directory, path))


def normalised(path: str) -> str:
    """Return a path without `.` and `..` in it, as far as that is known."""
    if _HOLE.search(path):
        return path
    if not path.startswith(START):
        return posixpath.normpath(path) if path else path
    below = posixpath.normpath("./" + path[len(START) :].lstrip("/"))
    return START if below == "." else f"{START}/{below}"


def _from(text: str, directory: str) -> str:
    if START not in text:
        return text
    if not directory.startswith(START):
        return text.replace(START, ".")
    below = directory[len(START) :].strip("/")
    return text.replace(START, posixpath.relpath(".", below) if below else ".")
