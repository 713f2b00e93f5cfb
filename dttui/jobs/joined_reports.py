"""What reports of a rank, or of several, come to together. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dtagent.protocol.events import Metric
from dtagent.protocol.metric_fields import SPEED, metrics_of

from dttui.jobs.figures import Figure

MOST_EXTRA = 64
"""Numbers under names of their own that are kept of all reports of a rank together; the newest."""


_SPEEDS = tuple(name for name, item in metrics_of(Metric).items() if item.plot == SPEED)


def communication_of(reports: Iterable[Metric], estimated_share: float | None) -> Figure | None:
    """Return which share of the time ranks communicate, in percent, on average; `None` where none has measured it.

    Args:
        reports: the newest of each rank.
        estimated_share: from 0 to 1; `None` where there is no estimate.
    """
    shares = [share for report in reports if (share := report.communication_percent) is not None]
    if not shares:
        return None
    estimated = None if estimated_share is None else 100 * estimated_share
    return Figure(estimated, measured=sum(shares) / len(shares))


def carried(earlier: Metric, later: Metric) -> Metric:
    """Return the later report of a rank, with what the earlier told and it does not: of each name the last counts.

    A line at the end of an epoch, of an evaluation or of the training names neither step nor loss, for one.
    """
    if later.is_of_payload:
        return replace(earlier, communication_percent=later.communication_percent)
    told = {name for name in ("step", *metrics_of(Metric)) if getattr(later, name) is not None}
    told |= {*later.extra, *(later.not_finite or ())}
    if any(later.value(name) is not None for name in _SPEEDS):
        told |= {*_SPEEDS}  # They are of one thing: one that is told makes the others old.
    kept = {name: getattr(earlier, name) for name in ("step", *metrics_of(Metric)) if name not in told}
    extra = {name: value for name, value in earlier.extra.items() if name not in told} | later.extra
    broken = [name for name in earlier.not_finite or () if name not in told] + (later.not_finite or [])
    return replace(later, **kept, extra=dict([*extra.items()][-MOST_EXTRA:]), not_finite=broken or None)


def joined(earlier: Metric, later: Metric) -> Metric:
    """Return what two reports say of one step: a trainer may use several lines for it."""
    known = {name: value for name, value in vars(later).items() if value is not None and name != "extra"}
    return replace(earlier, **known, extra={**earlier.extra, **later.extra})
