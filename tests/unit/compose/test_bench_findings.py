"""What a bench says of a cluster: each thing that is slow by name and number, and seed 003's lists of trouble."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dttui.compose.bench_findings import bench_findings
from dttui.compose.bench_report import MARK, make_report
from dttui.spec.findings import Finding, Severity
from tests.unit.compose.test_link_bench import collective, line, pair

NAMES = ("a", "b", "c", "d")


def told(*lines: str, cause: str | None = None) -> dict[str, Finding]:
    findings = bench_findings(make_report(lines, NAMES), cause)
    assert len({finding.code for finding in findings}) == len(findings)
    return {finding.code: finding for finding in findings}


def inside(host: int, bandwidth: float, ranks: int = 4) -> list[str]:
    return [
        collective(algorithm="native", host=host, ranks=ranks, size=size, seconds=1e-4 + size / bandwidth)
        for size in (8, 1 << 16, 1 << 20, 1 << 24)
    ]


def late(here: int, there: int, seconds: float) -> list[str]:
    return [
        line(kind="pair", between=[here, there], size=size, seconds=seconds + size / 1e9, wrong=0)
        for size in (8, 1 << 20, 1 << 24)
    ]


def test_one_slow_link_among_fast_ones_is_named_with_its_speed_and_how_much_slower_it_is() -> None:
    found = told(*pair(0, 1, 1e9), *pair(0, 2, 1e9), *pair(1, 2, 1e7))
    assert list(found) == ["link-slow"]
    assert found["link-slow"].subject == "b ↔ c"
    assert found["link-slow"].message == "b ↔ c: 0.08 Gbit/s, 100.0 × slower than the median of the other links"
    assert found["link-slow"].severity is Severity.WARNING


def test_a_host_whose_links_all_are_slow_is_named_once() -> None:
    found = told(*pair(0, 1, 1e9), *pair(0, 2, 1e8), *pair(1, 2, 1e8))
    assert list(found) == ["host-slow"]
    assert found["host-slow"].message == "c: its links are 10.0 × slower than the median of the others'"


def test_the_card_over_which_it_was_measured_is_named() -> None:
    begin = line(kind="begin", backend="gloo", total=6, interfaces=["eth0", "eth0", "ib0", "eth0"])
    host = told(begin, *pair(0, 1, 1e9), *pair(0, 2, 1e8), *pair(1, 2, 1e8))["host-slow"]
    assert (host.subject, host.message.partition(":")[0]) == ("c", "c (ib0)")
    assert "`ethtool ib0`" in host.hint
    link = told(begin, *pair(0, 1, 1e9), *pair(0, 2, 1e9), *pair(1, 2, 1e7))["link-slow"]
    assert (link.subject, link.message.partition(":")[0]) == ("b ↔ c", "b (eth0) ↔ c (ib0)")
    assert "`ethtool`" in told(*pair(0, 1, 1e9), *pair(0, 2, 1e8), *pair(1, 2, 1e8))["host-slow"].hint


def test_a_link_that_is_as_wide_as_others_and_takes_longer_is_named_by_its_latency() -> None:
    found = told(*late(0, 1, 2e-5), *late(0, 2, 2e-5), *late(1, 2, 1e-3))
    assert list(found) == ["link-latency"]
    assert found["link-latency"].message == "b ↔ c: messages take 50.0 × as long as over the other links, however small"


@pytest.mark.parametrize("seconds", [4e-5, 5.9e-5])
def test_latencies_that_differ_as_they_do_from_one_moment_to_the_next_are_not_named(seconds: float) -> None:
    assert told(*late(0, 1, 2e-5), *late(0, 2, 2e-5), *late(1, 2, seconds)) == {}


def test_a_host_that_is_slow_inside_is_named_among_those_of_as_many_ranks() -> None:
    found = told(*inside(0, 1e10), *inside(1, 1e10), *inside(2, 2e9), *inside(3, 1e8, ranks=8))
    assert list(found) == ["host-slow-inside"]
    assert found["host-slow-inside"].subject == "c"
    assert "5.0 × slower than the median of other hosts of as many ranks" in found["host-slow-inside"].message


def test_elements_that_came_wrong_are_an_error() -> None:
    found = told(*pair(0, 1, 1e9, wrong=2))
    assert found["elements-wrong"].severity is Severity.ERROR
    assert found["elements-wrong"].message.startswith("a ↔ b: 6 elements came wrong")


@pytest.mark.parametrize(
    ("cause", "remedies"),
    [
        ("collective-timeout", ("network", "collective_timeout", "smaller batches")),
        ("cuda-oom", ("smaller batches", "gradient accumulation", "mixed precision")),
    ],
)
def test_what_the_seed_says_of_time_outs_and_memory_is_told_of_a_bench_that_ended_so(
    cause: str, remedies: tuple[str, ...]
) -> None:
    (finding,) = told(cause=cause).values()
    assert finding.code == cause
    assert all(remedy in finding.hint for remedy in remedies)
    assert told(cause="exception") == {}


def test_a_host_without_memory_for_a_size_is_named() -> None:
    found = told(line(kind="memory", host=2, size=1 << 20), line(kind="memory", host=9, size=8))
    assert found["message-memory"].message == "c: it had no memory for messages of 1MiB"


def test_all_ranks_far_below_the_slowest_link_and_a_faster_algorithm_are_told() -> None:
    usual: dict[str, Any] = {"ranks": 4, "size": 1 << 20}
    slow = [collective(algorithm="native", size=8, seconds=1e-4), collective(algorithm="native", seconds=0.1, **usual)]
    found = told(*pair(0, 1, 1e9), *slow, collective(seconds=0.05, **usual), line(kind="begin", backend="gloo"))
    assert found["collective-slow"].message == (
        "an all-reduce of 1MiB by all ranks has 0.0157 GB/s, 2% of what the slowest link can do"
    )
    assert found["operators-faster"].message == (
        "by ring of dttui_collectives an all-reduce of 1MiB takes 50% of the time of gloo's own"
    )
    assert {finding.severity for finding in found.values()} == {Severity.INFO}
    assert "communication." not in found["operators-faster"].hint
    nccl = [*pair(0, 1, 1e9), *slow, collective(seconds=0.05, **usual), line(kind="begin", backend="nccl")]
    assert "communication.allreduce.algorithm" in told(*nccl)["operators-faster"].hint
    faster = told(*nccl, collective(algorithm="hierarchical", seconds=0.02, **usual))["operators-faster"]
    assert faster.message.startswith("by hierarchical of dttui_collectives an all-reduce of 1MiB takes 20% of the time")
    assert "communication." not in faster.hint, "NCCL has none of this name"


def test_how_much_is_done_counts_what_was_left_out() -> None:
    begin = line(kind="begin", backend="gloo", ranks=2, interfaces=["eth0", "eth1"], total=8)
    report = make_report([begin, *pair(0, 1, 1e9), line(kind="left-out", results=1)], NAMES)
    assert (report.share, report.backend) == (0.5, "gloo")
    assert report.interfaces == {"a": "eth0", "b": "eth1"}
    spoof = MARK + json.dumps({"kind": "begin", "backend": "gloo", "interfaces": ["\x1b[2J"], "total": 1})
    assert make_report([spoof], NAMES).share == 0.0
