"""What an attempt that is not the first is told: what it goes on from, and where it writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dttui.errors import LaunchError
from dttui.planning.binding import bind, checkpoint_directory
from dttui.planning.lineup import Lineup
from dttui.planning.models import Bindings, BoundPlan, NodeBinding, Plan
from dttui.planning.planner import plan
from dttui.planning.resumption import Resume, store_of
from dttui.spec import parse_document
from dttui.spec.findings import Severity
from dttui.spec.models import Model, Recovery, Run
from tests.unit.seed_cluster import SEED, make_job

A, B = "pytorch-dev-env", "llm-training-env"
FOUND = Resume(checkpoint="/shared/run7/step-50", directory="/shared/run7", step=50)


def made(framework: str = "pytorch-ddp", nodes: tuple[str, ...] = (A, B), **recovery: Any) -> Plan:
    job = make_job(*nodes, framework=framework, run=Run(script="/srv/train.py", args=("--resume",)))
    return plan(job.model_copy(update={"recovery": Recovery.model_validate(recovery)}), SEED)


def bound(planned: Plan, attempt: int, resume: Resume | None = None) -> BoundPlan:
    nodes = {
        node.name: NodeBinding(
            directory=f"/var/tmp/{node.name}/{attempt}",
            payload="/p",
            python="python3",
            interface=None,
            gpu_ids=tuple(range(8)),
        )
        for node in planned.nodes
    }
    return bind(planned, Bindings(job_id="j", attempt=attempt, master_port=29500, nodes=nodes, resume=resume))


def test_the_first_attempt_writes_where_the_job_says_and_later_ones_beside_it() -> None:
    planned = made(checkpoint={"dir": "/shared/run7", "shared": True})
    places = [[checkpoint_directory(node) for node in bound(planned, number).plan.nodes] for number in range(3)]
    assert places == [["/shared/run7"] * 2, ["/shared/run7/attempt-1"] * 2, ["/shared/run7/attempt-2"] * 2]


def test_without_a_place_of_the_job_each_attempt_has_its_own_anyway() -> None:
    planned = made()
    places = [checkpoint_directory(bound(planned, number).plan.nodes[0]) for number in range(2)]
    assert places == [f"/var/tmp/{A}/0/checkpoints", f"/var/tmp/{A}/1/checkpoints"]


def test_ranks_are_told_what_they_go_on_from_and_arguments_are_filled_in() -> None:
    words = ["--from={checkpoint}", "--in", "{directory}", "--step", "{step}", "{}", "{a: 1}"]
    planned = made(checkpoint={"dir": "/shared/run7", "shared": True, "resume_args": words})
    (first, second) = bound(planned, 1, FOUND.model_copy(update={"elsewhere": {B: "/other/step-50"}})).plan.nodes
    assert first.processes[0].env["DTTUI_RESUME_FROM"] == "/shared/run7/step-50"
    told = ("--from=/shared/run7/step-50", "--in", "/shared/run7", "--step", "50", "{}", "{a: 1}")
    assert first.processes[0].argv[-7:] == told
    assert second.processes[0].env["DTTUI_RESUME_FROM"] == "/other/step-50"
    assert second.processes[0].argv[-7:][:3] == ("--from=/other/step-50", "--in", "/other")


@pytest.mark.parametrize(("attempt", "resume"), [(0, None), (1, None)])
def test_an_attempt_that_begins_anew_is_told_of_nothing(attempt: int, resume: Resume | None) -> None:
    planned = made(checkpoint={"dir": "/shared/run7", "resume_args": ["--load", "{checkpoint}"]})
    for node in bound(planned, attempt, resume).plan.nodes:
        assert "DTTUI_RESUME_FROM" not in node.processes[0].env
        assert node.processes[0].argv[-1] == "--resume"


def test_a_step_that_no_name_tells_cannot_be_handed_on() -> None:
    planned = made(checkpoint={"dir": "/shared/run7", "resume_args": ["--step={step}"]})
    with pytest.raises(LaunchError, match="tells no step"):
        bound(planned, 1, Resume(checkpoint="/shared/run7/last.ckpt", directory="/shared/run7"))


def test_megatron_loads_from_where_the_newest_lies_and_saves_beside_it() -> None:
    planned = made("megatron-lm", checkpoint={"dir": "/shared/run7", "shared": True})
    found = Resume(checkpoint="/shared/run7/iter_0000050", directory="/shared/run7", step=50)
    assert bound(planned, 1, found).plan.nodes[0].processes[0].argv[-2:] == (
        "--save=/shared/run7/attempt-1",
        "--load=/shared/run7",
    )
    again = Resume(checkpoint="/shared/run7/attempt-1/iter_0000090", directory="/shared/run7/attempt-1", step=90)
    assert bound(planned, 2, again).plan.nodes[0].processes[0].argv[-2:] == (
        "--save=/shared/run7/attempt-2",
        "--load=/shared/run7/attempt-1",
    )


def test_what_checkpoints_take_follows_from_the_estimate_and_from_how_many_stay() -> None:
    model = Model(parameters=1e9, layers=16, hidden_size=2048, heads=16, seq_length=2048, vocab_size=50304)
    job = make_job(A, B, framework="pytorch-ddp", run=Run(script="/srv/train.py"), model=model)
    recovery = Recovery.model_validate({"checkpoint": {"dir": "/shared/run7", "keep": 4}})
    told = plan(job.model_copy(update={"recovery": recovery}), SEED).resumption.room_bytes
    assert told is not None
    assert told == pytest.approx(5 * 14e9, rel=0.3)
    assert made(checkpoint={"dir": "/shared/run7"}).resumption.room_bytes is None


def test_the_script_is_told_how_often_and_how_many() -> None:
    planned = made(checkpoint={"dir": "/shared/run7", "interval": "10m", "keep": 5})
    config = next(file for file in planned.nodes[0].files if file.path == "dttui_config.json")
    assert json.loads(config.text)["checkpoint"] == {"interval_s": 600.0, "keep": 5}


@pytest.mark.parametrize(
    ("recovery", "nodes", "severity"),
    [
        ({"on_node_failure": "restart"}, (A, B), "warning"),
        ({"max_restarts": 2}, (A, B), "warning"),
        ({"on_node_failure": "restart"}, (A,), "info"),
        ({"on_node_failure": "restart", "checkpoint": {"dir": "/shared", "shared": True}}, (A, B), None),
        ({"on_node_failure": "stop", "max_restarts": 2}, (A, B), None),
        ({}, (A, B), None),
    ],
)
def test_a_plan_says_which_losses_checkpoints_outlive(
    recovery: dict[str, Any], nodes: tuple[str, ...], severity: str | None
) -> None:
    told = [item for item in made(nodes=nodes, **recovery).findings if item.code == "checkpoint-on-one-host"]
    assert [item.severity.value for item in told] == ([severity] if severity else [])


@pytest.mark.parametrize("more", [{}, {"copies": 1}])
@pytest.mark.parametrize("nodes", [(A, B), (A,)])
def test_a_plan_says_that_shared_checkpoints_do_not_outlive_what_they_lie_on(
    nodes: tuple[str, ...], more: dict[str, Any]
) -> None:
    checkpoint = {"dir": "/srv/kept", "shared": True, **more}
    planned = made(nodes=nodes, on_node_failure="restart", checkpoint=checkpoint)
    (told,) = (item for item in planned.findings if item.code == "checkpoint-shared")
    assert told.severity is Severity.INFO
    assert "/srv/kept outlive any host" in told.message
    assert "checkpoint-shared" not in [item.code for item in made(checkpoint=checkpoint).findings]


@pytest.mark.parametrize("checkpoint", [None, {"dir": "/c"}, {"dir": "/c", "copies": 1}, {"dir": "/c", "shared": True}])
@pytest.mark.parametrize(
    ("framework", "may_write_parts"),
    [
        ("pytorch-fsdp", True),
        ("deepspeed", True),
        ("megatron-lm", True),
        ("pytorch-ddp", False),
        ("horovod", False),
        ("tensorflow", False),
        ("command", False),
    ],
)
def test_a_plan_warns_where_no_host_may_have_all_parts_of_a_checkpoint(
    framework: str, may_write_parts: bool, checkpoint: dict[str, Any] | None
) -> None:
    recovery = {"on_node_failure": "restart", "checkpoint": checkpoint}
    wanted = may_write_parts and not (checkpoint or {}).get("shared")
    for nodes, is_told in (((A, B), wanted), ((A,), False)):
        told = [item for item in made(framework, nodes, **recovery).findings if item.code == "checkpoint-in-parts"]
        assert [item.severity for item in told] == [Severity.WARNING] * is_told
    assert "checkpoint-in-parts" not in [item.code for item in made(framework, checkpoint=checkpoint).findings]


def test_what_may_not_stand_in_braces_is_refused_where_it_stands() -> None:
    document = """
