"""What plots are drawn from besides: the run of the same job before, and what the job's file asks for."""

from __future__ import annotations

import json

import pytest
from dtagent.protocol.events import Event, EventKind, JobState, Metric
from dtagent.protocol.rpc import to_wire

from dttui import jobs
from dttui.files import append_line
from dttui.jobs import JobDirectory
from dttui.jobs.curves import ChosenPlots
from dttui.jobs.plot_sources import chosen_plots, earlier_run


def run_of(name: str, began: float, *losses: float) -> JobDirectory:
    """Make the directory of a job that began at a time, and reported something."""
    directory = jobs.create(name)
    first = Event(0, began, EventKind.JOB_STATE, "", 0, data={"state": JobState.RUNNING.value})
    append_line(directory.events, json.dumps(to_wire(first)))
    directory.plan.write_text(json.dumps({"job_name": name}))
    for step, loss in enumerate(losses, 1):
        append_line(directory.metrics, json.dumps(to_wire(Metric(0, step, loss))))
    return directory


def test_the_newest_run_of_the_same_job_that_has_reported_something_is_the_one_before() -> None:
    run_of("gpt", 100.0, 9.0)
    before = run_of("gpt", 200.0, 5.0, 4.0)
    run_of("gpt", 300.0)
    run_of("vision", 350.0, 1.0)
    run_of("GPT!", 360.0, 2.0)
    here = run_of("gpt", 400.0, 3.0)
    run_of("gpt", 500.0, 2.0)
    found = earlier_run(here)
    assert found is not None
    assert found.job_id == before.job_id
    assert [curve.points for curve in found.curves] == [((1, 5.0), (2, 4.0))]
    assert earlier_run(run_of("alone", 100.0, 1.0)) is None


JOB = """distributed_training:
  name: gpt
  version: 1.0.0
  strategy: {type: data_parallel}
  cluster: {nodes: [{id: a}]}
  monitoring:
"""


@pytest.mark.parametrize(
    ("monitoring", "wanted"),
    [
        ("    metrics: [throughput, loss]", ChosenPlots(("throughput", "loss"))),
        ("    metrics: [{name: psnr, pattern: 'psnr (.*)'}]", ChosenPlots(("psnr",))),
        (
            "    metrics: [loss]\n    visualization: {enabled: true, dashboard: {panels: [lr, {metric: loss}]}}",
            ChosenPlots(("lr", "loss"), is_all=True),
        ),
        ("    visualization: {enabled: false, dashboard: {panels: [lr]}}", ChosenPlots()),
        ("    visualization: {enabled: true, dashboard: {type: grafana}}", ChosenPlots()),
    ],
)
def test_a_job_s_metrics_come_first_and_its_dashboard_says_what_there_is(monitoring: str, wanted: ChosenPlots) -> None:
    directory = run_of("gpt", 100.0)
    directory.document.write_text(JOB + monitoring + "\n")
    assert chosen_plots(directory) == wanted


def test_a_job_file_that_cannot_be_read_wants_nothing() -> None:
    directory = run_of("gpt", 100.0)
    assert chosen_plots(directory) == ChosenPlots()
    directory.document.write_text("distributed_training: [")
    assert chosen_plots(directory) == ChosenPlots()
