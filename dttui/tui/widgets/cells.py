"""Text in terminal cells: cut and padded to a width that counts wide characters, and small bars."""

from __future__ import annotations

import math

from rich.cells import cell_len, chop_cells, set_cell_size


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
