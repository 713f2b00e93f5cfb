"""The job of `dttui bench`, and what is made of what its ranks print, of hosts that may print anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.events import EventKind

from dttui.app import App
from dttui.compose.bench_report import MARK, make_report, measured_by
from dttui.compose.bench_results import finish_bench
from dttui.compose.bench_words import fastest_texts
from dttui.compose.link_bench import bench_submission
from dttui.errors import UsageError
from dttui.inventory.models import Environment, Inventory
from dttui.jobs.directory import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.view import JobView
from dttui.launch import submit as launch
from dttui.planning.cost.links import MeasuredLink, newest

NAMES = ("a", "b", "c")
HOSTS = [
    Environment.model_validate({"name": name, "host": name, "zone": zone, "resources": {"gpu": gpu}})
    for name, zone, gpu in (
        ("a", "x", {"count": 4}),
        ("b", "x", {"count": 8, "simulated": True}),
        ("c", "y", {"count": 1}),
    )
]


def test_a_host_is_measured_by_one_bench_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "start_controller", lambda *_arguments, **_options: None)
    inventory = Inventory(environments=tuple(HOSTS))
    face = App()

    def begin(*hosts: Environment, starts_another: bool = True) -> JobDirectory:
        wanted = bench_submission(inventory, hosts, None, 4096)
        return face.submit(wanted, face.plan(wanted), starts_another=starts_another).directory

    running = begin(*HOSTS[:2])
    with pytest.raises(UsageError, match=f"{running.job_id} measures b right now") as refused:
        begin(*HOSTS[1:])
    assert f"dttui stop {running.job_id}" in refused.value.hint
    assert begin(*HOSTS[:2], starts_another=False).path == running.path  # Who asks for the same follows it.
    EventLog(running.events).add(EventKind.OUTCOME, "", data={"state": "SUCCEEDED", "exit_code": 0})
    assert begin(*HOSTS[1:]).path != running.path


def test_a_bench_whose_directory_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(UsageError, match=f"{tmp_path} cannot be read"):
        finish_bench(JobDirectory(tmp_path), JobView("bench-1"), 1.0)


def line(**record: Any) -> str:
    return MARK + json.dumps(record)


def pair(
    here: int, there: int, bandwidth: float, sizes: Sequence[int] = (8, 1 << 16, 1 << 20), wrong: int = 0
) -> list[str]:
    return [
        line(kind="pair", between=[here, there], size=size, seconds=1e-4 + size / bandwidth, wrong=wrong)
        for size in sizes
    ]


def collective(**changed: Any) -> str:
    usual = {
        "op": "all_reduce",
        "algorithm": "ring",
        "ranks": 4,
        "host": None,
        "size": 4096,
        "seconds": 2e-3,
        "wrong": 0,
    }
    return line(kind="collective", **{**usual, **changed})


def test_a_report_has_links_rows_and_the_slow_host() -> None:
    lines = [*pair(0, 1, 1e9), *pair(0, 2, 1e8), *pair(1, 2, 1e8), collective(), line(kind="end", whole=True)]
    report = make_report([line(kind="tcp", between=[0, 1], seconds=2e-5), *lines], NAMES)
    assert [link.tcp_latency_s for link in report.links] == [2e-5, None, None]
    assert [link.bandwidth for link in report.links] == pytest.approx([1e9, 1e8, 1e8], rel=1e-3)
    assert [(place.names, round(place.times)) for place in report.slow] == [(("c",), 10)]
    row = report.rows[-1]
    assert (row.where, row.count, row.bus_bandwidth / row.algorithm_bandwidth) == ((), 1024, 1.5)
    assert report.is_whole
    kept = {(link.kind, frozenset(link.between)): link for link in measured_by(report, HOSTS, 5.0)}
    assert kept["hosts", frozenset("ab")].round_trip_s == pytest.approx(2e-4, rel=0.1)
    assert kept["zones", frozenset("xy")].bandwidth == pytest.approx(1e8, rel=1e-3)


def test_sizes_that_do_not_fill_a_link_say_its_latency_alone_and_what_was_known_of_its_bandwidth_stays() -> None:
    """8 B to 4 KiB over 10 Gbit/s: 4 KiB take 3% more than 8 B."""
    report = make_report(pair(0, 1, 1.25e9, sizes=(8, 32, 128, 512, 2048, 4096)), NAMES)
    (link,) = report.links
    assert link.latency_s == pytest.approx(1e-4, rel=0.01)
    assert link.bandwidth is None
    before = MeasuredLink(kind="hosts", between=("a", "b"), bandwidth=1.2e9, round_trip_s=1e-3, measured_at=1.0)
    kept = newest([before, *measured_by(report, HOSTS, 5.0)])["hosts", frozenset("ab")]
    assert (kept.bandwidth, kept.bandwidth_at, kept.measured_at) == (1.2e9, 1.0, 5.0)


@pytest.mark.parametrize("wrong", [3, 1 << 24])  # The second: all of a message of 64 MiB.
def test_nothing_is_kept_of_a_link_over_which_elements_came_wrong(wrong: int) -> None:
    lines = [*pair(0, 1, 1e9), *pair(0, 2, 1e9, sizes=(8, 1 << 20)), *pair(0, 2, 1e9, sizes=(64 << 20,), wrong=wrong)]
    report = make_report(lines, NAMES)
    assert [link.between for link in measured_by(report, HOSTS, 5.0)] == [("a", "b"), ("x", "x")]
    assert [row.wrong for row in report.rows if row.where == ("a", "c")] == [0, 0, wrong]


def test_the_inside_of_a_host_is_kept_by_what_measured_it_and_links_know_their_hosts_and_interfaces() -> None:
    """Four ranks: a ring has six hops, and 1.5 times the data of the tensor on each link."""
    rows = [
        collective(algorithm="native", host=1, size=size, seconds=6 * (2e-6 + size / 4 / 1e11))
        for size in (8, 1 << 20, 1 << 26)
    ]
    begin = {"kind": "begin", "interfaces": ["eth0", "eth1", "eth0"], "total": 6}
    report = make_report([line(backend="nccl", **begin), *pair(0, 1, 1e9), *rows], NAMES)
    (inside,) = report.insides
    assert inside.host == "b"
    assert inside.latency_s == pytest.approx(2e-6, rel=1e-3)
    assert inside.bandwidth == pytest.approx(1e11, rel=1e-3)
    kept = {link.kind: link for link in measured_by(report, HOSTS, 5.0)}
    assert kept["inside"].bandwidth == inside.bandwidth
    assert (kept["hosts"].addresses, kept["hosts"].interfaces) == (("a", "b"), ("eth0", "eth1"))
    gloo = make_report([line(backend="gloo", **begin), *pair(0, 1, 1e9), *rows], NAMES)
    kept = {link.kind: link for link in measured_by(gloo, HOSTS, 5.0)}
    assert kept.keys() == {"hosts", "zones", "inside-by-gloo"}
    assert (kept["inside-by-gloo"].between, kept["inside-by-gloo"].bandwidth) == (("b", "b"), inside.bandwidth)


def test_which_algorithm_is_fastest_is_told_by_size_of_what_went_by_several() -> None:
    """One that is a tenth slower at most goes on: that much differs from one moment to the next."""
    taken = {
        ("all_reduce", "native"): (50, 50, 50, 400, 800),
        ("all_reduce", "tree"): (20, 20, 31, 900),
        ("all_reduce", "ring"): (70, 19, 30, 300),
        ("all_gather", "native"): (60,),
        ("gather", "tree"): (30, 30),
        ("gather", "linear"): (31, 33),
    }
    rows = [
        collective(op=op, algorithm=algorithm, size=8 * 4**power, seconds=time * 1e-6)
        for (op, algorithm), times in taken.items()
        for power, time in enumerate(times)
    ]
    inside = collective(op="broadcast", algorithm="tree", host=0)
    report = make_report([*pair(0, 1, 1e9), *rows, inside], NAMES)
    assert fastest_texts(report) == {
        "all_reduce": "all_reduce, fastest: tree up to 128B, ring up to 512B",
        "gather": "gather, fastest: tree up to 32B",
    }
    assert report.rows[-1].algorithm == "tree"
    factors = {row.op: row.bus_bandwidth / row.algorithm_bandwidth for row in report.rows}
    assert factors == pytest.approx(
        {"sendrecv": 1, "all_reduce": 1.5, "all_gather": 0.75, "gather": 0.75, "broadcast": 1}
    )


def test_what_is_no_result_is_passed_over() -> None:
    lines = [
        "loss 3",
        MARK + "{",
        MARK + "[" * 5000,
        line(kind="pair", between=[0, 7], size=8, seconds=1.0, wrong=0),
        line(kind="pair", between=[1, 1], size=8, seconds=1.0, wrong=0),
        collective(seconds=0.0),
        collective(seconds=float("nan")),
        collective(op="\x1b[31m"),
        collective(host=-1),
    ]
    report = make_report(lines, NAMES)
    assert (report.rows, report.links, report.slow, report.is_whole) == ((), (), (), False)


def test_the_job_takes_all_gpus_of_a_host_and_two_of_those_that_are_simulated() -> None:
    inventory = Inventory(environments=tuple(HOSTS))
    job = bench_submission(inventory, HOSTS, None, 4096).job
    counts = [node.resources.gpu.count if node.resources and node.resources.gpu else None for node in job.cluster.nodes]
    assert counts == [None, 2, None]
    assert job.run is not None
    assert job.run.args[:2] == ("--max", "4096")
    assert job.run.args[-2:] == ("--zones", "0,0,1")
    assert "--zones" not in (bench_submission(inventory, HOSTS[:2], None, 4096).job.run or job.run).args
    with pytest.raises(UsageError, match="needs two"):
        bench_submission(inventory, HOSTS[:1], None, 4096)
