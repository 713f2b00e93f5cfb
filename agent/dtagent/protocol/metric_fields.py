"""What a metric is, declared once, at its field: of samples what a host reads, of reports what ranks tell.

Prometheus text, what a client asks for, what trainers and scripts call it, conditions of alerts, cells and plots of
screens all follow from that, and rates read alike in all of them. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

_KEY = "metric"
_WATCHED = "watched"
ASKED_FOR: Mapping[str, Any] = {_WATCHED: True}
"""Metadata of a field that is no metric, and that every client asks for."""


class Unit(NamedTuple):
    """The unit of a field, and what becomes of its numbers elsewhere."""

    symbol: str
    """What a person reads after the number; empty for a count."""
    factor: int = 1
    """By which Prometheus' base unit follows."""
    divisor: int = 1
    alert_symbol: str | None = None
    """The unit of an alert's threshold; `None` for the same."""
    alert_divisor: float = 1
    """From the base unit to that, where it is another one."""


PLAIN = Unit("")
"""Of a number that counts nothing, such as a loss or a rate of learning."""
COUNT = Unit("")
"""Of how many there are of something."""
FLAG = Unit("")
PERCENT = Unit("%", divisor=100)
CELSIUS = Unit("°C")
WATT = Unit("W")
MHZ = Unit("MHz", factor=1_000_000)
MIB = Unit("MiB", factor=1024**2, alert_symbol="GB", alert_divisor=1e9)
BYTES_PER_S = Unit("B/s")
PER_S = Unit("/s")
"""Of what is counted, such as packets."""
TOKENS_PER_S = Unit("tok/s")
SAMPLES_PER_S = Unit("samples/s")
STEPS_PER_S = Unit("steps/s")

_SCALES = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
"""From which size on, what it is divided by, and the prefix for that."""

LOSS = "loss"
SPEED = "speed"
"""Plots that several metrics share, of which one is drawn."""


def mean(values: Sequence[float]) -> float:
    """Return what is true of all on average."""
    return sum(values) / len(values)


class Declared(NamedTuple):
    """What is declared of one field."""

    unit: Unit
    help: str
    """What it is, in a sentence."""
    prometheus: str | None = None
    """Its name there, in base units and without the prefix of all; one that ends in `_total` is a counter."""
    alert: str | None = None
    """What a condition calls it, `gpu.temperature`."""
    share_of: str | None = None
    """The field that is the whole: a condition is about the share then, in percent."""
    aggregation: Callable[[Sequence[float]], float] = max
    """What stands for several GPUs, ranks or hosts."""
    cell: str | None = None
    """What stands before the figure, maybe nothing: of a GPU or rank in the rank's cell, of a host in its row. `None`
    where it has no place there."""
    watched: bool = False
    """Whether clients ask for it though nothing of that needs it."""
    label: str | None = None
    """What a person calls it, as a message to translate; `None` for the name that a condition has for it."""
    plot: str | None = None
    """The plot that it is drawn in; of several in one the first that is told. Of all hosts and GPUs of a job, what
    stands for several."""
    names: tuple[str, ...] = ()
    """What scripts may call it, besides the field, in a report."""
    printed: tuple[str, ...] = ()
    """What trainers call it, besides, in what they print."""
    spike: float | None = None
    """Of a report: by which share of the usual it rises at least where that is told; `None`: it may rise."""

    @property
    def alert_unit(self) -> str:
        """The unit that a threshold is in."""
        if self.share_of is not None:
            return PERCENT.symbol
        return self.unit.symbol if self.unit.alert_symbol is None else self.unit.alert_symbol

    def base(self, value: float) -> float:
        """Return a reading in Prometheus' base unit."""
        return value * self.unit.factor / self.unit.divisor if self.unit.divisor != 1 else value * self.unit.factor

    def compared(self, item: Any, name: str) -> float | None:
        """Return what a threshold is compared with, of the field `name` of a sample; `None` where nothing was read."""
        value: float | None = getattr(item, name)
        if self.share_of is not None:
            whole = getattr(item, self.share_of)
            return 100 * value / whole if value is not None and whole else None
        if value is None or self.unit.alert_symbol is None:
            return value
        return self.base(value) / self.unit.alert_divisor


def metric(unit: Unit, help: str, **more: Any) -> Any:
    """Return a field that is a metric, `None` where nobody tells it; `more` is of `Declared`."""
    return dataclasses.field(default=None, metadata={_KEY: Declared(unit, help, **more)})


