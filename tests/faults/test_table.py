"""The table of faults names tests that exist, covers every promise, and is what docs/faults.md and the README say."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from tests.faults.disks import ON_DISKS, OnDisks
from tests.faults.document import render
from tests.faults.fault import PROMISES, Fault
from tests.faults.table import FAULTS

CHECKOUT = Path(__file__).parents[2]
HERE = "tests/faults/"
OF_THE_TABLE_ITSELF = {"test_table.py"}


@functools.cache
def found_in(path: str) -> dict[str, str]:
    """Return the tests of a file, and what their docstrings say."""
    tree = ast.parse((CHECKOUT / path).read_text())
    tests = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return {node.name: ast.get_docstring(node) or "" for node in tests if node.name.startswith("test_")}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_shown_by_tests_that_exist_and_meets_a_promise(fault: Fault) -> None:
    for test in fault.tests:
        path, _, name = test.partition("::")
        assert (CHECKOUT / path).is_file(), path
        assert name in found_in(path)
        assert found_in(path)[name] or not path.startswith(HERE), f"{name} states no deadline"
    assert any(test.startswith(HERE) for test in fault.tests), "`make faults` does not show it"
    assert set(fault.promises) <= set(PROMISES)
    assert fault.promises == tuple(sorted(fault.promises))
    assert fault.within_s > 0


def test_every_promise_is_put_to_the_test_and_no_fault_is_listed_twice() -> None:
    assert {promise for fault in FAULTS for promise in fault.promises} == set(PROMISES)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_every_test_of_faults_is_in_the_table() -> None:
    listed = {test for fault in FAULTS for test in fault.tests}
    there = {
        f"{HERE}{path.name}::{name}"
        for path in (CHECKOUT / HERE).glob("test_*.py")
        if path.name not in OF_THE_TABLE_ITSELF
        for name in found_in(f"{HERE}{path.name}")
    }
    assert {test for test in there - listed if not test.endswith("test_every_lie_is_told_in_some_test")} == set()


@pytest.mark.parametrize("row", ON_DISKS, ids=lambda row: row.name)
def test_what_is_tested_by_where_checkpoints_lie_is_in_the_table_and_what_is_not_is_said(row: OnDisks) -> None:
    listed = {test for fault in FAULTS for test in fault.tests}
    assert {*row.shared, *row.own, *row.neither} <= listed
    assert (row.shared and row.own) or row.lacks


@functools.cache
def thorough_in(path: str) -> dict[str, bool]:
    """Return the tests of a file of which cases run in `make thorough` alone, and whether all do."""
    tree = ast.parse((CHECKOUT / path).read_text())
    tests = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    marks = {node.name: [ast.unparse(mark) for mark in node.decorator_list] for node in tests}
    return {
        name: "pytest.mark.thorough" in told for name, told in marks.items() if any("mark.thorough" in x for x in told)
    }


@pytest.mark.parametrize("row", ON_DISKS, ids=lambda row: row.name)
def test_what_only_a_thorough_run_shows_by_where_checkpoints_lie_is_marked(row: OnDisks) -> None:
    listed = {*row.shared, *row.own, *row.neither}
    known = {test: thorough_in(path).get(name) for test in listed for path, _, name in [test.partition("::")]}
    assert {test for test, is_whole in known.items() if is_whole} == {
        test for test in row.thorough if known.get(test) and not row.thorough[test]
    }
    for test in row.thorough:
        assert known.get(test) is not None, f"{test} has no case that is left out"


def test_the_document_is_current() -> None:
    assert (CHECKOUT / "docs/faults.md").read_text() == render()


def test_the_readme_makes_the_promises_in_the_same_words() -> None:
    readme = " ".join((CHECKOUT / "README.md").read_text().split())
    for key, text in PROMISES.items():
        assert f"**{key}** {text}" in readme
    assert "docs/faults.md" in readme
