"""Text in terminal cells: cut and padded to a width that counts wide characters, small bars, and lines of pieces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.strip import Strip
from textual.style import Style as ContentStyle
from textual.widget import Widget


class Part(Enum):
    """What a piece of a row is, for its colour."""

    PLAIN = "plain"
    NAME = "name"
    TICK = "tick"
    MASTER = "master"
    BADGE = "badge"
    SIMULATED = "simulated"
    MUTED = "muted"
    BAR = "bar"
    TRACK = "track"
    PROBLEM = "problem"


_LEVELS = "▁▂▃▄▅▆▇█"
Piece = tuple[str, "Part | str"]
"""Text, and what it is: a Part, or a theme variable of a state."""


def linked(text: Content, action: str) -> Content:
    """Return a text of which a click does an action, as bindings name it."""
    return text.stylize(ContentStyle.from_meta({"@click": action}))


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Return one line of exactly `width` cells: padded, or cut with `…`.

    Args:
        text: plain text; line breaks and tabs become spaces.
        width: cells.
        right: pad on the left.
    """
    if width <= 0:
        return ""
    line = text.replace("\n", " ").replace("\t", " ")
    size = cell_len(line)
    if size > width:
        line = chop_cells(line, width - 1)[0] + "…" if width > 1 else "…"
        return set_cell_size(line, width)
    padding = " " * (width - size)
    return padding + line if right else line + padding


def bar(fraction: float, width: int) -> tuple[str, str]:
    """Return a horizontal bar in two parts, filled and empty, that are `width` cells together and differ in shape."""
    share = min(max(fraction, 0.0), 1.0) if math.isfinite(fraction) else 0.0
    whole, half = divmod(round(share * width * 2), 2)
    filled = "━" * whole + "╸" * half
    return filled, "─" * (width - len(filled))


def sparkline(values: Sequence[int | None], width: int) -> str:
    """Return the newest of some percentages as bars of one row, the last on the right; of one not known a gap."""
    newest = values[-width:] if width > 0 else ()
    top = len(_LEVELS) - 1
    bars = (" " if value is None else _LEVELS[min(top, max(0, value) * top // 100)] for value in newest)
    return "".join(bars).rjust(width)


def labelled(pairs: Sequence[tuple[str, Content]]) -> list[Content]:
    """Return a line a pair, its label before it in a column as wide as the widest."""
    width = max((cell_len(label) for label, _value in pairs), default=0) + 2
    return [Content.assemble((fit(label, width), "$muted"), value) for label, value in pairs]


def painted(widget: Widget, names: str, pieces: Sequence[Piece], ground: Style, width: int) -> Strip:
    """Return pieces as one line of `width` cells, in the widget's component styles `<names>--<part>`."""
    segments = []
    for text, part in pieces:
        name = part.value if isinstance(part, Part) else part
        segments.append(Segment(text, ground + widget.get_component_rich_style(f"{names}--{name}", partial=True)))
    return Strip(segments).adjust_cell_length(width, ground)
