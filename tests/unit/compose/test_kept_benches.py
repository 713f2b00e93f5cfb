"""What benches have found is kept whole, by hosts and addresses, and what cannot be read is told with its place."""

from __future__ import annotations

import os
import time

import pytest

from dttui import locations
from dttui.compose.bench_models import KeptBench
from dttui.compose.bench_report import make_report
from dttui.compose.kept_benches import keep_bench, newest_bench
from dttui.errors import UsageError
from dttui.inventory.models import Environment
from tests.unit.compose.test_link_bench import line, pair

NAMES = ("a", "b")


def hosts(*names: str, network: str = "10.0.0") -> list[Environment]:
    return [Environment(name=name, host=name, address=f"{network}.{number}") for number, name in enumerate(names, 1)]


def bench(environments: list[Environment], at: float, bandwidth: float = 1e9) -> KeptBench:
    lines = [line(kind="begin", backend="gloo", interfaces=["eth0", "ib0"], total=3), *pair(0, 1, bandwidth)]
    addresses = {item.name: item.training_address for item in environments}
    report = make_report(lines, [item.name for item in environments])
    return KeptBench(measured_at=at, job_id="bench-1", addresses=addresses, report=report)


def test_whole_rows_are_kept_with_date_and_interfaces_in_the_place_of_those_before() -> None:
    keep_bench(bench(hosts(*NAMES), 1.0))
    keep_bench(newer := bench(hosts(*NAMES), 2.0, 2e9))
    found = newest_bench(hosts(*NAMES, "c"))
    assert found == newer
    assert (found.measured_at, found.report.interfaces, len(found.report.rows)) == (2.0, {"a": "eth0", "b": "ib0"}, 3)
    assert len(list(locations.benches_directory().iterdir())) == 1


def test_hosts_of_the_same_names_in_another_cluster_have_what_was_measured_there() -> None:
    here, there = hosts(*NAMES), hosts(*NAMES, network="10.9.9")
    keep_bench(bench(here, 1.0))
    assert newest_bench(there) is None
    keep_bench(bench(there, 2.0, 5e9))
    told = [found.measured_at for item in (here, there) if (found := newest_bench(item)) is not None]
    assert told == [1.0, 2.0]


def test_hosts_of_which_one_was_not_measured_have_nothing_and_an_empty_report_takes_no_place() -> None:
    keep_bench(bench(hosts(*NAMES), 1.0))
    assert newest_bench(hosts("a", "c")) is None
    keep_bench(KeptBench(measured_at=time.time(), job_id="x", addresses={"a": "10.0.0.1"}, report=make_report([], [])))
    assert len(list(locations.benches_directory().iterdir())) == 1


def test_a_damaged_file_is_told_with_its_path_and_the_remedy() -> None:
    keep_bench(bench(hosts(*NAMES), 1.0))
    (path,) = locations.benches_directory().iterdir()
    path.write_text('{"version": 1}')
    with pytest.raises(UsageError, match="measured_at") as refusal:
        newest_bench(hosts(*NAMES))
    assert str(path) in refusal.value.message
    assert "measure again" in refusal.value.hint


def test_a_damaged_file_hides_no_bench_that_can_be_read_and_one_of_another_version_is_told_as_such() -> None:
    keep_bench(bench(hosts(*NAMES), 1.0))
    (path,) = locations.benches_directory().iterdir()
    keep_bench(bench(hosts("a", "c"), 2.0))
    path.write_text('{"version": 2}')
    found = newest_bench(hosts("a", "c"))
    assert found is not None
    assert found.measured_at == 2.0
    with pytest.raises(UsageError, match="is of another version of dttui") as refusal:
        newest_bench(hosts(*NAMES))
    assert str(path) in refusal.value.message


def test_what_was_measured_between_just_these_hosts_comes_before_what_is_newer_of_some_of_them() -> None:
    keep_bench(bench(hosts(*NAMES, "c"), 1.0))
    keep_bench(bench(hosts(*NAMES), 2.0))
    told = [newest_bench(hosts(*names)) for names in ("abc", "abcd", "ab")]
    assert [found.measured_at for found in told if found is not None] == [1.0, 2.0, 2.0]


def test_a_bench_of_hosts_that_nobody_knows_is_none_of_these() -> None:
    nobody = bench(hosts(*NAMES), 1.0).model_copy(update={"addresses": {}})
    keep_bench(nobody)
    assert not locations.benches_directory().exists()
    locations.benches_directory().mkdir(parents=True)
    (locations.benches_directory() / f"{0:016x}.json").write_text(nobody.model_dump_json())
    assert newest_bench(hosts(*NAMES)) is None


def test_the_newest_sixty_four_sets_of_hosts_are_kept() -> None:
    keep_bench(bench(hosts(*NAMES), 1.0))
    (oldest,) = locations.benches_directory().iterdir()
    os.utime(oldest, (1.0, 1.0))
    for number in range(64):
        keep_bench(bench(hosts(*NAMES, network=f"10.0.{number + 1}"), 2.0))
    assert len(list(locations.benches_directory().iterdir())) == 64
    assert not oldest.exists()


def test_a_directory_that_cannot_be_listed_is_told() -> None:
    directory = locations.benches_directory()
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.symlink_to(directory)
    with pytest.raises(UsageError, match="cannot be read") as refusal:
        newest_bench(hosts(*NAMES))
    assert str(directory) in refusal.value.message
