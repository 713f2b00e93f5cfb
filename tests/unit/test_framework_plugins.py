"""A seventh framework that another installed package adds by an entry point: named in a job, planned, and refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dttui.frameworks import Framework, frameworks
from dttui.frameworks.plugins import OPTIONAL
from dttui.planning.planner import plan
from dttui.spec.entry_points import plugin_frameworks
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

SERVING = """
from dttui.frameworks.command import Command

class Mine(Command):
    name = "mine"

    def check(self, job):
        return []

    def processes(self, layout, node):
        made = super().processes(layout, node)
        return tuple(item.model_copy(update={"is_service": node.node_rank > 0 or "all" in item.argv}) for item in made)
"""

Add = Callable[[str], None]


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """Install a package whose module has the given text."""

    def forget() -> None:
        plugin_frameworks.cache_clear()
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


def test_a_plan_in_which_every_process_only_serves_others_is_refused_since_it_would_never_end(add: Add) -> None:
    add(SERVING)
    two = "{id: pytorch-dev-env}, {id: llm-training-env}"
    some = plan(parse_job(JOB % two, "job.yaml"), SEED)
    assert some.errors == ()
    assert [node.serves_only for node in some.nodes] == [False, True]
    (finding,) = plan(parse_job((JOB % two).replace("[true]", "[serve, all]"), "job.yaml"), SEED).errors
    assert finding.code == "nothing-ends"
    assert finding.message == "every process of the job only serves others: nothing here ever ends"


def test_one_that_cannot_be_loaded_is_refused_with_the_package_and_the_reason(add: Add) -> None:
    add("raise RuntimeError('of theirs')")
    (finding,) = plan(parse_job(JOB % "{id: pytorch-dev-env}", "job.yaml"), SEED).errors
    assert finding.code == "framework-unavailable"
    assert finding.message == "the framework mine of dttui-mine cannot be loaded: RuntimeError: of theirs"
    assert finding.hint == "Remove the package dttui-mine, or mend it."


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("class Mine:\n    name = 'mine'\n    label = 'Mine'", "it has no summary, description, features, requires, "),
        (MODULE.replace('name = "mine"', 'name = "yours"'), "it calls itself yours"),
        (MODULE + "    rank = 'slot'", "its rank is no Rank"),
        (MODULE + "    options = dict", "its options is no Section"),
        (MODULE + "    features = None", "its features is no Sequence[str]"),
        (MODULE + "    requires = 'torch'", "its requires is no Sequence[str]"),
        (MODULE + "    verdicts = ('a', 1)", "its verdicts is no Sequence[str]"),
        (MODULE + "    description = None", "its description is no str"),
        (MODULE + "    available = 'yes'", "its available is no bool"),
        (MODULE + "    script_imports = ('torch',)", "its script_imports is no ScriptImports"),
        (MODULE + "    timeout_call = 5", "its timeout_call is no str"),
        (MODULE + "    summary = property(lambda self: 1 / 0)", "ZeroDivisionError: division by zero"),
    ],
)
def test_one_that_is_no_whole_framework_is_refused_with_what_is_missing(add: Add, text: str, reason: str) -> None:
    add(text)
    (finding,) = plan(parse_job(JOB % "{id: pytorch-dev-env}", "job.yaml"), SEED).errors
    assert finding.code == "framework-unavailable"
    assert finding.message.startswith(f"the framework mine of dttui-mine cannot be loaded: {reason}")


def test_what_may_be_left_out_is_what_the_protocol_says() -> None:
    members = vars(Framework).items()
    assert {name for name, member in members if "left out" in (getattr(member, "__doc__", None) or "")} == OPTIONAL


@pytest.mark.parametrize("function", ["check(self, job)", "check_layout(self, layout)"])
@pytest.mark.parametrize("body", ["return 1 / 0", "return ['no finding']", "return None"])
def test_one_that_fails_at_a_job_is_an_error_of_the_plan_that_names_the_package(
    add: Add, function: str, body: str
) -> None:
    add(MODULE.replace("check(self, job)", function).replace("return []", body))
    (finding,) = plan(parse_job(JOB % "{id: pytorch-dev-env}", "job.yaml"), SEED).errors
    assert finding.code == "framework-failed"
    assert finding.message.startswith(f"the framework mine of dttui-mine failed in {function.partition('(')[0]}: ")
    assert finding.hint == "Remove the package dttui-mine, or mend it."


@pytest.mark.parametrize("function", ["node_files", "processes"])
def test_one_that_fails_at_a_nodes_bundle_is_one_too(add: Add, function: str) -> None:
    add(MODULE + f"    def {function}(self, layout, node):\n        raise KeyError(node.name)\n")
    (finding,) = plan(parse_job(JOB % "{id: pytorch-dev-env}", "job.yaml"), SEED).errors
    assert finding.message == f"the framework mine of dttui-mine failed in {function}: KeyError: 'pytorch-dev-env'"


def test_without_the_package_its_name_is_a_mistake() -> None:
    with pytest.raises(DocumentError, match=r'expected one of pytorch-ddp, .*found "mine"'):
        parse_job(JOB % "{id: pytorch-dev-env}", "job.yaml")
