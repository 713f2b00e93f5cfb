"""A seventh framework that another installed package adds by an entry point: named in a job, planned, and refused."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.facts import PythonFacts

import dttui
from dttui.frameworks import frameworks, get_framework, traits_of
from dttui.frameworks.plugins import OPTIONAL
from dttui.frameworks.traits import GroupForming, Traits, Usual
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from dttui.preflight.software import facts_request, judge_software
from dttui.spec.entry_points import OWN_FRAMEWORKS, plugin_frameworks
from dttui.spec.loader import parse_job
from dttui.spec.problems import DocumentError
from tests.unit.seed_cluster import SEED, host_facts

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

PLAIN = """
from dttui.frameworks.command import Command

REQUIRED = ("features", "requires", "options", "rank", "needs_ports", "available", "label", "summary", "description",
            "check", "check_layout", "node_files", "processes")

class Mine:
    name = "mine"

    def __getattr__(self, name):
        if name in REQUIRED:
            return getattr(Command(), name)
        raise AttributeError(name)
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
    assert {name for name in vars(Traits) if not name.startswith("_")} == OPTIONAL
    assert all(getattr(Traits, name).__doc__ for name in OPTIONAL)


def test_what_is_left_out_is_what_most_frameworks_have(add: Add) -> None:
    add(PLAIN)
    mine, usual = get_framework("mine"), Usual()
    assert mine.available
    assert {name: _told(mine, name) for name in OPTIONAL} == {name: _told(usual, name) for name in OPTIONAL}


def _told(framework: object, name: str) -> object:
    """Return a member; of a method what it is bound from."""
    member = getattr(framework, name)
    return getattr(member, "__func__", member)


def test_one_that_derives_from_the_protocol_has_to_have_members_of_its_own(add: Add) -> None:
    add("from dttui.frameworks import Framework\nclass Mine(Framework):\n    name = 'mine'\n")
    (finding,) = plan(parse_job(JOB % "{id: pytorch-dev-env}", "job.yaml"), SEED).errors
    assert "it has no label, summary, description, features, requires, " in finding.message


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


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that was written for the version before, and is kept as it was."""
    with monkeypatch.context() as patched:
        patched.syspath_prepend(str(Path(__file__).with_name("plugin_before")))
        plugin_frameworks.cache_clear()
        frameworks.cache_clear()
        yield
    plugin_frameworks.cache_clear()
    frameworks.cache_clear()


@pytest.mark.usefixtures("before")
def test_a_plug_in_of_the_version_before_is_loaded_and_plans_as_it_did() -> None:
    two = "{id: pytorch-dev-env}, {id: llm-training-env}"
    text = (JOB % two).replace("mine", "before").replace("{command: [true]}", "{script: /srv/train.py, args: [--fast]}")
    text = text.replace("run: {", "framework_options: {greeting: hi}, run: {", 1)
    made = plan(parse_job(text, "job.yaml"), SEED)
    assert made.errors == ()
    assert get_framework("before").available
    for node in made.nodes:
        (process,) = node.processes
        assert process.argv == ("${PYTHON}", "/srv/train.py", "--fast")
        assert process.env["GREETING"] == "hi"
        assert process.env["RANK"] == str(node.node_rank)
        assert next(file.text for file in node.files if file.path == "hosts.txt").count("_PORT}\n") == 2
    assert made.backend == "nccl"
    assert judge_group(made) is GroupForming.POSSIBLE


@pytest.mark.usefixtures("before")
def test_what_it_refuses_is_refused() -> None:
    text = (JOB % "{id: pytorch-dev-env}").replace("mine", "before")
    text = text.replace("{command: [true]}", "{script: /srv/train.py, warm_start: true}")
    assert [item.message for item in plan(parse_job(text, "job.yaml"), SEED).errors] == ["it cannot be started warm"]


@pytest.mark.usefixtures("before")
def test_what_it_requires_is_looked_for_on_the_hosts() -> None:
    text = (JOB % "{id: pytorch-dev-env}").replace("mine", "before").replace("{command: [true]}", "{script: /srv/a.py}")
    made = plan(parse_job(text, "job.yaml"), SEED)
    (node,) = made.nodes
    assert facts_request(made, node).packages == ["before-launcher"]

    def codes(**told: Any) -> list[str]:
        facts = host_facts(2, pythons=[PythonFacts(node.python, "/py", "3.11.7", **told)])
        return [finding.code for finding in judge_software(made, node, facts).findings]

    assert codes(packages={"before-launcher": "1.2"}, looked_for=["before-launcher"]) == []
    assert codes(looked_for=["before-launcher"]) == ["package-missing"]
    assert codes() == ["package-unknown"]  # As an older agent tells it, which looks for those of dttui's own alone.


def judge_group(made: Plan) -> GroupForming:
    return traits_of(made.framework).process_group.forming


def test_a_framework_that_is_there_no_more_is_taken_for_a_usual_one() -> None:
    assert traits_of("gone").process_group == Usual().process_group
    assert traits_of(None).spreads == {}


NAMES = frozenset(OWN_FRAMEWORKS) - {"command"}
"""`command` is a word of job files, too."""


def test_nothing_outside_their_own_modules_knows_a_framework_by_name() -> None:
    root = Path(dttui.__file__).parent
    allowed = {"spec/entry_points.py", "planning/distributions.py"}  # The registry, and packages as pip has them.
    knowing = {}
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if place.parts[0] == "frameworks" or place.parts[:2] == ("spec", "dialects") or place.as_posix() in allowed:
            continue  # A dialect is another program's form of a job: it says which program that is.
        found = {node.value for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Constant)}
        if named := NAMES & {value for value in found if isinstance(value, str)}:
            knowing[place.as_posix()] = sorted(named)
    assert knowing == {}
