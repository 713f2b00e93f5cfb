"""The Plan of the seed's example and its variations: ranks, files, commands, and what a host must have."""

from __future__ import annotations

import json

import pytest

from dttui.inventory import Inventory
from dttui.inventory.models import GpuResources, Resources
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from dttui.spec.models import (
    DatasetRef,
    GpuRequest,
    NetworkRequest,
    Node,
    NodeResources,
    ResourceDefaults,
    Run,
    Storage,
    StorageRequest,
)
from tests.unit.seed_cluster import SEED, environment, host_facts, make_job

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"


def node_asking_for(key: str, count: int) -> Node:
    return Node(id=key, resources=NodeResources(gpu=GpuRequest(count=count)))


def test_two_four_and_eight_gpus_make_a_world_of_fourteen() -> None:
    made = plan(make_job(A, B, C), SEED)
    assert made.errors == ()
    assert made.world_size == 14
    assert [(node.name, node.node_rank, node.slots, node.cuda_slots) for node in made.nodes] == [
        (A, 0, 2, 2),
        (B, 1, 4, 4),
        (C, 2, 8, 8),
    ]
    assert [node.ranks for node in made.nodes] == [(0, 1), (2, 3, 4, 5), tuple(range(6, 14))]
    assert made.backend == "nccl"
    assert made.master_address == "192.168.1.10"
    assert made.aggregate.gpu_count == 14
    assert made.aggregate.zones == ("beijing-a", "shenzhen-c", "shanghai-a")


def test_the_master_is_rank_zero_wherever_it_is_listed() -> None:
    made = plan(make_job(A, Node(id=C, role="master"), B), SEED)
    assert [node.name for node in made.nodes] == [C, A, B]
    assert made.nodes[0].ranks == tuple(range(8))
    assert made.master_address == "192.168.3.30"


def test_environments_go_by_id_or_name() -> None:
    assert [node.name for node in plan(make_job("env-001", B), SEED).nodes] == [A, B]


def test_slots_are_what_is_asked_for_else_all_gpus_else_one() -> None:
    inventory = Inventory(environments=(environment("a", 4), environment("b", 4), environment("c")))
    made = plan(make_job(node_asking_for("a", 3), "b", "c"), inventory)
    assert [node.slots for node in made.nodes] == [3, 4, 1]
    assert [node.cuda_slots for node in made.nodes] == [3, 4, 0]
    assert made.world_size == 8


def test_the_jobs_own_default_counts_for_nodes_that_do_not_say() -> None:
    resources = ResourceDefaults(gpu=GpuRequest(count=2))
    made = plan(make_job(A, node_asking_for(B, 4), C, resources=resources), SEED)
    assert [node.slots for node in made.nodes] == [2, 4, 2]


def test_none_asked_for_means_one_process_without_a_gpu() -> None:
    (node,) = plan(make_job(node_asking_for(A, 0)), SEED).nodes
    assert (node.slots, node.cuda_slots) == (1, 0)


def test_facts_win_over_the_inventory_but_not_over_simulated_gpus() -> None:
    simulated = Resources(gpu=GpuResources(count=4, simulated=True))
    inventory = Inventory(environments=(environment("a", 2), environment("b", resources=simulated)))
    made = plan(make_job("a", "b"), inventory, {"a": host_facts(1), "b": host_facts(8)})
    assert [(node.slots, node.cuda_slots, node.simulated) for node in made.nodes] == [(1, 1, False), (4, 0, True)]
    assert [node.gpu_names for node in made.nodes] == [tuple(gpu.name for gpu in host_facts(1).gpus), ()]
    assert made.backend == "gloo"


def test_a_job_of_one_node_reaches_itself_by_loopback() -> None:
    assert plan(make_job(A), SEED).master_address == "127.0.0.1"


def test_the_port_range_is_the_masters() -> None:
    inventory = Inventory(environments=(environment("a", 1), environment("b", 1, port_range="30000-30010")))
    assert plan(make_job("a", Node(id="b", role="master")), inventory).port_range == (30000, 30010)


def test_brackets_of_an_ipv6_address_are_not_passed_on() -> None:
    inventory = Inventory(environments=(environment("a", 1, address="[fd00::1]"), environment("b", 1)))
    made = plan(make_job("a", "b"), inventory)
    assert made.master_address == "fd00::1"
    assert "--master-addr=fd00::1" in made.nodes[0].processes[0].argv
    assert 'init_method: "tcp://[fd00::1]:${MASTER_PORT}"' in made.nodes[0].files[1].text


