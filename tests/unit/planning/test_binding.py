"""Filling the holes of a plan for one attempt."""

from __future__ import annotations

import json

import pytest
import yaml

from dttui.errors import LaunchError
from dttui.planning.binding import checkpoint_directory
from dttui.planning.models import Bindings, BoundPlan, Hole, NodeBinding, Plan, fill
from dttui.planning.planner import bind, plan
from dttui.spec.models import NetworkRequest, ResourceDefaults, Run
from tests.unit.seed_cluster import SEED, make_job

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"


def bindings(made: Plan, interface: str | None = "eth0", directory: str = "/var/tmp/dtagent-1000/j/0") -> Bindings:
    nodes = {
        node.name: NodeBinding(
            directory=directory,
            payload="/opt/dtagent/payload",
            python="/opt/conda/bin/python",
            interface=interface,
            gpu_ids=tuple(range(4, 4 + node.cuda_slots)),
        )
        for node in made.nodes
    }
    return Bindings(job_id="gpt-small-1", attempt=2, master_port=29533, nodes=nodes)


def test_every_hole_is_filled() -> None:
    made = plan(make_job(A, B, C), SEED)
    bound = bind(made, bindings(made))
    text = bound.plan.model_dump_json()
    assert "${" not in text
    process = bound.plan.nodes[1].processes[0]
    assert process.argv[:2] == ("/opt/conda/bin/python", "/opt/dtagent/payload/torchrun.py")
    assert "--master-port=29533" in process.argv
    assert process.cwd == "/var/tmp/dtagent-1000/j/0/work"
    assert process.env["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"
    assert process.env["DTTUI_JOB_ID"] == "gpt-small-1"
    assert process.env["DTTUI_ATTEMPT"] == "2"
    assert process.env["GLOO_SOCKET_IFNAME"] == "eth0"
    assert process.env["NCCL_SOCKET_IFNAME"] == "=eth0"
    document = yaml.safe_load(bound.plan.nodes[1].files[1].text)
    assert document["distributed"]["init_method"] == "tcp://192.168.1.10:29533"


@pytest.mark.parametrize(
    ("told", "place"),
    [
        (None, "/var/tmp/dtagent-1000/j/0/checkpoints"),
        ("/data/gpt", "/data/gpt/attempt-2"),
        ("../gpt", "/var/tmp/dtagent-1000/j/0/gpt/attempt-2"),
    ],
)
def test_the_checkpoint_directory_of_a_bound_node_is_an_absolute_path(told: str | None, place: str) -> None:
    env = {} if told is None else {"DTTUI_CHECKPOINT_DIR": told}
    made = plan(make_job(A, run=Run(script="t.py", env=env)), SEED)
    assert checkpoint_directory(bind(made, bindings(made)).plan.nodes[0]) == place


def test_the_plan_itself_stays_as_it_was() -> None:
    made = plan(make_job(A), SEED)
    before = made.model_dump_json()
    bind(made, bindings(made))
    assert made.model_dump_json() == before
    assert "${MASTER_PORT}" in before


def test_variables_of_an_unknown_interface_are_left_out() -> None:
    made = plan(make_job(A, run=Run(script="t.py", env={"NCCL_IB_IFNAME": "=${INTERFACE}"})), SEED)
    env = bind(made, bindings(made, interface=None)).plan.nodes[0].processes[0].env
    assert not [name for name in env if name.endswith("IFNAME")]
    assert env["DTTUI_BACKEND"] == "nccl"


def test_an_interface_the_job_names_stays_where_the_host_knows_none() -> None:
    job = make_job(A, resources=ResourceDefaults(network=NetworkRequest(interface="ib0")))
    made = plan(job, SEED)
    env = bind(made, bindings(made, interface=None)).plan.nodes[0].processes[0].env
    assert env["NCCL_SOCKET_IFNAME"] == "=ib0"


def test_a_node_without_a_binding_is_an_error() -> None:
    made = plan(make_job(A, B), SEED)
    given = bindings(made)
    partial = given.model_copy(update={"nodes": {A: given.nodes[A]}})
    with pytest.raises(LaunchError, match="llm-training-env has not answered"):
        bind(made, partial)


def test_fewer_gpus_than_slots_is_an_error_with_both_numbers() -> None:
    made = plan(make_job(A), SEED)
    given = bindings(made)
    short = given.model_copy(update={"nodes": {A: given.nodes[A].model_copy(update={"gpu_ids": (0,)})}})
    with pytest.raises(LaunchError, match="pytorch-dev-env set aside 1 GPUs of 2"):
        bind(made, short)


def test_the_jobs_own_strings_may_use_holes() -> None:
    run = Run(
        script="t.py", args=("--name", "run-${JOB_ID}-${ATTEMPT}"), env={"OUT": "${DIRECTORY}/out", "KEEP": "${HOME}"}
    )
    made = plan(make_job(A, run=run), SEED)
    process = bind(made, bindings(made)).plan.nodes[0].processes[0]
    assert process.argv[-1] == "run-gpt-small-1-2"
    assert process.env["OUT"] == "/var/tmp/dtagent-1000/j/0/out"
    assert process.env["KEEP"] == "${HOME}"


def test_a_value_is_not_looked_into_for_further_holes() -> None:
    assert fill("${DIRECTORY}|${ATTEMPT}", {Hole.DIRECTORY: "/x/${ATTEMPT}", Hole.ATTEMPT: "3"}) == "/x/${ATTEMPT}|3"
    assert fill("${PYTHON}", {}) == "${PYTHON}"


def test_odd_directories_leave_generated_files_valid() -> None:
    made = plan(make_job(A, name="out ${DIRECTORY}"), SEED)
    bound = bind(made, bindings(made, directory='/a "b" \\c'))
    assert json.loads(bound.plan.nodes[0].files[0].text)["name"] == 'out /a "b" \\c'


def test_a_bound_plan_survives_its_json() -> None:
    made = plan(make_job(A, B), SEED)
    bound = bind(made, bindings(made))
    assert BoundPlan.model_validate_json(bound.model_dump_json()) == bound
