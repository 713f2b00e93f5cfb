"""What the plots of a job show, and what they are called."""

from __future__ import annotations

from collections.abc import Mapping

from dtagent.protocol.metric_fields import PERCENT, Declared, figure_text, is_rate

from dttui.i18n import _, ngettext
from dttui.jobs import Axis, ChosenPlots, Curve, EarlierRun, JobView, smoothed
from dttui.sanitize import clean_line
from dttui.tui import symbols
from dttui.tui.widgets.metric_plots import MetricPlots
from dttui.tui.widgets.plot import Plot
from dttui.tui.widgets.plot_area import Points
from dttui.tui.widgets.plot_axes import Begin
from dttui.words import measure_name

_COLOURS = {
    "loss": "loss",
    "speed": "speed",
    "utilisation": "host",
    "memory": "host",
    "temperature": "heat",
    "power": "heat",
}
_FROM_ZERO = ("speed", "memory", "power")
_SHARES = ("utilisation", "communication")


def show_plots(plots: MetricPlots, view: JobView, chosen: ChosenPlots, earlier: EarlierRun | None) -> bool:
    """Draw the curves of a job before those of the run before; return whether there are any of what its ranks report.

    Args:
        plots: where.
        view: of the job.
        chosen: which the job wants, and in which order.
        earlier: the run before; `None` where there is none.
    """
    curves = chosen.arranged(view.curves())
    has_reports = any(curve.axis is not Axis.MINUTE for curve in curves)
    note = ""
    if not has_reports and view.metrics:
        note = _("The script has reported no loss and no speed that can be drawn yet.")
    elif not has_reports:
        note = _("The script has reported no metrics yet.")
    before: Mapping[tuple[str, Axis], Points] = {}
    if earlier is not None:
        before = {(curve.plot, curve.axis): curve.points for curve in earlier.curves}
    drawn = [_plot(curve, before.get((curve.plot, curve.axis), ())) for curve in curves]
    legend = _("the run before: {job}").format(job=earlier.job_id) if earlier is not None else ""
    plots.show(drawn, note=note, legend=legend)
    return has_reports


def is_smoothed(name: str) -> bool:
    """Whether a curve of this measure is drawn without its noise, over itself."""
    return name.endswith("loss")


def _plot(curve: Curve, ghost: Points) -> Plot:
    name = curve.plot
    begin = Begin.ANYWHERE
    if name in _SHARES:
        begin = Begin.SHARE
    elif name in _FROM_ZERO:
        begin = Begin.ZERO
    return Plot(
        name=name,
        colour=_COLOURS.get(name, "loss" if name.endswith("loss") else "other"),
        title=_title(curve),
        points=curve.points,
        is_whole=curve.axis in (Axis.STEP, Axis.REPORT),
        unit=_unit(curve.declared),
        begin=begin,
        smooth=smoothed(curve.points) if is_smoothed(name) else (),
        ghost=ghost,
        newest=_newest(curve),
    )


def _newest(curve: Curve) -> str:
    value = curve.points[-1][1]
    if curve.declared.unit == PERCENT:
        return f"{value:.3g}%"
    if is_rate(curve.declared.unit.symbol):
        return figure_text(value, curve.declared.unit.symbol)
    return symbols.number(value) if abs(value) < 1e5 else figure_text(value, "")


def _unit(declared: Declared) -> str:
    """Return the symbol of a rate's unit; empty for what is none, or has a label, which names it."""
    return declared.unit.symbol if declared.label is None and is_rate(declared.unit.symbol) else ""


def _title(curve: Curve) -> str:
    measure, count = clean_line(measure_name(curve.name, curve.declared)), len(curve.points)
    if curve.axis is Axis.REPORT:
        text = ngettext("{measure}, the last report", "{measure}, the last {count} reports", count)
        return text.format(measure=measure, count=count)
    text = {
        Axis.STEP: _("{measure} by step"),
        Axis.EPOCH: _("{measure} by epoch"),
        Axis.MINUTE: _("{measure} by minute"),
    }[curve.axis]
    return text.format(measure=measure)
