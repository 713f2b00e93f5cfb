"""A person's own types of GPUs and what was measured between hosts: read, kept, and refused with the place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dttui import locations
from dttui.errors import UsageError
from dttui.fleet.known_hardware import gpu_types, known_hardware, measured_links, record_links
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
    assert gpu_types().find("MI300X") is None


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


def test_links_with_a_key_that_another_version_wrote_are_read_without_it() -> None:
    record_links([link(1e9, 1.0)])
    body = json.loads(locations.links_file().read_text())
    (one,) = body["links"]
    locations.links_file().write_text(json.dumps({**body, "dropped": 1, "links": [{**one, "dropped": [2]}]}))
    assert measured_links() == (link(1e9, 1.0),)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"version": 1, "links": [{"between": ["a"]}]}',
        json.dumps({"version": 1, "links": [{**link(1e9, 1.0).model_dump(mode="json"), "bandwidth": -1}]}),
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
