"""What reports of a rank, or of several, come to together. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dtagent.protocol.events import Metric

from dttui.jobs.figures import Figure


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
    """Return the later report of a rank; a line at the end of an epoch, or of an evaluation, may name no step."""
    share = earlier.communication_percent if later.communication_percent is None else later.communication_percent
    if later.is_of_payload:
        return replace(earlier, communication_percent=share)
    is_broken = "loss" in (later.not_finite or ())
    return replace(
        later,
        communication_percent=share,
        step=earlier.step if later.step is None else later.step,
        loss=earlier.loss if later.loss is None and not is_broken else later.loss,
    )


def joined(earlier: Metric, later: Metric) -> Metric:
    """Return what two reports say of one step: a trainer may use several lines for it."""
    known = {name: value for name, value in vars(later).items() if value is not None and name != "extra"}
    return replace(earlier, **known, extra={**earlier.extra, **later.extra})
