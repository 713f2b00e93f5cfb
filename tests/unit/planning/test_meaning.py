"""Words of a job that contradict each other, or that nobody knows, are told where they stand."""

from __future__ import annotations

import pytest

from dttui.planning.meaning import check_meaning
from dttui.spec import parse_job
from dttui.spec.findings import Severity
from dttui.spec.problems import format_path

MONITORED = "monitoring: {metrics: [%s]}"
SHOWN = "monitoring: {visualization: {enabled: true, dashboard: {%s}}}"


def told(text: str, code: str) -> list[tuple[str, str]]:
    """Return place and message of the findings of a code about a job."""
    job = parse_job(f"distributed_training:\n  name: a\n  {text}\n", "job.yaml")
    return [(format_path(item.path), item.message) for item in check_meaning(job) if item.code == code]


@pytest.mark.parametrize(
    ("strategy", "place"),
    [
        ("{type: data_parallel, pipeline_parallel: {pipeline_stages: 7}}", "pipeline_parallel.pipeline_stages"),
        ("{type: data_parallel, pipeline_parallel: {schedule: GPipe}}", "pipeline_parallel.schedule"),
        ("{type: data_parallel, tensor_parallel_size: 4}", "tensor_parallel_size"),
        ("{type: data_parallel, model_parallel: {model_splitting: {}}}", "model_parallel.model_splitting"),
        ("{type: model_parallel, pipeline_parallel: {schedule: 1F1B}}", "pipeline_parallel.schedule"),
        ("{type: pipeline_parallel, tensor_parallel_size: 2}", "tensor_parallel_size"),
        ("{type: pipeline_parallel, pipeline_parallel_size: 1}", "pipeline_parallel_size"),
        ("{type: model_parallel, tensor_parallel_size: 1}", "tensor_parallel_size"),
    ],
)
def test_a_type_beside_what_contradicts_it_is_told_there(strategy: str, place: str) -> None:
    ((path, message),) = told(f"strategy: {strategy}", "type-contradicted")
    assert path == f"strategy.{place}"
    assert message.startswith("strategy.type is ")


@pytest.mark.parametrize(
    "strategy",
    [
        "{tensor_parallel_size: 4}",  # no type was written
        "{type: hybrid, tensor_parallel_size: 4, pipeline_parallel: {pipeline_stages: 2}}",
        "{type: data_parallel, pipeline_parallel: {micro_batch_size: 4}}",
        "{type: data_parallel, pipeline_parallel_size: 1}",
        "{type: model_parallel, model_parallel: {model_splitting: {method: layer_wise}, pipeline_stages: 4}}",
        "{type: model_parallel, tensor_parallel_size: 2, data_parallel: {batch_size: 16}}",
        "{type: pipeline_parallel, pipeline_parallel: {pipeline_stages: 8, schedule: 1F1B}}",
        "{type: pipeline_parallel}",
        "{type: pipeline_parallel, pipeline_parallel_size: 4, model_parallel: {model_splitting: {method: layer_wise}}}",
    ],
)
def test_what_goes_with_a_type_is_not_told(strategy: str) -> None:
    assert told(f"strategy: {strategy}", "type-contradicted") == []


def test_methods_that_no_script_of_ours_knows_are_told() -> None:
    sharding = "strategy: {data_parallel: {data_sharding: {%s}}}"
    ((place, message),) = told(sharding % "method: randon", "unknown-method")
    assert place == "strategy.data_parallel.data_sharding.method"
    assert message.startswith('"randon" is no method')
    assert told(sharding % "strategy: random_shuffle", "unknown-method") == []
    assert told(sharding % "method: sequential", "unknown-method") == []
    splitting = "strategy: {model_parallel: {model_splitting: {method: %s}}}"
    assert len(told(splitting % "bogus", "unknown-method")) == 1
    assert told(splitting % "layer_wise", "unknown-method") == []


def test_metrics_that_nobody_makes_are_told() -> None:
    known = "throughput, utilization, loss, tokens_per_s, lr, gpu.utilization, host.cpu"
    assert told(MONITORED % known, "unknown-metric") == []
    found = told(MONITORED % "loss, zork, gpu.zork, bubble_time", "unknown-metric")
    assert [place for place, _message in found] == [f"monitoring.metrics[{index}]" for index in (1, 2, 3)]
    assert [message.split()[0] for _place, message in found] == ["dttui", "nobody", "bubble_time"]
    shown_on = "visualization: {dashboard: {panels: [zork]}}"
    assert len(told(f"monitoring: {{{shown_on}}}", "unknown-metric")) == 1
    assert told(f"monitoring: {{metrics: [{{name: zork, pattern: 'z=(.)'}}], {shown_on}}}", "unknown-metric") == []
    pipeline = "strategy: {type: pipeline_parallel}\n  " + MONITORED % "bubble_time"
    assert [message for _place, message in told(pipeline, "unknown-metric")] == [
        'dttui does not make "bubble_time" by itself: it is there where the script reports it by this name'
    ]
    assert [place for place, _message in told(MONITORED % "loss, latency", "unknown-metric")] == [
        "monitoring.metrics[1]"
    ]


@pytest.mark.parametrize(
    ("dashboard", "message"),
    [
        ("zork: 1", 'dttui knows no setting of dashboards called "zork"'),
        ("port: 70000", "expected a port from 1 to 65535, found 70000"),
        ("url: zork", "expected an address"),
        ("panels: 3", "expected a list of metrics, found 3"),
        ("type: [a]", "expected text, found a list"),
    ],
)
def test_what_no_dashboard_makes_sense_of_is_told(dashboard: str, message: str) -> None:
    ((place, found),) = told(SHOWN % dashboard, "dashboard")
    assert place == "monitoring.visualization.dashboard." + dashboard.partition(":")[0]
    assert found.startswith(message)


def test_a_dashboard_of_known_settings_is_handed_on_without_a_word() -> None:
    for said in (
        "type: tensorboard, dir: runs, port: 6006, url: 'http://a:1', panels: [loss]",
        "type: wandb, project: llm, entity: us, tags: [a, b]",
        "type: tensorboard, log_dir: runs",
        "type: grafana, panels: [{title: GPU, metric: gpu.utilization}, loss]",
    ):
        assert told(SHOWN % said, "dashboard") == []
    for said, severity in (("zork: 1", Severity.INFO), ("projct: 1", Severity.WARNING)):
        job = parse_job(f"distributed_training:\n  name: a\n  {SHOWN % said}\n", "job.yaml")
        assert [item.severity for item in check_meaning(job) if item.code == "dashboard"] == [severity]
    assert told("monitoring: {visualization: {dashboard: {type: wandb}}}", "dashboard") == [
        ("monitoring.visualization.dashboard", "there is a dashboard, and visualization.enabled is false")
    ]


def test_all_that_is_said_of_words_leaves_a_job_as_launchable_as_it_was() -> None:
    job = parse_job(
        "distributed_training:\n  name: a\n  strategy: {type: data_parallel, tensor_parallel_size: 2}\n", "job.yaml"
    )
    assert {finding.severity for finding in check_meaning(job)} == {Severity.WARNING}
