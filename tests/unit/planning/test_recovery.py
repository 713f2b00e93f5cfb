"""What a job's `recovery` comes to in its plan: a policy, or why not."""

from __future__ import annotations

from typing import Any

import pytest

from dttui.planning.lineup import Lineup
from dttui.planning.models import Plan, Severity
from dttui.planning.planner import plan
from dttui.planning.recovery import RecoveryPolicy
from dttui.spec.models import Alert, Monitoring, Recovery, RecoveryAction
from tests.unit.planning.test_findings import A, B, C, findings
from tests.unit.seed_cluster import SEED, make_job

SHARED = {"dir": "/c", "shared": True}


def recovery(**fields: Any) -> Recovery:
    return Recovery.model_validate(fields)


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ({}, RecoveryAction.STOP),
        ({"max_restarts": 2}, RecoveryAction.RESTART),
        ({"max_restarts": 0}, RecoveryAction.STOP),
        ({"max_restarts": 2, "on_node_failure": "stop"}, RecoveryAction.STOP),
        ({"on_node_failure": "restart"}, RecoveryAction.RESTART),
    ],
)
def test_how_often_alone_means_a_restart(said: dict[str, Any], action: RecoveryAction) -> None:
    made = plan(make_job(A, B, recovery=recovery(**said)), SEED).recovery
    assert made.action is action
    assert made.may_restart == (action is not RecoveryAction.STOP)


def test_a_plan_keeps_the_policy_and_one_of_an_earlier_version_has_none() -> None:
    made = plan(make_job(A, recovery=recovery(on_node_failure="replace", spares=[B], checkpoint=SHARED)), SEED)
    assert made.recovery.spares == (B,)
    again = Plan.model_validate_json(made.model_dump_json())
    assert again.recovery == made.recovery
    body = made.model_dump(mode="json")
    del body["recovery"]
    assert Plan.model_validate(body).recovery == RecoveryPolicy()
    assert not RecoveryPolicy().may_restart


@pytest.mark.parametrize(
    ("said", "code", "severity"),
    [
        ({"on_node_failure": "stop", "max_restarts": 3}, "recovery-in-vain", Severity.WARNING),
        ({"retry_on": ["killed"]}, "recovery-in-vain", Severity.WARNING),
        ({"on_node_failure": "restart", "spares": [C]}, "recovery-in-vain", Severity.WARNING),
        ({"on_node_failure": "restart", "max_restarts": 0}, "recovery-in-vain", Severity.INFO),
        ({"on_node_failure": "replace", "checkpoint": SHARED}, "replace-needs-spares", Severity.ERROR),
        ({"on_node_failure": "replace", "spares": ["nobody"], "checkpoint": SHARED}, "unknown-spare", Severity.ERROR),
        ({"on_node_failure": "replace", "spares": [A], "checkpoint": SHARED}, "same-environment", Severity.ERROR),
        ({"on_node_failure": "replace", "spares": [C, C], "checkpoint": SHARED}, "same-environment", Severity.ERROR),
        ({"on_node_failure": "restart", "min_nodes": 3}, "min-nodes", Severity.ERROR),
        ({"on_node_failure": "continue"}, "continue-framework", Severity.ERROR),
        ({"max_restarts": 1, "retry_on": [7], "no_retry_on": [7]}, "retried-or-not", Severity.ERROR),
        ({"max_restarts": 1, "heartbeat_s": 0.5}, "heartbeat-short", Severity.WARNING),
        ({"self_fence_s": 29}, "fence-short", Severity.WARNING),
        ({"hang_s": 1}, "hang-short", Severity.WARNING),
        ({"on_hang": "report"}, "recovery-in-vain", Severity.WARNING),
        ({"hang_s": 60, "on_hang": "restart"}, "hang-ends-job", Severity.WARNING),
        ({"hang_first_s": 60, "on_hang": "restart", "max_restarts": 0}, "hang-ends-job", Severity.WARNING),
    ],
)
def test_what_cannot_be_done_is_refused_and_what_is_in_vain_is_told(
    said: dict[str, Any], code: str, severity: Severity
) -> None:
    found = findings(make_job(A, B, framework="command", recovery=recovery(**said)))
    assert found[code].severity is severity


