"""What the plots of a job show, and what they are called."""

from __future__ import annotations

from dtagent.protocol.metric_fields import Declared, is_rate

from dttui.i18n import _, ngettext
from dttui.jobs import Axis, Curve, JobView
from dttui.tui.widgets.metric_plots import MetricPlots, Plot
from dttui.words import measure_name


def show_plots(plots: MetricPlots, view: JobView) -> bool:
    """Draw the curves of a job; return whether there are any of what its ranks report."""
    curves = view.curves()
    has_reports = any(curve.axis is not Axis.MINUTE for curve in curves)
    note = ""
    if not has_reports and view.metrics:
        note = _("The script has reported no loss and no speed that can be drawn yet.")
    elif not has_reports:
        note = _("The script has reported no metrics yet.")
    drawn = [
        Plot(
            curve.declared.plot or curve.name,
            _title(curve),
            curve.points,
            is_whole=curve.axis in (Axis.STEP, Axis.REPORT),
            unit=_unit(curve.declared),
        )
        for curve in curves
    ]
    plots.show(drawn, note=note)
    return has_reports


def _unit(declared: Declared) -> str:
    """Return the symbol of a rate's unit; empty for what is none, or has a label, which names it."""
    return declared.unit.symbol if declared.label is None and is_rate(declared.unit.symbol) else ""


def _title(curve: Curve) -> str:
    measure, count = measure_name(curve.name, curve.declared), len(curve.points)
    if curve.axis is Axis.REPORT:
        text = ngettext("{measure}, the last report", "{measure}, the last {count} reports", count)
        return text.format(measure=measure, count=count)
    text = {
        Axis.STEP: _("{measure} by step"),
        Axis.EPOCH: _("{measure} by epoch"),
        Axis.MINUTE: _("{measure} by minute"),
    }[curve.axis]
    return text.format(measure=measure)
