"""What a bench asks and tells a person, at a terminal and on a screen alike; figures have the words of nccl-tests."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from dttui.compose.bench_models import BenchLink, BenchReport, BenchRow
from dttui.i18n import _, in_a_row
from dttui.planning.cost.link_fit import Regime
from dttui.spec.quantities import format_bytes
from dttui.words import listed

HEADER = ("size", "count", "type", "op", "algorithm", "time", "algbw", "busbw", "wrong", "regime")
"""The words of nccl-tests."""
MOST_NAMES = 5
AS_GOOD = 1.1
"""Times of two algorithms that differ by less differ from one moment to the next, too."""
USUAL_LARGEST = 64 << 20
"""Bytes of the largest message, where nobody says another."""


def load_question(hosts: Sequence[str], largest: int) -> str:
    """Return what a person is told before links are loaded that others use.

    Args:
        hosts: that are measured.
        largest: message, in bytes.
    """
    told = _("{hosts}: their links are loaded for some minutes, by messages of up to {size}; others will notice.")
    return told.format(hosts=listed(hosts, MOST_NAMES), size=format_bytes(largest))


def place_name(where: Sequence[str]) -> str:
    """Return where something was measured: over all ranks, inside a host, or between two."""
    if not where:
        return _("all ranks together")
    return " ↔ ".join(where) if len(where) > 1 else _("inside {host}").format(host=where[0])


def regime_name(regime: Regime) -> str:
    """Return what bounds messages of a size."""
    return {"latency": _("latency-bound"), "rising": _("rising"), "link": _("near the link")}[regime]


def row_cells(row: BenchRow) -> list[str]:
    """Return a row, as `HEADER` has it."""
    return [
        format_bytes(row.size_bytes),
        f"{row.count}",
        row.type,
        row.op,
        row.algorithm,
        f"{row.seconds * 1e6:.1f} µs",
        f"{row.algorithm_bandwidth / 1e9:.4g} GB/s",
        f"{row.bus_bandwidth / 1e9:.4g} GB/s",
        f"{row.wrong}",
        regime_name(row.regime),
    ]


def fit_texts(report: BenchReport) -> dict[tuple[str, ...], str]:
    """Return α and the bandwidth of each pair, then of the inside of each host, by where they were measured."""
    found: dict[tuple[str, ...], str] = {link.between: _link_text(link) for link in report.links}
    for item in report.insides:
        told = _("inside {host}: α {latency} µs a hop of a ring")
        told = told.format(host=item.host, latency=f"{item.latency_s * 1e6:.3g}")
        found[item.host,] = told if item.bandwidth is None else f"{told}, {item.bandwidth / 1e9:.3g} GB/s"
    return found


def fastest_texts(report: BenchReport) -> dict[str, str]:
    """Return by which algorithms each collective of all ranks was fastest, up to which size, by its name."""
    seconds: dict[str, dict[int, dict[str, float]]] = {}
    for row in report.rows:
        if not row.where:
            seconds.setdefault(row.op, {}).setdefault(row.size_bytes, {})[row.algorithm] = row.seconds
    found = {}
    for op, of_sizes in seconds.items():
        parts = [_("{algorithm} up to {size}").format(algorithm=name, size=size) for name, size in _fastest(of_sizes)]
        if parts:
            found[op] = _("{collective}, fastest: {algorithms}").format(collective=op, algorithms=in_a_row(parts))
    return found


def _fastest(of_sizes: Mapping[int, Mapping[str, float]]) -> list[tuple[str, str]]:
    """Return algorithms and up to which size each is fastest, of what each takes; one alone is not compared."""
    found: list[tuple[str, str]] = []
    for size, taken in sorted(of_sizes.items()):
        if len(taken) > 1:
            fastest = min(taken, key=lambda name: taken[name])
            if found and taken.get(found[-1][0], math.inf) <= AS_GOOD * taken[fastest]:
                fastest, _until = found.pop()
            found.append((fastest, format_bytes(size)))
    return found


def _link_text(link: BenchLink) -> str:
    ends, latency = " ↔ ".join(link.between), f"{link.latency_s * 1e6:.0f}"
    if link.bandwidth is None:
        told = _("{ends}: α {latency} µs one way; no message was large enough to tell the bandwidth")
        told = told.format(ends=ends, latency=latency)
    else:
        told = _("{ends}: α {latency} µs one way, {bandwidth} Gbit/s")
        told = told.format(ends=ends, latency=latency, bandwidth=f"{link.bandwidth * 8 / 1e9:.3g}")
    if link.tcp_latency_s is not None:
        told += _(" (plain TCP: {latency} µs)").format(latency=f"{link.tcp_latency_s * 1e6:.0f}")
    return told


def progress_text(report: BenchReport) -> str:
    """Return how many of the rows are there, and which came last."""
    told = _("{done} of {total} rows").format(done=len(report.rows) + report.left_out, total=report.total)
    if report.newest is None:
        return told
    return f"{told} · {place_name(report.newest.where)} · {report.newest.op} · {format_bytes(report.newest.size_bytes)}"


def kept_text(measured_at: float, report: BenchReport, hosts: Collection[str], asked: Iterable[str]) -> str:
    """Return when something was measured, by what, over which interfaces, and between which hosts if not those asked.

    Args:
        measured_at: seconds since the epoch.
        report: of it.
        hosts: names of those that were measured.
        asked: of those that it is shown for.
    """
    told = _("measured {time}").format(time=time.strftime("%Y-%m-%d %H:%M", time.localtime(measured_at)))
    named = in_a_row(list(dict.fromkeys(filter(None, report.interfaces.values()))))
    of_these = set(hosts) == set(asked)
    parts = [
        told,
        "" if of_these else _("between {hosts} alone").format(hosts=listed(list(hosts), MOST_NAMES)),
        report.backend or "",
        _("over {interfaces}").format(interfaces=named) if named else "",
    ]
    return " · ".join(filter(None, parts))


def unfinished_text() -> str:
    """Return what is said where rows are missing."""
    return _("Not every size was measured: time or memory was short, or the job ended before.")
