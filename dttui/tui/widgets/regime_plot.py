"""A curve of which stretches differ in colour, as messages of growing size are bound by other things."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from textual.app import RenderResult
from textual.color import Color
from textual.content import Content
from textual_plotext import PlotextPlot

from dttui.tui.widgets.plot import Points
from dttui.tui.widgets.plot_axes import axis_ticks

AXIS_ROWS = 2
"""Of the axis below and its labels."""


class Stretch(NamedTuple):
    """Part of a curve; the next one begins where it ends."""

    colour: str
    """Name of a theme variable, without `$`."""
    points: Points


class RegimePlot(PlotextPlot):
    """Draws one curve, with a line down where one stretch ends and the next begins."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._drawn: object = None
        self._upward: list[tuple[float, str]] = []
        self._highest = 0.0

    def show(self, title: Content, stretches: Sequence[Stretch], ticks: Sequence[tuple[float, str]], unit: str) -> None:
        """Draw a curve, unless it is drawn already.

        Args:
            title: on the border.
            stretches: from left to right.
            ticks: places and labels on the axis below.
            unit: symbol of what goes up.
        """
        state = (self.app.current_theme.name, title.plain, stretches, ticks)
        if state == self._drawn:
            return
        self._drawn = state
        self.border_title = title
        plt = self.plt
        clear(plt)
        values = [value for part in stretches for _place, value in part.points]
        if values:
            plt.xticks([place for place, _label in ticks], [label for _place, label in ticks])
            self._upward, self._highest = axis_ticks(0.0, max(values), unit=unit), max(values)
            plt.ylim(0.0, self._highest)
        variables = self.app.theme_variables
        for number, part in enumerate(stretches):
            rgb = Color.parse(variables[part.colour]).rgb
            places, heights = zip(*part.points, strict=True)
            if number:
                plt.vline(places[0], color=Color.parse(variables["border-quiet"]).rgb)
            plt.plot(list(places), list(heights), marker="braille", color=rgb)
            if len(places) == 1:
                plt.scatter(list(places), list(heights), marker="dot", color=rgb)
        self.refresh()

    def render(self) -> RenderResult:
        """Draw with as many labels on the left as there are rows for."""
        upward = rows_apart(self._upward, self._highest, self.size.height - AXIS_ROWS)
        if upward:
            self.plt.yticks([place for place, _label in upward], [label for _place, label in upward])
        return super().render()


def clear(plt: Any) -> None:
    """Take everything off a plot but the axes below and at the left."""
    plt.clear_data()
    plt.clear_figure()
    plt.grid(False, False)
    plt.xaxes(True, False)
    plt.yaxes(True, False)


def rows_apart(ticks: Sequence[tuple[float, str]], highest: float, rows: int) -> Sequence[tuple[float, str]]:
    """Return the first of some ticks at even distances, and every so many after it that no two share a row.

    Args:
        ticks: places and labels, upward.
        highest: place at the top of the highest row.
        rows: of the screen.
    """
    if len(ticks) < 2:
        return ticks
    step = ticks[1][0] - ticks[0][0]
    return ticks[:: math.ceil(highest / max(rows - 1, 1) / step)]
