"""Lines of styled text for a plain terminal: made harmless, fitted to a width, in the terminal's own colours. Pure."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import NamedTuple

FULL = 0.9
"""Share from which something counts as nearly full."""

BOLD, DIM, RED, YELLOW, GREEN, CYAN = "1", "2", "31", "33", "32", "36"
"""Parameters of ANSI's SGR: the terminal's own colours, so that they fit its theme."""


class Piece(NamedTuple):
    """Text and how it is set."""

    text: str
    style: str = ""


Line = list[Piece]


@dataclass(frozen=True)
class TerminalTraits:
    """What the terminal can show."""

    width: int
    height: int | None = None
    """`None`: as long as it needs."""
    colour: bool = False
    unicode: bool = True


def printable(text: str) -> str:
    """Return what may go to a terminal: no control, format, bidi or other invisible characters."""
    return "".join(char for char in text if char.isprintable())


def cells(text: str) -> int:
    """Return how many columns a text takes."""
    return len(text) if text.isascii() else sum(_cells_of(char) for char in text)


def _cells_of(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, width: int) -> str:
    """Return a text in at most so many columns, with a mark where something is missing."""
    if width < 1:
        return ""
    return text if cells(text) <= width else f"{_first(text, width - 1).rstrip()}…"


def _first(text: str, width: int) -> str:
    used = 0
    for at, char in enumerate(text):
        used += _cells_of(char)
        if used > width:
            return text[:at]
    return text


def _fitted(line: Line, width: int) -> Line:
    """Return what can be printed of a line, in at most so many columns and with a mark where something is missing."""
    pieces = [Piece(printable(text), style) for text, style in line]
    if sum(cells(piece.text) for piece in pieces) <= width:
        return pieces
    kept, room = [], width - 1
    for text, style in pieces:
        shown = _first(text, room)
        kept.append(Piece(shown, style))
        room -= cells(shown)
        if shown != text:
            break
    missing = "".join(piece.text for piece in pieces)[sum(len(piece.text) for piece in kept) :]
    return [*kept, Piece("…")] if missing.strip() else kept


def set_line(line: Line, look: TerminalTraits) -> str:
    """Return a line as a string, cut to the width."""
    out = []
    for text, style in _fitted(line, look.width):
        shown = text if look.unicode else text.translate(_ASCII).encode("ascii", "replace").decode()
        out.append(f"\x1b[{style}m{shown}\x1b[0m" if look.colour and style and shown else shown)
    return "".join(out).rstrip()


_ASCII = str.maketrans({"█": "#", "░": ".", "·": "-", "×": "x", "°": " ", "↓": "<", "↑": ">", "…": "~"})


def padded(text: str, width: int) -> str:
    """Return a text in exactly so many columns."""
    shown = cut(printable(text), width)
    return shown + " " * (width - cells(shown))


def bar(share: float | None, width: int, style: str = GREEN) -> Line:
    """Return a bar of so many columns; `None` is not known."""
    if share is None:
        return [Piece("░" * width, DIM)]
    full = round(min(1.0, max(0.0, share)) * width)
    return [Piece("█" * full, style), Piece("░" * (width - full), DIM)]


def mark(share: float | None) -> str:
    """Return how something is set that is nearly full when it should not be."""
    return YELLOW if share is not None and share >= FULL else ""
