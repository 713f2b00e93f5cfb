"""Links between nodes: measured ones, what a job declares, and what is taken otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from dttui.i18n import _
from dttui.planning.cost.assumptions import Source
from dttui.spec.text import Label

CROSS_ZONE_BANDWIDTH = 1.25e9
"""Bytes a second a node, 10 Gbit/s, until the link is measured."""
CROSS_ZONE_LATENCY_S = 8e-3
"""One way: half of 16 ms, the middle of the 5 to 50 ms that seed 004 gives for the round trip between zones."""


class MeasuredLink(BaseModel):
    """What was measured between two zones, or between two hosts; kept as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["zones", "hosts"] = "zones"
    """What it is between."""
    between: tuple[Label, Label]
    """Their names; a zone twice for the inside of it."""
    bandwidth: float | None = Field(default=None, gt=0)
    """Bytes a second, one direction of one node; `None` where only the round trip was ever measured."""
    round_trip_s: float = Field(gt=0)
    """There and back."""
    measured_at: float
    """Seconds since the epoch."""
    bandwidth_at: float | None = None
    """The same of the bandwidth, where that was measured before the round trip."""


class NodeLink(BaseModel):
    """The slowest link between the nodes of a job, as an estimate uses it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    between: tuple[str, str]
    """Zones, or hosts."""
    bandwidth: float
    """Bytes a second, one direction of one node."""
    latency_s: float
    """One way."""
    measured_at: float | None = None
    """Seconds since the epoch; `None` where the bandwidth is taken by default."""
    latency_at: float | None = None
    """The same of the latency, where that alone was measured."""

    @property
    def source(self) -> Source:
        """Measured, or taken by default."""
        return "default" if self.measured_at is None else "measured"


LinkKey = tuple[str, frozenset[str]]
Links = Mapping[LinkKey, MeasuredLink]
"""By kind and the two ends; the newest of each pair."""


def newest(measured: Iterable[MeasuredLink]) -> Links:
    """Return the newest measurement of each pair; one of the round trip alone keeps the bandwidth of before."""
    found: dict[LinkKey, MeasuredLink] = {}
    for link in sorted(measured, key=lambda link: link.measured_at):
        key = link.kind, frozenset(link.between)
        before = found.get(key)
        if link.bandwidth is None and before is not None and before.bandwidth is not None:
            kept = {"bandwidth": before.bandwidth, "bandwidth_at": before.bandwidth_at or before.measured_at}
            link = link.model_copy(update=kept)
        found[key] = link
    return found


def slowest_link(nodes: Sequence[tuple[str, str | None]], links: Links) -> NodeLink | None:
    """Return the slowest link that is known of between these nodes, or assumed between their zones.

    Two zones are taken to be joined as was measured between them, else between hosts of theirs, else by default. Of two
    nodes in one zone nothing is assumed. Where only the round trip was measured, the bandwidth is the default.

    Args:
        nodes: name of each host, and its zone where it has one.
        links: what was measured.

    Returns:
        `None` where nothing is known and all are in one zone.
    """
    zone_of = dict(nodes)
    hosts = [
        link
        for (kind, ends), link in links.items()
        if kind == "hosts" and ends <= zone_of.keys() and link.bandwidth is not None
    ]
    reached = {frozenset(zone_of[name] for name in link.between) for link in hosts}
    found = [_measured(link) for link in hosts]
    zones = [zone for _name, zone in nodes if zone]
    found += [
        _measured(inside)
        for zone, count in Counter(zones).items()
        if count > 1 and (inside := links.get(("zones", frozenset((zone,))))) and inside.bandwidth is not None
    ]
    for pair in combinations(dict.fromkeys(zones), 2):
        across = links.get(("zones", frozenset(pair)))
        if across is not None and (across.bandwidth is not None or frozenset(pair) not in reached):
            found.append(_measured(across))
        elif frozenset(pair) not in reached:
            found.append(NodeLink(between=pair, bandwidth=CROSS_ZONE_BANDWIDTH, latency_s=CROSS_ZONE_LATENCY_S))
    return min(found, key=lambda link: (link.bandwidth, -link.latency_s), default=None)


def describe_link(link: NodeLink, now: float | None) -> str:
    """Say what joins two zones or hosts, and since when that is known.

    Args:
        link: what is known.
        now: seconds since the epoch; `None` where it is not known how long ago something was.
    """
    text = _("{ends}: {round_trip} ms there and back, {bandwidth} Gbit/s a node, {source}")
    return text.format(
        ends=" ↔ ".join(link.between),
        round_trip=f"{2 * link.latency_s * 1e3:.3g}",
        bandwidth=f"{link.bandwidth * 8 / 1e9:.3g}",
        source=_told_source(link, now),
    )


def _told_source(link: NodeLink, now: float | None) -> str:
    if link.measured_at is None and link.latency_at is not None:
        return _("{measured}; the bandwidth by default").format(measured=_age(link.latency_at, now))
    return _("taken by default") if link.measured_at is None else _age(link.measured_at, now)


def _age(measured_at: float, now: float | None) -> str:
    if now is None:
        return _("measured")
    minutes = max(now - measured_at, 0.0) / 60
    if minutes < 1:
        return _("measured just now")
    if minutes < 90:
        return _("measured {count} min ago").format(count=round(minutes))
    if minutes < 48 * 60:
        return _("measured {count} h ago").format(count=round(minutes / 60))
    return _("measured {count} days ago").format(count=round(minutes / 60 / 24))


def _measured(link: MeasuredLink) -> NodeLink:
    latency_s = link.round_trip_s / 2
    if link.bandwidth is None:
        return NodeLink(
            between=link.between, bandwidth=CROSS_ZONE_BANDWIDTH, latency_s=latency_s, latency_at=link.measured_at
        )
    measured_at = link.bandwidth_at or link.measured_at
    return NodeLink(between=link.between, bandwidth=link.bandwidth, latency_s=latency_s, measured_at=measured_at)
