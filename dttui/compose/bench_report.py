"""What the ranks of a bench have printed, as a report: rows in the terms of nccl-tests, what links are, who is slow."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from dttui.compose.bench_models import (
    BenchInside,
    BenchLink,
    BenchReport,
    BenchRow,
    LackingMemory,
    SlowPlace,
)
from dttui.inventory.models import Environment, Reach
from dttui.jobs.directory import JobDirectory
from dttui.planning.cost.collectives import bus_bandwidth_factor
from dttui.planning.cost.link_fit import Slowness, fit, fit_ring, late_ones, regimes, slow_insides, slow_ones
from dttui.planning.cost.links import MeasuredLink, between_zones
from dttui.spec.text import Label

MARK = "DTTUI_BENCH "
"""Before each result that rank 0 prints."""
MOST_BYTES = 4 << 20
"""Of what rank 0 has printed; a bench of 128 hosts prints a tenth of it."""
ELEMENT_BYTES = 4

_Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]
_Size = Annotated[int, Field(gt=0, le=1 << 40)]
_Interface = Annotated[str, Field(pattern=r"^[\w.:@-]{0,64}$")]
_Rank = Annotated[int, Field(ge=0, le=1 << 20)]
_Count = Annotated[int, Field(ge=0)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _PairRecord(_Record):
    kind: Literal["pair"]
    between: tuple[_Rank, _Rank]
    size: _Size
    seconds: _Seconds
    wrong: _Count


class _TcpRecord(_Record):
    kind: Literal["tcp"]
    between: tuple[_Rank, _Rank]
    seconds: _Seconds


class _CollectiveRecord(_Record):
    kind: Literal["collective"]
    op: Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "gather", "scatter"]
    algorithm: Literal["native", "ring", "tree", "butterfly", "hierarchical", "linear"]
    ranks: Annotated[int, Field(ge=1, le=1 << 20)]
    host: _Rank | None
    size: _Size
    seconds: _Seconds
    wrong: _Count


class _BeginRecord(_Record):
    kind: Literal["begin"]
    backend: Label
    interfaces: tuple[_Interface, ...] = ()
    total: Annotated[int, Field(ge=0, le=1 << 20)] = 0


class _MemoryRecord(_Record):
    kind: Literal["memory"]
    host: _Rank
    size: _Size


class _LeftOutRecord(_Record):
    kind: Literal["left-out"]
    results: Annotated[int, Field(ge=0, le=1 << 20)]


class _EndRecord(_Record):
    kind: Literal["end"]
    whole: bool


_Result: TypeAlias = _PairRecord | _CollectiveRecord
_Told: TypeAlias = _Result | _TcpRecord | _BeginRecord | _MemoryRecord | _LeftOutRecord | _EndRecord
_Key: TypeAlias = tuple[tuple[str, ...], str, str, int]
"""Where, operation, algorithm and ranks."""
_Timing: TypeAlias = tuple[int, float, int]
"""Bytes, seconds and wrong elements."""
_RECORD: TypeAdapter[_Told] = TypeAdapter(Annotated[_Told, Field(discriminator="kind")])


def read_report(directory: JobDirectory) -> BenchReport:
    """Return what the ranks of a bench have found so far."""
    names = [node.name for node in directory.read_plan().nodes]
    return make_report(_printed(directory.logs(0, names[0]) / "0.out"), names)


def make_report(lines: Sequence[str], names: Sequence[str]) -> BenchReport:
    """Return what lines of rank 0 tell; what is no result of a bench between these hosts is passed over.

    Args:
        lines: that it has printed.
        names: of the hosts, by node rank.
    """
    records = list(_records(lines))
    begun = next((record for record in records if isinstance(record, _BeginRecord)), None)
    series, plain = _timings(records, names)
    links = tuple(_links(series, plain))
    insides = tuple(_insides(series))
    lacking = {record.host: record.size for record in reversed(records) if isinstance(record, _MemoryRecord)}
    return BenchReport(
        backend=begun.backend if begun is not None else None,
        interfaces=dict(zip(names, begun.interfaces, strict=False)) if begun is not None else {},
        rows=tuple(row for key, found in series.items() for row in _rows(key, found)),
        links=links,
        insides=insides,
        slow=tuple(_slow(links, insides)),
        lacking=tuple(
            LackingMemory(host=names[host], size_bytes=size) for host, size in lacking.items() if host < len(names)
        ),
        total=begun.total if begun is not None else 0,
        left_out=sum(record.results for record in records if isinstance(record, _LeftOutRecord)),
        is_whole=any(isinstance(record, _EndRecord) and record.whole for record in records),
    )


def _timings(
    records: Iterable[_Told], names: Sequence[str]
) -> tuple[dict[_Key, list[_Timing]], dict[tuple[str, ...], float]]:
    """Return what was timed of collectives, and seconds by plain TCP by where, of what is between these hosts."""
    series: dict[_Key, list[_Timing]] = {}
    plain: dict[tuple[str, ...], float] = {}
    for record in records:
        if not isinstance(record, _PairRecord | _CollectiveRecord | _TcpRecord):
            continue
        hosts = _hosts(record)
        if any(host >= len(names) for host in hosts) or len(set(hosts)) < len(hosts):
            continue
        where = tuple(names[host] for host in hosts)
        if isinstance(record, _TcpRecord):
            plain[where] = record.seconds
        else:
            series.setdefault(_key(where, record), []).append((record.size, record.seconds, record.wrong))
    return series, plain


def _slow(links: Iterable[BenchLink], insides: Iterable[BenchInside]) -> Iterator[SlowPlace]:
    """Yield what is slower than others of its kind: bandwidths first, which cost a training most."""
    bandwidths = {link.between: link.bandwidth for link in links if link.bandwidth is not None}
    yield from _named("bandwidth", slow_ones(bandwidths))
    yield from _named("latency", late_ones({link.between: link.latency_s for link in links}))
    of_ranks: dict[int, dict[str, float]] = {}
    for item in insides:
        if item.bandwidth is not None:
            of_ranks.setdefault(item.ranks, {})[item.host] = item.bandwidth
    for of_hosts in of_ranks.values():
        yield from _named("inside", slow_insides(of_hosts))


def _named(what: Literal["bandwidth", "latency", "inside"], found: Iterable[Slowness]) -> Iterator[SlowPlace]:
    for item in found:
        yield SlowPlace(what=what, names=item.names, times=item.times)


def measured_by(report: BenchReport, environments: Sequence[Environment], now: float) -> list[MeasuredLink]:
    """Return what plans may count on: between hosts, between zones, and inside hosts.

    Inside this machine there is no link. By what gloo does inside a host, which says nothing of its GPUs, the operators
    choose their algorithms.

    Args:
        report: of the bench.
        environments: that were measured.
        now: seconds since the epoch.
    """
    known = {item.name: item for item in environments}
    here = {name for name, item in known.items() if item.reach is Reach.LOCAL}
    found = [
        _kept("hosts", link.between, link.bandwidth, link.latency_s, known, report, now)
        for link in report.links
        if known.keys() >= {*link.between} and not here.issuperset(link.between)
    ]
    kind: Literal["inside", "inside-by-gloo"] = "inside" if report.backend == "nccl" else "inside-by-gloo"
    insides = [
        _kept(kind, (item.host, item.host), item.bandwidth, item.latency_s, known, report, now)
        for item in report.insides
        if report.backend in ("nccl", "gloo") and item.host in known
    ]
    return [*found, *between_zones(found, {name: item.zone for name, item in known.items()}), *insides]


def _kept(
    kind: Literal["hosts", "inside", "inside-by-gloo"],
    between: tuple[str, str],
    bandwidth: float | None,
    latency_s: float,
    known: Mapping[str, Environment],
    report: BenchReport,
    now: float,
) -> MeasuredLink:
    here, there = between
    return MeasuredLink(
        kind=kind,
        between=between,
        addresses=(known[here].training_address, known[there].training_address),
        interfaces=(report.interfaces.get(here, ""), report.interfaces.get(there, "")),
        bandwidth=bandwidth,
        round_trip_s=2 * latency_s,
        measured_at=now,
    )


def _printed(path: Path) -> list[str]:
    with contextlib.suppress(OSError), path.open("rb") as stream:
        return stream.read(MOST_BYTES).decode(errors="replace").splitlines()
    return []


def _records(lines: Sequence[str]) -> Iterator[_Told]:
    for line in lines:
        if line.startswith(MARK):
            with contextlib.suppress(ValidationError, ValueError, RecursionError):
                yield _RECORD.validate_python(json.loads(line.removeprefix(MARK)))


def _hosts(record: _PairRecord | _TcpRecord | _CollectiveRecord) -> tuple[int, ...]:
    if isinstance(record, _CollectiveRecord):
        return () if record.host is None else (record.host,)
    return record.between


def _key(where: tuple[str, ...], record: _Result) -> _Key:
    if isinstance(record, _PairRecord):
        return where, "sendrecv", "ping-pong", 2
    return where, record.op, record.algorithm, record.ranks


def _insides(series: Mapping[_Key, Sequence[_Timing]]) -> Iterator[BenchInside]:
    for (where, op, algorithm, ranks), found in series.items():
        if len(where) != 1 or (op, algorithm) != ("all_reduce", "native") or any(wrong for _, _, wrong in found):
            continue
        told = fit_ring([(size, seconds) for size, seconds, _wrong in found], ranks)
        if told is not None:
            yield BenchInside(host=where[0], ranks=ranks, latency_s=told.latency_s, bandwidth=told.bandwidth)


def _links(series: Mapping[_Key, Sequence[_Timing]], plain: Mapping[tuple[str, ...], float]) -> Iterator[BenchLink]:
    for (where, _op, algorithm, _ranks), found in series.items():
        if algorithm != "ping-pong":
            continue
        here, there = where
        told = fit([(size, seconds) for size, seconds, _wrong in found])
        if told is not None and not any(wrong for _size, _seconds, wrong in found):
            yield BenchLink(
                between=(here, there),
                latency_s=told.latency_s,
                tcp_latency_s=plain.get((here, there)),
                bandwidth=told.bandwidth,
            )


def _rows(key: _Key, found: Sequence[_Timing]) -> Iterator[BenchRow]:
    where, op, algorithm, ranks = key
    of_sizes = regimes([(size, seconds) for size, seconds, _wrong in found])
    for (size, seconds, wrong), regime in zip(found, of_sizes, strict=True):
        yield BenchRow(
            where=where,
            op=op,
            algorithm=algorithm,
            size_bytes=size,
            count=size // ELEMENT_BYTES,
            seconds=seconds,
            algorithm_bandwidth=size / seconds,
            bus_bandwidth=size / seconds * bus_bandwidth_factor(op, ranks),
            wrong=wrong,
            regime=regime,
        )
