"""A seventh framework that another installed package adds by an entry point: named in a job, planned, and refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dttui.frameworks import frameworks
from dttui.planning.planner import plan
from dttui.spec.added import added_frameworks
from dttui.spec.loader import parse_job
from dttui.spec.problems import DocumentError
from tests.unit.seed_cluster import SEED

MODULE = """
from dttui.frameworks.command import Command

class Mine(Command):
    name = "mine"
    label = "Mine"

    def check(self, job):
        return []
"""
JOB = "distributed_training: {name: a, framework: mine, run: {command: [true]}, dataset: none, cluster: {nodes: [%s]}}"

Add = Callable[[str], None]


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """Install a package whose module has the given text."""

    def forget() -> None:
        added_frameworks.cache_clear()
        frameworks.cache_clear()

    def install(text: str) -> None:
        (tmp_path / "dttui_mine.py").write_text(text)
        info = tmp_path / "dttui_mine-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dttui-mine\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[dttui.frameworks]\nmine = dttui_mine:Mine\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(__import__("sys").modules, "dttui_mine", raising=False)
        forget()

    yield install
    monkeypatch.undo()
    forget()


def test_an_added_framework_is_one_like_the_others(add: Add) -> None:
    add(MODULE)
    assert [item.name for item in frameworks()][-1] == "mine"
    made = plan(parse_job(JOB % "{id: pytorch-dev-env}", "job.yaml"), SEED)
    assert made.errors == ()
    assert [process.argv for process in made.nodes[0].processes] == [("true",), ("true",)]


def test_one_that_cannot_be_loaded_is_refused_with_the_package_and_the_reason(add: Add) -> None:
    add("raise RuntimeError('of theirs')")
    (finding,) = plan(parse_job(JOB % "{id: pytorch-dev-env}", "job.yaml"), SEED).errors
    assert finding.code == "framework-unavailable"
    assert finding.message == "the framework mine of dttui-mine cannot be loaded: RuntimeError: of theirs"
    assert finding.hint == "Remove the package dttui-mine, or mend it."


def test_without_the_package_its_name_is_a_mistake() -> None:
    with pytest.raises(DocumentError, match=r'expected one of pytorch-ddp, .*found "mine"'):
        parse_job(JOB % "{id: pytorch-dev-env}", "job.yaml")
