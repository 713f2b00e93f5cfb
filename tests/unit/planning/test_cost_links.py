"""Links between nodes: which measurement counts, and what is said of it."""

from __future__ import annotations

import pytest

from dttui.planning.cost.links import (
    CROSS_ZONE_BANDWIDTH,
    MeasuredLink,
    NodeLink,
    describe_link,
    newest,
    slowest_link,
)

HOURS = 3600.0


def measured(first: str, second: str, bandwidth: float, *, at: float = 1.0, hosts: bool = False) -> MeasuredLink:
    return MeasuredLink(
        kind="hosts" if hosts else "zones",
        between=(first, second),
        bandwidth=bandwidth,
        round_trip_s=0.03,
        measured_at=at,
    )


def test_nodes_of_one_zone_are_joined_by_nothing_that_is_assumed() -> None:
    assert slowest_link([("a", "z"), ("b", "z"), ("c", None)], {}) is None


def test_two_zones_are_joined_by_the_default_until_they_are_measured() -> None:
    nodes = [("a", "y"), ("b", "z")]
    usual = slowest_link(nodes, {})
    assert usual is not None
    assert (usual.source, usual.bandwidth) == ("default", CROSS_ZONE_BANDWIDTH)
    known = slowest_link(nodes, newest([measured("z", "y", 1e8, at=2.0), measured("y", "z", 1e9)]))
    assert known is not None
    assert (known.source, known.bandwidth, known.latency_s) == ("measured", 1e8, 0.015)


def test_hosts_that_were_measured_stand_for_their_zones() -> None:
    links = newest([measured("a", "b", 5e9, hosts=True), measured("a", "elsewhere", 1.0, hosts=True)])
    found = slowest_link([("a", "y"), ("b", "z")], links)
    assert found is not None
    assert (found.between, found.bandwidth) == (("a", "b"), 5e9)
    # The other pair of zones has only the default.
    found = slowest_link([("a", "y"), ("b", "z"), ("c", "x")], links)
    assert found is not None
    assert found.source == "default"


def test_the_inside_of_a_zone_counts_where_two_nodes_are_in_it() -> None:
    links = newest([measured("z", "z", 2e9)])
    assert slowest_link([("a", "z")], links) is None
    found = slowest_link([("a", "z"), ("b", "z")], links)
    assert found is not None
    assert found.bandwidth == 2e9


@pytest.mark.parametrize(
    ("age_s", "told"),
    [
        (20 * 60, "measured 20 min ago"),
        (2 * HOURS, "measured 2 h ago"),
        (72 * HOURS, "measured 3 days ago"),
        (-5, "measured just now"),
        (29, "measured just now"),
        (61, "measured 1 min ago"),
    ],
)
def test_it_is_said_how_long_ago_a_link_was_measured(age_s: float, told: str) -> None:
    link = NodeLink(between=("beijing-a", "shenzhen-c"), bandwidth=112.5e6, latency_s=0.0155, measured_at=0.0)
    text = describe_link(link, age_s)
    assert text == f"beijing-a ↔ shenzhen-c: 31 ms there and back, 0.9 Gbit/s a node, {told}"


def test_without_a_clock_it_is_only_said_that_a_link_was_measured() -> None:
    link = NodeLink(between=("a", "b"), bandwidth=1e9, latency_s=0.01, measured_at=0.0)
    assert describe_link(link, None).endswith(", measured")


def test_a_newer_round_trip_alone_keeps_the_bandwidth_of_before_and_its_age() -> None:
    trip = MeasuredLink(kind="zones", between=("z", "y"), round_trip_s=0.01, measured_at=5 * HOURS)
    found = slowest_link([("a", "y"), ("b", "z")], newest([trip, measured("y", "z", 1e8, at=HOURS)]))
    assert found is not None
    assert (found.bandwidth, found.latency_s, found.measured_at) == (1e8, 0.005, HOURS)
    again = trip.model_copy(update={"measured_at": 6 * HOURS, "round_trip_s": 0.02})
    kept = newest([*newest([trip, measured("y", "z", 1e8, at=HOURS)]).values(), again])
    (link,) = kept.values()
    assert (link.bandwidth, link.bandwidth_at, link.round_trip_s) == (1e8, HOURS, 0.02)


def test_a_round_trip_alone_is_the_latency_between_zones_and_says_nothing_of_the_bandwidth() -> None:
    trip = MeasuredLink(kind="zones", between=("z", "y"), round_trip_s=0.04, measured_at=0.0)
    hosts = MeasuredLink(kind="hosts", between=("a", "b"), round_trip_s=0.04, measured_at=0.0)
    inside = MeasuredLink(kind="zones", between=("z", "z"), round_trip_s=0.001, measured_at=0.0)
    links = newest([trip, hosts, inside])
    found = slowest_link([("a", "y"), ("b", "z")], links)
    assert found is not None
    assert (found.bandwidth, found.latency_s, found.source) == (CROSS_ZONE_BANDWIDTH, 0.02, "default")
    assert describe_link(found, 2 * HOURS).endswith(
        "40 ms there and back, 10 Gbit/s a node, measured 2 h ago; the bandwidth by default"
    )
    assert slowest_link([("b", "z"), ("c", "z")], links) is None
