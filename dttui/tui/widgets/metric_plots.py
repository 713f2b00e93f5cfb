"""Loss and throughput, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

from textual.app import ComposeResult
from textual.color import Color
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static
from textual_plotext import PlotextPlot

Points = Sequence[tuple[float, float]]
"""(position, value), in order."""

MOST_POINTS = 400
"""Drawn of a curve; a terminal has fewer columns than that."""
TICKS = 6
"""Steps between labels on an axis, at most."""


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
        places, values = [place for place, _value in thin], [value for _place, value in thin]
        for axis, ticks in (
            (plt.xticks, axis_ticks(min(places), max(places), is_whole=is_whole)),
            (plt.yticks, axis_ticks(min(values), max(values))),
        ):
            axis([place for place, _label in ticks], [label for _place, label in ticks])
        rgb = Color.parse(self.app.theme_variables[colour]).rgb
        plt.plot(places, values, marker="braille", color=rgb)
        if len(thin) == 1:
            plt.scatter([thin[0][0]], [thin[0][1]], marker="dot", color=rgb)
        plot.refresh()

    def _forget(self) -> None:
        self._drawn = ()


def axis_ticks(low: float, high: float, *, is_whole: bool = False) -> list[tuple[float, str]]:
    """Return the round numbers from `low` to `high`, some two to seven, with labels that differ from each other.

    Args:
        low: least value shown.
        high: greatest value shown; where it is the same, that one is labelled.
        is_whole: whether there is nothing between whole numbers.
    """
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [(low, _label(low, 1.0 if is_whole else abs(low) / 1000 or 1.0, low))]
    step = 10.0 ** math.floor(math.log10(span / TICKS))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= TICKS)
    step = max(1.0, step) if is_whole else step
    # What a float is off by must not cost the last one.
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    greatest = max(abs(low), abs(high))
    return [(index * step, _label(index * step, step, greatest)) for index in range(first, last + 1)]


def _label(value: float, step: float, greatest: float) -> str:
    """Return a number in as many digits as tell it from one a `step` away, in units that suit the greatest."""
    if not math.isfinite(value):
        return str(value)
    if 0 < greatest < 1e-3:
        return f"{value:.{max(0, math.floor(math.log10(greatest)) - math.floor(math.log10(step)))}e}"
    units = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
    divisor, unit = next(((divisor, unit) for limit, divisor, unit in units if greatest >= limit), (1.0, ""))
    digits = max(0, -math.floor(math.log10(step / divisor) + 1e-9))
    return f"{value / divisor:,.{digits}f}{unit}"


def _thinned(points: Points) -> Points:
    if len(points) <= MOST_POINTS:
        return points
    stride = -(-len(points) // MOST_POINTS)
    thin = list(points[::stride])
    return thin if thin[-1] == points[-1] else [*thin, points[-1]]
