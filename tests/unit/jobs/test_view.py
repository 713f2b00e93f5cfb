"""A job as a person sees it: who has fallen silent, and where its files are."""

from __future__ import annotations

import itertools

import pytest
from dtagent.protocol.events import Event, EventKind, JobState, Metric, NodeStanding
from dtagent.protocol.telemetry import GpuSample, HostSample

from dttui.inventory import Inventory
from dttui.jobs.curves import HISTORY
from dttui.jobs.figures import Figure
from dttui.jobs.left_to_do import lost_in
from dttui.jobs.plan_file import SeenEstimate, SeenPlan
from dttui.jobs.view import JobView
from dttui.planning.planner import plan
from dttui.redaction import MARK
from dttui.spec.models import Run
from dttui.variables import bringing
from tests.tui.fake_fleet import job, make_inventory
from tests.unit.seed_cluster import SEED, environment, make_job

NODES = ("pytorch-dev-env", "llm-training-env", "nlp-research-lab")


def make_view() -> JobView:
    view = JobView("gpt-1")
    view.set_plan(plan(job(*NODES), make_inventory()))
    view.apply(Event(0, 100.0, EventKind.JOB_STATE, "all 14 ranks run", data={"state": JobState.RUNNING.value}))
    return view


def tell(view: JobView, node: str, state: str, **data: object) -> None:
    view.apply(Event(1, 200.0, EventKind.NODE_STATE, "", node=node, data={"state": state, **data}))


def gpus_of(framework: str, count: int) -> list[tuple[int, float | None]]:
    """The ranks of a node with so many GPUs, beside the use of the GPU of each."""
    inventory = Inventory(environments=(environment("a", count),))
    view = JobView("x")
    view.set_plan(plan(make_job("a", framework=framework), inventory))
    ids = tuple(range(4, 4 + count))
    tell(view, "a", "running", gpu_ids=ids)
    view.nodes["a"].sample = HostSample(1, 1.0, 4, gpus=[GpuSample(index, 10 * index) for index in range(8)])
    return [(slot.rank, slot.figures["utilization_percent"]) for slot in view.nodes["a"].slots("x")]


def test_a_gpu_is_shown_with_the_rank_that_drives_it_which_may_have_all_of_a_node() -> None:
    assert gpus_of("pytorch-ddp", 2) == [(0, 40), (1, 50)]
    assert gpus_of("tensorflow", 2) == [(0, 40), (0, 50)]
    assert gpus_of("tensorflow", 1) == [(0, 40)]


def test_a_silent_host_takes_the_headline_until_it_is_back() -> None:
    view = make_view()
    assert view.headline(200.0) == "all 14 ranks run"
    tell(view, NODES[1], "unknown", heard_at=188.5)
    assert view.headline(200.9) == "no word from llm-training-env for 12 s"
    tell(view, NODES[2], "unknown", heard_at=195.0)
    assert view.headline(201.0) == "no word from 2 hosts; from llm-training-env for 12 s"
    tell(view, NODES[2], "running")
    assert list(view.silences(201.0)) == [NODES[1]]
    tell(view, NODES[1], "running")
    assert view.headline(202.0) == "all 14 ranks run"


def test_nobody_is_waited_for_once_the_job_is_over() -> None:
    view = make_view()
    tell(view, NODES[1], "unknown", heard_at=188.0)
    view.apply(Event(2, 201.0, EventKind.JOB_STATE, "lost", data={"state": JobState.FAILED.value}))
    assert view.silences(300.0) == {}
    assert view.headline(300.0) == "lost"


