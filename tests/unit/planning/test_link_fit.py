"""What timings say of links."""

from __future__ import annotations

import pytest

from dttui.planning.cost.link_fit import Slowness, fit, regimes, slow_ones

SIZES = [8 * 4**power for power in range(11)]


def test_latency_and_bandwidth_are_found_again_in_spite_of_an_outlier() -> None:
    timings = [(size, 50e-6 + size / 1.25e9) for size in SIZES]
    timings[1] = (timings[1][0], 5e-3)
    found = fit(timings)
    assert found is not None
    assert found.latency_s == pytest.approx(50e-6, rel=0.01)
    assert found.bandwidth == pytest.approx(1.25e9, rel=0.01)


@pytest.mark.parametrize(
    "timings",
    [
        [(8, 1e-5)],
        [(8, 1e-3), (4096, 1e-4)],
        [(size, 50e-6 + size / 1.25e9) for size in SIZES if size <= 1 << 15],
    ],
)
def test_too_little_tells_no_bandwidth(timings: list[tuple[int, float]]) -> None:
    found = fit(timings)
    assert found is not None
    assert found.bandwidth is None
    assert fit([]) is None


def test_sizes_are_bound_by_latency_then_rise_then_are_near_the_link() -> None:
    timings = [(8, 1e-4), (1000, 1.5e-4), (100_000, 3e-4), (10_000_000, 1e-2), (20_000_000, 2e-2)]
    assert regimes(timings) == ["latency", "latency", "rising", "link", "link"]
    assert regimes([]) == []


def test_a_link_whose_limit_lets_small_messages_through_at_once_still_has_a_bandwidth() -> None:
    """10 Mbit/s after the first 32 KiB, as a token bucket has it."""
    timings = [(8, 1e-4), (1 << 15, 1.9e-4), *((size, 1e-4 + (size - 30e3) / 1.25e6) for size in (1 << 17, 1 << 20))]
    assert regimes(timings)[1:3] == ["latency", "link"]
    found = fit(timings)
    assert found is not None
    assert found.bandwidth == pytest.approx(1.25e6, rel=0.05)


def test_a_slow_host_is_named_once_and_a_slow_link_by_itself() -> None:
    assert slow_ones({("a", "b"): 10.0, ("a", "c"): 1.0, ("b", "c"): 1.0}) == [Slowness(("c",), 10.0)]
    assert slow_ones({("a", "b"): 2.0, ("a", "c"): 10.0, ("b", "c"): 10.0}) == [Slowness(("a", "b"), 5.0)]
    assert slow_ones({("a", "b"): 9.0, ("a", "c"): 10.0, ("b", "c"): 10.0}) == []
    assert slow_ones({("a", "b"): 1.0}) == []
    # What slows both links of one host is not what makes one of them a thousand times slower.
    unlike = slow_ones({("a", "b"): 10.0, ("a", "c"): 0.01, ("b", "c"): 50.0})
    assert [item.names for item in unlike] == [("a", "c"), ("a", "b")]
