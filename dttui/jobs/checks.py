"""The checks of a preflight: what they are, what each came to at a node, and how that is written into events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from dttui.i18n import _


class Check(str, Enum):
    """A column, in the order in which they are shown."""

    REACH = "reach"
    AGENT = "agent"
    SOFTWARE = "software"
    GPUS = "gpus"
    HEALTH = "health"
    ROOM = "room"
    LIMITS = "limits"
    CLOCK = "clock"
    PATHS = "paths"
    MASTER = "master"
    PEERS = "peers"


class CheckStatus(str, Enum):
    """What a check came to; each is worse than those before it."""

    PENDING = "pending"
    NONE = "none"
    """There is nothing to check here."""
    OK = "ok"
    WARNING = "warning"
    UNKNOWN = "unknown"
    ERROR = "error"

    @property
    def badness(self) -> int:
        """Its place among them."""
        return list(CheckStatus).index(self)


@dataclass(frozen=True)
class Cell:
    """One check of one node."""

    status: CheckStatus
    text: str = ""
    """What was seen, in a few words."""
    seconds: float | None = None
    """How long it took."""


def check_name(check: Check) -> str:
    """Return a column's heading, of at most 5 cells."""
    return {
        Check.REACH: _("reach"),
        Check.AGENT: _("agent"),
        Check.SOFTWARE: _("torch"),
        Check.GPUS: _("GPU"),
        Check.HEALTH: _("hw"),
        Check.ROOM: _("disk"),
        Check.LIMITS: _("limit"),
        Check.CLOCK: _("clock"),
        Check.PATHS: _("files"),
        Check.MASTER: _("net"),
        Check.PEERS: _("peers"),
    }[check]


def check_word(check: Check) -> str:
    """Return a column's heading where it has 8 cells."""
    words = {
        Check.SOFTWARE: _("software"),
        Check.GPUS: _("GPU"),
        Check.HEALTH: _("hardware"),
        Check.LIMITS: _("limits"),
        Check.MASTER: _("master"),
    }
    return words.get(check) or check_name(check)


SYMBOLS = {
    CheckStatus.PENDING: "·",
    CheckStatus.NONE: "–",
    CheckStatus.OK: "✓",
    CheckStatus.UNKNOWN: "?",
    CheckStatus.WARNING: "⚠",
    CheckStatus.ERROR: "✗",
}


def cell_text(cell: Cell) -> str:
    """Return symbol and time of a check in at most 5 cells: `✓ .02`, `⚠ 1.2`, `✗ 20`."""
    symbol = SYMBOLS[cell.status]
    if cell.seconds is None or cell.status in (CheckStatus.PENDING, CheckStatus.NONE):
        return symbol
    for least, digits in ((9.95, 0), (0.995, 1), (0.0, 2)):
        if cell.seconds >= least:
            return f"{symbol} {cell.seconds:.{digits}f}".replace(" 0.", " .")
    return symbol


def cell_words(cell: Cell) -> str:
    """Return symbol and time of a check in at most 8 cells: `✓ 0.02 s`, `✗ 20 s`."""
    text = cell_text(cell)
    symbol, _space, seconds = text.partition(" ")
    return f"{symbol} {'0' if seconds.startswith('.') else ''}{seconds} s" if seconds else text


_STATUS = "verdict"
"""What a status is called in events and in JSON, which other versions and programs read."""


def cells_to_data(cells: Mapping[Check, Cell]) -> dict[str, dict[str, object]]:
    """Return cells as plain data, for an event."""
    return {
        check.value: {_STATUS: cell.status.value, "seconds": cell.seconds, "text": cell.text}
        for check, cell in cells.items()
    }


def cells_from_data(data: object) -> dict[Check, Cell]:
    """Read cells back; what is not understood, as of another version, is left out."""
    found: dict[Check, Cell] = {}
    known, statuses = {item.value for item in Check}, {item.value for item in CheckStatus}
    for name, body in data.items() if isinstance(data, dict) else ():
        if name in known and isinstance(body, dict) and body.get(_STATUS) in statuses:
            seconds = body.get("seconds")
            took = float(seconds) if isinstance(seconds, (int, float)) else None
            found[Check(name)] = replace(Cell(CheckStatus(body[_STATUS]), seconds=took), text=str(body.get("text", "")))
    return found