def test_logs_and_checkpoints_are_told_as_far_as_they_are_known() -> None:
    view = make_view()
    assert view.places("/state/gpt-1") == ("logs: /state/gpt-1",)
    tell(view, NODES[0], "prepared", checkpoints="/x/0/checkpoints")
    assert view.places("/state/gpt-1")[1] == "checkpoints: pytorch-dev-env:/x/0/checkpoints"
    tell(view, NODES[1], "prepared", checkpoints="/y/0/checkpoints")
    assert view.places("/state/gpt-1")[1].endswith("/x/0/checkpoints and 1 more node")
    tell(view, NODES[2], "prepared", checkpoints="/z/0/checkpoints")
    tell(view, NODES[0], "ended")
    assert view.places("/state/gpt-1")[1].endswith("/x/0/checkpoints and 2 more nodes")
    assert view.nodes[NODES[2]].checkpoints == "/z/0/checkpoints"
    for name, found in zip(NODES, (False, True, None), strict=True):
        tell(view, name, "ended", has_checkpoints=found)
    assert view.places("/state/gpt-1")[1] == "checkpoints: llm-training-env:/y/0/checkpoints and 1 more node"
    for name in NODES:
        tell(view, name, "ended", has_checkpoints=False)
    assert view.places("/state/gpt-1") == ("logs: /state/gpt-1",)


def test_of_a_long_job_the_first_report_and_the_newest_ones_are_kept() -> None:
    view = make_view()
    for step in range(50_000):
        view.add_metric(Metric(0, step=step))
    steps = [metric.step or 0 for metric in view.metrics]
    assert len(steps) <= HISTORY
    assert steps == sorted(set(steps))
    assert steps[0] == 0
    assert steps[-100:] == list(range(49_900, 50_000))
    assert max(after - before for before, after in itertools.pairwise(steps)) <= 200


def test_a_job_that_was_never_started_has_no_checkpoints() -> None:
    view = JobView("gpt-1")
    view.set_plan(plan(job(*NODES), make_inventory()))
    tell(view, NODES[0], "prepared", checkpoints="/x/0/checkpoints")
    view.apply(Event(2, 201.0, EventKind.OUTCOME, "", data={"state": JobState.FAILED.value, "exit_code": 5}))
    assert view.places("/state/gpt-1") == ("logs: /state/gpt-1",)


def test_what_several_lines_say_of_one_step_is_one_point() -> None:
    view = make_view()
    view.add_metric(Metric(0, 10, 2.5, time=1.0, extra={"mfu": 0.4}))
    view.add_metric(Metric(0, 10, samples_per_s=80.0, time=2.0, extra={"val_loss": 2.6}))
    view.add_metric(Metric(0, 11, 2.4))
    view.add_metric(Metric(0, epoch=1.0, extra={"eval_loss": 2.3}))
    first, second, third = view.metrics
    assert (first.step, first.loss, first.samples_per_s, first.extra) == (10, 2.5, 80.0, {"mfu": 0.4, "val_loss": 2.6})
    assert (second.step, third.step) == (11, None)


def test_the_newest_report_keeps_the_last_step_and_loss_where_it_names_none() -> None:
    view = make_view()
    view.add_metric(Metric(0, 10, 2.5))
    view.add_metric(Metric(0, epoch=1.0, extra={"train_runtime": 12.0}))
    newest = view.newest_metric
    assert newest is not None
    assert (newest.step, newest.loss, newest.epoch, newest.extra) == (10, 2.5, 1.0, {"train_runtime": 12.0})
    view.add_metric(Metric(0, 11, not_finite=["loss"]))
    view.add_metric(Metric(0, 12, samples_per_s=80.0))
    newest = view.newest_metric
    assert newest == Metric(
        0, 12, None, samples_per_s=80.0, epoch=1.0, extra={"train_runtime": 12.0}, not_finite=["loss"]
    )
    assert str(newest.loss_as_told) == "nan"
    view.add_metric(Metric(0, None, 2.4, extra={"train_loss": 2.5}, not_finite=["eval_loss"]))
    newest = view.newest_metric
    assert newest is not None
    assert (newest.step, newest.loss, newest.samples_per_s) == (12, 2.4, 80.0)
    view.add_metric(Metric(0, 13, steps_per_s=3.0))
    assert view.newest_metric is not None
    assert (view.newest_metric.samples_per_s, view.newest_metric.steps_per_s) == (None, 3.0)
    assert (newest.extra, newest.not_finite) == ({"train_runtime": 12.0, "train_loss": 2.5}, ["eval_loss"])


