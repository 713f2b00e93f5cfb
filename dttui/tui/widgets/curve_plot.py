"""Curves that share their axes, in all the room there is: those of several jobs, or stretches of one curve."""

from __future__ import annotations

from textual.app import RenderResult
from textual.content import Content
from textual.widget import Widget

from dttui.tui.widgets.plot_area import AXIS, LABEL, Curves, curve_lines

_COLOURS = {AXIS: "border-quiet", LABEL: "muted"}
"""Of what belongs to no curve; a curve's part is the name of its theme variable."""
_FAINT = "faint "


def faint(colour: str) -> str:
    """Return the part of a curve that is drawn faintly in a colour, by the name of its theme variable."""
    return _FAINT + colour


class CurvePlot(Widget):
    """Draws curves under what is said of them on its border."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._curves: Curves | None = None

    def show(self, title: Content, curves: Curves) -> None:
        """Draw curves, unless they are drawn already.

        Args:
            title: on the border.
            curves: of which each has the name of a theme variable, without `$`, as its part; `faint` makes one of it.
        """
        self.border_title = title
        if curves != self._curves:
            self._curves = curves
            self.refresh()

    def render(self) -> RenderResult:
        """Return the lines that there is room for."""
        if self._curves is None or not self.size:
            return Content("")
        lines = curve_lines(self._curves, *self.size)
        pieces = [[(text, _style(str(part))) for text, part in line] for line in lines]
        return Content("\n").join(Content.assemble(*line) for line in pieces)


def _style(part: str) -> str:
    colour = part.removeprefix(_FAINT)
    return f"{'dim ' if colour != part else ''}${_COLOURS.get(colour, colour)}"
