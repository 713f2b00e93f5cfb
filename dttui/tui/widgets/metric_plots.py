"""The curves of a job, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from dtagent.protocol.metric_fields import scale_of, with_unit
from textual.app import ComposeResult
from textual.color import Color
from textual.containers import HorizontalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static
from textual_plotext import PlotextPlot

Points = Sequence[tuple[float, float]]
"""(position, value), in order."""

MOST_POINTS = 400
"""Drawn of a curve; a terminal has fewer columns than that."""
LEAST_WIDTH = 38
"""Of a plot: even a narrow screen has room for two."""
TICKS = 6
"""Steps between labels on an axis, at most."""


class Plot(NamedTuple):
    """One curve."""

    name: str
    """Of the plot; the theme has a colour for some."""
    title: str
    points: Points
    is_whole: bool
    """Whether positions are whole numbers."""
    unit: str = ""
    """Symbol of a rate's, where the title does not name it."""


class MetricPlots(HorizontalScroll, can_focus=False):
    """Plots side by side; where there are more than fit, they scroll. A curve is drawn again only when it grew."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._widgets: dict[str, PlotextPlot] = {}
        self._drawn: dict[str, object] = {}

    def compose(self) -> ComposeResult:
        """Lay out what stands there while there is nothing to draw."""
        yield Static(id="no-metrics")

    def on_mount(self) -> None:
        """Follow the theme."""
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._drawn.clear())

    def show(self, plots: Sequence[Plot], *, note: str) -> None:
        """Draw the curves.

        Args:
            plots: one a curve, the first on the left.
            note: what is to be said beside them; empty for nothing.
        """
        told = self.query_one("#no-metrics", Static)
        told.update(Content.styled(note, "$muted"))
        told.display = bool(note)
        before: Widget = told
        named = {plot.name for plot in plots}
        for name, drawn in self._widgets.items():
            drawn.display = name in named
        for plot in plots:
            widget = self._widgets.get(plot.name)
            if widget is None:
                widget = self._widgets[plot.name] = PlotextPlot(id=f"plot-{plot.name}")
                self.mount(widget, after=before)
            before = widget
            state = (self.app.current_theme.name, len(plot.points), plot.points[-1:], plot.title)
            if self._drawn.get(plot.name) != state:
                self._drawn[plot.name] = state
                self._draw(widget, plot)
        self._fit()

    def action_scroll_left(self) -> None:
        """Show those on the left: a step that a key makes is as wide as the screen."""
        self.scroll_page_left()

    def action_scroll_right(self) -> None:
        """Show those on the right."""
        self.scroll_page_right()

    def on_resize(self) -> None:
        """Show as many as there is room for."""
        self._fit()

    def _fit(self) -> None:
        count = sum(widget.display for widget in self._widgets.values())
        self.can_focus = self.size.width < count * LEAST_WIDTH
        width = self.size.width // max(1, self.size.width // LEAST_WIDTH) if self.can_focus else "1fr"
        for widget in self._widgets.values():
            widget.styles.width = width

    def _draw(self, widget: PlotextPlot, plot: Plot) -> None:
        widget.border_title = Content(plot.title)
        thin = _thinned(plot.points)
        plt = widget.plt
        clear(plt)
        places, values = [place for place, _value in thin], [value for _place, value in thin]
        for axis, ticks in (
            (plt.xticks, axis_ticks(min(places), max(places), is_whole=plot.is_whole)),
            (plt.yticks, axis_ticks(min(values), max(values), unit=plot.unit)),
        ):
            axis([place for place, _label in ticks], [label for _place, label in ticks])
        variables = self.app.theme_variables
        rgb = Color.parse(variables.get(f"plot-{plot.name}", variables["plot-other"])).rgb
        plt.plot(places, values, marker="braille", color=rgb)
        if len(thin) == 1:
            plt.scatter([thin[0][0]], [thin[0][1]], marker="dot", color=rgb)
        widget.refresh()


def clear(plt: Any) -> None:
    """Take everything off a plot but the axes below and at the left."""
    plt.clear_data()
    plt.clear_figure()
    plt.grid(False, False)
    plt.xaxes(True, False)
    plt.yaxes(True, False)


def axis_ticks(low: float, high: float, *, is_whole: bool = False, unit: str = "") -> list[tuple[float, str]]:
    """Return the round numbers from `low` to `high`, some two to seven, with labels that differ from each other.

    Args:
        low: least value shown.
        high: greatest value shown; where it is the same, that one is labelled.
        is_whole: whether there is nothing between whole numbers.
        unit: symbol of a rate's, which each label has then.
    """
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [(low, _label(low, 1.0 if is_whole else abs(low) / 1000 or 1.0, low, unit))]
    step = 10.0 ** math.floor(math.log10(span / TICKS))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= TICKS)
    step = max(1.0, step) if is_whole else step
    # What a float is off by must not cost the last one.
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    greatest = max(abs(low), abs(high))
    return [(index * step, _label(index * step, step, greatest, unit)) for index in range(first, last + 1)]


def _label(value: float, step: float, greatest: float, unit: str) -> str:
    """Return a number in as many digits as tell it from one a `step` away, scaled as suits the greatest."""
    if not math.isfinite(value):
        return str(value)
    if 0 < greatest < 1e-3:
        digits = max(0, math.floor(math.log10(greatest)) - math.floor(math.log10(step)))
        return with_unit(f"{value:.{digits}e}", "", unit)
    divisor, prefix = scale_of(greatest)
    digits = max(0, -math.floor(math.log10(step / divisor) + 1e-9))
    return with_unit(f"{value / divisor:,.{digits}f}", prefix, unit)


def _thinned(points: Points) -> Points:
    if len(points) <= MOST_POINTS:
        return points
    stride = -(-len(points) // MOST_POINTS)
    thin = list(points[::stride])
    return thin if thin[-1] == points[-1] else [*thin, points[-1]]
