"""Loss and throughput, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.color import Color
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static
from textual_plotext import PlotextPlot

from dttui.tui.words import number, rate

Points = Sequence[tuple[float, float]]
"""(position, value), in order."""

MOST_POINTS = 400
"""Drawn of a curve; a terminal has fewer columns than that."""
TICKS = 4
"""Labelled on an axis."""


class MetricPlots(Horizontal):
    """Two plots side by side. The curve is drawn again only when it grew."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._drawn: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        """Lay out both plots, and what stands there while there is nothing to draw."""
        yield Static(id="no-metrics")
        yield PlotextPlot(id="plot-loss")
        yield PlotextPlot(id="plot-throughput")

    def on_mount(self) -> None:
        """Follow the theme."""
        self.show([], [], ("", ""), is_whole=True, note="")
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._forget())

    def show(self, loss: Points, throughput: Points, titles: tuple[str, str], *, is_whole: bool, note: str) -> None:
        """Draw the curves.

        Args:
            loss: of the loss.
            throughput: of the speed.
            titles: what stands over each.
            is_whole: whether positions are whole numbers.
            note: what stands there where there is nothing to draw.
        """
        dark = self.app.current_theme.name
        drawn = (dark, len(loss), loss[-1:], len(throughput), throughput[-1:], titles, note)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        self.query_one("#no-metrics", Static).update(Content.styled(note, "$muted"))
        self.query_one("#no-metrics").display = not loss and not throughput
        self._draw("#plot-loss", loss, titles[0], "plot-loss", is_whole=is_whole)
        self._draw("#plot-throughput", throughput, titles[1], "plot-throughput", is_whole=is_whole)

    def _draw(self, name: str, points: Points, title: str, colour: str, *, is_whole: bool) -> None:
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
        places, values = _spread([place for place, _value in thin]), _spread([value for _place, value in thin])
        plt.xticks(places, [f"{place:,.0f}" if is_whole else number(place) for place in places])
        plt.yticks(values, [number(value) if max(values) < 1000 else rate(value) for value in values])
        rgb = Color.parse(self.app.theme_variables[colour]).rgb
        plt.plot([place for place, _value in thin], [value for _place, value in thin], marker="braille", color=rgb)
        if len(thin) == 1:
            plt.scatter([thin[0][0]], [thin[0][1]], marker="dot", color=rgb)
        plot.refresh()

    def _forget(self) -> None:
        self._drawn = ()


def _spread(values: Sequence[float]) -> list[float]:
    """Return the least and the greatest value, and some evenly between them."""
    low, high = min(values), max(values)
    if low == high:
        return [low]
    return [low + (high - low) * index / (TICKS - 1) for index in range(TICKS)]


def _thinned(points: Points) -> Points:
    if len(points) <= MOST_POINTS:
        return points
    stride = -(-len(points) // MOST_POINTS)
    thin = list(points[::stride])
    return thin if thin[-1] == points[-1] else [*thin, points[-1]]
