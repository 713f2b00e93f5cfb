"""What the plots of a job are drawn from beside its own reports: what its file asks for, and the run before."""

from __future__ import annotations

from collections.abc import Mapping

from dttui.errors import DttuiError
from dttui.jobs.curves import HISTORY, ChosenPlots, EarlierRun
from dttui.jobs.directory import JobDirectory
from dttui.jobs.following import lines_throughout
from dttui.jobs.listing import runs_before
from dttui.jobs.metrics import parse_report
from dttui.jobs.view import JobView

MOST_RUNS = 8
"""That are looked through for one that has reported something."""


def earlier_run(directory: JobDirectory) -> EarlierRun | None:
    """Return the newest run of the same job before this one that has reported anything that is drawn."""
    for other, _number in zip(runs_before(directory), range(MOST_RUNS), strict=False):
        view = JobView(other.job_id)
        for line in lines_throughout(other.metrics, HISTORY):
            if (found := parse_report(line)) is not None:
                attempt, metric = found
                view.add_metric(metric, attempt)
        if curves := view.curves():
            return EarlierRun(other.job_id, curves)
    return None


def chosen_plots(directory: JobDirectory) -> ChosenPlots:
    """Return the panels of the job's dashboard, where it has one; else its metrics come first.

    Of a file that cannot be read nothing is wanted.
    """
    from dttui.spec import decode, parse_document, read_bytes  # Many only look at a job, and have read no file.

    name = str(directory.document)
    try:
        monitoring = parse_document(decode(read_bytes(directory.document, name), name), name).job.monitoring
    except DttuiError:
        return ChosenPlots()
    shown = monitoring.visualization
    if shown is not None and shown.enabled and shown.dashboard is not None:
        for key in ("panels", "metrics"):
            if isinstance(told := shown.dashboard.get(key), (tuple, list)):
                names = tuple(wanted for panel in told if (wanted := _metric_of(panel)) is not None)
                if names:
                    return ChosenPlots(names, is_all=True)
    return ChosenPlots(monitoring.metric_names)


def _metric_of(panel: object) -> str | None:
    """Return the metric that a panel is about: it may be more than a name."""
    if isinstance(panel, Mapping):
        panel = next((panel[key] for key in ("metric", "name", "title") if key in panel), None)
    return panel if isinstance(panel, str) else None
