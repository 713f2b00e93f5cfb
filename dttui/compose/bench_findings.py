"""What a bench says of a cluster: each link or host that is slow, what went wrong, and what to do about it.

Seed 003's three lists of trouble (time-outs, memory, speed) are its findings where a bench can tell them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from dttui.compose.bench_models import BenchReport, SlowPlace
from dttui.compose.bench_words import place_name
from dttui.i18n import _
from dttui.spec.findings import Finding, error, errors_first, info, warning
from dttui.spec.quantities import format_bytes

FAR_BELOW = 0.5
"""Of what the slowest link can do, below which an all-reduce of all ranks is named."""
FASTER = 1.25
"""By what an algorithm of dttui's operators is faster than the back-end's own all-reduce to be named."""
TIMED_OUT = ("collective-timeout", "rendezvous-timeout")
OUT_OF_MEMORY = ("cuda-oom", "host-oom", "memory-limit", "memory-refused", "shm-full")
"""Causes of a job's end."""


def bench_findings(report: BenchReport, cause: str | None = None) -> tuple[Finding, ...]:
    """Return what there is to say of a report, the errors first.

    Args:
        report: of the bench.
        cause: code of why its job failed; `None` where it did not, or nobody knows.
    """
    speeds = {link.between: link.bandwidth for link in report.links if link.bandwidth is not None}
    found = [
        *_wrong(report),
        *_failed(cause),
        *(_slow(place, report) for place in report.slow),
        *_lacking(report),
        *_together(report, min(speeds.values(), default=None)),
    ]
    return errors_first(found)


def _wrong(report: BenchReport) -> Iterator[Finding]:
    counts: dict[tuple[str, ...], int] = {}
    for row in report.rows:
        counts[row.where] = counts.get(row.where, 0) + row.wrong
    for where, count in counts.items():
        if count:
            told = _("{place}: {count} elements came wrong; plans do not count on it")
            hint = _("Memory, a card or a cable changes data there: train on none of these hosts before that is found.")
            yield error("elements-wrong", place_name(where), told.format(place=place_name(where), count=count), hint)


def _failed(cause: str | None) -> Iterator[Finding]:
    """Tell of a bench that has ended before its time what the seed says of time-outs and of memory."""
    if cause in TIMED_OUT:
        message = _("the bench ended as a rank did not come to a collective in time")
        hint = _(
            "Look at the network with `dttui doctor`; where steps are only slow, give a training more time "
            "(communication.collective_timeout), or smaller batches."
        )
        yield error(cause, "bench", message, hint)
    elif cause in OUT_OF_MEMORY:
        yield error(
            cause, "bench", _("the bench ended as a host or GPU had no memory for its messages"), _less_memory()
        )


def _slow(place: SlowPlace, report: BenchReport) -> Finding:
    where = " ↔ ".join(place.names)
    if place.what == "inside":
        told = _("{host}: an all-reduce inside it is {times} × slower than the median of other hosts of as many ranks")
        hint = _("Compare `nvidia-smi topo -m` with another host's; on CPUs, see what else computes there.")
        return warning("host-slow-inside", where, told.format(host=where, times=f"{place.times:.1f}"), hint)
    named = " ↔ ".join(_with_card(name, report) for name in place.names)
    if place.what == "latency":
        return _late(place, where, named)
    if len(place.names) == 1:
        told = _("{host}: its links are {times} × slower than the median of the others'")
        hint = _("Look at its card, cable and port (`{command}`), and at what else it sends; or leave it out.")
        hint = hint.format(command=shlex.join(filter(None, ("ethtool", report.interfaces.get(where)))))
        return warning("host-slow", where, told.format(host=named, times=f"{place.times:.1f}"), hint)
    speed = next((link.bandwidth for link in report.links if link.between == place.names), None)
    told = _("{ends}: {bandwidth} Gbit/s, {times} × slower than the median of the other links")
    told = told.format(ends=named, bandwidth=f"{(speed or 0.0) * 8 / 1e9:.3g}", times=f"{place.times:.1f}")
    hint = _("Look at what lies between these two (switch, route, rate limit); or train without one of them.")
    return warning("link-slow", where, told, hint)


def _with_card(host: str, report: BenchReport) -> str:
    """Return a host with the interface of its card over which it was measured, where that is known."""
    interface = report.interfaces.get(host)
    return f"{host} ({interface})" if interface else host


def _late(place: SlowPlace, where: str, named: str) -> Finding:
    hint = _("They may be farther apart, or a card or switch on the way waits, is loaded, or saves power.")
    if len(place.names) == 1:
        told = _("{host}: messages over its links take {times} × as long as over the others, however small")
        return warning("host-latency", where, told.format(host=named, times=f"{place.times:.1f}"), hint)
    told = _("{ends}: messages take {times} × as long as over the other links, however small")
    return warning("link-latency", where, told.format(ends=named, times=f"{place.times:.1f}"), hint)


def _lacking(report: BenchReport) -> Iterator[Finding]:
    for item in report.lacking:
        told = _("{host}: it had no memory for messages of {size}")
        told = told.format(host=item.host, size=format_bytes(item.size_bytes))
        yield warning("message-memory", item.host, told, _less_memory())


def _less_memory() -> str:
    return _("Train with smaller batches, gradient accumulation or mixed precision, or free memory on the host.")


def _together(report: BenchReport, link: float | None) -> Iterator[Finding]:
    """Tell where all ranks together are far from what the links can do, or an algorithm of the operators is faster."""
    rows = [row for row in report.rows if (row.where, row.op) == ((), "all_reduce")]
    native = max((row for row in rows if row.algorithm == "native"), key=lambda row: row.size_bytes, default=None)
    if native is None or native.regime == "latency":
        return
    share = native.bus_bandwidth / link if link is not None else 1.0
    if share < FAR_BELOW:
        told = _("an all-reduce of {size} by all ranks has {bandwidth} GB/s, {share} of what the slowest link can do")
        told = told.format(
            size=format_bytes(native.size_bytes), bandwidth=f"{native.bus_bandwidth / 1e9:.3g}", share=f"{share:.0%}"
        )
        hint = _("Hosts may lack cores for so many ranks, or pairs share a link; larger buckets help, fewer ranks may.")
        yield info("collective-slow", place_name(()), told, hint)
    of_size = [row for row in rows if row.size_bytes == native.size_bytes]
    fastest = min(of_size, key=lambda row: row.seconds)
    if native.seconds / fastest.seconds >= FASTER:
        told = _(
            "by {algorithm} of dttui_collectives an all-reduce of {size} takes {share} of the time of {backend}'s own"
        )
        told = told.format(
            algorithm=fastest.algorithm,
            share=f"{fastest.seconds / native.seconds:.0%}",
            backend=report.backend or _("the back-end"),
            size=format_bytes(native.size_bytes),
        )
        hint = _("Have a script import it.")
        if report.backend == "nccl" and fastest.algorithm in ("ring", "tree"):  # No other goes by it.
            hint = _("Have a script import it, or try communication.allreduce.algorithm.")
        yield info("operators-faster", place_name(()), told, hint)
