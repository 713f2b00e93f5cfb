"""TensorFlow's bundle: who stands where in TF_CONFIG, what serves and what ends, what its strategies do not take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dttui.inventory import Inventory
from dttui.inventory.models import GpuResources, Resources
from dttui.planning.models import Bindings, NodeBinding, Plan, Severity
from dttui.planning.planner import bind, plan
from dttui.spec.models import Cluster, Communication, GpuRequest, Node, NodeResources, Run, Strategy
from tests.unit.seed_cluster import SEED, environment, host_facts, make_job

SIMULATED = Resources(gpu=GpuResources(count=4, type="A100", simulated=True))
Tasks = dict[str, list[str]]


def cluster_of(*roles: str, gpus: int | tuple[int, ...] = 2, **fields: Any) -> Plan:
    """A plan for nodes a, b, c… with these roles, and so many GPUs each."""
    names = "abcdefgh"[: len(roles)]
    counts = gpus if isinstance(gpus, tuple) else (gpus,) * len(roles)
    inventory = Inventory(
        environments=tuple(
            environment(name, count, address=f"10.0.0.{index}")
            for index, (name, count) in enumerate(zip(names, counts, strict=True), start=1)
        )
    )
    nodes = tuple(Node.model_validate({"id": name, "role": role}) for name, role in zip(names, roles, strict=True))
    return plan(make_job(cluster=Cluster(nodes=nodes), framework="tensorflow", **fields), inventory)


def bound(made: Plan) -> Plan:
    """The plan with its holes filled: node k has port 2950k."""
    nodes = {
        node.name: NodeBinding(
            directory="/d",
            payload="/p",
            python="/py",
            interface="eth0",
            gpu_ids=tuple(range(node.cuda_slots)),
            port=29500 + node.node_rank,
        )
        for node in made.nodes
    }
    return bind(made, Bindings(job_id="j", attempt=0, master_port=29500, nodes=nodes)).plan


def read_back(made: Plan) -> tuple[Tasks, list[tuple[str, int]]]:
    """Check what every node is told as TensorFlow would rely on it; return the cluster and who is which task."""
    nodes = bound(made).nodes
    told = [json.loads(node.processes[0].env["TF_CONFIG"]) for node in nodes]
    files = {node.node_rank: {file.path: file.text for file in node.files}["tf_config.json"] for node in nodes}
    assert [json.loads(text) for text in files.values()] == told
    clusters = [item["cluster"] for item in told]
    assert all(cluster == clusters[0] for cluster in clusters)
    tasks = [(item["task"]["type"], item["task"]["index"]) for item in told]
    assert sorted(tasks) == sorted((kind, index) for kind in clusters[0] for index in range(len(clusters[0][kind])))
    for node, (kind, index) in zip(made.nodes, tasks, strict=True):
        host, _, port = clusters[0][kind][index].rpartition(":")
        assert host.strip("[]") == (node.address if len(made.nodes) > 1 else "127.0.0.1")
        assert port == str(29500 + node.node_rank)
    return clusters[0], tasks


@pytest.mark.parametrize(
    ("roles", "cluster", "tasks"),
    [
        (("worker",), {"worker": ["127.0.0.1:29500"]}, [("worker", 0)]),
        (
            ("master", "worker", "worker"),
            {"worker": ["10.0.0.1:29500", "10.0.0.2:29501", "10.0.0.3:29502"]},
            [("worker", 0), ("worker", 1), ("worker", 2)],
        ),
        (
            ("worker", "master"),  # The master goes first.
            {"worker": ["10.0.0.2:29500", "10.0.0.1:29501"]},
            [("worker", 0), ("worker", 1)],
        ),
        (
            ("master", "parameter_server", "worker", "parameter_server", "worker"),
            {
                "chief": ["10.0.0.1:29500"],
                "ps": ["10.0.0.2:29501", "10.0.0.4:29503"],
                "worker": ["10.0.0.3:29502", "10.0.0.5:29504"],
            },
            [("chief", 0), ("ps", 0), ("worker", 0), ("ps", 1), ("worker", 1)],
        ),
        (
            ("worker", "worker", "parameter_server"),  # The first is the master where none is named.
            {"chief": ["10.0.0.1:29500"], "worker": ["10.0.0.2:29501"], "ps": ["10.0.0.3:29502"]},
            [("chief", 0), ("worker", 0), ("ps", 0)],
        ),
    ],
)
def test_each_node_finds_the_cluster_and_its_own_task(
    roles: tuple[str, ...], cluster: Tasks, tasks: list[tuple[str, int]]
) -> None:
    made = cluster_of(*roles)
    assert made.errors == ()
    assert read_back(made) == (cluster, tasks)


def test_ipv6_addresses_stand_in_brackets() -> None:
    inventory = Inventory(
        environments=(environment("a", 1, address="fd00::1"), environment("b", 1, address="[fd00::2]"))
    )
    made = plan(make_job("a", "b", framework="tensorflow"), inventory)
    assert read_back(made)[0] == {"worker": ["[fd00::1]:29500", "[fd00::2]:29501"]}
    assert made.nodes[0].processes[0].env["no_grpc_proxy"] == "fd00::1,fd00::2"


def test_one_process_a_node_drives_all_of_its_gpus() -> None:
    run = Run(script="train.py", args=("--steps", "3"), prefix=("numactl", "--localalloc"))
    made = cluster_of("master", "worker", gpus=4, run=run)
    (process,) = bound(made).nodes[1].processes
    assert made.world_size == 2
    assert made.backend == "nccl"
    assert [node.ranks for node in made.nodes] == [(0,), (1,)]
    assert [node.port_range for node in made.nodes] == [(29500, 29999)] * 2
    assert (process.name, process.rank, process.is_service, process.warm_start) == ("1", 1, False, False)
    assert process.argv == ("numactl", "--localalloc", "/py", "/p/rank.py", "train.py", "--steps", "3")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "CUDA_VISIBLE_DEVICES")
    assert [process.env[name] for name in names] == ["1", "2", "0", "1", "1", "0,1,2,3"]
    assert process.env["no_grpc_proxy"] == "10.0.0.1,10.0.0.2"


def test_what_serves_a_chief_is_ended_with_it_and_only_workers_take_gpus() -> None:
    made = cluster_of("master", "worker", "parameter_server", gpus=2)
    chief, worker, server = (node.processes[0] for node in made.nodes)
    assert [item.is_service for item in (chief, worker, server)] == [False, True, True]
    assert [item.rank for item in (chief, worker, server)] == [0, 1, 2]
    devices = [item.env["CUDA_VISIBLE_DEVICES"] for item in (chief, worker, server)]
    assert devices == ["", "${GPU_IDS}", ""]
    (finding,) = (item for item in made.findings if item.code == "idle-gpus")
    assert finding.severity is Severity.WARNING
    assert "a, c stay idle" in finding.message


def test_wrong_options_hide_no_unequal_workers() -> None:
    made = cluster_of("master", "worker", gpus=(2, 4), framework_options={"strategy": "mirrored"})
    assert {item.code for item in made.errors} == {"framework-option", "unequal-slots"}
    assert not any(node.processes for node in made.nodes)


def test_workers_with_unequal_numbers_of_gpus_are_an_error_that_says_how_many_would_do() -> None:
    (finding,) = cluster_of("master", "worker", "worker", gpus=(2, 4, 8)).errors
    assert finding.code == "unequal-slots"
    assert "2 + 4 + 8" in finding.message
    assert finding.hint == "Use 2 on each: resources.gpu.count."
    assert not cluster_of("master", "worker", "parameter_server", gpus=(0, 4, 1)).errors


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        (("parameter_server", "worker", "worker"), "a cannot be both the master and a parameter server"),
        (("master", "parameter_server"), "parameter servers need at least one worker besides the master"),
    ],
)
def test_parameter_servers_need_a_master_and_a_worker_of_their_own(roles: tuple[str, ...], words: str) -> None:
    made = cluster_of(*roles)
    (finding,) = made.errors
    assert finding.code == "parameter-server"
    assert words in finding.message
    assert made.nodes[0].processes == ()


def test_simulated_gpus_of_a_node_are_one_replica_and_it_is_said() -> None:
    inventory = Inventory(environments=(environment("a", resources=SIMULATED), environment("b", resources=SIMULATED)))
    made = plan(make_job("a", "b", framework="tensorflow"), inventory)
    (finding,) = (item for item in made.findings if item.code == "one-replica-a-node")
    assert finding.message == "on the CPU a worker is one replica, not 4: 2 replicas in all"
    assert "CUDA_VISIBLE_DEVICES" not in made.nodes[0].processes[0].env
    assert "one-replica-a-node" not in {item.code for item in cluster_of("master", "worker", gpus=1).findings}


@pytest.mark.parametrize(
    ("protocol", "gpus", "backend", "code"),
    [
        ("NCCL", (2, 2), "nccl", None),
        (None, (2, 2), "nccl", None),
        ("gRPC", (2, 2), "grpc", None),
        ("NCCL", (0, 0), "grpc", "grpc-instead-of-nccl"),
        (None, (1, 0), "grpc", "mixed-devices"),
        ("MPI", (2, 2), "nccl", "mpi"),
    ],
)
def test_tensorflow_talks_by_nccl_among_gpus_and_else_by_grpc(
    protocol: Any, gpus: tuple[int, ...], backend: str, code: str | None
) -> None:
    made = cluster_of("master", "worker", gpus=gpus, communication=Communication(protocol=protocol))
    assert made.backend == backend
    assert not any("GLOO_SOCKET_IFNAME" in node.processes[0].env for node in made.nodes)
    codes = {item.code: item.message for item in made.findings if not item.code.startswith(("axiom", "no-gpu"))}
    assert set(codes) == ({code} if code else set())
    assert not any("gloo" in message or "torch" in message for message in codes.values())


def test_beside_parameter_servers_all_talk_by_grpc_and_servers_without_gpus_slow_nobody() -> None:
    made = cluster_of("master", "worker", "parameter_server", gpus=(0, 2, 0))
    assert made.backend == "grpc"
    assert "grpc-instead-of-nccl" not in {finding.code for finding in made.findings}
    asked = cluster_of("master", "worker", "parameter_server", communication=Communication(protocol="NCCL"))
    assert asked.backend == "grpc"
    (note,) = (finding for finding in asked.findings if finding.code == "grpc-instead-of-nccl")
    assert note.message == "gRPC is used instead of NCCL: parameters and gradients go to the servers and back"
    assert made.findings == ()


def test_a_degree_counts_the_gpus_of_those_who_compute() -> None:
    mirrored = Strategy(data_parallel_size=4)
    assert not cluster_of("master", "worker", gpus=2, strategy=mirrored).errors
    assert not cluster_of("master", "parameter_server", "worker", "worker", gpus=2, strategy=mirrored).errors
    assert [item.code for item in cluster_of("master", "worker", gpus=4, strategy=mirrored).errors] == ["degrees"]
    split = cluster_of("master", "worker", strategy=Strategy(tensor_parallel_size=2))
    assert {item.severity for item in split.findings if item.code == "split-by-script"} == {Severity.WARNING}


def test_commands_warm_starts_and_a_tf_config_of_the_jobs_own_are_refused() -> None:
    def subjects(run: Run) -> list[str]:
        return [finding.subject for finding in cluster_of("master", run=run).errors]

    assert subjects(Run(command=("train",))) == ["run.command"]
    assert subjects(Run(script="t.py", warm_start=True)) == ["run.warm_start"]
    assert subjects(Run(script="t.py", env={"TF_CONFIG": "{}", "TF_CPP_MIN_LOG_LEVEL": "1"})) == ["run.env.TF_CONFIG"]


def test_the_plan_of_the_seeds_nodes_takes_as_many_gpus_as_all_have() -> None:
    nodes = tuple(
        Node(id=name, resources=NodeResources(gpu=GpuRequest(count=2)))
        for name in ("pytorch-dev-env", "llm-training-env", "nlp-research-lab")
    )
    made = plan(make_job(*nodes, framework="tensorflow"), SEED, {"llm-training-env": host_facts(4)})
    assert made.errors == ()
    assert [node.cuda_slots for node in made.nodes] == [2, 2, 2]
    config = json.loads(next(file.text for file in made.nodes[0].files if file.path == "dttui_config.json"))
    assert (config["backend"], config["world_size"], config["resources"]["gpu_count"]) == ("nccl", 3, 6)
