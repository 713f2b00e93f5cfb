"""Curves of several jobs on one plot: each has its colour, and its letter where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual.color import Color
from textual.content import Content
from textual_plotext import PlotextPlot

from dttui.tui.widgets.plot import Points
from dttui.tui.widgets.plot_axes import axis_ticks
from dttui.tui.widgets.regime_plot import clear

MOST_POINTS = 400
"""Drawn of a curve; a terminal has fewer columns than that."""


class LetteredCurve(NamedTuple):
    """One curve."""

    letter: str
    colour: str
    """Name of a theme variable, without `$`."""
    points: Points


class ComparedPlot(PlotextPlot):
    """Draws curves over one another."""

    def show(self, title: Content, curves: Sequence[LetteredCurve], unit: str = "") -> None:
        """Draw them.

        Args:
            title: on the border.
            curves: each with one point at least.
            unit: symbol of what goes up, where the title does not name it.
        """
        self.border_title = title
        plt = self.plt
        clear(plt)
        places = [place for curve in curves for place, _value in curve.points]
        values = [value for curve in curves for _place, value in curve.points]
        if values:
            across, up = (
                axis_ticks(min(places), max(places), is_whole=True),
                axis_ticks(min(values), max(values), unit=unit),
            )
            plt.xticks([place for place, _label in across], [label for _place, label in across])
            plt.yticks([place for place, _label in up], [label for _place, label in up])
        for curve in curves:
            rgb = Color.parse(self.app.theme_variables[curve.colour]).rgb
            thin = curve.points[:: -(-len(curve.points) // MOST_POINTS)]
            plt.plot([place for place, _value in thin], [value for _place, value in thin], marker="braille", color=rgb)
        for curve in curves:
            place, value = curve.points[-1]
            plt.text(curve.letter, place, value, color=Color.parse(self.app.theme_variables[curve.colour]).rgb)
        self.refresh()