@pytest.mark.parametrize(
    ("run", "upload", "cwd", "required"),
    [
        (Run(script="train.py"), ".", "${DIRECTORY}/work", ()),
        (Run(script="src/train.py", workdir="code/"), "code", "${DIRECTORY}/work", ()),
        (Run(script="train.py", workdir="../code"), "../code", "${DIRECTORY}/work", ()),
        (Run(script="train.py", workdir="/srv/code/"), None, "/srv/code", ("/srv/code", "/srv/code/train.py")),
        (Run(script="/opt/train.py"), None, "${DIRECTORY}", ("/opt/train.py",)),
        (Run(script="/opt/train.py", workdir="code"), "code", "${DIRECTORY}/work", ("/opt/train.py",)),
        (Run(module="pkg.train"), None, "${DIRECTORY}", ()),
        (Run(module="pkg.train", workdir="."), ".", "${DIRECTORY}/work", ()),
        (Run(module="pkg.train", workdir="/srv"), None, "/srv", ("/srv",)),
    ],
)
def test_what_is_sent_and_what_must_be_there_follows_from_workdir_and_script(
    run: Run, upload: str | None, cwd: str, required: tuple[str, ...]
) -> None:
    made = plan(make_job(A, run=run), SEED)
    assert made.errors == ()
    assert made.upload == upload
    assert made.nodes[0].processes[0].cwd == cwd
    assert made.nodes[0].required_paths == required


def test_datasets_and_declared_storage_must_be_on_every_host() -> None:
    storage = StorageRequest(local=Storage(path="/scratch"), shared=Storage(path="/data/v1"))
    job = make_job(A, B, dataset=DatasetRef(id="imagenet"), resources=ResourceDefaults(storage=storage))
    assert [node.required_paths for node in plan(job, SEED).nodes] == [("/data/v1", "/scratch")] * 2


def test_the_interpreter_is_the_jobs_else_the_environments_else_python3() -> None:
    inventory = Inventory(environments=(environment("a", python="/opt/py"), environment("b")))
    assert [node.python for node in plan(make_job("a", "b"), inventory).nodes] == ["/opt/py", "python3"]
    own = make_job("a", "b", run=Run(script="x.py", python="/my/py"))
    assert [node.python for node in plan(own, inventory).nodes] == ["/my/py", "/my/py"]


def test_the_first_version_of_a_dataset_is_the_default() -> None:
    made = plan(make_job(A, dataset=DatasetRef(id="imagenet")), SEED)
    config = json.loads(made.nodes[0].files[0].text)
    assert config["dataset"] == {"id": "imagenet", "version": "v1", "path": "/data/v1"}


def test_a_path_of_the_jobs_own_needs_no_catalogue() -> None:
    made = plan(make_job(A, dataset=DatasetRef(id="mine", path="/my/data")), SEED)
    assert made.errors == ()
    assert json.loads(made.nodes[0].files[0].text)["dataset"] == {"id": "mine", "version": None, "path": "/my/data"}


def test_an_interface_of_the_jobs_own_takes_the_place_of_the_hole() -> None:
    job = make_job(
        Node(id=A, network=NetworkRequest(interface="ib0")),
        B,
        resources=ResourceDefaults(network=NetworkRequest(interface="eth1")),
    )
    first, second = (node.processes[0].env for node in plan(job, SEED).nodes)
    assert (first["GLOO_SOCKET_IFNAME"], first["NCCL_SOCKET_IFNAME"]) == ("ib0", "=ib0")
    assert (second["GLOO_SOCKET_IFNAME"], second["NCCL_SOCKET_IFNAME"]) == ("eth1", "=eth1")


def test_secrets_are_named_in_the_plan_and_nowhere_else() -> None:
    made = plan(make_job(A, run=Run(script="t.py", secrets=("HF_TOKEN",))), SEED)
    assert made.secrets == ("HF_TOKEN",)
    assert "HF_TOKEN" not in made.nodes[0].model_dump_json()


def test_starting_takes_ten_seconds_on_one_node_and_a_little_more_on_several() -> None:
    one, two, three = (plan(make_job(*keys), SEED).start_estimate_s for keys in ((A,), (A, B), (A, B, C)))
    assert one == 10.0
    assert one < two < three < 12


def test_the_same_job_gives_the_same_plan_and_a_plan_survives_its_json() -> None:
    made = plan(make_job(A, B, C), SEED, {A: host_facts(2)})
    assert plan(make_job(A, B, C), SEED, {A: host_facts(2)}) == made
    assert Plan.model_validate_json(made.model_dump_json()) == made


def test_a_plan_with_errors_is_still_shown_as_far_as_it_goes() -> None:
    made = plan(make_job(A, "nowhere", framework=None, run=None), SEED)
    assert {finding.code for finding in made.errors} == {"unknown-environment", "framework-missing", "run-missing"}
    assert [node.name for node in made.nodes] == [A]
    assert made.nodes[0].processes == ()
    assert made.aggregate.gpu_count == 2
