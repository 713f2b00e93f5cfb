"""A rate is told alike wherever it is told: in an alert, in a cell, on the axis of a plot, in the agent's own view."""

from __future__ import annotations

import re
from typing import Any

import pytest
from dtagent.protocol.events import REPORTED, Metric
from dtagent.protocol.metric_fields import Declared, amount_text, is_rate, metrics_of
from dtagent.protocol.telemetry import GpuSample, HostSample, RankSample

from dttui.engine.alerts.alert_watch import AlertWatch
from dttui.spec.models import Alert
from dttui.tui.rows import cell_text
from dttui.tui.widgets.plot_axes import axis_ticks

KINDS: tuple[type, ...] = (GpuSample, HostSample, RankSample, Metric)
RATES = {name: item for kind in KINDS for name, item in metrics_of(kind).items() if is_rate(item.unit.symbol)}
"""All that are declared, whichever have a cell, a plot or an alert today."""
VALUES = (3.14159, 45.0, 999.0, 81_234.0, 2_500_000.0, 1.234e9, 28e9)


def shape(text: str) -> str:
    """Return a text with one letter for its digits, of which an axis may need more."""
    return re.sub(r"[0-9][0-9.,]*", "#", text)


@pytest.mark.parametrize(
    ("value", "symbol", "text"),
    [
        (1.234e9, "B/s", "1.2 GB/s"),
        (812.0, "B/s", "812 B/s"),
        (81_234.0, "tok/s", "81.2k tok/s"),
        (45.0, "/s", "45/s"),
        (45_000.0, "/s", "45.0k/s"),
    ],
)
def test_a_rate_has_its_unit(value: float, symbol: str, text: str) -> None:
    assert amount_text(value, symbol) == text


@pytest.mark.parametrize("name", RATES)
def test_a_cell_and_an_axis_tell_each_rate_alike(name: str) -> None:
    declared: Declared = RATES[name]._replace(cell="")
    for value in VALUES:
        told = amount_text(value, declared.unit.symbol)
        assert cell_text(declared, value) == told
        ((_place, label),) = axis_ticks(value, value, unit=declared.unit.symbol)
        assert shape(label) == shape(told)


@pytest.mark.parametrize("name", [name for name, field in REPORTED.items() if field in RATES])
def test_an_alert_tells_each_rate_so_too(name: str) -> None:
    for value in VALUES:
        told: list[str] = []
        watch = AlertWatch([Alert(metric=f"{name} > 1")], lambda _kind, message, **_more: told.append(message))  # noqa: B023 - called in this round
        report: dict[str, Any] = {REPORTED[name]: value}
        watch.see_metric("a", Metric(0, 1, **report))
        assert told == [f"{name} > 1: {amount_text(value, RATES[REPORTED[name]].unit.symbol)}, rank 0 on a"]
