"""The curves of a job in a grid, one of them at full size where a person wants that: Line API, drawn when they grew."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from dttui.tui.commands import N_
from dttui.tui.widgets.cells import Part, fit, painted
from dttui.tui.widgets.plot import CHOSEN, CURVE, GHOST, LEAST_ROWS, RAW, TITLE, VALUE, Plot, plot_lines
from dttui.tui.widgets.plot_area import AXIS, LABEL

LEAST_WIDTH = 38
"""Of a plot: even a narrow screen has room for two."""
SHAPE = 4.0
"""Cells across for each down that a plot has at best: a cell is twice as high as wide."""
COLOURS = ("loss", "speed", "host", "heat", "other")
"""What curves are of, for their colour."""


class PlotPlace(NamedTuple):
    """Where a plot is in the grid, in cells."""

    left: int
    top: int
    width: int
    height: int


class MetricPlots(ScrollView, can_focus=True):
    """Shows plots in the order it is given; arrows choose one, enter shows it alone, and each has its own axis."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "left", "choose(-1)", N_("plot before"), show=False, id="plots.before", tooltip=N_("Choose the plot before")
        ),
        Binding(
            "right", "choose(1)", N_("next plot"), show=False, id="plots.after", tooltip=N_("Choose the next plot")
        ),
        Binding(
            "up", "choose_row(-1)", N_("plot above"), show=False, id="plots.above", tooltip=N_("Choose the plot above")
        ),
        Binding(
            "down", "choose_row(1)", N_("plot below"), show=False, id="plots.below", tooltip=N_("Choose the plot below")
        ),
        Binding("enter", "zoom", N_("zoom"), show=False, id="plots.zoom", tooltip=N_("Show one plot alone, or all")),
        Binding("escape", "unzoom", N_("all plots"), show=False, id="plots.all", tooltip=N_("Show all plots again")),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"metric-plots--{part}" for part in (AXIS, LABEL, TITLE, CHOSEN, VALUE, GHOST, Part.MUTED.value)),
        *(f"metric-plots--{part}-{colour}" for part in (RAW, CURVE) for colour in COLOURS),
    }

    @dataclass
    class Zoomed(Message):
        """One plot is shown alone, or all are again."""

        is_alone: bool

    @dataclass
    class Rescaled(Message):
        """Other plots than before have a logarithmic axis."""

        names: frozenset[str]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._plots: tuple[Plot, ...] = ()
        self._places: list[PlotPlace] = []
        self._note = self._legend = ""
        self._logs: frozenset[str] = frozenset()
        self._chosen = ""
        self._is_alone = self._is_picked = False
        self._drawn: dict[str, tuple[object, list[Strip]]] = {}

    def on_mount(self) -> None:
        """Follow the theme."""
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._forget())

    def show(self, plots: Sequence[Plot], *, note: str, legend: str = "") -> None:
        """Show curves, and draw again those that have changed.

        Args:
            plots: one a curve, the first at the top left.
            note: what is to be said above them; empty for nothing.
            legend: what the dashed curves are.
        """
        before = {plot.name: plot for plot in self._plots}
        is_as_before = [*before] == [plot.name for plot in plots] and (note, legend) == (self._note, self._legend)
        self._plots, self._note, self._legend = tuple(plots), note, legend
        if not self._is_picked or self._chosen not in (plot.name for plot in plots):
            self._chosen = plots[0].name if plots else ""
            if self._is_alone:
                self.action_zoom()
        if not is_as_before:
            self._lay_out()
            return
        for plot, place in self._placed:
            if before[plot.name] != plot:
                left, top = place.left - self.scroll_offset.x, place.top - self.scroll_offset.y
                self.refresh(Region(left, top, place.width, place.height))

    @property
    def is_alone(self) -> bool:
        """Whether one plot is shown alone."""
        return self._is_alone

    @property
    def logs(self) -> frozenset[str]:
        """Plots that have a logarithmic axis."""
        return self._logs

    def use_logs(self, names: Iterable[str]) -> None:
        """Have a logarithmic axis in these plots."""
        self._logs = frozenset(names)
        self.refresh()

    def action_choose(self, step: int) -> None:
        """Choose a plot before or behind; of one that is shown alone, show that alone."""
        names = [plot.name for plot in self._plots]
        if names:
            self._choose(names[(names.index(self._chosen) + step) % len(names)])

    def action_choose_row(self, step: int) -> None:
        """Choose the nearest plot above or below."""
        if self._is_alone or not self._places:
            self.action_choose(step)
            return
        here = next(place for plot, place in self._placed if plot.name == self._chosen)
        tops = sorted({place.top for place in self._places if (place.top - here.top) * step > 0}, reverse=step < 0)
        if tops:
            middle = here.left + here.width / 2
            row = [(plot.name, place) for plot, place in self._placed if place.top == tops[0]]
            self._choose(min(row, key=lambda found: abs(found[1].left + found[1].width / 2 - middle))[0])

    def action_zoom(self) -> None:
        """Show the chosen plot alone, or all again."""
        self._is_alone, self._is_picked = not self._is_alone and bool(self._plots), True
        self._lay_out()
        self.post_message(self.Zoomed(self._is_alone))

    def action_unzoom(self) -> None:
        """Show all."""
        self.action_zoom()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the way back only from one plot."""
        return self._is_alone if action == "unzoom" else True

    def action_log(self) -> None:
        """Have a logarithmic axis in the chosen plot, or a linear one."""
        if self._chosen:
            self.use_logs(self._logs ^ {self._chosen})
            self.post_message(self.Rescaled(self._logs))

    def on_click(self, event: events.Click) -> None:
        """Choose a plot; show the one that is chosen alone, or all again."""
        x, y = event.x + self.scroll_offset.x, event.y + self.scroll_offset.y
        for plot, place in self._placed:
            if place.left <= x < place.left + place.width and place.top <= y < place.top + place.height:
                if plot.name == self._chosen:
                    self.action_zoom()
                else:
                    self._choose(plot.name)

    def on_focus(self) -> None:
        """Show which plot keys are about."""
        self.refresh()

    def on_blur(self) -> None:
        """Show no more."""
        self.refresh()

    def on_resize(self) -> None:
        """Lay them out anew."""
        self._lay_out()

    def render_line(self, y: int) -> Strip:
        """Return one line of what can be seen."""
        line, width = y + self.scroll_offset.y, self.size.width
        if self._note and line == 0:
            pieces = [(f" {fit(self._note, width - 1)}", Part.MUTED)]
            return painted(self, "metric-plots", pieces, self.rich_style, width)
        strips = [
            self._lines(plot, place)[line - place.top]
            for plot, place in self._placed
            if place.top <= line < place.top + place.height
        ]
        return Strip.join(strips).adjust_cell_length(width, self.rich_style)

    @property
    def _shown(self) -> list[Plot]:
        return [plot for plot in self._plots if not self._is_alone or plot.name == self._chosen]

    @property
    def _placed(self) -> list[tuple[Plot, PlotPlace]]:
        """What is shown, and where; nothing while there is no room, as behind another tab."""
        return list(zip(self._shown, self._places, strict=False))

    def _choose(self, name: str) -> None:
        self._chosen, self._is_picked = name, True
        if self._is_alone:
            self._lay_out()
        else:
            for plot, place in self._placed:
                if plot.name == name:
                    self.scroll_to_region(Region(*place), animate=False)
        self.refresh()

    def _lay_out(self) -> None:
        width, height = self.size
        top = bool(self._note)
        self._places = places(len(self._shown), width, height - top, top)
        bottom = max((place.top + place.height for place in self._places), default=top)
        self.virtual_size = Size(width, bottom)
        self.refresh()

    def _lines(self, plot: Plot, place: PlotPlace) -> list[Strip]:
        """Return the lines of a plot, as they were drawn last where nothing has changed."""
        is_chosen = self.has_focus and plot.name == self._chosen
        state = (plot, place.width, place.height, plot.name in self._logs, is_chosen, self._legend)
        known = self._drawn.get(plot.name)
        if known is not None and known[0] == state:
            return known[1]
        lines = plot_lines(
            plot, place.width, place.height, is_log=plot.name in self._logs, is_chosen=is_chosen, legend=self._legend
        )
        strips = [painted(self, "metric-plots", pieces, self.rich_style, place.width) for pieces in lines]
        self._drawn[plot.name] = state, strips
        return strips

    def _forget(self) -> None:
        self._drawn.clear()
        self.refresh()


def places(count: int, width: int, height: int, top: int = 0) -> list[PlotPlace]:
    """Return where so many plots are, in rows: all of them if there is room, of a shape that reads well.

    The first row has what is left over, so that the first plots are the widest; where not all fit, rows below are
    scrolled to, and the first ones are full.
    """
    if count == 0 or width <= 0 or height <= 0:
        return []
    most = max(1, min(count, width // LEAST_WIDTH))
    fitting = [columns for columns in range(1, most + 1) if -(-count // columns) * LEAST_ROWS <= height]
    if fitting:
        columns = min(fitting, key=lambda number: abs(math.log(_shape(count, number, width, height) / SHAPE)))
        rows = -(-count // columns)
        sizes = _shares(count, rows)
        heights = _shares(height, rows)[::-1]
    else:
        rows = -(-count // most)
        sizes = [min(most, count - row * most) for row in range(rows)]
        heights = [max(1, height // max(1, height // LEAST_ROWS))] * rows
    found = []
    for size, tall in zip(sizes, heights, strict=True):
        left = 0
        for wide in _shares(width, size):
            found.append(PlotPlace(left, top, wide, tall))
            left += wide
        top += tall
    return found


def _shape(count: int, columns: int, width: int, height: int) -> float:
    return (width / columns) / (height / -(-count // columns))


def _shares(whole: int, parts: int) -> list[int]:
    """Return whole numbers that add up, none of which is one more than another; the larger ones last."""
    return [whole * (part + 1) // parts - whole * part // parts for part in range(parts)]
