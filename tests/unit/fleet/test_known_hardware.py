"""A person's own types of GPUs and what was measured between hosts: read, kept, and refused with the place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dttui import locations
from dttui.errors import UsageError
from dttui.fleet.known_hardware import gpu_types, known_hardware, measured_links, record_links
from dttui.inventory.models import Environment
from dttui.planning.cost.hardware import gpu_table
from dttui.planning.cost.links import MeasuredLink
from dttui.spec.problems import DocumentError

OWN = """
gpus:
  - {name: MI300X-192GB, type: MI300X, memory_gib: 192, bf16: 1307, fp32: 163, memory_bandwidth: 5300,
     link: nvlink, link_bandwidth: 448, power: 750, source: "AMD MI300X data sheet"}
  - {name: A100-80GB, type: A100, memory_gib: 79, bf16: 280, fp32: 19.5, memory_bandwidth: 2039,
     link: pcie, link_bandwidth: 32, power: 300, source: measured here}
"""


def write_own(text: str) -> None:
    file = locations.gpu_types_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def link(bandwidth: float, at: float) -> MeasuredLink:
    return MeasuredLink(between=("beijing-a", "上海"), bandwidth=bandwidth, round_trip_s=0.03, measured_at=at)


def test_without_a_file_of_ones_own_there_are_the_types_that_dttui_knows() -> None:
    assert gpu_types().find("H100") is not None
    assert gpu_types().find("MI900X") is None


def test_ones_own_types_extend_the_table_and_take_the_place_of_those_of_the_same_name() -> None:
    write_own(OWN)
    added, changed, kept = (gpu_types().find(name) for name in ("MI300X", "A100", "A100-40GB"))
    assert added is not None
    assert added.memory_gib == 192
    assert changed is not None
    assert (changed.bf16, changed.link) == (280, "pcie")
    assert kept is not None
    assert kept.bf16 == 312


def test_an_empty_file_adds_nothing() -> None:
    write_own("# nothing yet\n")
    assert gpu_types().find("A100") is not None


def test_a_mistake_is_told_with_its_place_and_the_nearest_key() -> None:
    write_own(OWN.replace("memory_bandwidth: 5300", "memory_bandwith: 5300"))
    with pytest.raises(DocumentError) as caught:
        gpu_types()
    assert f"{locations.gpu_types_file()}:3:" in caught.value.message
    assert "memory_bandwidth" in caught.value.message


def test_a_job_is_planned_without_types_that_have_mistakes_and_says_so() -> None:
    write_own(OWN.replace("memory_bandwidth: 5300", "memory_bandwith: 5300"))
    known = known_hardware(lenient=True)
    assert known.gpus == gpu_table()
    (finding,) = known.findings
    assert (finding.code, finding.severity.value) == ("gpus-file", "warning")
    assert f"{locations.gpu_types_file()}:3:" in finding.message
    with pytest.raises(DocumentError):
        known_hardware()


def test_without_a_directory_to_keep_them_in_there_are_no_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file" / "state"))
    assert measured_links() == ()


def test_links_are_kept_the_newest_of_each_pair_and_for_their_owner_alone() -> None:
    assert measured_links() == ()
    record_links([link(1e9, 1.0)])
    record_links([link(2e9, 3.0), link(5e8, 2.0)])
    assert [item.bandwidth for item in measured_links()] == [2e9]
    assert len(known_hardware().links) == 1
    assert locations.links_file().stat().st_mode & 0o777 == 0o600


def test_of_links_that_several_keep_at_once_none_is_lost() -> None:
    code = """
import sys
from dttui.fleet.known_hardware import record_links
from dttui.planning.cost.links import MeasuredLink
for number in range(30):
    pair = (sys.argv[1], str(number))
    record_links([MeasuredLink(between=pair, bandwidth=1e9, round_trip_s=0.03, measured_at=1.0)])
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, name]) for name in ("a", "b", "c")]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    assert len(measured_links()) == 90


def test_links_with_a_key_that_another_version_wrote_are_read_without_it() -> None:
    record_links([link(1e9, 1.0)])
    body = json.loads(locations.links_file().read_text())
    (one,) = body["links"]
    locations.links_file().write_text(json.dumps({**body, "dropped": 1, "links": [{**one, "dropped": [2]}]}))
    assert measured_links() == (link(1e9, 1.0),)


def test_links_of_a_kind_that_nobody_knows_yet_are_passed_over() -> None:
    record_links([link(1e9, 1.0)])
    body = json.loads(locations.links_file().read_text())
    (one,) = body["links"]
    locations.links_file().write_text(json.dumps({**body, "links": [{**one, "kind": "rails"}, one]}))
    assert measured_links() == (link(1e9, 1.0),)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"version": 1, "links": [{"between": ["a"]}]}',
        json.dumps({"version": 1, "links": [{**link(1e9, 1.0).model_dump(mode="json"), "bandwidth": -1}]}),
        '{"version": 2, "links": []}',
        '{"links": ' + "[" * 100_000,
        " " * (5 << 20),
    ],
)
def test_a_damaged_file_of_links_is_refused_by_its_name_with_a_remedy(text: str) -> None:
    file = locations.links_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        measured_links()
    assert str(file) in caught.value.message
    assert "measure again" in caught.value.hint


def between(address: str, bandwidth: float | None, at: float) -> MeasuredLink:
    """A link of the hosts a and b, of which the second has this address."""
    ends = ("10.0.0.1", address)
    return MeasuredLink(
        kind="hosts", between=("a", "b"), addresses=ends, bandwidth=bandwidth, round_trip_s=1e-3, measured_at=at
    )


def test_hosts_of_the_same_names_in_two_clusters_keep_a_link_each() -> None:
    """Before, the plans of either counted on what was measured last, wherever that was."""
    record_links([between("10.0.0.2", 1e9, 1.0)])
    record_links([between("10.9.9.2", 2e6, 2.0)])
    record_links([between("10.0.0.2", None, 3.0)])
    for address, bandwidth in (("10.0.0.2", 1e9), ("10.9.9.2", 2e6)):
        hosts = [Environment(name="a", host="10.0.0.1"), Environment(name="b", host="b", address=address)]
        (found,) = known_hardware(hosts).links.values()
        assert found.bandwidth == bandwidth
    zone = MeasuredLink(between=("x", "y"), addresses=("10.0.0.1", "10.0.0.2"), round_trip_s=1.0, measured_at=1.0)
    record_links([zone])
    assert ("zones", frozenset("xy")) not in known_hardware([Environment(name="d", host="10.7.7.7")]).links
    assert ("zones", frozenset("xy")) in known_hardware(hosts).links


def test_of_hosts_whose_addresses_change_ever_again_the_newest_four_links_stay() -> None:
    for number in range(7):
        record_links([between(f"10.0.0.{number}", 1e9, float(number))])
    assert [found.measured_at for found in measured_links()] == [6.0, 5.0, 4.0, 3.0]


def test_more_links_than_there_is_room_for_lose_the_oldest_and_the_file_stays_readable() -> None:
    """Before, a file of more than 4 MiB was written all the same, and then refused by every plan."""
    usual = between("10.0.0.2", 1e9, 0.0)
    many = [usual.model_copy(update={"between": (f"host-{at:06}", "b"), "measured_at": at}) for at in range(30_000)]
    record_links(many)
    assert locations.links_file().stat().st_size <= 2 << 20
    kept = measured_links()
    assert len(kept) > 10_000
    assert [found.measured_at for found in kept] == [float(29_999 - number) for number in range(len(kept))]
