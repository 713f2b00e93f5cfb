"""What the plots of a job show, and what they are called."""

from __future__ import annotations

from dttui.i18n import _, ngettext
from dttui.jobs import Axis, Curves, JobView
from dttui.jobs.curves import curves
from dttui.tui.widgets.metric_plots import MetricPlots
from dttui.words import measure_name


def show_plots(plots: MetricPlots, view: JobView) -> bool:
    """Draw the curves of a job; return whether there are any."""
    found = curves(view.metrics)
    if view.metrics:
        note = _("The script has reported no loss and no speed that can be drawn yet.")
    else:
        note = _("The script has reported no metrics yet.")
    titles = (_title(_("loss"), found, len(found.loss)), _title(measure_name(found.measure), found, len(found.speed)))
    plots.show(found.loss, found.speed, titles, is_whole=found.axis is not Axis.EPOCH, note=note)
    return bool(found.loss or found.speed)


def _title(measure: str, found: Curves, count: int) -> str:
    if found.axis is Axis.STEP:
        return _("{measure} by step").format(measure=measure)
    if found.axis is Axis.EPOCH:
        return _("{measure} by epoch").format(measure=measure)
    text = ngettext("{measure}, the last report", "{measure}, the last {count} reports", count)
    return text.format(measure=measure, count=count)
