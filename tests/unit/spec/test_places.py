"""The places of findings in the file that a job was read from."""

from __future__ import annotations

from pathlib import Path

import pytest

from dttui.inventory.models import Environment, GpuResources, Inventory, Resources
from dttui.launch.local_plan import make_local_plan
from dttui.planning.models import Finding
from dttui.planning.submission import Submission
from dttui.spec import DocumentError, parse_job
from dttui.spec.key_places import as_problem

INVENTORY = Inventory(
    environments=tuple(
        Environment(
            name=name, host=f"{name}.example.org", address=address, resources=Resources(gpu=GpuResources(count=2))
        )
        for name, address in (("a", "10.0.0.1"), ("b", "10.0.0.2"), ("twin", "10.0.0.1"))
    )
)
HEAD = "distributed_training:\n  name: x\n"
RUN = "  run: {command: ['true']}\n"
REST = "  framework: command\n  dataset: none\n"
BAD_NODE = "  cluster:\n    nodes:\n      - {id: a}\n      - id: bb\n"
OWN_GPUS = "  cluster: {nodes: [{id: a, resources: {gpu: {count: %d}}}]}\n"
OWN_KEY = "cluster.nodes[0].resources.gpu.count"
ALL_GPUS = "  cluster: {nodes: [{id: a}]}\n  resources: {gpu: {count: 9}}\n"


def findings(text: str, base: Path) -> dict[str, Finding]:
    job = parse_job(text, "job.yaml")
    return {item.code: item for item in make_local_plan(Submission(job, INVENTORY, base, text, "job.yaml")).findings}


@pytest.mark.parametrize(
    ("text", "code", "place", "key"),
    [
        (RUN + REST + BAD_NODE, "unknown-environment", "9:13", "cluster.nodes[1].id"),
        (RUN + REST + OWN_GPUS % 9, "too-many-gpus", "6:54", OWN_KEY),
        (RUN + REST + ALL_GPUS, "too-many-gpus", "7:28", "resources.gpu.count"),
        (RUN + REST + OWN_GPUS % 0, "no-gpu-asked", "6:54", OWN_KEY),
        (RUN + REST + "  cluster: {nodes: [{id: a}, {id: twin}]}\n", "same-address", "6:35", "cluster.nodes[1].id"),
        (RUN + REST, "no-nodes", "1:1", "cluster.nodes"),
        (RUN + REST + "  cluster: {nodes: []}\n", "no-nodes", "6:20", "cluster.nodes"),
        (REST + "  cluster: {nodes: [{id: a}]}\n", "run-missing", "1:1", "run"),
        (REST + "  run: {command: [a], workdir: no/where}\n", "workdir-missing", "5:32", "run.workdir"),
        (REST + "  run: {command: [a], secrets: [PATH, NO_SUCH]}\n", "secret-missing", "5:39", "run.secrets[1]"),
        (REST + "  run: {command: [a], env: {RANK: '1'}}\n", "reserved-variable", "5:35", "run.env.RANK"),
        (REST + "  run: {command: [a, '$B']}\n", "not-filled-in", "5:22", "run.command[1]"),
        (REST + "  run: {command: [a], env: {B: x/<your id>}}\n", "not-filled-in", "5:32", "run.env.B"),
        (REST + "  run: {script: a.py}\n", "run-mismatch", "5:17", "run.script"),
    ],
)
def test_a_finding_tells_the_place_of_the_key_it_arises_from(
    tmp_path: Path, text: str, code: str, place: str, key: str
) -> None:
    finding = findings(HEAD + text, tmp_path)[code]
    assert finding.place is not None
    assert str(finding.place) == f"job.yaml:{place}"
    assert finding.place.path == f"distributed_training.{key}"
    problem = as_problem(finding, "job.yaml")
    assert str(problem).startswith(f"job.yaml:{place}: distributed_training.{key}: {finding.message}")
    assert problem.render().endswith("^")


@pytest.mark.parametrize(
    ("strategy", "code", "column", "key"),
    [
        ("{data_parallel_size: 2, tensor_parallel_size: 8}", "degrees", 59, "tensor_parallel_size"),
        ("{data_parallel_size: 8, tensor_parallel_size: 2}", "degrees", 34, "data_parallel_size"),
        ("{data_parallel_size: 1}", "degrees", 34, "data_parallel_size"),
        (
            "{tensor_parallel_size: 2, model_parallel: {pipeline_stages: 3}}",
            "degrees",
            73,
            "model_parallel.pipeline_stages",
        ),
        (
            "{pipeline_parallel: {pipeline_stages: 4}, pipeline_parallel_size: 2}",
            "degrees-disagree",
            51,
            "pipeline_parallel.pipeline_stages",
        ),
    ],
)
def test_degrees_that_do_not_fit_are_shown_at_the_one_to_look_at(
    tmp_path: Path, strategy: str, code: str, column: int, key: str
) -> None:
    text = f"{HEAD}{RUN}{REST}  cluster: {{nodes: [{{id: a}}, {{id: b}}]}}\n  strategy: {strategy}\n"
    finding = findings(text, tmp_path)[code]
    assert finding.place is not None
    assert (str(finding.place), finding.place.path) == (f"job.yaml:7:{column}", f"distributed_training.strategy.{key}")


def test_what_lies_outside_the_file_has_no_place_and_still_names_the_file(tmp_path: Path) -> None:
    finding = Finding(code="x", severity="error", subject="a", message="bad")
    assert finding.place is None
    assert str(as_problem(finding, "job.yaml")) == "job.yaml: bad"


def test_an_environment_that_is_called_like_a_key_is_placed_where_it_is_named(tmp_path: Path) -> None:
    inventory = Inventory(
        environments=(Environment(name="run", host="r", resources=Resources(gpu=GpuResources(count=1))),)
    )
    text = HEAD + RUN + REST + "  cluster: {nodes: [{id: run, resources: {gpu: {count: 2}}}]}\n"
    plan = make_local_plan(Submission(parse_job(text, "j"), inventory, tmp_path, text, "j"))
    assert [item.place.path for item in plan.errors if item.place] == [
        "distributed_training.cluster.nodes[0].resources.gpu.count"
    ]


def test_paths_in_messages_are_normalised(tmp_path: Path) -> None:
    text = HEAD + REST + "  run: {command: [a], workdir: ./b/../c}\n"
    assert findings(text, tmp_path)["workdir-missing"].message == f"there is no directory {tmp_path / 'c'} here"


@pytest.mark.parametrize(
    ("cluster", "column", "message"),
    [
        ("{count: 3, nodes: [{id: a}]}", 20, "there are 1 under nodes, and not 3; say it once"),
        ("{count: 1, gpus_per_node: 8, nodes: [{id: a}]}", 38, "of nodes that are listed, write resources.gpu.count"),
        ("{gpus_per_node: 8}", 28, "this goes with count"),
    ],
)
def test_a_number_of_nodes_beside_others_is_told_at_its_place(cluster: str, column: int, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_job(f"distributed_training:\n  name: a\n  cluster: {cluster}\n", "job.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (3, column)
    assert message in problem.message
