"""Estimated against measured, in words."""

from __future__ import annotations

from collections.abc import Mapping

from dttui.cli.printing import one_line
from dttui.i18n import _
from dttui.jobs import Figure, figure_names


def figures_text(figures: Mapping[str, Figure]) -> str:
    """Return what was estimated of a job beside what was measured, a line each."""
    names = figure_names()
    lines = []
    for name, figure in figures.items():
        if figure.measured is None and figure.estimated is None:
            continue
        measured = _("not measured") if figure.measured is None else number(figure.measured)
        if figure.estimated is None:
            text = _("{what}: {measured}, without an estimate")
        elif figure.low is None or figure.high is None:
            text = _("{what}: {measured}; estimated {estimated}")
        else:
            text = _("{what}: {measured}; estimated {low} to {high}")
        low, estimated, high = (number(value or 0.0) for value in (figure.low, figure.estimated, figure.high))
        told = {"what": names.get(name, name), "measured": measured, "low": low, "estimated": estimated, "high": high}
        lines.append("  " + one_line(text.format(**told)) + "\n")
    return "".join(lines)


def number(value: float, digits: int = 3) -> str:
    """Return a figure in so many digits; one of thousands as a whole number."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
