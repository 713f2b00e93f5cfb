"""Links between nodes: measured ones, what a job declares, and what is taken otherwise."""

from __future__ import annotations

import math
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


MOST_CLUSTERS = 4
"""Of hosts or zones of the same names: each address that a host had is one, and none is ever said to be gone."""
LinkKind = Literal["zones", "hosts", "inside", "inside-by-gloo"]
"""What a link is between: two zones, two hosts, the GPUs of one host by NCCL, or the ranks of one by gloo."""
LinkKey = tuple[str, frozenset[str]]
"""Kind and the two ends."""


class MeasuredLink(BaseModel):
    """What was measured between two zones, or between two hosts; kept as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: LinkKind = "zones"
    between: tuple[Label, Label]
    """Their names; a zone twice for the inside of it, as well as a host."""
    addresses: tuple[str, str] | None = None
    """By which the two hosts are reached that this is of, which tells clusters apart; `None` where nobody kept them."""
    interfaces: tuple[str, str] | None = None
    """Of these hosts, which it went over; empty where one is not known."""
    bandwidth: float | None = Field(default=None, gt=0)
    """Bytes a second, one direction of one node, inside a host of one GPU; `None` where that was never measured."""
    round_trip_s: float = Field(gt=0)
    """There and back."""
    measured_at: float
    """Seconds since the epoch."""
    bandwidth_at: float | None = None
    """The same of the bandwidth, where that was measured before the round trip."""

    @property
    def key(self) -> LinkKey:
        """What it is between."""
        return self.kind, frozenset(self.between)

    def is_of(self, addresses: Mapping[str, str]) -> bool:
        """Whether it may be of the cluster whose hosts have these addresses, by name, and not of another one's."""
        if self.addresses is None:
            return True
        if self.kind == "zones":
            return not set(self.addresses).isdisjoint(addresses.values())
        return all(addresses.get(*end) == end[1] for end in zip(self.between, self.addresses, strict=True))

    def replaces(self, before: MeasuredLink) -> bool:
        """Whether it is a newer one of the same."""
        if self.key != before.key or self.addresses is None or before.addresses is None:
            return self.key == before.key
        if self.kind == "zones":
            return not set(self.addresses).isdisjoint(before.addresses)
        return set(self.addresses) == set(before.addresses)


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


Links = Mapping[LinkKey, MeasuredLink]
"""The newest of each pair, of one cluster."""


def newest(measured: Iterable[MeasuredLink]) -> Links:
    """Return the newest measurement of each pair; one of the round trip alone keeps the bandwidth of before."""
    found: dict[LinkKey, MeasuredLink] = {}
    for link in sorted(measured, key=lambda link: link.measured_at):
        found[link.key] = _in_place_of(found.get(link.key), link)
    return found


def newest_of_each_cluster(measured: Iterable[MeasuredLink]) -> list[MeasuredLink]:
    """Return the same, of hosts of other addresses and the same names besides: of the newest `MOST_CLUSTERS`."""
    groups: dict[LinkKey, list[MeasuredLink]] = {}
    for link in sorted(measured, key=lambda link: link.measured_at):
        group = groups.setdefault(link.key, [])
        before = next((item for item in group if link.replaces(item)), None)
        groups[link.key] = [*(item for item in group if not link.replaces(item)), _in_place_of(before, link)]
    return [link for group in groups.values() for link in group[-MOST_CLUSTERS:]]


def _in_place_of(before: MeasuredLink | None, link: MeasuredLink) -> MeasuredLink:
    if link.bandwidth is not None or before is None or before.bandwidth is None:
        return link
    kept = {"bandwidth": before.bandwidth, "bandwidth_at": before.bandwidth_at or before.measured_at}
    return link.model_copy(update=kept)


def slowest_inside(
    hosts: Sequence[str], links: Links, kind: Literal["inside", "inside-by-gloo"] = "inside"
) -> NodeLink | None:
    """Return the slowest inside of hosts; `None` where it was not measured inside of each of them.

    Args:
        hosts: their names.
        links: what was measured.
        kind: by NCCL, between GPUs, or by gloo, through the memory of the host.
    """
    found = [links.get((kind, frozenset((name,)))) for name in hosts]
    known = [_measured(link) for link in found if link is not None and link.bandwidth is not None]
    slowest = min(known, key=lambda link: (link.bandwidth, -link.latency_s), default=None)
    return slowest if len(known) == len(found) else None


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


def between_zones(hosts: Iterable[MeasuredLink], zones: Mapping[str, str | None]) -> list[MeasuredLink]:
    """Return the slowest between each two zones, and inside each, of what was measured between hosts of theirs.

    Args:
        hosts: measured at one time.
        zones: of each host.
    """
    worst: dict[tuple[str, str], MeasuredLink] = {}
    for link in hosts:
        here, there = (zones.get(name) for name in link.between)
        if here and there:
            pair = (min(here, there), max(here, there))
            before = worst.get(pair, link)
            slower = min(before, link, key=lambda item: (item.bandwidth or math.inf, -item.round_trip_s))
            speeds = [known for known in (before.bandwidth, link.bandwidth) if known is not None]
            worst[pair] = MeasuredLink(
                kind="zones",
                between=pair,
                addresses=slower.addresses,
                interfaces=slower.interfaces,
                bandwidth=min(speeds, default=None),
                round_trip_s=max(before.round_trip_s, link.round_trip_s),
                measured_at=link.measured_at,
            )
    return list(worst.values())


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
        return _("{measured}; the bandwidth by default").format(measured=age_text(link.latency_at, now))
    return _("taken by default") if link.measured_at is None else age_text(link.measured_at, now)


def age_text(measured_at: float | None, now: float | None) -> str:
    """Say how long ago something was measured, where that is known.

    Args:
        measured_at: seconds since the epoch.
        now: likewise.
    """
    if now is None or measured_at is None:
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