def test_a_host_that_is_heard_of_never_fences_itself() -> None:
    def fence_s(**said: float) -> float | None:
        return plan(make_job(A, recovery=recovery(**said)), SEED).recovery.self_fence_s

    assert fence_s() is None
    assert fence_s(self_fence_s=60) == 60
    assert fence_s(self_fence_s=5) == 30
    assert fence_s(self_fence_s=5, heartbeat_s=4) == 5
    assert fence_s(self_fence_s=0.1, heartbeat_s=0.1) == 3
    assert "not-acted-upon" not in findings(make_job(A, recovery=recovery(self_fence_s=60)))


def test_what_a_hang_is_and_what_is_done_about_it_is_in_the_plan() -> None:
    said = recovery(max_restarts=2, hang_s=60, hang_first_s=900, on_hang="restart")
    made = plan(make_job(A, recovery=said), SEED).recovery
    assert (made.hang_s, made.hang_first_s, made.restarts_on_hang) == (60, 900, True)
    assert not findings(make_job(A, recovery=said)).keys() & {"recovery-in-vain", "hang-ends-job", "not-acted-upon"}
    short = plan(make_job(A, recovery=recovery(hang_s=0.5)), SEED).recovery
    assert (short.hang_s, short.restarts_on_hang) == (5, False)


def test_a_sound_section_is_taken_as_it_is() -> None:
    said = recovery(on_node_failure="replace", spares=[C], min_nodes=1, max_restarts=5, checkpoint=SHARED)
    codes = findings(make_job(A, B, recovery=said)).keys()
    assert not codes & {"recovery-in-vain", "unknown-spare", "same-environment", "min-nodes", "not-acted-upon"}


def test_to_continue_is_torchruns_affair_where_the_framework_lets_it() -> None:
    made = plan(make_job(A, B, framework="pytorch-ddp", recovery=recovery(on_node_failure="continue")), SEED)
    assert made.min_nodes == 1
    assert made.recovery.min_nodes == 1
    assert "continue-framework" not in {item.code for item in made.findings}
    alone = plan(make_job(A, framework="pytorch-ddp", recovery=recovery(on_node_failure="continue")), SEED)
    assert alone.min_nodes is None


@pytest.mark.parametrize(
    ("framework", "is_told"),
    [("pytorch-ddp", False), ("deepspeed", False), ("horovod", True), ("tensorflow", True), ("command", True)],
)
def test_where_ranks_cannot_be_asked_who_waits_for_whom_it_is_told_what_a_straggler_is_named_by(
    framework: str, is_told: bool
) -> None:
    for straggler_s in (60.0, None):
        made = plan(make_job(A, B, framework=framework, recovery=recovery(straggler_s=straggler_s)), SEED)
        told = [item for item in made.findings if item.code == "straggler-by-steps"]
        assert [item.subject for item in told] == ["recovery.straggler_s"] * (is_told and straggler_s is not None)


def test_a_spare_takes_the_masters_place_with_all_its_ranks_and_another_one_takes_the_spares() -> None:
    job = make_job(A, B, recovery=recovery(on_node_failure="replace", spares=[C], checkpoint=SHARED))
    before = plan(job, SEED)
    lineup = Lineup().changed({A: C}, before)
    after = plan(lineup.apply(job, SEED), SEED)
    assert [node.name for node in after.nodes] == [C, B]
    assert after.world_size == before.world_size
    assert after.master_address != before.master_address
    again = lineup.changed({C: A}, after)
    assert [node.name for node in plan(again.apply(job, SEED), SEED).nodes] == [A, B]
    without = lineup.changed({C: None}, after)
    assert [(node.name, node.node_rank) for node in plan(without.apply(job, SEED), SEED).nodes] == [(B, 0)]
    assert Lineup.model_validate_json(without.model_dump_json()) == without
    assert Lineup().apply(job, SEED) is job


def test_an_alert_that_is_to_restart_a_job_which_never_is_is_told() -> None:
    monitoring = Monitoring(alerts=(Alert(log="x"), Alert(log="y", action="restart")))
    for said, told in (({}, True), ({"on_node_failure": "restart"}, False), ({"max_restarts": 0}, True)):
        found = findings(make_job(A, B, recovery=recovery(**said), monitoring=monitoring))
        assert ("recovery-in-vain" in found) == told, said
