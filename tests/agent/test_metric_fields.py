"""What is declared of the fields of samples and reports, and what follows for conditions, clients and screens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dtagent.protocol.events import PRINTED, REPORTED, Metric
from dtagent.protocol.metric_fields import (
    aggregated,
    alerts_of,
    called,
    cells_of,
    figure_text,
    metrics_of,
    plotted_of,
    watched_fields,
)
from dtagent.protocol.telemetry import GpuSample, HostSample, RankSample

KINDS = (HostSample, GpuSample, RankSample)


def test_no_name_is_given_twice() -> None:
    declared = [item for kind in (*KINDS, Metric) for item in metrics_of(kind).values()]
    for names in ([item.prometheus for item in declared], [item.alert for item in declared]):
        given = [name for name in names if name is not None]
        assert len(given) == len(set(given))
    assert all(item.help.endswith(".") for item in declared)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_shown_waited_for_or_needed_for_a_share_is_asked_for(kind: type) -> None:
    asked = set(watched_fields(kind))
    for name, item in metrics_of(kind).items():
        if item.alert is not None or item.cell is not None or item.plot is not None:
            assert {name, item.share_of or name} <= asked


def test_what_is_drawn_has_a_plot_of_a_plain_name_and_no_two_kinds_share_one() -> None:
    plots = [{str(item.plot) for item in plotted_of(kind).values()} for kind in (*KINDS, Metric)]
    assert all(re.fullmatch(r"[a-z][a-z-]*", name) for names in plots for name in names)
    assert sum(map(len, plots)) == len(set().union(*plots))
    assert plots[-1] >= {"loss", "speed"}


def test_a_report_may_call_a_metric_by_more_names_and_trainers_by_still_more_each_of_one_metric() -> None:
    assert {"lr": "learning_rate", "grad_norm": "gradient_norm", "loss": "loss"}.items() <= REPORTED.items()
    assert REPORTED.items() < PRINTED.items()
    assert PRINTED["tps"] == "tokens_per_s"
    assert "tps" not in REPORTED
    names = [name for item in metrics_of(Metric).values() for name in (*item.names, *item.printed)]
    assert len(names) == len(set(names) - set(metrics_of(Metric)))
    assert called(GpuSample)["power_w"] == "power_w"


def test_a_cell_begins_with_load_and_memory_which_have_the_bar_and_the_headings() -> None:
    assert list(cells_of(GpuSample))[:2] == ["utilization_percent", "memory_used_mib"]


def test_what_the_reference_says_that_an_alert_may_wait_for_there_is_with_the_unit_it_says() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith("| `metric` |")]
    told = re.findall(r"`((?:gpu|host)\.\w+)`", row)
    alerts = alerts_of(GpuSample) | alerts_of(HostSample)
    assert len(told) >= 11
    assert set(told) <= set(alerts)
    for name in told:
        unit = alerts[name][1].alert_unit
        assert not unit or re.search(rf"`{re.escape(name)}`(?: and `[\w.]+`)? \({re.escape(unit)}\)", row), name


def compared(sample: GpuSample | HostSample, alert: str) -> float | None:
    field, declared = alerts_of(type(sample))[alert]
    return declared.compared(sample, field)


def test_a_threshold_is_compared_with_shares_and_gigabytes_where_nothing_is_read_with_nothing() -> None:
    assert compared(GpuSample(0, memory_used_mib=20_480, memory_total_mib=81_920), "gpu.memory") == 25.0
    assert compared(GpuSample(0, memory_used_mib=20_480), "gpu.memory") is None
    assert compared(GpuSample(0, memory_used_mib=1, memory_total_mib=0), "gpu.memory") is None
    assert compared(GpuSample(0), "gpu.power") is None
    assert compared(HostSample(1, 0.0, disk_free_mib=2048), "host.disk_free") == 2048 * 1024**2 / 1e9
    assert compared(HostSample(1, 0.0, disk_free_mib=0), "host.disk_free") == 0
    assert compared(HostSample(1, 0.0, load1=0.5), "host.load") == 0.5


def test_of_several_gpus_stands_what_is_declared_whichever_of_them_tell_it() -> None:
    gpus = [GpuSample(0, 90, 100, temperature_c=60, power_w=300.5), GpuSample(1), GpuSample(2, 30, 50, 1, 80, 100.0)]
    assert aggregated(gpus, "utilization_percent") == 60
    assert aggregated(gpus, "memory_used_mib") == 150
    assert aggregated(gpus, "temperature_c") == 80
    assert aggregated(gpus, "power_w") == 400.5
    assert aggregated(gpus, "sm_clock_mhz") is None
    assert aggregated([], "power_w") is None


@pytest.mark.parametrize(
    ("value", "symbol", "text"),
    [
        (12_000.0, "", "12.0k"),
        (5_312.0, "", "5,312"),
        (81_234.0, "tok/s", "81.2k tok/s"),
        (7.25, "", "7.25"),
        (91.0, "%", "91 %"),
        (2.5e9, "B/s", "2.5 GB/s"),
    ],
)
def test_a_figure_is_short_and_has_its_unit(value: float, symbol: str, text: str) -> None:
    assert figure_text(value, symbol) == text
