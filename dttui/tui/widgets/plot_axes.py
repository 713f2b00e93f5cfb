"""The axes of a plot: from where to where they go, and the round numbers on them. Pure.

What hardly changes is not to look like chaos: a share goes from 0 to 100 %, a rate from nought, and of anything else an
axis spans a fifth of its greatest value at least, so that a change of 2 % takes a tenth of the height at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from dtagent.protocol.metric_fields import scale_of, with_unit

TICKS = 6
"""Steps between labels on an axis, at most."""
LEAST_SPAN = 0.2
"""Of an axis that may begin anywhere, as a share of its greatest value."""
NEAR_ZERO = 1 / 3
"""Where the least value is a smaller share of the greatest, an axis begins at nought."""
SMALLEST, LARGEST = 1e-300, 1e300
"""That have a place on an axis: beyond them a step between labels is no number any more."""
_ROWS_A_TICK = 3
_COLUMNS_A_TICK = 10
_FEW = 4.0
"""Times its least value that a logarithmic axis goes to at most, for labels at equal distances."""
Ticks = tuple[tuple[float, str], ...]
"""Places and labels, upward."""


class Begin(Enum):
    """Where an axis of values begins."""

    ANYWHERE = "anywhere"
    ZERO = "zero"
    """At nought, unless there is less than that."""
    SHARE = "share"
    """So, and at 100 it ends, unless there is more than that."""


class Scale(NamedTuple):
    """One axis."""

    low: float
    high: float
    ticks: Ticks
    is_log: bool = False

    def share(self, value: float) -> float | None:
        """Return how far along it a value lies, from 0 to 1; `None` where it has no place on it."""
        if self.is_log:
            if value <= 0:
                return None
            low, high, value = math.log(self.low), math.log(self.high), math.log(value)
        else:
            low, high = self.low, self.high
        share = (value - low) / (high - low) if high > low else 0.5
        return share if -1e-9 <= share <= 1 + 1e-9 else None


def position_axis(low: float, high: float, columns: int, *, is_whole: bool) -> Scale:
    """Return the axis below a plot of so many columns: exactly what was told of."""
    most = max(1, min(TICKS, columns // _COLUMNS_A_TICK))
    return Scale(low, high, tuple(axis_ticks(low, high, is_whole=is_whole, most=most)))


def value_axis(low: float, high: float, rows: int, begin: Begin, *, is_log: bool = False, unit: str = "") -> Scale:
    """Return the axis beside a plot of so many rows; a logarithmic one where there are values for it.

    Args:
        low: least value; of a logarithmic axis the least above nought.
        high: greatest value.
        rows: of the plot.
        begin: where it begins, if it is no logarithmic one.
        is_log: whether it is to be one.
        unit: symbol of a rate's.
    """
    most = max(2, min(TICKS, rows // _ROWS_A_TICK))
    if is_log and 0 < low <= high < math.inf:
        return _log_axis(low, high, most, unit)
    low, high = limits(low, high, begin)
    step = _step(high - low, most)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Scale(low, high, tuple(axis_ticks(low, high, unit=unit, step=step)))


def limits(low: float, high: float, begin: Begin) -> tuple[float, float]:
    """Return from where to where an axis goes at least."""
    low, high = (0.0 if abs(value) < SMALLEST else value for value in (low, high))
    if begin is Begin.SHARE:
        return min(0.0, low), max(100.0, high)
    if low >= 0 and (begin is Begin.ZERO or low < NEAR_ZERO * high):
        return 0.0, high or 1.0
    least = LEAST_SPAN * max(abs(low), abs(high)) or 1.0
    if high - low >= least:
        return low, high
    missing = (least - (high - low)) / 2
    return low - missing, high + missing


def axis_ticks(
    low: float, high: float, *, is_whole: bool = False, unit: str = "", most: int = TICKS, step: float | None = None
) -> list[tuple[float, str]]:
    """Return the round numbers from `low` to `high`, some two to seven, with labels that differ from each other.

    Args:
        low: least value shown.
        high: greatest value shown; where it is the same, that one is labelled.
        is_whole: whether there is nothing between whole numbers.
        unit: symbol of a rate's, which each label has then.
        most: steps between them, at most.
        step: between two, where that is known already.
    """
    span = high - low
    if span < SMALLEST or not math.isfinite(span):
        return [(low, _label(low, 1.0 if is_whole else abs(low) / 1000 or 1.0, low, unit))]
    step = step or _step(span, most)
    step = max(1.0, step) if is_whole else step
    # What a float is off by must not cost the last one.
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    greatest = max(abs(low), abs(high))
    return [(index * step, _label(index * step, step, greatest, unit)) for index in range(first, last + 1)]


def _step(span: float, most: int) -> float:
    """Return the round distance of which a span has at most so many."""
    if not 0 < span < math.inf:
        return 1.0
    step = 10.0 ** math.floor(math.log10(span / most))
    return float(step * next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= most * (1 + 1e-9)))


def _log_axis(low: float, high: float, most: int, unit: str) -> Scale:
    if high < _FEW * low:
        low, high = low * (1 - LEAST_SPAN / 2), high * (1 + LEAST_SPAN / 2)
        return Scale(low, high, tuple(axis_ticks(low, high, unit=unit, most=most)), is_log=True)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1, 2, 5), (1, 3), (1,)):
        places = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
        begin = max(place for place in places if place <= low * (1 + 1e-9))
        end = min((place for place in places if place >= high * (1 - 1e-9)), default=places[-1])
        places = [place for place in places if begin <= place <= end]
        if len(places) <= most + 1:
            break
    every = places[:: math.ceil(len(places) / (most + 1))]
    return Scale(begin, end, tuple((place, _label(place, place, place, unit)) for place in every), is_log=True)


def _label(value: float, step: float, greatest: float, unit: str) -> str:
    """Return a number in as many digits as tell it from one a `step` away, scaled as suits the greatest."""
    if not math.isfinite(value):
        return str(value)
    if 0 < greatest < 1e-3:
        digits = max(0, math.floor(math.log10(greatest)) - math.floor(math.log10(step)))
        return with_unit(f"{value:.{digits}e}", "", unit)
    divisor, prefix = scale_of(greatest)
    if not value and prefix:
        return with_unit("0", "", unit)
    digits = max(0, -math.floor(math.log10(step / divisor) + 1e-9))
    return with_unit(f"{value / divisor:,.{digits}f}", prefix, unit)


def has_place(value: float) -> bool:
    """Whether an axis can show a value."""
    return value == 0 or SMALLEST <= abs(value) <= LARGEST


def extremes(curves: Sequence[Sequence[tuple[float, float]]], *, is_log: bool) -> tuple[float, float] | None:
    """Return the least and the greatest value of curves, of those that have a place; `None` where none has."""
    values = [value for points in curves for _place, value in points if has_place(value) and (value > 0 or not is_log)]
    return (min(values), max(values)) if values else None
