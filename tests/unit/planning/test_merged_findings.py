"""What is to be said alike of several nodes is said once, and nothing that differs is lost."""

from __future__ import annotations

from dttui.planning.merged_findings import folded
from dttui.spec.findings import error, warning


def test_findings_that_differ_in_their_node_alone_become_one() -> None:
    found = folded(
        [
            error("path-missing", "gpu1", "gpu1: there is no /data", "Put it there."),
            error("path-missing", "gpu2", "gpu2: there is no /data", "Put it there."),
            error("path-missing", "gpu3", "gpu3: there is no /other", "Put it there."),
            warning("path-missing", "gpu4", "gpu4: there is no /data", "Put it there."),
        ]
    )
    assert [item.message for item in found] == [
        "on 2 nodes (gpu1, gpu2): there is no /data",
        "gpu3: there is no /other",
        "gpu4: there is no /data",
    ]
    assert {item.hint for item in found} == {"Put it there."}


def test_a_hint_names_all_nodes_that_it_is_for() -> None:
    for hint, told in (
        ("Set `address` of {}.", "Set `address` of a-1, a-10."),
        ("Run: dttui agents deploy {}", "Run: dttui agents deploy a-1 a-10"),
    ):
        (found,) = folded([warning("x", name, f"{name}: bad", hint.format(name)) for name in ("a-1", "a-10")])
        assert found.hint == told


def test_what_is_of_no_node_or_begins_otherwise_stays_as_it_is() -> None:
    others = [warning("x", "run", "two", ""), warning("x", "run", "two", ""), warning("x", "", "two", "")]
    assert folded(others) == others
