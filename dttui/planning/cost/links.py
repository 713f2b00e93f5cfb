"""Links between nodes: measured ones, what a job declares, and what is taken otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

from pydantic import BaseModel, ConfigDict, Field

from dttui.planning.cost.assumptions import Source
from dttui.spec.text import Label

CROSS_ZONE_BANDWIDTH = 1.25e9
"""Bytes a second a node, 10 Gbit/s, until the link is measured."""
CROSS_ZONE_LATENCY_S = 8e-3
"""One way: half of 16 ms, the middle of the 5 to 50 ms that seed 004 gives for the round trip between zones."""


class MeasuredLink(BaseModel):
    """What was measured between two zones, or two nodes of one zone; kept as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    zones: tuple[Label, Label]
    """Between which; the same twice for inside a zone."""
    bandwidth: float = Field(gt=0)
    """Bytes a second, one direction of one node."""
    round_trip_s: float = Field(gt=0)
    """There and back."""
    measured_at: float
    """Seconds since the epoch."""


class ZoneLink(BaseModel):
    """The link between two zones as an estimate uses it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    zones: tuple[str, str]
    """Between which."""
    bandwidth: float
    """Bytes a second, one direction of one node."""
    latency_s: float
    """One way."""
    source: Source
    """Measured, or taken by default."""


Links = Mapping[frozenset[str], MeasuredLink]
"""By the zones they join; the newest of each pair."""


def newest(measured: Iterable[MeasuredLink]) -> Links:
    """Return the newest measurement of each pair of zones."""
    return {frozenset(link.zones): link for link in sorted(measured, key=lambda link: link.measured_at)}


def worst_link(zones: Iterable[str], links: Links) -> ZoneLink | None:
    """Return the slowest link that a job across these zones has; `None` for one zone."""
    pairs = [_between(first, second, links) for first, second in combinations(dict.fromkeys(zones), 2)]
    return min(pairs, key=lambda link: (link.bandwidth, -link.latency_s), default=None)


def _between(first: str, second: str, links: Links) -> ZoneLink:
    found = links.get(frozenset((first, second)))
    if found is None:
        return ZoneLink(
            zones=(first, second), bandwidth=CROSS_ZONE_BANDWIDTH, latency_s=CROSS_ZONE_LATENCY_S, source="default"
        )
    return ZoneLink(
        zones=(first, second), bandwidth=found.bandwidth, latency_s=found.round_trip_s / 2, source="measured"
    )
