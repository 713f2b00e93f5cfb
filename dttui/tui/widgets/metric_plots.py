"""Loss and throughput by step."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.color import Color
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static
from textual_plotext import PlotextPlot

from dttui.i18n import _
from dttui.tui.words import number, rate

Points = Sequence[tuple[float, float]]
"""(step, value), in order."""

MOST_POINTS = 400
"""Drawn of a curve; a terminal has fewer columns than that."""


class MetricPlots(Horizontal):
    """Two plots side by side. The curve is drawn again only when it grew."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._drawn: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        """Lay out both plots, and what stands there while there is nothing to draw."""
        yield Static(Content.styled(_("The script has reported no metrics yet."), "$muted"), id="no-metrics")
        yield PlotextPlot(id="plot-loss")
        yield PlotextPlot(id="plot-throughput")

    def on_mount(self) -> None:
        """Follow the theme."""
        self.show([], [], "")
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._forget())

    def show(self, loss: Points, throughput: Points, unit: str) -> None:
        """Draw the curves; `unit` is what throughput counts."""
        dark = self.app.current_theme.name
        drawn = (dark, len(loss), loss[-1:], len(throughput), throughput[-1:], unit)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        self.query_one("#no-metrics").display = not loss and not throughput
        self._draw("#plot-loss", loss, _("loss by step"), "plot-loss")
        self._draw("#plot-throughput", throughput, _("{unit} by step").format(unit=unit), "plot-throughput")

    def _draw(self, name: str, points: Points, title: str, colour: str) -> None:
        plot = self.query_one(name, PlotextPlot)
        plot.display = bool(points)
        plot.border_title = Content(title)
        if not points:
            return
        thin = _thinned(points)
        plt = plot.plt
        plt.clear_data()
        plt.clear_figure()
        plt.grid(False, False)
        plt.xaxes(True, False)
        plt.yaxes(True, False)
        steps, values = _spread([step for step, _value in thin], 4), _spread([value for _step, value in thin], 4)
        plt.xticks(steps, [f"{step:,.0f}" for step in steps])
        plt.yticks(values, [number(value) if max(values) < 1000 else rate(value) for value in values])
        rgb = Color.parse(self.app.theme_variables[colour]).rgb
        plt.plot([step for step, _value in thin], [value for _step, value in thin], marker="braille", color=rgb)
        if len(thin) == 1:
            plt.scatter([thin[0][0]], [thin[0][1]], marker="dot", color=rgb)
        plot.refresh()

    def _forget(self) -> None:
        self._drawn = ()


def _spread(values: Sequence[float], count: int) -> list[float]:
    """Return the least and the greatest value, and some evenly between them."""
    low, high = min(values), max(values)
    if low == high:
        return [low]
    return [low + (high - low) * index / (count - 1) for index in range(count)]


def _thinned(points: Points) -> Points:
    if len(points) <= MOST_POINTS:
        return points
    stride = -(-len(points) // MOST_POINTS)
    thin = list(points[::stride])
    return thin if thin[-1] == points[-1] else [*thin, points[-1]]