@cache
def metrics_of(kind: type) -> dict[str, Declared]:
    """Return the metrics of a class of samples or reports, by field, in its order."""
    return {item.name: item.metadata[_KEY] for item in dataclasses.fields(kind) if _KEY in item.metadata}


def watched_fields(kind: type) -> list[str]:
    """Return the fields that clients ask for: what screens show, job directories keep and alerts wait for."""
    found = metrics_of(kind)
    needed = {name for name, item in found.items() if item.watched or not item.alert is item.cell is item.plot is None}
    needed |= {item.share_of for item in found.values() if item.share_of is not None}
    return [item.name for item in dataclasses.fields(kind) if item.name in needed or _WATCHED in item.metadata]


def alerts_of(kind: type) -> dict[str, tuple[str, Declared]]:
    """Return what conditions can be about: its name there → the field and what is declared of it."""
    return {item.alert: (name, item) for name, item in metrics_of(kind).items() if item.alert is not None}


@cache
def cells_of(kind: type) -> dict[str, Declared]:
    """Return the metrics that have a place in a cell or row, by field: of a GPU load and memory first."""
    return {name: item for name, item in metrics_of(kind).items() if item.cell is not None}


def figures_of(sample: Any) -> dict[str, Any]:
    """Return what a cell or a row shows of a sample, by field."""
    kind: type = type(sample)
    return {name: getattr(sample, name) for name in cells_of(kind)}


@cache
def plotted_of(kind: type) -> dict[str, Declared]:
    """Return the metrics that are drawn, by field; of those that share a plot the first counts most."""
    return {name: item for name, item in metrics_of(kind).items() if item.plot is not None}


def called(kind: type, *, printed: bool = False) -> dict[str, str]:
    """Return what a report may call its metrics, and, where it is `printed`, what trainers do: that → the field."""
    return {
        name: field
        for field, item in metrics_of(kind).items()
        for name in (field, *item.names, *(item.printed if printed else ()))
    }


def aggregated(items: Sequence[Any], name: str) -> float | None:
    """Return what stands for a field of several samples; `None` where none has it."""
    values = [value for item in items if (value := getattr(item, name)) is not None]
    if not values:
        return None
    kind: type = type(items[0])
    return metrics_of(kind)[name].aggregation(values)


def is_rate(symbol: str) -> bool:
    """Whether a unit's symbol is one of so many a second."""
    return symbol.endswith("/s")


def is_amount(symbol: str) -> bool:
    """Whether numbers with a unit's symbol read as `amount_text` has it: rates, and how many there are of something."""
    return not symbol or is_rate(symbol)


def scale_of(size: float) -> tuple[float, str]:
    """Return what numbers of a size are divided by where they are shown, and the prefix for that."""
    return next(((divisor, prefix) for least, divisor, prefix in _SCALES if abs(size) >= least), (1.0, ""))


def scaled(value: float) -> str:
    """Return a number in three digits or so: `81.2k`."""
    number, prefix = _parts(value)
    return number + prefix


def amount_text(value: float, symbol: str) -> str:
    """Return a rate, or how many there are of something, with its unit: `1.2 GB/s`, `81.2k tok/s`, `45/s`, `5,312`."""
    return with_unit(*_parts(value), symbol)


def figure_text(value: float, symbol: str) -> str:
    """Return one figure of any unit: a rate or a long count as `amount_text` has it, else four digits and the unit."""
    if is_rate(symbol) or (not symbol and abs(value) >= 1e3):
        return amount_text(value, symbol)
    return f"{value:.4g} {symbol}".rstrip()


def with_unit(number: str, prefix: str, symbol: str) -> str:
    """Return the digits of a number, its prefix and its unit together; bytes take the prefix, what is counted does not.

    Args:
        number: as it is shown, without the prefix.
        prefix: as of `scale_of`.
        symbol: of the unit; empty for none.
    """
    if symbol == "B/s":
        return f"{number} {prefix}{symbol}"
    gap = "" if not symbol or symbol.startswith("/") else " "
    return f"{number}{prefix}{gap}{symbol}"


def _parts(value: float) -> tuple[str, str]:
    divisor, prefix = scale_of(value)
    if prefix:
        return f"{value / divisor:.1f}", prefix
    return (f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"), ""
