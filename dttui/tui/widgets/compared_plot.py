"""Curves of several jobs on one plot: each has its colour, and its letter near its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual.color import Color
from textual.content import Content
from textual_plotext import PlotextPlot

from dttui.tui.widgets.plot import Points
from dttui.tui.widgets.plot_axes import axis_ticks, has_place
from dttui.tui.widgets.regime_plot import clear

APART = 0.08
"""Of a curve, by which its letter stands further from the end than that of the one before: many end in one place."""
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
        curves = [item._replace(points=[point for point in item.points if has_place(point[1])]) for item in curves]
        curves = [item for item in curves if item.points]
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
        ground = Color.parse(self.app.theme_variables["surface"]).rgb
        for number, curve in enumerate(curves):
            place, value = curve.points[int((len(curve.points) - 1) * (1 - number * APART))]
            rgb = Color.parse(self.app.theme_variables[curve.colour]).rgb
            plt.text(curve.letter, place, value, color=rgb, background=ground)
        self.refresh()
