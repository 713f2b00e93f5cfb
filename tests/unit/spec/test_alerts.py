"""`monitoring.alerts` and `on_event` in a job file: what is taken, and what is said of the rest, and where."""

from __future__ import annotations

from typing import get_args

import pytest
from dtagent.protocol.events import EventKind

from dttui.spec import parse_job
from dttui.spec.conditions import MetricCondition, StateCondition, parse_metric, parse_state
from dttui.spec.models import ToldKind
from dttui.spec.problems import DocumentError

JOB = "distributed_training:\n  name: a\n  monitoring:\n    alerts:\n      - {alert}\n"


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("loss > 10", MetricCondition("loss", ">", 10.0)),
        ("gpu.utilization<5 for 10m", MetricCondition("gpu.utilization", "<", 5.0, 600.0)),
        (" eval/loss  !=  -1.5e-3 for 2 h ", MetricCondition("eval/loss", "!=", -0.0015, 7200.0)),
        ("host.disk_free <= 20 for 1.5min", MetricCondition("host.disk_free", "<=", 20.0, 90.0)),
    ],
)
def test_conditions_are_read_as_people_write_them(text: str, condition: MetricCondition) -> None:
    assert parse_metric(text) == condition


def test_states_are_read_as_people_write_them() -> None:
    assert parse_state("Node unknown for 30s") == StateCondition("node", "unknown", 30.0)
    assert parse_state("job failed") == StateCondition("job", "failed")
    assert parse_state("steps stalled for 10m") == StateCondition("steps", "stalled", 600.0)


@pytest.mark.parametrize(
    ("alert", "place", "words"),
    [
        ("{metric: gpu.temprature > 85}", "5:18: distributed_training.monitoring.alerts[0].metric",
         'did you mean "gpu.temperature"?'),
        ("{metric: loss}", "5:18:", "write it as in gpu.utilization < 5 for 10m"),
        ("{metric: loss > 1.2.3}", "5:18:", "is no number"),
        ("{metric: loss > 1 for ever}", "5:18:", "write it as in 30s, 10m, 2h"),
        ("{state: node unknwon}", "5:17:", 'did you mean "unknown"?'),
        ("{state: host down}", "5:17:", "there are: job, node, rank, steps"),
        ("{state: failed}", "5:17:", "write it as in node unknown for 2m"),
        ("{state: job failed for 2m}", "5:17:", "only a state of a node can last"),
        ("{state: steps stalled}", "5:17:", "write it as in steps stalled for 10m"),
        ('{log: "CUDA (error"}', "5:15:", "is no regular expression"),
        ('{log: ".*"}', "5:15:", "matches every line"),
        ("{log: " + "x" * 501 + "}", "5:15:", "longer than 500 characters"),
        ("{log: a, state: job failed}", "5:9:", "exactly one of log, metric and state, not log and state"),
        ("{name: a}", "5:9:", "exactly one of log, metric and state"),
        ("{log: a, every: soon}", "5:25:", "a duration, such as 30s, 10m or 2h"),
        ("{logs: a}", "5:10:", 'did you mean "log"?'),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_place_and_hint(alert: str, place: str, words: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_job(JOB.format(alert=alert), "job.yaml")
    assert f"job.yaml:{place}" in caught.value.message
    assert words in caught.value.message


def test_kinds_of_events_are_those_that_are_written() -> None:
    written = {kind.value for kind in EventKind if kind is not EventKind.METRIC}
    assert set(get_args(ToldKind)) <= written
