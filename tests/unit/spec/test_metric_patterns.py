"""Metrics that a job names with the expression that finds them: how they are written, and what is told of a mistake."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from dtagent.protocol.attempt_key import AttemptKey

from dttui.engine.nodes.start_requests import StartRequests
from dttui.planning.planner import plan
from dttui.spec.loader import parse_job
from dttui.spec.models import Job
from dttui.spec.problems import DocumentError
from tests.unit.seed_cluster import SEED, make_job

HEAD = "distributed_training:\n  name: a\n  framework: command\n  run: {command: [x]}\n  monitoring:\n    metrics: "


def job(metrics: str) -> Job:
    return parse_job(HEAD + metrics + "\n", "job.yaml")


def problem(metrics: str) -> str:
    with pytest.raises(DocumentError) as caught:
        job(metrics)
    (found,) = caught.value.problems
    return f"{found.line}:{found.column}: {found.message}"


def test_names_and_expressions_stand_beside_each_other() -> None:
    monitoring = job(r"[loss, {name: reward, pattern: 'return of ([-.\d]+)'}]").monitoring
    assert monitoring.metric_names == ("loss", "reward")
    assert monitoring.metric_patterns == {"reward": r"return of ([-.\d]+)"}


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ("[{name: reward, pattern: 'a('}]", '6:39: "a(" is no regular expression'),
        ("[{name: reward, pattern: abc}]", '6:39: "abc" needs one group, which is the number'),
        ("[{name: reward, pattern: '(a)(b)'}]", '6:39: "(a)(b)" needs one group, which is the number'),
        ("[{name: reward, pattern: '(a*)'}]", '6:39: "(a*)" matches every line, an empty one too'),
        ("[{name: a, pattern: 'x(.)'}, {name: a, pattern: 'y(.)'}]", "6:14: two expressions find a"),
        ("[{name: a, pattern: 'x(.)', of: b}]", "6:42: unknown key"),
    ],
)
def test_a_mistake_is_told_at_its_place(metrics: str, said: str) -> None:
    assert problem(metrics).startswith(said)


def test_a_group_called_value_is_the_number_beside_others() -> None:
    assert job("[{name: reward, pattern: '(a|b)(?P<value>.)'}]").monitoring.metric_patterns


def test_there_are_at_most_as_many_as_an_agent_looks_for() -> None:
    metrics = ", ".join(f"{{name: m{number}, pattern: '{number}(.)'}}" for number in range(17))
    assert problem(f"[{metrics}]") == "6:14: more than 16 expressions"


def test_every_host_is_sent_them_and_the_script_the_names() -> None:
    monitoring = job(r"[loss, {name: reward, pattern: 'return of (\d+)'}]").monitoring
    made = plan(make_job("pytorch-dev-env", "llm-training-env", monitoring=monitoring), SEED)
    assert made.metric_patterns == {"reward": r"return of (\d+)"}
    client = SimpleNamespace(hello=None, takes_bytes=False)
    requests = StartRequests(AttemptKey("a", 0), made.nodes, 1.0, {}, 1, metric_patterns=made.metric_patterns)
    for node in made.nodes:
        sent = requests.call(node.name, client).request  # type: ignore[arg-type]  # all that is asked of it
        assert getattr(sent, "metric_patterns", None) == made.metric_patterns