distributed_training:
  name: x
  recovery:
    checkpoint: {dir: /c, resume_args: [--load, "{path}"]}
"""
    with pytest.raises(Exception, match=r"\{checkpoint\}, \{directory\}, \{step\}") as refused:
        parse_document(document, "job.yaml")
    assert "resume_args" in str(refused.value)


@pytest.mark.parametrize(
    ("checkpoint", "nodes", "told"),
    [
        ({"dir": "/c", "copies": 1}, (A, B), ("checkpoint-copies", "info")),
        ({"dir": "/c", "copies": 2}, (A, B), ("too-many-copies", "warning")),
        ({"dir": "/c", "copies": 1}, (A,), ("too-many-copies", "warning")),
        ({"dir": "c", "copies": 1}, (A, B), ("copies-place", "error")),
        ({"dir": "/c", "copies": 1, "shared": True}, (A, B), ("copies-in-vain", "info")),
    ],
)
def test_a_plan_says_which_losses_copies_outlive_and_which_cannot_be_made(
    checkpoint: dict[str, Any], nodes: tuple[str, ...], told: tuple[str, str]
) -> None:
    planned = made(nodes=nodes, on_node_failure="restart", checkpoint=checkpoint)
    assert told in [(item.code, item.severity.value) for item in planned.findings]
    assert "checkpoint-on-one-host" not in [item.code for item in planned.findings]


def test_copies_lie_in_the_same_place_on_all_hosts_an_attempt_each() -> None:
    resumption = made(checkpoint={"dir": "/c", "copies": 1, "keep": 2, "copy_bandwidth": "8Gbps"}).resumption
    assert [store_of(resumption, "j", number) for number in (0, 1)] == [
        "/c/.dttui-copies/j",
        "/c/attempt-1/.dttui-copies/j",
    ]
    assert (resumption.copies, resumption.keep, resumption.copy_bytes_per_s) == (1, 2, 10**9)
    assert store_of(made(checkpoint={"dir": "/c", "copies": 1, "shared": True}).resumption, "j", 0) is None


def test_how_often_checkpoints_come_is_what_loses_least_unless_the_job_says() -> None:
    model = Model(parameters=1e9, layers=16, hidden_size=2048, heads=16, seq_length=2048, vocab_size=50304)
    job = make_job(A, B, framework="pytorch-ddp", run=Run(script="/srv/train.py"), model=model)

    def interval(**checkpoint: Any) -> float:
        recovery = Recovery.model_validate({"checkpoint": {"dir": "/c", **checkpoint}})
        planned = plan(job.model_copy(update={"recovery": recovery}), SEED)
        variable = float(planned.nodes[0].processes[0].env["DTTUI_CHECKPOINT_INTERVAL_S"])
        config = next(file for file in planned.nodes[0].files if file.path == "dttui_config.json")
        assert json.loads(config.text)["checkpoint"]["interval_s"] == variable
        assert planned.estimate is not None
        if not checkpoint:
            best = min(planned.estimate.failures.checkpoint_interval_s, 86_400)
            assert variable == pytest.approx(best, abs=0.6)
        return variable

    assert interval() > 60
    assert interval(interval="10m") == 600
    assert "DTTUI_CHECKPOINT_INTERVAL_S" not in made(checkpoint={"dir": "/c"}).nodes[0].processes[0].env


def test_a_job_that_goes_on_with_too_few_hosts_for_its_copies_can_be_planned_and_finds_those_there_are() -> None:
    recovery = Recovery.model_validate(
        {"on_node_failure": "restart", "min_nodes": 1, "checkpoint": {"dir": "/c", "copies": 1}}
    )
    job = make_job(A, B, run=Run(script="/srv/train.py")).model_copy(update={"recovery": recovery})
    planned = plan(Lineup(seats={A: None}).apply(job, SEED), SEED)
    assert [node.name for node in planned.nodes] == [B]
    assert [item.code for item in planned.findings if item.severity is Severity.ERROR] == []
    assert store_of(planned.resumption, "j", 0) == "/c/.dttui-copies/j"