def test_the_share_of_communication_comes_from_every_rank_and_leaves_the_course_to_the_script() -> None:
    view = JobView("gpt-1")
    view.set_plan(SeenPlan("gpt", "pytorch-ddp", 4, "a", (), estimate=SeenEstimate(0.18)))
    assert view.communication is None
    view.add_metric(Metric(0, communication_percent=20.0, time=1.0))
    view.add_metric(Metric(3, 10, 2.5, time=2.0))
    view.add_metric(Metric(3, communication_percent=30.0, time=3.0))
    view.add_metric(Metric(3, 11, 2.4, time=4.0))
    view.add_metric(Metric(0, communication_percent=40.0, time=5.0))
    assert view.metrics == [Metric(3, 10, 2.5, time=2.0, communication_percent=30.0), Metric(3, 11, 2.4, time=4.0)]
    assert view.newest_metric == Metric(3, 11, 2.4, time=4.0, communication_percent=30.0)
    assert view.communication == Figure(18.0, measured=35.0)
    view.add_metric(Metric(3, 1, 2.5, time=6.0), attempt=1)
    assert view.communication is None


def test_a_new_attempt_takes_away_what_was_of_the_one_before_alone() -> None:
    view = make_view()
    (first, *_others) = view.nodes

    def say(kind: EventKind, attempt: int | None, **data: object) -> None:
        seq = len(view.events)
        view.apply(Event(seq, 100.0 + seq, kind, "", attempt=attempt, node=first, rank=0, data=data))

    say(EventKind.JOB_STATE, 0, state="RUNNING")
    say(EventKind.NODE_STATE, 0, state="failed", gpu_ids=[0])
    say(EventKind.RANK_FAILED, 0, exit_code=3)
    say(EventKind.JOB_STATE, 0, state="RESTARTING")
    assert (len(view.failures), view.nodes[first].state) == (1, NodeStanding.FAILED)
    say(EventKind.JOB_STATE, 1, state="PREFLIGHT")
    assert (view.attempt, view.failures, view.running_at, view.has_started) == (1, [], None, False)
    assert (view.nodes[first].state, view.nodes[first].gpu_ids) == (NodeStanding.WAITING, ())
    say(EventKind.JOB_STATE, 1, state="RUNNING")
    say(EventKind.OUTCOME, None, state="SUCCEEDED", exit_code=0)
    assert (view.attempt, view.exit_code, view.started_at) == (1, 0, 100.0)


def test_what_is_told_later_of_an_earlier_attempt_changes_nothing_of_the_one_that_runs() -> None:
    view = make_view()
    (first, *_others) = view.nodes

    def say(kind: EventKind, attempt: int, **data: object) -> None:
        seq = len(view.events)
        view.apply(Event(seq, 100.0 + seq, kind, "", attempt=attempt, node=first, data=data))

    say(EventKind.NODE_STATE, 0, state="lost")
    say(EventKind.JOB_STATE, 0, state="RESTARTING")
    assert lost_in(view.events) == {first: 0}
    say(EventKind.NODE_STATE, 1, state="running")
    say(EventKind.JOB_STATE, 1, state="RUNNING")
    say(EventKind.NODE_STATE, 0, state="stopped")
    say(EventKind.FINDING, 0, code="unfenced", severity="warning", subject=first, hint="")
    assert (view.attempt, view.state, view.nodes[first].state) == (1, JobState.RUNNING, NodeStanding.RUNNING)
    assert [event.data["code"] for event in view.findings] == ["unfenced"]
    assert lost_in(view.events) == {}


def test_whose_secrets_are_left_out_is_settled_when_a_view_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "token-of-the-process")
    with bringing({"TOKEN": "token-of-the-caller"}):
        view = JobView("x")
    view.set_plan(plan(make_job("llm-training-env", run=Run(script="/t.py", secrets=("TOKEN",))), SEED))
    assert view.redaction().text("token-of-the-caller") == MARK
    assert view.redaction().text("token-of-the-process") == "token-of-the-process"
