"""What is done to each line before it goes to the terminal: fewer colours, or no drawing, for who cannot see it."""

from __future__ import annotations

import re
from functools import lru_cache

from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter, Monochrome

from dttui.tui.settings import Colours

_SYSTEMS = {"ansi256": ColorSystem.EIGHT_BIT, "ansi16": ColorSystem.STANDARD}
_DRAWN = re.compile("[\u2500-\u259f\u2800-\u28ff]")
"""Lines, blocks and Braille: what draws a picture and is read aloud character by character."""
_SAID = str.maketrans("☑☐★▾▴▸▹", "x_*v^>>")
"""Marks that few voices know, as a character of the same width."""


class FewerColours(LineFilter):
    """Brings colours down to those of a terminal with few."""

    def __init__(self, system: ColorSystem) -> None:
        super().__init__()
        self._system = system

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the line in the nearest colours that there are."""
        return [Segment(text, _with_fewer(style, self._system), control) for text, style, control in segments]


class Undrawn(LineFilter):
    """Leaves out what is drawn with characters, and keeps its room."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the line with words, numbers and marks alone."""
        return [Segment(_undrawn(text), style, control) for text, style, control in segments]


def filters_for(colours: Colours, *, plain: bool) -> list[LineFilter]:
    """Return what a person's settings want to be done to lines."""
    filters: list[LineFilter] = []
    if colours == "none":
        filters.append(Monochrome())
    elif (system := _SYSTEMS.get(colours)) is not None:
        filters.append(FewerColours(system))
    if plain:
        filters.append(Undrawn())
    return filters


def _undrawn(text: str) -> str:
    return text if text.isascii() else _DRAWN.sub(" ", text).translate(_SAID)


@lru_cache(4096)
def _with_fewer(style: Style | None, system: ColorSystem) -> Style | None:
    if style is None or (style.color is None and style.bgcolor is None):
        return style
    return style + Style(color=_down(style.color, system), bgcolor=_down(style.bgcolor, system))


def _down(colour: RichColor | None, system: ColorSystem) -> RichColor | None:
    return None if colour is None else colour.downgrade(system)
