"""`monitoring.health`: what a document may say of it, and what its plan has each host run."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from dttui.planning.models import Plan, Severity
from dttui.planning.planner import plan
from dttui.spec.models import Monitoring, Recovery
from tests.unit.container_plans import A, B, bound, container, planned
from tests.unit.planning.test_findings import findings
from tests.unit.seed_cluster import SEED, make_job

COMMAND = ("python3", "healthy.py", "${DIRECTORY}")


def monitoring(**health: Any) -> Monitoring:
    return Monitoring.model_validate({"health": {"command": COMMAND, **health}})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"every": "0.5s"}, "must be from 1s to 24h"),
        ({"timeout": "25h"}, "must be from 1s to 24h"),
        ({"start_period": "soon"}, "should match pattern"),
        ({"failures": 0}, "greater than or equal to 1"),
        ({"command": []}, "at least 1 item"),
        ({"action": "replace"}, "report"),
        ({"evry": "1s"}, "not permitted"),
    ],
)
def test_what_it_cannot_be_is_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        monitoring(**said)


def test_a_plan_has_each_host_run_it_beside_its_first_process() -> None:
    made = plan(make_job(A, B, framework="pytorch-ddp", monitoring=monitoring(every="2m")), SEED)
    policy = made.health
    assert policy is not None
    assert (policy.every_s, policy.timeout_s, policy.failures, policy.start_period_s) == (120, 10, 3, 300)
    assert not policy.restarts
    for node in bound(made).nodes:
        assert node.health is not None
        assert (node.health.argv, node.health.cwd) == (("python3", "healthy.py", "/var/job"), node.processes[0].cwd)
    assert Plan.model_validate_json(made.model_dump_json()).nodes == made.nodes
    plain = plan(make_job(A, framework="pytorch-ddp"), SEED)
    assert (plain.health, plain.nodes[0].health) == (None, None)


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_in_a_container_it_runs_in_that_of_the_ranks(engine: str) -> None:
    made = planned(A, run={"container": container(engine)}, framework="pytorch-ddp", monitoring=monitoring())
    (node,) = bound(made).nodes
    assert node.health is not None
    words = (engine, "exec", "--env=DTTUI_HEALTH_CHECK", f"--workdir={node.processes[0].cwd}", "dttui-j-1-0-launcher")
    assert node.health.argv == (*words, "python3", "healthy.py", "/var/job")
    assert "--name=dttui-j-1-0-launcher" in node.processes[0].argv


def test_with_apptainer_it_runs_in_the_image_once_more() -> None:
    made = planned(A, run={"container": container("apptainer")}, framework="pytorch-ddp", monitoring=monitoring())
    (node,) = bound(made).nodes
    first = node.processes[0]
    assert node.health is not None
    assert node.health.argv == (*first.argv[: first.engine_words], "python3", "healthy.py", "/var/job")


def test_a_restart_that_nothing_follows_is_told_and_made_a_report() -> None:
    job = make_job(A, framework="command", monitoring=monitoring(action="restart"))
    assert findings(job)["recovery-in-vain"].severity is Severity.WARNING
    assert (made := plan(job, SEED).health) is not None
    assert not made.restarts
    again = job.model_copy(update={"recovery": Recovery(max_restarts=1)})
    assert "recovery-in-vain" not in findings(again)
    assert (made := plan(again, SEED).health) is not None
    assert made.restarts
